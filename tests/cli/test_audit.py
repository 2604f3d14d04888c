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


@pytest.mark.slow
def test_kernels_are_run_on_request_and_where_there_are_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--op", "leaky_relu", "--dtype", "float32", "--policy", "kernelbench_v0")
    (one,) = audit(*words, "--live")
    monkeypatch.chdir(tmp_path)
    assert audit(*words) == [one]
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
    (one,) = audit("--op", "relu", "--dtype", "float32", "--atol", 0, "--rtol", 1e-30, "--live")
    assert one["counted_in"] == "live"
    assert one["false_positives"] == 0 < one["control_cases"]
    assert one["bins"]["manifest"]["caught"] == one["bins"]["manifest"]["faults"] > 0
    assert one["bins"]["identical"]["caught"] == 0


@pytest.mark.slow
def test_all_ops_at_once() -> None:
    found = audit("--dtype", "float16", "--atol", 1e-3, "--rtol", 0, "--records", RUN)
    assert [one["op"] for one in found] == list(op_names())
    assert all(one["gonogo_limit"] and one["control_cases"] for one in found)


def test_the_finding_is_the_same_whichever_way_it_is_asked() -> None:
    numbers = ("--dtype", "float16", "--atol", 1e-2, "--rtol", 1e-2, "--records", RUN, "--cases", 6)
    policy = ("--dtype", "float16", "--policy", "kernelbench_v0", "--records", RUN, "--cases", 6)
    (alone,) = audit("--op", "l2norm", *numbers)
    two = audit("--op", "l2norm", "--op", "relu", *numbers)
    assert two == audit("--op", "l2norm,relu", *numbers)
    assert two[0] == alone
    (by_name,) = audit("--op", "l2norm", *policy)
    assert by_name | {"tolerance": ""} == alone | {"tolerance": ""}
    assert audit("--op", "l2norm", "--op", "relu", *policy)[0] == by_name


def test_a_policy_that_allows_nothing_flags_any_error(tmp_path: Path) -> None:
    """0 elements, or 0 times the error of an exact twin: no division, and relu's controls are exact."""
    file = tmp_path / "mine.toml"
    file.write_text(
        "[a]\nrule = 'share'\nall = {atol = 0, rtol = 0, allowed_share = 0}\n"
        "[b]\nrule = 'twin_max'\nall = {factor = 1, floor = 0}\n"
    )
    for name in "ab":
        words = ("--op", "relu", "--dtype", "float32", "--policy", f"{file}:{name}", "--live", "--cases", 6)
        (one,) = audit(*words)
        assert one["false_positives"] == 0 < one["control_cases"]
        assert one["caught_manifest"] == one["manifest"] > 0


MINE = """
[strict]
all = { atol = 1e-4 }
l2norm = { float16 = { atol = 1e-2, rtol = 1e-2 } }

[vendor]
rule = "either"
float16 = { atol = 1e-2, rtol = 1e-2 }
"""


