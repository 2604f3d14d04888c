"""What a page holds: counts that are those of `gonogo evaluate`, whatever is filtered, and refusals in a line."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from command import gonogo
from counted_by_sql import RECORDS
from evaluate.made_records import make_row, write_run

from gonogo.evaluate import evaluate, evaluate_by, train_judge
from gonogo.execution.error_map import TILES, map_errors
from gonogo.records import load_columns
from gonogo.report.collect import collect
from gonogo.report.counts import NONE, encode, encode_scores, group_strata
from gonogo.report.page import make_page


def decode(text, rows):
    """As the page's script does it: what was counted of each group, and how many of it were judged."""
    found = re.findall(r"[.#-]|,\d+/\d+,", text)
    assert len(found) == len(rows)
    parts = []
    for word, count in zip(found, rows, strict=True):
        part, judged = (
            map(int, word[1:-1].split("/")) if "/" in word else (count * (word == "#"), count * (word != "-"))
        )
        parts.append((part, judged))
    return np.array(parts)


@pytest.fixture(scope="module")
def data():
    return collect([RECORDS])


def test_groups_add_up_to_what_evaluate_counts(data):
    scores = {score["name"]: score for score in data["evaluation"]["policies"]}
    assert scores == {score.name: score.to_dict() for score in evaluate(load_columns([RECORDS]), "run").scores}
    rows, classes = data["groups"]["rows"], np.array(data["groups"]["class"])
    known = data["classes"]
    bins = {"all": known["identical"], "differing": known["unknown"], "manifest": known["manifest"]}
    assert len(data["methods"]) == len(scores) > 15
    for method in data["methods"]:
        score, flagged = scores[method["name"]], decode(method["flagged"], rows)
        no_go = decode(method["no_go"], rows) if "no_go" in method else flagged
        controls = flagged[classes == known["control"]].sum(0)
        assert tuple(controls) == (score["false_positives"], score["control_cases"])
        for name, least in bins.items():
            here = classes >= least
            assert tuple(flagged[here].sum(0)) == (score[f"caught_{name}"], score[name])
            assert no_go[here].sum(0)[0] == score[f"caught_no_go_{name}"]


def test_too_many_groups_are_merged_and_that_is_told():
    codes = np.arange(300)
    kept = {
        "op": codes % 3,
        "distribution": codes % 10,
        "device": codes % 2,
        "kernel": codes % 30,
        "class": codes % 2,
    }
    once = np.ones(300, np.int64)
    whole = group_strata(kept, once, most=1000)
    assert (len(whole), whole.merged) == (30, ())
    fewer = group_strata({**kept, "distribution": codes}, once, most=100)
    assert fewer.merged == ("distribution",)
    assert fewer.rows.sum() == 300
    left = group_strata({**kept, "class": np.where(codes < 5, -1, 0)}, 2 * once)
    assert left.rows.sum() == 590


def test_scores_take_no_more_room_than_there_is():
    columns = load_columns([RECORDS])
    judge = train_judge(columns, "run")
    scores = list(evaluate_by(columns, judge, ("cell", "class", "distribution")).scores)
    strata, cells = scores[0].strata, judge.gathered.cells
    dimensions = {name: cells.codes[name][strata.codes["cell"]] for name in ("op", "dtype", "kernel")}
    dimensions |= {name: strata.codes[name] for name in ("distribution", "class")}
    rows = scores[2].counts.sum(1)
    whole = None
    for room in (10**9, 300_000, 60_000):
        groups, encoded = encode_scores(dimensions, rows, scores, room)
        assert sum(len(text) for each in encoded for text in each.values()) <= room
        flagged = [decode(each["flagged"], groups.rows.tolist()).sum(0).tolist() for each in encoded]
        whole = whole or flagged
        assert flagged == whole
    assert groups.merged == ("distribution", "kernel")


def test_counts_survive_encoding():
    text = encode([0, 3, 2, 0], [3, 3, 4, 0], [3, 3, 5, 7])
    assert text == NONE + "#,2/4,-"
    assert decode(text, [3, 3, 5, 7]).tolist() == [[0, 3], [3, 3], [2, 4], [0, 0]]


