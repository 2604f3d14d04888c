"""Scores against counts worked out by hand, and folds that must not leak."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made_records import make_row, write_run
from make_record import make_record

from gonogo.audit.counts import count_judged
from gonogo.audit.finding import HIDDEN, ROUNDED, Audit, Probe
from gonogo.errors import InputError
from gonogo.evaluate import evaluate
from gonogo.evaluate.folds import Fold
from gonogo.evaluate.paper_tables import make_headline, make_tightening
from gonogo.evaluate.readings import Kind, gather
from gonogo.evaluate.score import Method, calibrate, default_methods, score_methods
from gonogo.limits.rules import rule
from gonogo.records import load_columns
from gonogo.records.columns import EVERYTHING
from gonogo.schema import policy_column
from gonogo.verdict.judge import NO_GO

COUNTED = ("kernel", "role", "distribution", "outcome", "absolute", "signal", "bits_equal")
"""What an audit counts by."""

# The paper's rule on 20 passing controls: errors 0.001 … 0.020, sorted; index round(0.95 · 19) = 18 holds 0.019;
# times 1.5 is 0.0285. A 21st control fails the hand-picked 0.05 and so is kept out of the calibration.
ERRORS = [0.001 * i for i in range(1, 21)]
PAPER_LIMIT = 0.019 * 1.5


def paper_example() -> list[dict]:
    controls = [make_row("softmax_triton", max_abs=error, current_atol=0.05) for error in ERRORS]
    controls.append(make_row("softmax_triton", max_abs=0.9, current_atol=0.05))
    faulty = [
        make_row("softmax_triton_buggy", "faulty", max_abs=error, current_atol=0.05, bound=bound)
        for error, bound in ((0.028, 0.1), (0.029, 0.1), (0.04, 9.0), (0.06, 9.0))
    ]
    return controls + faulty


def scores_of(folder: Path, holdout: str = "none") -> dict[str, dict]:
    return {s["name"]: s for s in evaluate(load_columns([folder]), holdout).to_dict()["policies"]}


def test_the_papers_protocol_number_by_number(tmp_path: Path) -> None:
    rows = load_columns([write_run(tmp_path / "run", paper_example())])
    limit = calibrate(rows, default_methods()[1])[0]
    assert (limit.kernel, limit.dtype, limit.cases, limit.exceeding) == ("softmax_triton", "float16", 20, 0)
    assert limit.value == pytest.approx(PAPER_LIMIT, rel=1e-6)
    found = scores_of(tmp_path / "run")
    # 0.029, 0.04 and 0.06 exceed 0.0285; of the controls only the one with 0.9 does.
    assert (found["paper"]["caught_all"], found["paper"]["all"]) == (3, 4)
    assert (found["paper"]["false_positives"], found["paper"]["control_cases"]) == (1, 21)
    # The hand-picked 0.05 catches 0.06 alone, and the same control fails it.
    assert (found["current"]["caught_all"], found["current"]["false_positives"]) == (1, 1)
    # Ours: max(2, 3 · 0.5) = 2 from bound readings of 0.5; 9 and 9 are above, the error of 0.9 is not looked at.
    assert (found["gonogo"]["caught_all"], found["gonogo"]["false_positives"]) == (2, 0)
    assert found["gonogo"]["fp_upper95"] == pytest.approx(1 - 0.05 ** (1 / 21))
    headline = make_headline(rows)
    assert [str(cell) for cell in headline.rows[0][1:4]] == ["25.0 % (1/4)", "75.0 % (3/4)", "50.0 % (2/4)"]
    cell = make_tightening(rows).rows[0]
    assert (cell[0], cell[1], cell[2]) == ("softmax_triton", "float16", 20)


def test_planted_faults_land_in_their_bins(tmp_path: Path) -> None:
    faulty = [
        make_row("softmax_triton_buggy", "faulty", bits_equal=True, signal=0.0),
        make_row("softmax_triton_buggy", "faulty", signal=1.9, bound=50.0),
        make_row("softmax_triton_buggy", "faulty", signal=2.0, bound=50.0),
        make_row("softmax_triton_buggy", "faulty", signal=80.0, bound=1.0),
        make_row("softmax_triton_buggy", "faulty", outcome="unwritten", signal=None, bound=None),
        make_row("softmax_triton_buggy", "faulty", outcome="crashed", bits_equal=None, signal=None, bound=None),
        make_row("softmax_triton_buggy", "faulty", outcome="refused", bits_equal=None, signal=None, bound=None),
        make_row("softmax_triton_buggy", "faulty", distribution="adversarial", bound=50.0),
    ]
    found = scores_of(write_run(tmp_path / "run", [make_row("softmax_triton"), *faulty]))["gonogo"]
    assert (found["all"], found["differing"], found["manifest"]) == (6, 5, 4)
    assert (found["caught_all"], found["caught_differing"], found["caught_manifest"]) == (4, 4, 3)
    low, high = found["recall_manifest_interval"]
    assert low < 0.75 < high


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    rows = [
        make_row("softmax_triton"),
        make_row("softmax_triton", outcome="raised", bound=None, max_abs=None),
        make_row("softmax_triton", max_abs=np.inf, bound=0.0),
        make_row("softmax_triton", distribution="nan_injected"),
        make_row("softmax_triton_buggy", "faulty", bits_equal=None, signal=None),
    ]
    evaluation = evaluate(load_columns([write_run(tmp_path / "run", rows)]), "none")
    assert evaluation.left_out == {
        "with NaN or infinite inputs": 1,
        "past the format's largest value": 1,
        "controls with outcome raised": 1,
        "faulty without a control to compare with": 1,
    }
    assert evaluation.scores[0].control_cases == 1


def test_faulty_rows_never_calibrate(tmp_path: Path) -> None:
    rows = [make_row("softmax_triton"), make_row("softmax_triton_buggy", "faulty", bound=1e6, max_abs=1e3)]
    found = load_columns([write_run(tmp_path / "run", rows)])
    for method in default_methods():
        assert [(limit.cases, limit.value < 10) for limit in calibrate(found, method)] == [(1, True)]


def test_holding_out_a_run_uses_the_others_alone(tmp_path: Path) -> None:
    """Run b reads 30, ten times what run a's limit of 3 allows: seen held out, hidden in-sample."""
    write_run(tmp_path / "a", [make_row("softmax_triton", bound=1.0) for _ in range(5)])
    write_run(tmp_path / "b", [make_row("softmax_triton", bound=30.0, deterministic=15.0) for _ in range(5)])
    assert scores_of(tmp_path, "none")["gonogo"]["false_positives"] == 0
    held = scores_of(tmp_path, "run")["gonogo"]
    assert (held["false_positives"], held["control_cases"], held["suspects"]) == (5, 10, 0)


