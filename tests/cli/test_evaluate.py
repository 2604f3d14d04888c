"""gonogo calibrate, evaluate and reproduce as a user types them, on the committed records."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gonogo.cli import cli
from gonogo.errors import InputError
from gonogo.limits.lock import read_lock
from gonogo.policies import load_policies
from gonogo.records import RunDirectory, read_description, read_run

RECORDS = Path(__file__).parent.parent.parent / "records"
GPU_RUNS = [str(folder) for folder in sorted(RECORDS.glob("h200-*"))]


def gonogo(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def held_out() -> dict[str, dict]:
    told = {}
    for holdout in ("run", "implementation", "distribution", "shape", "op"):
        told[holdout] = json.loads(gonogo("evaluate", *GPU_RUNS, "--holdout", holdout, "--json").stdout)
    return told


def test_shape_of_the_json(held_out: dict[str, dict]) -> None:
    told = held_out["run"]
    assert (told["schema"], told["holdout"], told["in_sample"]) == (2, "run", False)
    names = {policy["name"] for policy in told["policies"]}
    assert {"gonogo", "paper", "current", *(policy.name for policy in load_policies())} <= names
    needed = {
        "name", "gauge", "rule", "false_positives", "control_cases", "fp_rate", "fp_upper95", "all", "recall_all",
        "differing", "recall_differing", "manifest", "recall_manifest",
    }  # fmt: skip
    assert all(needed <= set(policy) for policy in told["policies"])


def test_the_figures_that_must_hold(held_out: dict[str, dict]) -> None:
    """On the committed H200 records: what the README promises."""
    ours = {
        holdout: next(p for p in told["policies"] if p["name"] == "gonogo") for holdout, told in held_out.items()
    }
    assert ours["run"]["fp_upper95"] <= 0.002
    for holdout in ("implementation", "distribution", "shape", "op"):
        assert ours[holdout]["fp_rate"] <= 0.005
    assert ours["op"]["recall_manifest"] >= 0.95
    assert ours["run"]["recall_manifest"] >= 0.99
    for policy in held_out["run"]["policies"]:
        judges_most = policy["unjudged"] < policy["control_cases"] + policy["all"]
        if policy["name"] not in ("gonogo", "analytic") and judges_most and policy["fp_rate"] <= 0.01:
            assert policy["recall_differing"] + 0.10 <= ours["run"]["recall_differing"], policy["name"]


def test_calibrate_and_diff(tmp_path: Path) -> None:
    lock = tmp_path / "gonogo.lock"
    made = gonogo("calibrate", *GPU_RUNS, "-o", lock)
    assert made.exit_code == 0
    limits, provenance = read_lock(lock)
    assert provenance["devices"] == "NVIDIA H200"
    softmax = next(limit for limit in limits if limit.op == "softmax")
    assert (softmax.gauge, softmax.rule, softmax.dtype) == ("bound", "pooled", None)
    assert softmax.cases >= 2000
    assert softmax.exceeding == 0
    assert softmax.fp_upper95 <= 0.0013
    again = tmp_path / "again.lock"
    gonogo("calibrate", *GPU_RUNS, "-o", again)
    assert again.read_bytes() == lock.read_bytes()
    looser = json.loads(gonogo("calibrate", *GPU_RUNS, "-p", "margin=9", "--diff", lock, "--json").stdout)
    assert looser["counts"] == {"new": 0, "tightened": 0, "loosened": len(looser["changes"]), "fewer": 0, "gone": 0}
    assert {change["change"] for change in looser["changes"]} == {"loosened"}


def test_filters_sweep_drift_and_tables() -> None:
    told = json.loads(gonogo("evaluate", *GPU_RUNS, "--op", "softmax", "--dtype", "float16", "--json").stdout)
    assert told["records"] < 10_000
    assert told == json.loads(gonogo("evaluate", *GPU_RUNS, "--op", "softmax", "--dtype", "half", "--json").stdout)
    (nothing,) = (policy for policy in told["policies"] if policy["name"] == "v_abft")
    assert (nothing["control_cases"], nothing["fp_rate"], nothing["fp_upper95"]) == (0, None, None)
    shown = gonogo("evaluate", *GPU_RUNS, "--op", "softmax", "--dtype", "float16").stdout.splitlines()
    (line,) = (line for line in shown if " v_abft " in line)
    assert [cell.strip() for cell in line.split("│")[3:9]] == ["0/0", "–", "–", "–", "–", "–"]
    text = gonogo("evaluate", *GPU_RUNS, "--op", "relu", "--sweep", "--tables").stdout
    for title in (
        "Headline",
        "Tightening per control",
        "Recall per faulty kernel",
        "Recall over the signal",
        "Sweep",
    ):
        assert title in text
    assert "…\n" not in text
    tables = json.loads(gonogo("evaluate", *GPU_RUNS, "--op", "relu", "--tables", "--json").stdout)["tables"]
    first = tables["Recall over the signal"][0]
    assert first["cases"] <= 20, "relu rounds nothing: no fault hides in rounding, but for the sign of a zero"
    assert first["gonogo"]["part"] == 0
    share = tables["Headline"][2]["gonogo"]
    assert share["rate"] == share["part"] / share["whole"]
    both = json.loads(gonogo("evaluate", *GPU_RUNS, "--op", "softmax,relu", "--json").stdout)["records"]
    assert both == told_records("softmax") + told_records("relu")
    drift = gonogo("evaluate", "--drift", RECORDS / "cpu-11", RECORDS / "h200-1").stdout
    assert "softmax float32" in drift
    assert "holds" in drift


def told_records(op: str) -> int:
    return json.loads(gonogo("evaluate", *GPU_RUNS, "--op", op, "--json").stdout)["records"]


def test_drift_has_an_exit_code(tmp_path: Path) -> None:
    """Readings of one control, ten times what they were: the limit from before does not hold."""
    before, after = RECORDS / "cpu-11", RunDirectory(tmp_path / "after", read_description(RECORDS / "cpu-11"))
    rows = [row for row in read_run(before).to_pylist() if row["op"] in ("softmax", "relu")]
    for row in rows:
        if row["op"] == "softmax" and row["bound"] is not None:
            row["bound"] *= 10
    after.append_rows(rows)
    after.close()
    words = ["evaluate", "--drift", before, tmp_path / "after"]
    assert gonogo(*words).exit_code == 0
    done = gonogo(*words, "--fail-on", "drift")
    assert done.exit_code == 1
    assert "1 of 2 limits do not hold\nonly BEFORE has " in done.stdout
    told = json.loads(gonogo(*words, "--fail-on", "drift", "--json").stdout)
    assert (told["schema"], told["not_holding"], told["groups"]) == (2, 1, 2)
    assert {tuple(drift["group"]): drift["holds"] for drift in told["drift"]} == {
        ("relu", "float32"): True, ("softmax", "float32"): False,
    }  # fmt: skip
    assert "matmul" in told["only_before"]
    assert told["only_after"] == []
    assert gonogo("evaluate", "--drift", before, before, "--fail-on", "drift").exit_code == 0
    with pytest.raises(
        InputError, match=r"--drift takes two sets of runs, BEFORE and AFTER; after \S+ comes --fail"
    ):
        gonogo("evaluate", "--drift", before, "--fail-on", "drift")
    softmax = RunDirectory(tmp_path / "softmax", read_description(RECORDS / "cpu-11"))
    softmax.append_rows([row for row in rows if row["op"] == "softmax"])
    softmax.close()
    relu = RunDirectory(tmp_path / "relu", read_description(RECORDS / "cpu-11"))
    relu.append_rows([row for row in rows if row["op"] == "relu"])
    relu.close()
    with pytest.raises(InputError, match="no op and contract with readings of controls in common"):
        gonogo("evaluate", "--drift", tmp_path / "softmax", tmp_path / "relu", "--fail-on", "drift")


def test_controls_of_an_op_of_ones_own_have_no_tolerance(tmp_path: Path) -> None:
    """Table 2 is of the published kernels: others have no cell in it."""
    run = RunDirectory(tmp_path / "run", read_description(RECORDS / "cpu-11"))
    rows = [row for row in read_run(RECORDS / "cpu-11").to_pylist() if row["op"] == "relu"]
    run.append_rows([row | {"op": "mine", "kernel": f"mine_{row['kernel']}"} for row in rows])
    run.close()
    assert gonogo("evaluate", tmp_path / "run", "--holdout", "none", "--tables").exit_code == 0


def test_csv_is_one_table() -> None:
    lines = gonogo("evaluate", RECORDS / "cpu-11", "--holdout", "none", "--csv").stdout.splitlines()
    assert len({len(line) for line in csv.reader(lines)}) == 1


@pytest.mark.slow
def test_reproduce_from_records(tmp_path: Path) -> None:
    made = gonogo("reproduce", *(word for run in GPU_RUNS[:2] for word in ("--records", run)), "--out", tmp_path)
    assert made.exit_code == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {"results.md", "gonogo.lock", "figure1.svg", "figure1.png", "recall-per-faulty-kernel.csv"} <= names
    text = (tmp_path / "results.md").read_text()
    assert "82.4 % (2,034/2,467)" in text, "the published figure stands beside ours"
    assert "in-sample" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["calibrate", "NOWHERE"], "is no run directory"),
        (
            ["calibrate", "RECORDS", "--gauge", "feet"],
            "unknown gauge 'feet'; known: absolute, magnitude",
        ),
        (["calibrate", "RECORDS", "--rule", "thumb"], "unknown rule 'thumb'; known: analytic"),
        (["calibrate", "RECORDS", "-p", "margin"], "parameter 'margin' is not of the form name=number"),
        (["calibrate", "RECORDS", "--ops", "no_such"], "no record has op 'no_such'; there are: add_rmsnorm"),
        (["calibrate", "RECORDS", "--diff", "NEWER"], "has lock format 9"),
        (["evaluate"], "no runs given. Example: gonogo evaluate records"),
        (["evaluate", "RECORDS", "--holdout", "luck"], "unknown hold-out 'luck'"),
        (["evaluate", "RECORDS", "--op", "no_such"], "no record has op 'no_such'; there are: "),
    ],
)
def test_bad_usage(words: list[str], message: str, tmp_path: Path) -> None:
    newer = tmp_path / "newer.lock"
    newer.write_text("format = 9\n")
    places = {"RECORDS": str(RECORDS / "cpu-11"), "NOWHERE": str(tmp_path / "nowhere"), "NEWER": str(newer)}
    with pytest.raises(InputError) as caught:
        gonogo(*(places.get(word, word) for word in words))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
