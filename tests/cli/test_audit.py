"""gonogo audit as a user types it, on the committed records and live."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gonogo.cli import cli
from gonogo.errors import GonogoError, InputError
from gonogo.ops import op_names

pytest.importorskip("torch")

RECORDS = Path(__file__).parent.parent.parent / "records"
RUN = RECORDS / "h200-1"


def audit(*words: object) -> list[dict]:
    done = CliRunner().invoke(cli, ["audit", *map(str, words), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert told["schema"] == 1
    return told["audits"]


def test_a_tolerance_that_lets_anything_pass_is_vacuous() -> None:
    for one in audit("--op", "softmax", "--atol", 10, "--rtol", 0, "--records", RUN):
        assert one["vacuous"]
        assert one["probes"]["zeros"]["passed"] == one["probes"]["zeros"]["cases"] > 0
        assert not one["too_tight"]
        assert one["false_positives"] == 0
        assert one["recall_manifest"] < 0.5


def test_torch_testing_is_not_vacuous_and_its_counts_are_the_evaluations() -> None:
    found = audit("--op", "softmax", "--dtype", "float16", "--policy", "torch_testing", "--records", RUN)
    assert found == audit("--op", "softmax", "--dtype", "fp16", "--policy", "torch_testing", "--records", RUN)
    (one,) = found
    assert not one["vacuous"]
    assert not one["too_tight"]
    assert one["counted_in"] == "records"
    words = ["evaluate", str(RUN), "--holdout", "none", "--op", "softmax", "--dtype", "float16", "--json"]
    told = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout)
    (policy,) = (policy for policy in told["policies"] if policy["name"] == "torch_testing")
    for name in ("control_cases", "false_positives", "fp_upper95", "all", "caught_differing", "recall_manifest"):
        assert one[name] == policy[name], name


def test_input_that_is_its_own_relu_is_no_probe() -> None:
    # On all-positive inputs the input is the right answer, on all-negative ones zeros are: neither is held against
    # the tolerance there. A constant 1 is never right.
    probed = {"input": 0, "zeros": 0}
    for dtype in ("float16", "bfloat16", "float32"):
        (one,) = audit("--op", "relu", "--dtype", dtype, "--policy", "kernelbench_v0", "--records", RUN)
        assert one["probes"]["constant"]["cases"] == 24
        for name in probed:
            assert one["probes"][name]["passed"] <= 1  # where all values are tiny
            probed[name] += one["probes"][name]["cases"]
        assert one["probed_cases"] >= one["vacuous_cases"] >= one["probes"]["mean"]["passed"]
        assert one["gonogo_limit"] is not None
    assert 0 < probed["input"] < 72
    assert 0 < probed["zeros"] < 72


def test_too_tight_is_said() -> None:
    (one,) = audit("--op", "relu", "--dtype", "bfloat16", "--atol", 0, "--rtol", 0.0001)
    assert one["elements_below_half_ulp"] == one["elements"] > 0  # of bfloat16: 2⁻⁹ to 2⁻⁸ of a value
    assert one["too_tight"]
    assert one["probes"]["rounded"]["passed"] == one["probes"]["rounded"]["cases"], "relu rounds nothing"
    (one,) = audit("--op", "softmax", "--dtype", "bfloat16", "--atol", 0, "--rtol", 0.0001, "--records", RUN)
    assert one["probes"]["rounded"]["passed"] < one["probes"]["rounded"]["cases"]
    assert one["false_positives"] > 0


def test_kernels_are_run_where_records_cannot_decide() -> None:
    (one,) = audit("--op", "leaky_relu", "--dtype", "float32", "--atol", 1e-2, "--rtol", 1e-2)
    assert one["counted_in"] == "live"
    assert one["control_cases"] > 24
    assert one["false_positives"] == 0
    assert one["all"] > one["differing"] >= one["manifest"] > 0
    assert 0 < one["caught_manifest"] <= one["manifest"]


def test_no_tolerance_on_an_exact_op_catches_every_fault_that_shows() -> None:
    """ReLU rounds nothing: with 0 tolerated, its controls pass and whatever differs in a bit is caught."""
    (one,) = audit("--op", "relu", "--dtype", "float16", "--atol", 0, "--rtol", 0, "--records", RUN)
    assert one["counted_in"] == "records"
    assert one["false_positives"] == 0 < one["control_cases"]
    bins = one["bins"]
    assert list(bins) == ["identical", "sub-rounding", "manifest"]
    assert bins["identical"]["faults"] > 0
    assert bins["identical"]["caught"] == 0
    assert bins["manifest"]["caught"] == bins["manifest"]["faults"] > 0
    assert bins["sub-rounding"]["caught"] == bins["sub-rounding"]["faults"]
    assert sum(found["faults"] for found in bins.values()) == one["all"]
    assert not one["vacuous"]


def test_each_probe_passes_where_it_must() -> None:
    """Softmax lies between 0 and 1: all ones are within 1 of it, zeros too; its input, of size 1 and up, is not."""
    (one,) = audit("--op", "softmax", "--dtype", "float32", "--atol", 1, "--rtol", 0, "--records", RUN)
    probes = one["probes"]
    for name in ("zeros", "constant", "mean"):
        assert probes[name]["passed"] == probes[name]["cases"] > 0, name
    assert probes["input"]["passed"] < probes["input"]["cases"]
    assert one["vacuous_cases"] == one["probed_cases"] > 0
    (one,) = audit("--op", "softmax", "--dtype", "float32", "--atol", 1e-12, "--rtol", 0, "--records", RUN)
    assert all(one["probes"][name]["passed"] == 0 for name in ("zeros", "constant", "mean", "input"))
    assert one["too_tight"]
    assert one["elements_below_half_ulp"] > 0


def test_live_counts_on_an_exact_op() -> None:
    (one,) = audit("--op", "relu", "--dtype", "float32", "--atol", 0, "--rtol", 1e-30)
    assert one["counted_in"] == "live"
    assert one["false_positives"] == 0 < one["control_cases"]
    assert one["bins"]["manifest"]["caught"] == one["bins"]["manifest"]["faults"] > 0
    assert one["bins"]["identical"]["caught"] == 0


def test_all_ops_at_once() -> None:
    found = audit("--dtype", "float16", "--atol", 1e-3, "--rtol", 0, "--records", RUN)
    assert [one["op"] for one in found] == list(op_names())
    assert all(one["gonogo_limit"] and one["control_cases"] for one in found)


def test_policy_that_says_nothing() -> None:
    (one,) = audit("--op", "relu", "--dtype", "float16", "--policy", "liger", "--records", RUN)
    assert one["says_nothing"]
    assert one["control_cases"] == 0


def test_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RECORDS.parent)
    done = CliRunner().invoke(
        cli, ["audit", "--op", "softmax", "--policy", "kernelbench_v0"], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert "Tolerance kernelbench_v0" in done.stdout
    assert "records of cpu-11" in done.stdout
    assert re.search(r"vacuous \d/24", done.stdout)
    assert "…" not in done.stdout, "a column was cut"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no tolerance: give --atol and --rtol"),
        (["--atol", "1"], "no tolerance: give --atol and --rtol"),
        (["--atol", "1", "--rtol", "0", "--policy", "kernelbench"], "not both"),
        (["--policy", "kernelbanch"], "unknown policy 'kernelbanch'. Did you mean kernelbench"),
        (["--atol", "-1", "--rtol", "0"], "atol is -1.0; a tolerance is a finite number >= 0"),
        (["--policy", "kernelbench", "--op", "softmacks"], "unknown op 'softmacks'. Did you mean softmax"),
        (["--policy", "kernelbench", "--dtype", "int8"], "unknown dtype 'int8'"),
        (["--policy", "kernelbench", "--dtype", "float61"], "unknown dtype 'float61'. Did you mean float16"),
        (["--policy", "kernelbench"], "there is no folder records here. Make some with: gonogo run --out DIR"),
        (["--policy", "kernelbench", "--records", "nowhere"], "nowhere is no run directory"),
    ],
)
def test_bad_usage(words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GonogoError) as caught:
        CliRunner().invoke(cli, ["audit", *words], catch_exceptions=False)
    assert isinstance(caught.value, InputError)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_usage_ends_with_2() -> None:
    words = [sys.executable, "-m", "gonogo", "audit", "--policy", "kernelbanch"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("gonogo: unknown policy 'kernelbanch'. Did you mean kernelbench")
    assert len(done.stderr.splitlines()) == 1