def test_suspects_are_counted(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [make_row("softmax_triton", bound=0.1) for _ in range(5)])
    write_run(tmp_path / "b", [make_row("softmax_triton", bound=2.1, deterministic=0.9)])
    held = scores_of(tmp_path, "run")["gonogo"]
    assert (held["false_positives"], held["suspects"]) == (1, 1)


def test_faults_that_are_only_suspect_are_told(tmp_path: Path) -> None:
    """Of five faulty cases, one is no-go and one suspect among the manifest, one suspect below, two not caught."""
    given = ((9.0, 2.0, 50.0), (2.1, 0.9, 50.0), (2.1, 0.9, 1.0), (1.0, 0.5, 50.0), (1.0, 0.5, 1.0))
    faulty = [
        make_row("softmax_triton_buggy", "faulty", bound=bound, deterministic=deterministic, signal=signal)
        for bound, deterministic, signal in given
    ]
    evaluation = evaluate(
        load_columns([write_run(tmp_path / "run", [make_row("softmax_triton"), *faulty])]), "none"
    )
    found = {score.name: score.to_dict() for score in evaluation.scores}
    counted = ("manifest", "caught_manifest", "caught_no_go_manifest", "suspect_manifest")
    assert [found["gonogo"][name] for name in counted] == [3, 2, 1, 1]
    assert (found["gonogo"]["caught_differing"], found["gonogo"]["caught_no_go_differing"]) == (3, 1)
    assert found["gonogo"]["recall_no_go_manifest"] == pytest.approx(1 / 3)
    assert all(score["suspect_manifest"] == 0 for name, score in found.items() if name != "gonogo")
    line = dict(zip(evaluation.to_table().columns, evaluation.to_table().rows[0], strict=True))
    shown = [str(line[name]) for name in ("method", "manifest flagged", "manifest no-go")]
    assert shown == ["gonogo", "66.67 %", "33.33 %"]
    note = evaluation.to_table().note
    assert "Of 2 manifest cases that gonogo flags, 1 (50.0 %) are suspect only: verify and gonogo check run" in note