def test_a_policy_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    words = ("--op", "l2norm", "--dtype", "float16", "--records", RUN, "--cases", 6)
    (mine,) = audit(*words, "--policy", f"{file}:strict")
    (theirs,) = audit(*words, "--policy", "backendbench")
    assert mine["counted_in"] == "records"
    assert mine | {"tolerance": ""} == theirs | {"tolerance": ""}, "an op's own numbers go before those for all"
    (mine,) = audit(*words, "--policy", f"{file}:vendor")
    (theirs,) = audit(*words, "--policy", "flashinfer_bench")
    assert mine | {"tolerance": ""} == theirs | {"tolerance": ""}
    (single,) = audit("--op", "relu", "--dtype", "float32", "--records", RUN, "--policy", f"{file}:strict")
    assert single == audit("--op", "relu", "--dtype", "float32", "--records", RUN, "--atol", 1e-4)[0] | {
        "tolerance": "strict"
    }


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "", "has no policy: write one as a table"),
        (MINE, "", "has 2 policies: strict, vendor. Name one: "),
        (MINE, ":strikt", "has no policy 'strikt'. Did you mean strict? It has: strict, vendor"),
        ("a = 1", "", "'a' is no table"),
        ("[a", "", "is not TOML: "),
        ("[a]", "", "policy a has no numbers: give them by dtype"),
        ("[a]\nrule = ['allclose']\nall = {atol = 1}", "", "rule ['allclose'] is none of allclose, either"),
        ("[a]\nsource = 3\nall = {atol = 1}", "", "source is 3, not a text"),
        ("[a.sofmax]\nall = {atol = 1}", "", "'sofmax' is neither a dtype nor an op. Did you mean softmax"),
        ("[a]\nrule = 'some'\nall = {atol = 1}", "", "rule 'some' is none of allclose, either"),
        ("[a]\nall = {atl = 1}", "", "unknown number 'atl'. Did you mean atol? allclose has atol, rtol, atol_per_"),
        ("[a]\nall = {atol = '1'}", "", "policy a, all: atol is '1', not a number"),
        ("[a]\nall = {atol = -1}", "", "atol is -1; a tolerance is a finite number >= 0"),
        ("[a]\nall = {atol = inf}", "", "atol is inf; a tolerance is a finite number >= 0"),
        ("[a]\nall = 1e-3", "", "policy a, all is 0.001, not a table of numbers"),
        ("[a]\nrule = 'either'\nall = {atol = 1}", "", "has no rtol, which the rule either needs"),
        ("[a]\nrelu = {half = {atol = 1}}", "", "'half' is neither a dtype nor \"all\""),
    ],
)
def test_a_policy_file_that_is_wrong(text: str, name: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(cli, ["audit", "--policy", f"{file}{name}"], catch_exceptions=False)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_by_dtype() -> None:
    found = audit(
        "--op", "relu", "--atol", "half=1e-3,float32=1e-5", "--rtol", "1e-6", "--records", RUN, "--cases", 6
    )
    assert [one["says_nothing"] for one in found] == [False, True, False], "bfloat16 has no atol"
    assert found[0]["tolerance"] == "atol=float16=0.001,float32=1e-05 rtol=1e-06"
    found = audit("--op", "relu", "--atol", "half=1e-3", "--records", RUN, "--cases", 6)
    assert [one["says_nothing"] for one in found] == [False, True, True]


def test_as_markdown_and_csv() -> None:
    words = ["audit", "--op", "relu", "--policy", "vllm", "--records", str(RUN), "--cases", "6"]
    shown = CliRunner().invoke(cli, [*words, "--markdown"], catch_exceptions=False).stdout
    assert shown.startswith("## Tolerance vllm\n")
    assert sum(line.startswith("| relu |") for line in shown.splitlines()) == 3
    shown = CliRunner().invoke(cli, [*words, "--csv", "--columns", "dtype,Finding"], catch_exceptions=False).stdout
    assert shown.splitlines()[0] == "op,dtype,finding"
    assert len(shown.splitlines()) == 4


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
        (["--atol", "1e-3x"], "--atol '1e-3x' is neither a number nor DTYPE=NUMBER"),
        (["--atol", "float61=1"], "unknown dtype 'float61'. Did you mean float16"),
        (["--atol", "1", "--atol", "2"], "--atol is given twice for all dtypes"),
        (["--rtol", "half=1,float16=2"], "--rtol is given twice for float16"),
        (["--policy", "mine.toml"], "there is no file mine.toml"),
        (["--live", "--records", "here", "--atol", "1"], "leave one of them out"),
        (["--atol", "1", "--rtol", "0", "--policy", "kernelbench"], "not both"),
        (["--policy", "kernelbanch"], "unknown policy 'kernelbanch'. Did you mean kernelbench"),
        (["--atol", "-1", "--rtol", "0"], "atol is -1.0; a tolerance is a finite number >= 0"),
        (["--policy", "kernelbench", "--op", "softmacks"], "unknown op 'softmacks'. Did you mean softmax"),
        (["--policy", "kernelbench", "--dtype", "int8"], "unknown dtype 'int8'"),
        (["--policy", "kernelbench", "--dtype", "float61"], "unknown dtype 'float61'. Did you mean float16"),
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