@pytest.mark.parametrize("shape", [(), (5,), (3, 7), (100, 130), (2, 3, 1, 50, 49), (208, 3)])
def test_a_map_of_errors_has_every_element_in_its_tile(shape):
    readings = np.random.default_rng(0).random(int(np.prod(shape)))
    readings[:: max(1, readings.size // 3)] = np.nan
    if readings.size > 1:
        readings[readings.size // 2] = np.inf
    shown = map_errors(readings, shape, None)
    whole = np.where(np.isnan(readings), -1, readings).reshape(shape or (1,))
    assert shown.shape == whole.shape
    assert whole[shown.index].max() == whole.max() == np.max(shown.tiles)
    for axis, along in enumerate(shown.along):
        size, pieces = whole.shape[axis], len(along)
        assert pieces == min(size, TILES)
        for at, value in enumerate(along):
            here = np.arange(size * at // pieces, size * (at + 1) // pieces)  # as the page names them
            assert value == whole.take(here, axis).max()


def test_no_text_ends_the_element_of_the_data():
    page = make_page({"subtitle": "</script><script>alert(1)</script>\u2028"}, "<b>&{{data}}")
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert held is not None
    assert json.loads(held[1])["subtitle"] == "</script><script>alert(1)</script>\u2028"
    assert "<title>&lt;b&gt;&amp;{{data}}</title>" in page


def test_a_page_of_all_records_is_small(tmp_path):
    out = tmp_path / "report.html"
    made = gonogo("report", RECORDS, "--atlas", RECORDS / "atlas/h200", "-o", out)
    assert made.returncode == 0, made.stderr
    assert out.stat().st_size < 3e6
    assert not re.findall('(?:src|href)="(?!data:|#)', out.read_text())


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([make_row("softmax_triton")], None),
        ([make_row("softmax_triton") for _ in range(40)], None),
        ([make_row("softmax_triton_buggy", "faulty")], "there is nothing to calibrate from"),
    ],
    ids=["one record", "only controls", "only faulty kernels"],
)
def test_few_records_give_a_page_or_a_line(rows, told, tmp_path):
    run = write_run(tmp_path / "run", rows)
    made = gonogo("report", run, "-o", tmp_path / "page.html")
    assert "Traceback" not in made.stderr
    if told is None:
        assert made.returncode == 0, made.stderr
        assert (tmp_path / "page.html").stat().st_size > 10_000
    else:
        assert made.returncode == 2
        assert told in made.stderr


def test_what_cannot_be_reported_on_is_told(tmp_path):
    run = write_run(tmp_path / "run", [make_row("softmax_triton")])
    later = shutil.copytree(run, tmp_path / "later")
    described = json.loads((later / "run.json").read_text())
    (later / "run.json").write_text(json.dumps(described | {"schema": 999}))
    (tmp_path / "verdicts.jsonl").write_text("{}\n")
    for words, told in (
        ((), "nothing to report on"),
        ((tmp_path / "nowhere",), "nowhere"),
        ((later,), "has record schema 999"),
        ((run, "-o", tmp_path), "it is a folder"),
        ((run, "-o", "/proc/none/page.html"), "cannot write"),
        ((run, "--lock", tmp_path / "none.lock"), "there is no"),
        ((run, "--holdout", "moon"), "moon"),
        (("--atlas", RECORDS / "atlas" / "cpu", "--holdout", "run"), "are about runs"),
        (("--solutions", tmp_path / "none.jsonl"), "there is no file"),
        (("--solutions", tmp_path / "verdicts.jsonl"), "no verdicts on solutions"),
        (("--atlas", run), "no records of torch's ops"),
    ):
        made = gonogo("report", *words, cwd=tmp_path)
        assert made.returncode == 2, (words, made.stderr)
        assert told in made.stderr, made.stderr
        assert "Traceback" not in made.stderr
