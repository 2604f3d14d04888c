"""Kernels that misbehave in every way: each gets its own outcome, and no other record is touched."""

from __future__ import annotations

import re
from pathlib import Path
from runpy import run_path

import pytest

from gonogo.campaign import Allowance, Plan, resume_campaign, run_campaign
from gonogo.ops import get_op
from gonogo.records import RunDirectory, read_description, read_done, read_run

MORE_OPS = Path(__file__).parent.parent / "more_ops"
CASES = 2


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    plan = Plan(
        ("naughty",), ("float32",), cases=CASES, seed=1, distributions=("uniform",), ops_folders=(str(MORE_OPS),)
    )  # of this seed no input has stride 0, which torch writes nothing to
    folder = tmp_path_factory.mktemp("run")
    progress = run_campaign(plan, folder, allowance=Allowance(timeout_s=3.0, memory_bytes=2**29), workers=2)
    assert progress.rows == progress.total == CASES * len(get_op("naughty").kernels)
    found: dict[str, list[dict]] = {}
    for row in read_run(folder).to_pylist():
        found.setdefault(row["kernel"], []).append(row)
    return found


def faults() -> dict[str, str]:
    """Read while tests are collected, so without adding the folder for all of them."""
    return dict(run_path(str(MORE_OPS / "naughty" / "__init__.py"))["FAULTS"])


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "outcome"), faults().items())
def test_outcome(rows: dict[str, list[dict]], kernel: str, outcome: str) -> None:
    assert [row["outcome"] for row in rows[kernel]] == [outcome] * CASES, rows[kernel][0]["detail"]


@pytest.mark.slow
def test_details_say_what_happened(rows: dict[str, list[dict]]) -> None:
    said = {kernel: found[0]["detail"] for kernel, found in rows.items()}
    assert said["segfaults"] == "killed by SIGSEGV"
    assert re.fullmatch(r"ArithmeticError: two and two are five \(torch.py, line \d+\)", said["raises"])
    assert said["exits_at_once"] == "exit code 0"
    assert said["hangs_in_c"] == "no answer in 3 s"
    assert "GiB resident, 0.5 allowed" in said["eats_memory"]
    assert said["returns_other_dtype"] == "float64, not float32"
    assert said["returns_text"] == "returned str"
    assert said["returns_sparse"] == "returned a tensor of layout sparse_coo"
    assert said["returns_meta"] == "returned a tensor on device meta"
    assert said["writes_into_its_input"] == "x"
    assert said["makes_nan"] == "1 elements"


@pytest.mark.slow
def test_neighbours_are_untouched(rows: dict[str, list[dict]]) -> None:
    """Doubling is exact, before and after all that: inputs, reference and control are what they were."""
    for kernel in ("doubles", "doubles_too", "prints_megabytes", "strides_back_in_numpy"):
        for row in rows[kernel]:
            assert (row["outcome"], row["bound"], row["max_abs"], row["max_ulp"]) == ("ok", 0.0, 0.0, 0)
            assert kernel == "doubles" or (row["bits_equal"], row["signal"]) == (True, 0.0)
    for row in rows["calls_itself_control"]:
        assert row["bits_equal"] is False
        assert row["signal"] >= 1
        assert row["max_ulp"] >= 1


@pytest.fixture(scope="module")
def rough_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rough")
    run_campaign(plan_rough(), folder, allowance=Allowance(timeout_s=20.0), workers=2)
    return folder


def plan_rough() -> Plan:
    return Plan(
        ("rough",), ("float16", "float32"), cases=2, distributions=("uniform",), ops_folders=(str(MORE_OPS),)
    )


def check_rough(rows: list[dict]) -> None:
    assert len(rows) == 2 * 6 + 2 * 5
    for row in rows:
        if row["kernel"] == "rough_torch":
            assert (row["outcome"], row["detail"]) == ("crashed", "killed by SIGABRT")
            continue
        assert (row["outcome"], row["max_abs"]) == ("ok", 0.0), (row["kernel"], row["detail"])
        half = row["kernel"] == "rough_after_half" and row["dtype"] == "float16"
        against = None if row["kernel"] == "rough_plain" else "rough_half" if half else "rough_plain"
        assert (row["kernel"], row["compared_with"]) == (row["kernel"], against)


def test_control_that_crashes_harms_no_other(rough_folder: Path) -> None:
    """Not as the twin of the kernel before it, nor as the control of those behind it."""
    check_rough(read_run(rough_folder).to_pylist())


def test_control_that_crashed_is_not_run_again_after_resume(rough_folder: Path, tmp_path: Path) -> None:
    begun = [row for row in read_run(rough_folder).to_pylist() if row["kernel"] in ("rough_plain", "rough_torch")]
    directory = RunDirectory(tmp_path, read_description(rough_folder))
    directory.append_rows(begun)
    directory.close()
    assert {job.gave_nothing for job in plan_rough().jobs(read_done(tmp_path))} == {("rough_torch",)}
    resume_campaign(tmp_path, workers=2, ops_folders=[str(MORE_OPS)])
    check_rough(read_run(tmp_path).to_pylist())