def test_long_sums_are_counted_apart(tmp_path: Path) -> None:
    """Of sums of 63 and 64 terms one fault each is no-go, of 299 one is suspect, of 1,100 one is not flagged."""
    planted = ((63, 9.0), (64, 9.0), (299, 2.1), (300, 9.0), (1_099, 9.0), (1_100, 1.0), (70_000, 9.0))
    rows = [
        make_row("softmax_triton_buggy", "faulty", reduced_length=length, bound=bound, deterministic=0.9)
        for length, bound in planted
    ]
    rows += [make_row("softmax_triton", reduced_length=length, bound=0.5) for length in (1, 299, 5_000)]
    rows.append(make_row("softmax_triton", reduced_length=300, outcome="unwritten", bound=None))
    evaluation = evaluate(load_columns([write_run(tmp_path / "run", rows)]), "none")
    table = evaluation.to_tables()[1]
    assert table.title == "By length of sums, in-sample"
    assert [tuple(map(str, row[:4])) for row in table.rows] == [
        ("< 64", "0.000 % (0/1)", "100.00 % (1/1)", "100.00 % (1/1)"),
        ("64 to 299", "0.000 % (0/1)", "100.00 % (2/2)", "50.00 % (1/2)"),
        ("300 to 1,099", "100.000 % (1/1)", "100.00 % (2/2)", "100.00 % (2/2)"),
        ("1,100 or more", "0.000 % (0/1)", "50.00 % (1/2)", "50.00 % (1/2)"),
    ]
    ours = [count for count in evaluation.to_dict()["by_length"] if count["method"] == "gonogo"]
    assert ours[1] == {
        "method": "gonogo", "terms": "64 to 299", "control_cases": 1, "false_positives": 0, "manifest": 2,
        "caught_manifest": 2, "caught_no_go_manifest": 1,
    }  # fmt: skip
    without = evaluate(load_columns([tmp_path / "run"], wanted=set(EVERYTHING) - {"reduced_length"}), "none")
    assert len(without.to_tables()) == 1


def test_live_rows_are_counted_as_records_are(tmp_path: Path) -> None:
    rows = [
        make_row("softmax_triton"),
        make_row("softmax_triton", outcome="non-finite"),
        make_row("softmax_triton", outcome="raised", absolute=None),
        make_row("softmax_triton", max_abs=np.inf),
        make_row("softmax_triton_buggy", "faulty", bits_equal=True, signal=0.0),
        make_row("softmax_triton_buggy", "faulty", signal=1.9),
        make_row("softmax_triton_buggy", "faulty", signal=2.0),
        make_row("softmax_triton_buggy", "faulty", outcome="refused", bits_equal=None, signal=None),
        make_row("softmax_triton_buggy", "faulty", outcome="crashed", bits_equal=None, signal=None),
        make_row("softmax_triton_buggy", "faulty", bits_equal=None, signal=None),
        make_row("softmax_triton_buggy", "faulty", max_abs=np.inf),
    ]
    for row in rows:
        row[policy_column("kernelbench")] = 2.0
    audit = Audit("softmax", "float16", "kernelbench", {ROUNDED: Probe(ROUNDED)})
    count_judged(audit, [(make_record(**{name: row[name] for name in COUNTED}), NO_GO) for row in rows])
    live, recorded = audit.score.to_dict(), scores_of(write_run(tmp_path / "run", rows))["kernelbench"]
    assert (live["control_cases"], live["all"], live["differing"], live["manifest"]) == (2, 4, 3, 2)
    assert live["caught_all"] == 4
    assert {name: recorded[name] for name in live} | {name: live[name] for name in HIDDEN} == live
    assert not any("no_go" in name for name in audit.to_dict())


def test_implementation_distribution_shape_and_device(tmp_path: Path) -> None:
    rows = [make_row(kernel, bound=bound, distribution=distribution, count=size)
            for kernel, bound in (("softmax_triton", 0.1), ("softmax_torch", 9.0))
            for distribution in ("uniform", "offset") for size in (8, 8000)]  # fmt: skip
    write_run(tmp_path / "a", rows)
    write_run(tmp_path / "b", [make_row("softmax_triton", bound=0.1)], gpu=None)
    # Without softmax_torch the limit is 2, and its four rows read 9; without the other it is 27.
    held = scores_of(tmp_path, "implementation")["gonogo"]
    assert (held["false_positives"], held["control_cases"]) == (4, 9)
    assert scores_of(tmp_path, "distribution")["gonogo"]["false_positives"] == 0
    assert scores_of(tmp_path, "shape")["gonogo"]["control_cases"] == 4
    # From the host alone the limit is 2.
    assert scores_of(tmp_path, "device")["gonogo"]["false_positives"] == 4


def test_a_fold_that_leaks_is_caught(tmp_path: Path) -> None:
    rows = load_columns([write_run(tmp_path / "run", [make_row("softmax_triton")])])
    everything = np.ones(1, bool)
    with pytest.raises(InputError, match="fold leaky: rows that are judged were calibrated on"):
        Fold("leaky", everything, everything)
    for holdout in ("implementation", "distribution", "shape"):
        folds = gather(rows, {Kind("bound"): False}, holdout).folds
        assert folds
        assert all(not (fold.calibrate & fold.judge).any() for fold in folds)


def test_too_few_cases_are_not_judged(tmp_path: Path) -> None:
    rows = load_columns([write_run(tmp_path / "run", [make_row("softmax_triton") for _ in range(20)])])
    score = score_methods(rows, "none", [Method("wilks", "bound", rule("wilks"))])[0]
    assert (score.control_cases, score.unjudged) == (0, 20)


def test_contract_of_its_own(tmp_path: Path) -> None:
    """A faulty kernel that promises float32 is held to float32's limit, though its control computes in half."""
    rows = [
        make_row("softmax_triton", contract="float16", bound=50.0),
        make_row("softmax_torch", contract="float32", bound=0.5),
        make_row("softmax_triton_buggy", "faulty", contract="float32", bound=20.0),
        make_row(
            "softmax_no_shift", "faulty", contract="float32+tf32", bound=20.0
        ),  # no control: its own one's limit
    ]
    found = scores_of(write_run(tmp_path / "run", rows))["gonogo"]
    assert (found["caught_all"], found["all"]) == (1, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: write_run(folder / "run", []), "no records in"),
        (
            lambda folder: write_run(folder / "run", [make_row("softmax_triton_buggy", "faulty")]),
            "no sound control",
        ),
        (lambda folder: folder, "is no run directory"),
    ],
    ids=["empty run", "only faulty kernels", "no run"],
)
def test_nothing_to_evaluate(make, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(load_columns([make(tmp_path)]), "none")


def test_one_record_and_one_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [make_row("softmax_triton")])
    assert scores_of(folder)["gonogo"]["control_cases"] == 1
    with pytest.raises(InputError, match="hold-out run needs two runs or more"):
        evaluate(load_columns([folder]), "run")
    with pytest.raises(InputError, match="unknown hold-out 'luck'; known: none, run, implementation"):
        evaluate(load_columns([folder]), "luck")


def test_broken_parts(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [make_row("softmax_triton")])
    (written,) = folder.glob("part-*.parquet")
    part = written.rename(folder / "part-00000.parquet")  # as they were called before names had a checksum
    described = json.loads((folder / "run.json").read_text())
    del described["parts"]
    (folder / "run.json").write_text(json.dumps(described))
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"part-00000\.parquet is damaged: Parquet magic bytes not found"):
        load_columns([folder])
    part.write_bytes(whole)
    pq.write_table(pq.read_table(part).replace_schema_metadata({"gonogo_schema": "99"}), part)
    with pytest.raises(InputError, match="has record schema 99, this gonogo reads 1"):
        load_columns([folder])
