"""A stranger's kernel: what verify and check say of right and wrong ones, known ops and own ones."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import gonogo as call_command
from make_record import ENVIRONMENT, append_some, make_record
from warm import run_python

import gonogo
from gonogo.cases import NON_FINITE, ON_CPU, USUAL, Planned, plan_cases
from gonogo.errors import ControlFailed, InputError, NoGo, ReferenceFailed, UnknownOp, UnknownWord
from gonogo.evaluate.rows import Rows
from gonogo.evaluate.score import calibrate, default_methods
from gonogo.limits import Limit
from gonogo.limits.intervals import upper_bound
from gonogo.limits.lock import read_lock, write_lock
from gonogo.limits.rules import rule
from gonogo.limits.shipped import shipped_lock
from gonogo.ops import Op, find_ops, get_op
from gonogo.records import append_records, load_columns, read_description, read_run
from gonogo.schema import Contract
from gonogo.user.calibration import measure_limit
from gonogo.user.kernels import compute_in
from gonogo.verdict.explain import Trial, list_patterns
from gonogo.words import find_contract, name_contract


def short_sum(x: torch.Tensor) -> torch.Tensor:
    """The last column is left out of the sum, which is kept above 0."""
    powers = (x.float() - x.float().amax(-1, keepdim=True)).exp()
    kept = powers[..., :-1] if x.shape[-1] > 1 else powers
    return (powers / kept.sum(-1, keepdim=True).clamp(min=1e-3)).to(x.dtype)


def padded(x: torch.Tensor) -> torch.Tensor:
    """Lanes up to the next power of two count as 0."""
    lanes = 2 ** (x.shape[-1] - 1).bit_length()
    wide = torch.nn.functional.pad(x.float(), (0, lanes - x.shape[-1]))
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True))[..., : x.shape[-1]].to(x.dtype)


@pytest.mark.usefixtures("several_threads")
def test_a_right_kernel_is_go() -> None:
    found = gonogo.verify(lambda x: torch.softmax(x, -1), op="softmax", device="cpu")
    assert (found.decision, len(found.verdicts) + len(found.unjudged), found.failed) == ("go", 72, ())
    assert "cases of correct kernels on NVIDIA H200" in found.limit_from
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["schema"], told["decision"], len(told["verdicts"])) == (2, "go", len(found.verdicts))
    assert (told["planned"], told["cases"] + len(told["unjudged"])) == (72, 72)
    assert all(":nan:" in case["case"] for case in told["unjudged"])
    assert {(case["kind"], case["why"]) for case in told["unjudged"]} == {
        ("refused", "the reference is NaN everywhere")
    }
    largest = max(found.verdicts, key=lambda case: case.verdict.reading or 0.0)
    assert (told["largest"]["case"], told["largest"]["reading"]) == (largest.case, largest.verdict.reading)
    assert told["largest"]["share"] == told["largest"]["reading"] / told["largest"]["limit"] < 1
    assert (told["setting"]["device"], told["setting"]["seed"], told["setting"]["fell_back"]) == ("cpu", 0, False)
    versions = told["setting"]["versions"]
    assert versions == {
        "torch": torch.__version__, "gonogo": gonogo.__version__, "python": platform.python_version(),
    }  # fmt: skip
    lines = repr(found).splitlines()
    assert re.fullmatch(rf"  largest     [\d.]+ bound, \d+ % of the limit, on {largest.case}", lines[1])
    named = f"torch {torch.__version__}, gonogo {gonogo.__version__}, Python {platform.python_version()}"
    assert lines[2] == (
        f"  judged      {len(found.verdicts)} of 72 cases; {told['setting']['machine']}, {named}; seed 0"
    )
    assert found._repr_html_().startswith("<pre>softmax: go")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_told() -> None:
    found = gonogo.verify(torch.relu, "relu", cases=1)
    assert found.setting is not None
    assert found.setting.fell_back
    assert f"{found.setting.machine} (no CUDA device: ran on the CPU), torch " in repr(found)
    assert "; seed" not in repr(gonogo.verify(torch.relu, "relu", only=found.verdicts[0].case))


def test_a_wrong_kernel_explains_itself() -> None:
    with pytest.raises(NoGo) as caught:
        gonogo.verify(short_sum, op="softmax", device="cpu")
    found = caught.value.verification
    assert found.decision == "no-go"
    assert found.smallest is not None
    assert "softmax:" in found.smallest
    worst = found.worst_case
    assert worst is not None
    row, sizes = worst.record, worst.sizes
    assert found.worst is not None
    for told in (
        f"softmax: no-go, {len(found.failed)} of {len(found.verdicts)} cases failed",
        f"worst case  {worst.case}: no-go: reads {worst.verdict.reading:.4g} bound, "
        f"above the limit {worst.verdict.limit:.4g} (pooled",
        "cases of correct kernels on NVIDIA H200",
        f"B {sizes['B']}, S {sizes['S']}, H {sizes['H']}; {row.dtype}; {row.distribution} values; ",
        row.layout,
        f"{found.worst.index}: expected {found.worst.expected!r}, actual {found.worst.actual!r}, ",
        f"{found.worst.ulp} ULPs apart",
        f"smallest    {found.smallest}",
        f'replay      gonogo.verify(short_sum, "softmax", only="{found.smallest}", device="cpu")',
    ):
        assert told in str(caught.value)
    # The replay is what it says, word for word.
    call = next(line for line in str(caught.value).splitlines() if "replay" in line).partition("replay")[2].strip()
    with pytest.raises(NoGo) as again:
        eval(call, {"gonogo": gonogo, "short_sum": short_sum})
    assert [one.case for one in again.value.verification.verdicts] == [found.smallest]
    # One row and few columns are enough to show it.
    assert [int(size) for size in found.smallest.split(":")[2].split("x")][:2] == [1, 1]


def test_pattern_of_padding() -> None:
    found = gonogo.verify(padded, op="softmax", device="cpu", strict=False, dtypes=("float32",), cases=60)
    assert found.decision == "no-go"
    assert found.pattern == "fails only where H is no power of two"


def own_rmsnorm() -> gonogo.Op:
    return gonogo.Op(
        "my_rmsnorm", inputs={"x": "rows cols", "w": "cols"}, output="rows cols",
        sizes={"rows": (1, 7), "cols": (1, 3, 255)}, reduced=("cols",),
        reference=lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w,
    )  # fmt: skip


def rmsnorm(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps) * w.float()).to(x.dtype)


def test_own_op() -> None:
    found = gonogo.verify(rmsnorm, own_rmsnorm(), dtypes=("float16", "bfloat16"), device="cpu")
    assert found.decision == "go"
    (universal,) = [one for one in read_lock(shipped_lock())[0] if (one.op, one.contract) == ("*", "float32")]
    assert {one.verdict.limit for one in found.verdicts} == {universal.value}
    assert re.fullmatch(
        r"universal, [\d,]+ cases of \d+ ops on NVIDIA H200: this op has no limit of its own", found.limit_from
    )
    wrong = gonogo.verify(lambda x, w: rmsnorm(x, w, 1e-3), own_rmsnorm(), device="cpu", strict=False)
    assert wrong.decision == "no-go"


def fast_rmsnorm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Right, and a little less exact than rmsnorm."""
    return (rmsnorm(x.float(), w.float()) * (1 + 2**-23)).to(x.dtype)


def test_controls_make_one_limit_for_all_cases() -> None:
    found = gonogo.verify(rmsnorm, own_rmsnorm(), controls=[rmsnorm, fast_rmsnorm], device="cpu", cases=8)
    assert found.decision == "go"
    assert found.limit_from == (
        "pooled, 48 readings of 2 controls on 24 cases; at most 6.1 % false positives, with 95 % confidence"
    )
    assert f"{100 * upper_bound(0, 48):.2g}" == "6.1"
    (limit,) = {one.verdict.limit for one in found.verdicts}
    # The same limit, made by hand from each control's own readings.
    op, readings = own_rmsnorm(), []
    for control in (rmsnorm, fast_rmsnorm):
        alone = gonogo.verify(control, op, device="cpu", cases=8)
        readings += [one.record.bound for one in alone.verdicts]
    assert limit == rule("pooled").limit(np.array(readings))
    assert gonogo.verify(rmsnorm, op, controls=[rmsnorm], device="cpu", cases=1, dtypes="float32").limit_from == (
        "pooled, 1 reading of 1 control on 1 case; at most 95 % false positives, with 95 % confidence"
    )


def test_a_replayed_case_meets_the_limit_of_all_cases() -> None:
    def wrong(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return rmsnorm(x, w, 1e-2)

    given: dict[str, Any] = {"controls": [fast_rmsnorm], "device": "cpu", "cases": 4, "strict": False}
    found = gonogo.verify(wrong, own_rmsnorm(), **given)
    again = gonogo.verify(wrong, own_rmsnorm(), only=found.smallest, **given)
    assert [one.case for one in again.verdicts] == [found.smallest]
    assert again.limit_from == found.limit_from
    assert again.verdicts[0].verdict.limit == found.verdicts[0].verdict.limit
    assert found.replay == (
        f'gonogo.verify(wrong, op, only="{found.smallest}", controls=controls, cases=4, seed=0, '
        "dtypes=('float16', 'bfloat16', 'float32'), device=\"cpu\")"
    )


def test_a_replay_names_what_it_is_judged_by(tmp_path: Path) -> None:
    lock = tmp_path / "gonogo.lock"
    write_lock(lock, [make_limit(9.0)], {})
    given: dict[str, Any] = {"device": "cpu", "cases": 1, "dtypes": "float32", "strict": False}
    by_lock = gonogo.verify(short_sum, "softmax", lock=lock, name="other", **given)
    begun = f'gonogo.verify(short_sum, "softmax", only="{by_lock.smallest}"'
    assert by_lock.replay == f'{begun}, lock={str(lock)!r}, device="cpu")'
    by_limit = gonogo.verify(short_sum, "softmax", limit=make_limit(9.0), controls=[softmax], **given)
    assert by_limit.replay == f'{begun}, limit=limit, device="cpu")'


def test_a_limit_of_something_else_is_refused() -> None:
    with pytest.raises(InputError, match="limit is for op softmax, contract float32; this is op relu, contract"):
        gonogo.verify(torch.relu, "relu", limit=make_limit(9.0), device="cpu", cases=1)
    with pytest.raises(InputError, match=r"this is op softmax, contract float32\+tf32"):
        gonogo.verify(softmax, "softmax", limit=make_limit(9.0), contract="tf32", device="cpu", cases=1)


def test_dtypes_by_the_names_that_people_use() -> None:
    given: dict[str, Any] = {"device": "cpu", "cases": 1}
    for dtypes in (torch.float16, "half", ["fp16", torch.half], ("torch.float16",)):
        found = gonogo.verify(softmax, "softmax", dtypes=dtypes, **given)
        assert [one.record.dtype for one in found.verdicts] == ["float16"]
    with pytest.raises(InputError, match="unknown dtype 'float64'"):
        gonogo.verify(softmax, "softmax", dtypes=[torch.float64], **given)


def test_a_contract_by_the_name_that_reports_give_it() -> None:
    assert find_contract("float32+tf32") == find_contract("tf32") == Contract(products="tf32")
    for accumulate, products, intermediate, summation, fast, atomics in product(
        ("float16", "float64"), ("ieee", "tf32"), (None, "bfloat16"), ("blocked", "sequential", "probabilistic"),
        (False, True), (False, True),
    ):  # fmt: skip
        contract = Contract(accumulate, products, intermediate, summation, fast, atomics)
        assert find_contract(contract.describe()) == contract
        assert find_contract(name_contract(contract)) == contract
    for word in ("flaot32", "float32+", "float32+fast", "float32+via-float3", ""):
        with pytest.raises(UnknownWord, match="unknown contract"):
            find_contract(word)


def test_a_kernel_that_computes_but_the_first_row_is_no_go() -> None:
    """Whatever the op, the dtype, the contract and the seed: most of an output is never written."""

    def first_row(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        output = rmsnorm(x, w)
        output[1:] = 0
        return output

    given: dict[str, Any] = {"device": "cpu", "cases": 6, "strict": False}
    for dtype in ("float16", "bfloat16", "float32"):
        found = gonogo.verify(first_row, own_rmsnorm(), dtypes=dtype, **given)
        assert found.decision == "no-go"
        # With one row it is right; with more, all that is judged says so.
        assert {one.sizes["rows"] for one in found.failed} == {7}
        passed = [one for one in found.verdicts if one.verdict.decision == "go" and one.sizes["rows"] > 1]
        assert all(one.record.distribution == "zeros" for one in passed), passed
        assert found.worst is not None
        assert found.worst.index[0] > 0
        assert (found.worst.actual, found.holds_under) == (0.0, None)
    assert gonogo.verify(rmsnorm, own_rmsnorm(), **given).decision == "go"


def test_a_listed_size_that_is_not_run_is_named() -> None:
    """Else a size that a user asked for would be go unseen."""
    seen: set[tuple[int, ...]] = set()

    def kernel(x: torch.Tensor) -> torch.Tensor:
        seen.add(tuple(x.shape))
        # Wrong on one size that is listed.
        return x + x + (1.0 if x.shape[0] == 13 else 0.0)

    listed = (1, 2, 3, 5, 7, 11, 13, 17)
    op = gonogo.Op(
        "doubled", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": listed, "cols": (8, 24)},
        reference=lambda x: x + x,
    )  # fmt: skip
    given: dict[str, Any] = {"device": "cpu", "dtypes": "float32", "strict": False}
    few = gonogo.verify(kernel, op, cases=3, **given)
    unrun = [size for size in listed if size not in {one.sizes["rows"] for one in few.verdicts}]
    assert len(unrun) >= 5
    assert 13 in unrun
    assert few.decision == "go"
    (note,) = [note for note in few.notes if "of axis rows" in note]
    told = f"sizes {', '.join(map(str, unrun))} of axis rows were not run: give more cases"
    assert note.startswith(told)
    assert told in repr(few)
    assert note in few.to_dict()["notes"]
    seen.clear()
    many = gonogo.verify(kernel, op, **given)
    assert {rows for rows, _ in seen} == set(listed)
    assert {8, 24} <= {columns for _, columns in seen}
    assert not [note for note in many.notes if "were not run" in note]
    assert many.decision == "no-go"
    assert {one.sizes["rows"] for one in many.failed} == {13}


def test_a_pattern_holds_of_the_smallest_case_too() -> None:
    """Planned cases fail only where cols is no power of two, and the shrunk one shows that this is not it."""

    def wrong(x: torch.Tensor) -> torch.Tensor:
        columns = x.shape[1]
        return x + 1 if columns == 2 or not is_power_of_two(columns) else x + 0

    sizes = {"rows": (4, 8), "cols": (9, 16, 33, 64)}
    op = gonogo.Op("same", inputs={"x": "rows cols"}, output="rows cols", sizes=sizes, reference=lambda x: x + 0)
    found = gonogo.verify(wrong, op, device="cpu", strict=False, seed=4)
    assert {one.sizes["cols"] for one in found.failed} == {
        one.sizes["cols"] for one in found.verdicts if not is_power_of_two(one.sizes["cols"])
    }
    assert found.smallest is not None
    assert found.smallest.split(":")[2] == "4x2"
    assert "power of two" not in str(found.pattern)


def is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def test_what_the_contract_cannot_hold_is_not_judged() -> None:
    """Squares summed in float16 overflow, which that contract allows for and another does not."""

    def half_sum(x: torch.Tensor) -> torch.Tensor:
        mean = (x * x).sum(-1, keepdim=True, dtype=x.dtype).float() / x.shape[-1]
        return (x.float() / torch.sqrt(mean + 1e-5)).to(x.dtype)

    given: dict[str, Any] = {"dtypes": "float16", "device": "cpu", "strict": False}
    kept = gonogo.verify(half_sum, "rmsnorm", contract="float16", **given)
    judged = len(kept.verdicts)
    assert kept.decision == "go"
    assert 0 < judged < 24
    overflow = [
        case for case in kept.unjudged if case.why.startswith("no element can be judged: float16 may overflow")
    ]
    without = [case for case in kept.unjudged if case.why == "the reference is NaN everywhere"]
    assert all(":nan:" in case.case for case in without)
    assert len(overflow) > len(without)
    assert judged + len(overflow) + len(without) == 24
    assert f"{len(overflow)} of 24 cases are not judged: {overflow[0].why}" in repr(kept)
    assert kept.to_dict()["notes"] == list(kept.notes)
    x = torch.full((2, 1, 8), 300.0).half()
    x[0] = 1
    partly = gonogo.check(half_sum(x), "rmsnorm", inputs={"input": x}, contract="float16")
    assert partly.decision == "go"
    with pytest.raises(InputError, match="no element can be judged"):
        gonogo.check(half_sum(x[1:]), "rmsnorm", inputs={"input": x[1:]}, contract="float16")
    with pytest.raises(InputError, match="op rmsnorm: nothing was judged: no element can be judged"):
        gonogo.verify(half_sum, "rmsnorm", contract="float16", only="rmsnorm:f16:1x1x1025:c:offset:1", **given)
    assert gonogo.verify(half_sum, "rmsnorm", **given).decision == "no-go"
    off = gonogo.verify(lambda x: 1.01 * half_sum(x), "rmsnorm", contract="float16", **given)
    assert off.decision == "no-go"


def test_controls_of_ours_keep_their_contract_whatever_torch_is_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def softmax_torch(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch.backends.cudnn.conv.fp32_precision == "tf32")
        return softmax(x)

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr("gonogo.ops.softmax.torch.softmax_torch", softmax_torch)
    measure_limit("softmax", Contract(), cases=1, device="cpu")
    assert set(seen) == {False}
    seen.clear()
    measure_limit("softmax", Contract(), controls=[softmax_torch], cases=1, device="cpu")
    assert set(seen) == {True}
    assert torch.backends.cudnn.allow_tf32


def test_a_control_that_is_recorded_keeps_its_contract_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel and its reference run as their owner has torch set."""
    seen: dict[str, set[bool]] = {}

    def watch(name: str, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float64:
            seen.setdefault(name, set()).add(torch.backends.cudnn.conv.fp32_precision == "tf32")
        return softmax(x)

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr("gonogo.ops.softmax.torch.softmax_torch", lambda x: watch("ours", x))
    own = gonogo.Op(
        "my_softmax", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (1, 7), "cols": (3, 64)},
        reference=lambda x: watch("reference", x),
    )  # fmt: skip
    given: dict[str, Any] = {"device": "cpu", "cases": 1, "dtypes": "float16"}
    gonogo.verify(lambda x: watch("kernel", x), "softmax", record=tmp_path / "known", **given)
    assert seen == {"ours": {False}, "kernel": {True}}
    seen.clear()
    gonogo.verify(softmax, own, record=tmp_path / "own", **given)
    assert False in seen["reference"]  # computed in float32, beside the kernel
    assert torch.backends.cudnn.allow_tf32


def make_limit(value: float, gauge: str = "bound") -> Limit:
    return Limit("softmax", "float32", None, None, gauge, "pooled", value=value, cases=9)


@pytest.mark.parametrize("gauge", ["absolute", "magnitude", "ulp", "bound", "deterministic"])
def test_a_limit_at_hand_may_be_of_any_gauge(gauge: str) -> None:
    given: dict[str, Any] = {"device": "cpu", "cases": 1, "dtypes": "float32", "strict": False}
    x = torch.randn(1, 2, 33)
    for value, decision in ((100.0, "go"), (-1.0, "no-go")):
        limit = make_limit(value, gauge)
        found = gonogo.verify(softmax, "softmax", limit=limit, **given)
        checked = gonogo.check(softmax(x), "softmax", inputs={"input": x}, limit=limit)
        assert (found.decision, checked.decision) == (decision, decision)
        assert {found.verdicts[0].verdict.reason, checked.reason} == {"reading"}


def test_no_cases_are_no_go() -> None:
    with pytest.raises(InputError, match="op softmax: no case was run, and nothing is go for lack of cases"):
        gonogo.Verification("softmax", "float32", "nothing", ())


def raising(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    raise ArithmeticError("no")


@pytest.mark.parametrize(
    ("control", "problem"),
    [
        (raising, "raised: ArithmeticError: no"),
        (lambda x, w: rmsnorm(x, w)[:0], r"is wrong-shape: \(0, \d+\), not "),
        (lambda x, w: rmsnorm(x, w, 0.1), r"reads [\d.e+]+ deterministic, above the bound 1"),
        (lambda x, w: rmsnorm(x, w) * torch.nan, "is non-finite: "),
    ],
)
def test_a_control_that_fails_cannot_calibrate(
    control: Callable[..., torch.Tensor], problem: str, tmp_path: Path
) -> None:
    name = re.escape(control.__name__)
    with pytest.raises(ControlFailed, match=rf"control {name} cannot calibrate: on my_rmsnorm:\S+ it {problem}"):
        gonogo.verify(rmsnorm, own_rmsnorm(), controls=[rmsnorm, control], device="cpu", record=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_outcomes_are_verdicts() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("no")

    found = gonogo.verify(raises, op="relu", device="cpu", strict=False, dtypes=("float32",), cases=2)
    line = raises.__code__.co_firstlineno + 1
    told = f"no-go: raised: ArithmeticError: no (test_verification.py, line {line})"
    assert [one.verdict.message for one in found.verdicts] == [told] * 2
    error = found.to_dict()["worst"]["error"]
    assert error.startswith(f'Traceback (most recent call last):\n  File "{__file__}", line {line}, in raises\n')
    assert error.endswith("ArithmeticError: no\n")
    assert "  raised      Traceback (most recent call last):\n" in repr(found)
    with pytest.raises(NoGo) as caught:
        gonogo.verify(raises, op="relu", device="cpu", dtypes=("float32",), cases=2)
    assert isinstance(caught.value.__cause__, ArithmeticError)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda x: None, "no-go: no-output: returned NoneType"),
        (lambda x: (x, x), "no-go: no-output: returned tuple"),
        (lambda x: x[..., :0], "no-go: wrong-shape: "),
        (lambda x: x.relu().double(), "no-go: wrong-dtype: float64, not float32"),
        (lambda x: x.relu_(), "no-go: aliased: "),
    ],
)
def test_wrong_things_returned_are_verdicts(made: Callable[..., Any], message: str) -> None:
    found = gonogo.verify(made, op="relu", device="cpu", strict=False, dtypes="float32", cases=2, seed=1)
    assert found.decision == "no-go"
    assert found.verdicts[0].verdict.message.startswith(message)
    assert found.smallest is not None
    assert found.holds_under is None


def test_a_weaker_contract_is_told() -> None:
    def half(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        mean = (x.half() * x.half()).mean(-1, keepdim=True).float()
        return (x.float() * torch.rsqrt(mean + 1e-6) * w.float()).to(x.dtype)

    given: dict[str, Any] = {"device": "cpu", "dtypes": "float16", "strict": False, "seed": 1}
    # Where squares overflow or vanish in float16 all errors go one way, which looks like no rounding.
    found = gonogo.verify(half, own_rmsnorm(), distributions=("normal", "uniform", "cancel"), **given)
    assert (found.decision, found.holds_under) == ("no-go", "float16")
    assert "contract    within a float16 contract; the one declared is float32" in repr(found)
    assert gonogo.verify(half, own_rmsnorm(), contract="float16", **given).decision == "go"
    assert gonogo.verify(half, own_rmsnorm(), contract=gonogo.Contract("float16"), **given).decision == "go"


def test_unrepeatable_sums_are_within_atomics() -> None:
    calls = iter(range(10**6))

    def flips(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.float(), -1).mul(1 + 2**-23 * (next(calls) % 2)).to(x.dtype)

    found = gonogo.verify(flips, "softmax", device="cpu", strict=False, dtypes="float32", cases=4)
    assert {one.verdict.reason for one in found.failed} == {"not-repeatable"}
    assert found.holds_under == "atomics"


def test_one_factor_is_seen() -> None:
    found = gonogo.verify(
        lambda x: torch.softmax(x, -1) * 2, "softmax", device="cpu", strict=False, dtypes="float32", cases=4
    )
    assert found.pattern == "the worst elements are off by one factor, about 2"


def make_op(**given: Any) -> gonogo.Op:
    usual: dict[str, Any] = {
        "inputs": {"x": "rows cols", "w": "cols"}, "output": "rows cols",
        "sizes": {"rows": (1, 7), "cols": (3, 16)}, "reference": lambda x, w: x * w,
    }  # fmt: skip
    return gonogo.Op("mine", **usual | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"output": "rows, cols"}, r"op mine: axes are separated by spaces, as in .*, not by commas"),
        ({"sizes": {"rows": (1,), "colls": (3,)}}, "op mine: no sizes for axis 'cols'. Did you mean colls?"),
        ({"sizes": {"rows": (1,)}}, r"op mine: no sizes for axis 'cols'. Give some, as in sizes={'cols': "),
        ({"sizes": {"rows": (1,), "cols": (3,), "row": (2,)}}, "sizes for axis 'row', which no .*mean rows"),
        ({"sizes": {"rows": 1, "cols": (3,)}}, "sizes of axis 'rows' are 1; give whole numbers"),
        ({"sizes": {"rows": (0,), "cols": (3,)}}, "all above 0"),
        ({"main": "col"}, "main or reduced names axis 'col', which no input or output has. Did you mean cols?"),
        ({"reduced": ("zz",)}, "names axis 'zz', which no input or output has; it has rows, cols"),
        ({"inputs": {"x": ""}}, "its first input needs axes"),
        ({"reference": 3}, "reference is int, not a function"),
    ],
)
def test_ops_that_do_not_fit_together(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_op(**given)


def test_op_names_are_part_of_ids() -> None:
    with pytest.raises(InputError, match="op name 'my-op': letters, digits and _ only"):
        gonogo.Op("my-op", inputs={"x": "n"}, output="n", sizes={"n": (3,)}, reference=torch.relu)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (lambda x, w: (x * w)[:, :1], r"BadReference: reference returns shape \(\d+, 1\); the op's output has"),
        (lambda x, w: torch.geqrf(x)[0], "no error rule for .*primitive ops"),
        (lambda x, w: x * w.nowhere, "AttributeError: .*nowhere"),
        (lambda x, w: (x, w), "BadReference: reference returns tuple; an op has one output"),
    ],
)
def test_bad_references(reference: Callable[..., Any], message: str, tmp_path: Path) -> None:
    def kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * w

    with pytest.raises(ReferenceFailed, match=rf"reference of op mine failed on mine:\S+: {message}") as caught:
        gonogo.verify(kernel, make_op(reference=reference), device="cpu", record=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    x, w = torch.ones(7, 3), torch.ones(3)
    with pytest.raises(ReferenceFailed, match=f"failed on the given inputs: {message}"):
        gonogo.check(kernel(x, w), make_op(reference=reference), inputs={"x": x, "w": w})


def test_casts_of_the_reference_are_told() -> None:
    """Its value stays float64: an exact kernel reads 0, and one that rounds once more is still within."""
    cast = make_op(reference=lambda x, w: (x.float() * w.float()).to(x.dtype))
    found = gonogo.verify(lambda x, w: (x.double() * w.double()).to(x.dtype), cast, device="cpu", cases=4)
    assert max(one.record.bound for one in found.verdicts) == 0
    assert found.notes == (
        "the reference casts to float32: its value stays float64, and a rounding to float32 counts as error that "
        "is allowed. Leave the cast out, unless the op itself rounds there",
    )
    assert f"  note        {found.notes[0]}" in repr(found)
    plain = make_op(reference=lambda x, w: (x * w).to(x.dtype))
    assert gonogo.verify(lambda x, w: x * w, plain, device="cpu", cases=2).notes == ()


def test_words_that_are_nearly_right() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    for call in (lambda: gonogo.verify(kernel, "sofmax"), lambda: gonogo.check(1.0, "sofmax", inputs={})):
        with pytest.raises(UnknownOp, match=r"unknown op 'sofmax'. Did you mean softmax.*\? All: gonogo ops"):
            call()
    for given, message in (
        (
            {"dtypes": "flaot16"},
            "unknown dtype 'flaot16'. Did you mean .*float16.*Known: float16, bfloat16, float32",
        ),
        ({"contract": "fast_math"}, "unknown contract 'fast_math'. Did you mean fast-math"),
        (
            {"contract": "q"},
            "unknown contract 'q'; known: float32, float64, float16, bfloat16, tf32, fast-math, atomics",
        ),
        ({"distributions": "unifrom"}, "unknown distribution 'unifrom'. Did you mean uniform"),
    ):
        with pytest.raises(UnknownWord, match=message):
            gonogo.verify(kernel, "softmax", **given)
    for given, message in (
        ({"cases": 0}, "0 cases: give a whole number from 1"),
        ({"seed": -1}, "seed -1: give a whole number from 0"),
        ({"dtypes": ()}, "no dtype: at least 1 is needed"),
        ({"only": "softmax:f16:1:c:uniform:1"}, "1 sizes for the axes B S H of softmax"),
        ({"controls": [3]}, "controls: 3 is no function"),
    ):
        with pytest.raises(InputError, match=message):
            gonogo.verify(kernel, "softmax", device="cpu", **given)
    with pytest.raises(InputError, match="kernel is int, not a function of the inputs of softmax"):
        gonogo.verify(3, "softmax", device="cpu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"op is int; give a name of gonogo ops, or a gonogo.Op"):
        gonogo.verify(kernel, 3)  # type: ignore[arg-type]


def test_lock_files(tmp_path: Path) -> None:
    lock = tmp_path / "gonogo.lock"
    lock.write_text("format = 1\n<<<<<<< ours\n")
    x = torch.randn(1, 2, 3)
    for call in (
        lambda: gonogo.verify(torch.relu, "relu", device="cpu", lock=lock),
        lambda: gonogo.check(x, "relu", inputs={"input": x}, lock=str(lock)),
    ):
        with pytest.raises(InputError, match=r"holds a merge conflict at line 2. Keep one side whole, or make"):
            call()
    with pytest.raises(InputError, match=r"there is no .*nowhere.lock. Make one with: gonogo calibrate"):
        gonogo.verify(torch.relu, "relu", device="cpu", lock=tmp_path / "nowhere.lock")


def test_an_own_op_has_a_name_of_its_own() -> None:
    """Its limits and records are found by it."""
    with pytest.raises(InputError, match=r"op name 'relu' is that of an op of the package: .* as in 'my_relu'"):
        gonogo.Op("relu", inputs={"x": "n"}, output="n", sizes={"n": (3,)}, reference=torch.relu)


def test_numpy_outputs_are_taken() -> None:
    found = gonogo.verify(
        lambda x: np.maximum(x.numpy(), np.float32(0)), op="relu", device="cpu", dtypes=("float32",), cases=4
    )
    assert found.decision == "go"


class OnlyArray:
    """What JAX hands out, as far as gonogo looks."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self.array


def test_foreign_outputs_are_taken() -> None:
    found = gonogo.verify(
        lambda x: OnlyArray(np.maximum(x.numpy(), np.float32(0))),
        op="relu",
        device="cpu",
        dtypes=("float32",),
        cases=4,
    )
    assert found.decision == "go"


def test_check_one_output() -> None:
    x = torch.randn(4, 7, 33)
    right = gonogo.check(torch.softmax(x, -1), op="softmax", inputs={"input": x})
    wrong = gonogo.check(short_sum(x), op="softmax", inputs={"input": x})
    assert (right.decision, wrong.decision, wrong.reason) == ("go", "no-go", "reading")
    assert (
        gonogo.check(torch.softmax(x, -1).numpy(), "softmax", inputs={"input": x.numpy()}).reading == right.reading
    )
    # Of another rank than the op's axes: what the reference makes of it counts.
    flat = x.view(28, 33)
    assert gonogo.check(torch.softmax(flat, -1), "softmax", inputs={"input": flat}).decision == "go"
    turned = gonogo.check(torch.softmax(flat, -1).T, "softmax", inputs={"input": flat})
    assert turned.message == "no-go: wrong-shape: (33, 28), not (28, 33)"
    assert gonogo.check(np.float32([1.0]), expected=np.array([1.0])).decision == "go"
    with pytest.raises(InputError, match="check needs op= and inputs=, or expected="):
        gonogo.check(x)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda y: y[:, :, :-1], r"no-go: wrong-shape: \(4, 7, 32\), not \(4, 7, 33\)"),
        (lambda y: y.sum(), r"no-go: wrong-shape: \(\), not \(4, 7, 33\)"),
        (lambda y: y.half(), "no-go: wrong-dtype: float16, not float32"),
        (lambda y: y.int(), "no-go: wrong-dtype: int32, not float32"),
        (lambda y: torch.where(y == y.max(), torch.nan, y), "no-go: non-finite: 1 elements"),
        (lambda y: "softmax", "no-go: no-output: str is no array"),
    ],
)
def test_wrong_kinds_of_output_are_verdicts(spoil: Callable[[torch.Tensor], Any], message: str) -> None:
    x = torch.randn(4, 7, 33)
    found = gonogo.check(spoil(torch.softmax(x, -1)), "softmax", inputs={"input": x})
    assert re.fullmatch(message, found.message)
    assert found.reason == message.split(": ")[1]


@pytest.mark.parametrize("kind", [np.float32, torch.tensor])
def test_wrong_kinds_without_an_op(kind: Callable[..., Any]) -> None:
    for actual, message in (
        (kind([1.0, 2.0]), "no-go: wrong-shape: (2,), not (3,)"),
        (np.array([1, 2, 3]), "no-go: wrong-dtype: int64, not floating point"),
        (kind([1.0, float("nan"), 3.0]), "no-go: non-finite"),
        (kind([1.0, 2.5, 3.0]), "no-go: reads 2.097e+06 ulp, above the limit 1 (one unit in the last place: "),
    ):
        assert gonogo.check(actual, expected=np.array([1.0, 2.0, 3.0])).message.startswith(message)


def test_inputs_that_do_not_match() -> None:
    x, w = torch.ones(7, 3), torch.ones(3)
    y = rmsnorm(x, w)
    for given, message in (
        ({"x": x}, "op my_rmsnorm takes the inputs x, w; missing: w"),
        ({"x": x, "w": w, "b": w}, "takes the inputs x, w; unknown: b"),
        ({"x": x, "w": torch.ones(4)}, "inputs of op my_rmsnorm do not match: axis cols is 4 in w and 3 in one"),
        ({"x": x[0], "w": torch.ones(4)}, "reference of op my_rmsnorm failed on the given inputs: RuntimeError"),
        ({"x": x.half(), "w": w}, "have dtypes float16, float32; give all of them in one"),
        ({"x": "x", "w": w}, "input x of op my_rmsnorm is str; give an array"),
    ):
        with pytest.raises(InputError, match=message):
            gonogo.check(y, own_rmsnorm(), inputs=given)
    with pytest.raises(
        InputError, match=r"op softmax takes the inputs input; missing: input; unknown: inputs. Did you"
    ):
        gonogo.check(x, op="softmax", inputs={"inputs": x})


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_run(folder).to_pylist()
    return rows


def test_records_are_a_run_like_any_other(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(NoGo, match=r"recorded    36 rows added to "):
        gonogo.verify(short_sum, "softmax", device="cpu", cases=6, record=folder)
    rows = read_rows(folder)
    assert {(row["kernel"], row["role"], row["contract"]) for row in rows} == {
        ("softmax_torch", "control", "float32"), ("candidate:short_sum", "candidate", "float32"),
    }  # fmt: skip
    planned = [plan_case_id(dtype, number) for dtype in ("float16", "bfloat16", "float32") for number in range(6)]
    assert [row["case"] for row in rows if row["role"] == "control"] == planned
    assert {row["strategy"] for row in rows} == {
        strategy for dtype in ("float16", "bfloat16", "float32") for _, strategy in plan_softmax(dtype, 6)
    }
    environment = read_description(folder)["environment"]
    assert environment["device"] == "cpu"
    assert environment["torch"] == torch.__version__
    # Limits come from the control alone, though the candidate reads a million times as much.
    columns = load_columns([folder])
    (limit,) = calibrate(columns, default_methods()[0])
    # Inputs with NaN or infinities say nothing of how far a correct kernel may be off.
    finite = [row for row in rows if row["role"] == "control" and row["distribution"] not in NON_FINITE]
    controls, count = np.array([row["bound"] for row in finite]), len(finite)
    assert 12 <= count < 18
    assert (limit.op, limit.contract, limit.cases) == ("softmax", "float32", count)
    assert limit.value == rule("pooled").limit(controls)
    found = Rows(columns)
    assert int(found.controls.sum()) == int(found.counted.sum()) == count
    for words in (
        ["calibrate", folder, "-o", tmp_path / "lock"],
        ["evaluate", folder, "--holdout", "none", "--json"],
    ):
        done = call_command(*words)
        assert done.returncode == 0, done.stderr
    scores = {score["name"]: score for score in json.loads(done.stdout)["policies"]}
    assert (scores["gonogo"]["control_cases"], scores["gonogo"]["all"]) == (count, 0)
    # What was calibrated judges.
    assert gonogo.verify(softmax, "softmax", device="cpu", cases=6, lock=tmp_path / "lock").decision == "go"


def plan_softmax(dtype: str, cases: int) -> list[Planned]:
    return plan_cases(get_op("softmax"), dtype, cases, 0, distributions=USUAL, limit=ON_CPU)


def plan_case_id(dtype: str, number: int) -> str:
    return plan_softmax(dtype, number + 1)[number][0].id


def test_the_same_cases_are_recorded_once(tmp_path: Path) -> None:
    given: dict[str, Any] = {"device": "cpu", "dtypes": "float32", "record": tmp_path}
    first = gonogo.verify(softmax, "softmax", cases=3, **given)
    assert str(first.recorded) == f"6 rows added to {tmp_path}"
    before = read_rows(tmp_path)
    again = gonogo.verify(softmax, "softmax", cases=3, **given)
    assert str(again.recorded) == f"0 rows added to {tmp_path}; 6 were there already, and stay as they were"
    more = gonogo.verify(softmax, "softmax", cases=5, **given)
    assert str(more.recorded).startswith("4 rows added to ")
    # Another kernel, contract or seed is another row; the control of the same cases is not.
    for others in ({"name": "other"}, {"contract": "tf32"}, {"seed": 1}):
        gonogo.verify(softmax, "softmax", cases=3, **given | others)
    rows = read_rows(tmp_path)
    assert len(rows) == 10 + 3 + 3 + 6
    assert rows[:6] == before
    keys = [(row["case"], row["kernel"], row["contract"]) for row in rows]
    assert len(set(keys)) == len(keys)
    assert len(load_columns([tmp_path])) == len(rows)
    assert len(list(tmp_path.glob("part-*.parquet"))) == 5
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".parquet") == [".lock", "run.json"]


def test_what_is_recorded_beside_a_kernel_refuses_nothing(tmp_path: Path) -> None:
    """A reference may be worse in float32 than its own bound; nobody gave it as a control."""

    def power(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x.half().float() if x.dtype == torch.float32 else x)

    op = gonogo.Op("my_power", inputs={"x": "n"}, output="n", sizes={"n": (64, 300)}, reference=power)
    found = gonogo.verify(
        lambda x: power(x.double()).to(x.dtype), op, device="cpu", dtypes="float32", record=tmp_path
    )
    assert found.decision == "go"
    beside = [row for row in read_rows(tmp_path) if row["kernel"] == "my_power_reference"]
    assert max(row["deterministic"] for row in beside) > 1


def test_controls_of_own_ops_are_recorded(tmp_path: Path) -> None:
    found = gonogo.verify(
        rmsnorm, own_rmsnorm(), controls=[fast_rmsnorm, lambda x, w: rmsnorm(x, w), lambda x, w: rmsnorm(x, w)],
        contract="tf32", device="cpu", cases=2, dtypes="float16", record=tmp_path,
    )  # fmt: skip
    assert found.recorded is not None
    assert found.recorded.added == 10
    assert {(row["kernel"], row["role"], row["contract"]) for row in read_rows(tmp_path)} == {
        ("candidate:rmsnorm", "candidate", "float32+tf32"),
        ("fast_rmsnorm", "control", "float32+tf32"),
        ("<lambda>", "control", "float32+tf32"),
        ("<lambda>_2", "control", "float32+tf32"),
        ("my_rmsnorm_reference", "control", "float32"),
    }


def test_folders_that_are_no_record(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("x")
    campaign = tmp_path / "campaign"
    campaign.mkdir()
    (campaign / "run.json").write_text('{"schema": 1, "environment": {}, "plan": {}}')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "run.json").write_text('{"schema": 1, "environment": {"device": "cuda", "gpu": "NVIDIA H200"}}')
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    for folder, message in (
        (file, "is a file: name a run directory"),
        (full, "is no run directory: it has no run.json. Record to a new one"),
        (campaign, "holds a campaign of gonogo run: record to a directory of its own"),
        (elsewhere, "was recorded on device cuda, this is cpu: record to another directory"),
        (broken, "is not readable as JSON"),
        (file / "below", "cannot record to .*: Not a directory"),
    ):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InputError, match=message) as caught:
            gonogo.verify(softmax, "softmax", device="cpu", cases=1, record=folder)
        assert "\n" not in str(caught.value)
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_many_processes_append_at_once(tmp_path: Path) -> None:
    """Overlapping rows from four processes: each is there once, whoever came first."""
    folder = tmp_path / "run"
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        added = list(pool.map(append_some, [str(folder)] * 8, [0, 5, 10, 15, 20, 25, 30, 35]))
    rows = read_rows(folder)
    assert sorted(row["case"] for row in rows) == sorted(f"c{number}" for number in range(45))
    assert sum(added) == 45
    assert len({row["number"] for row in rows}) == 45
    assert not list(folder.glob("*.partial"))


def test_a_deleted_part_costs_no_other(tmp_path: Path) -> None:
    append_some(str(tmp_path), 0)
    first, *others = sorted(tmp_path.glob("part-*.parquet"))
    first.unlink()
    append_some(str(tmp_path), 10)
    assert {row["case"] for row in read_rows(tmp_path)} == {f"c{number}" for number in range(2, 20)}
    assert all(part.exists() for part in others)


def test_other_versions_are_told(tmp_path: Path) -> None:
    append_some(str(tmp_path / "run"), 0)
    newer = ENVIRONMENT | {"torch": "3"}
    record = make_record()
    for _ in range(2):
        append_records(tmp_path / "run", newer, [record])
    description = read_description(tmp_path / "run")
    assert (description["environment"], description["appended"]) == (ENVIRONMENT, [newer])
    with pytest.raises(InputError, match="was recorded on processor a processor, this is another"):
        append_records(tmp_path / "run", ENVIRONMENT | {"processor": "another"}, [record])


def make_trial(size: int, failed: bool, **given: object) -> Trial:
    fields = {"layout": "contiguous", "distribution": "normal", "reading": 9.0, "worst_at": (0,), "ratios": None}
    return Trial({"K": size}, failed=failed, output_shape=(size,), **(fields | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("trials", "told"),
    [
        ([make_trial(8, False), make_trial(9, True), make_trial(16, False)] * 4,
         "fails only where K is no power of two"),
        ([make_trial(8, False), make_trial(8, True, layout="strided")] * 4,
         "fails only on inputs that are not contiguous"),
        ([make_trial(8, False), make_trial(512, True)] * 4, "fails only where K is above 8"),
        ([make_trial(8, False), make_trial(512, True)] * 3, None),
        ([make_trial(9, True, worst_at=(8,)), make_trial(8, True, worst_at=(7,))],
         "the worst element is always in the last column"),
        ([make_trial(n, True, reading=float(n)) for n in (3, 5, 9, 17, 33)], "the error grows with K"),
        ([make_trial(8, True, ratios=(2.0, 2.0))], "the worst elements are off by one factor, about 2"),
        ([make_trial(8, False)], None),
    ],
)  # fmt: skip
def test_patterns(trials: list[Trial], told: str | None) -> None:
    assert next((pattern.told for pattern in list_patterns(trials, "K", summed=["K"])), None) == told


def make_zeros(op: str) -> Callable[..., torch.Tensor]:
    """A kernel of an op that never computes anything."""
    known = get_op(op)

    def zeros(*inputs: torch.Tensor) -> torch.Tensor:
        axes = [axis for given in known.inputs for axis in given.axes.split()]
        sizes = dict(zip(axes, [size for tensor in inputs for size in tensor.shape], strict=True))
        return torch.zeros([sizes[axis] for axis in known.output.split()], dtype=inputs[0].dtype)

    return zeros


@pytest.mark.slow
def test_zeros_pass_no_shipped_limit() -> None:
    """One made from a control that overflows to zeros once let them pass."""
    for limit in read_lock(shipped_lock())[0]:
        assert not limit.is_vacuous
        accumulate, *more = limit.contract.split("+")
        summation = "sequential" if "sequential" in more else "blocked"
        contract = gonogo.Contract(accumulate=accumulate, summation=summation, fast_math="fast_math" in more)
        assert contract.describe() == limit.contract
        known = not limit.is_universal
        op, zeros = (limit.op, make_zeros(limit.op)) if known else (own_rmsnorm(), lambda x, w: torch.zeros_like(x))
        found = gonogo.verify(zeros, op, contract=contract, cases=3, device="cpu", strict=False)
        assert found.decision == "no-go", limit
        assert {one.verdict.limit for one in found.verdicts} == {limit.value}


def test_only_listed_sizes_are_taken() -> None:
    op = gonogo.Op(
        "doubled", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (1, 4), "cols": (64, 128)},
        reference=lambda x: x + x, only_listed=True,
    )  # fmt: skip
    seen = set()

    def wrong(x: torch.Tensor) -> torch.Tensor:
        seen.add(tuple(x.shape))
        return x * 2.5

    found = gonogo.verify(wrong, op, cases=24, device="cpu", strict=False)
    assert seen == {(rows, cols) for rows in (1, 4) for cols in (64, 128)}
    assert ":1x64:" in str(found.smallest)


def test_a_gross_error_is_within_no_contract() -> None:
    """The deterministic bound of a long sum in bfloat16 would allow it."""
    found = gonogo.verify(
        lambda x: (x.float().softmax(-1) * 0.02).to(x.dtype), "softmax", device="cpu", strict=False
    )
    assert (found.decision, found.holds_under) == ("no-go", None)


def test_torchs_own_gelu_passes_on_the_cpu() -> None:
    """Its vectorised erf is some twelve roundings of 1 off, near 0 too: more than the bound, within the limit."""
    op = gonogo.Op(
        "my_gelu", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (1, 7), "cols": (255, 2049)},
        reference=torch.nn.functional.gelu,
    )  # fmt: skip
    settings: dict[str, Any] = {"dtypes": ("float32",), "device": "cpu", "strict": False}
    found = gonogo.verify(torch.nn.functional.gelu, op, **settings)
    assert (found.decision, found.failed) == ("go", ())
    assert found.limit_from.startswith("universal, ")
    # No limit was calibrated for this contract, and of some elements near 0 the bound alone does not let it pass.
    by_bound = gonogo.verify(torch.nn.functional.gelu, op, contract="fast-math", **settings)
    assert by_bound.limit_from.startswith("the deterministic bound: ")
    assert {one.verdict.limit for one in by_bound.verdicts} == {1.0}
    assert len(by_bound.failed) <= 3
    assert all(one.verdict.reading < 3 for one in by_bound.verdicts if one.verdict.reading is not None)

    def by_tanh(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh")

    for contract in ("float32", "fast-math"):
        other = gonogo.verify(by_tanh, op, contract=contract, **settings)
        assert len(other.failed) > len(other.verdicts) / 2


TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def block(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    tl.store(out_ptr + at, tl.maximum(x, 0.0), mask=at < count)

def relu(x):
    flat = x.contiguous().view(-1)
    out = torch.empty_like(flat)
    block[(triton.cdiv(flat.numel(), 64),)](flat, out, flat.numel(), BLOCK=64)
    return out.view(x.shape)

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return relu(x)

class Module(torch.nn.Module):
    def forward(self, x):
        return Function.apply(x)

@torch.library.custom_op("gonogo_test::relu", mutates_args=())
def in_library(x: torch.Tensor) -> torch.Tensor:
    return relu(x)
"""
WRAPPED = """
import sys
import gonogo, torch

def lazily(x):
    import on_gpu
    return on_gpu.relu(x)

def verify(name, kernel, **given):
    try:
        found = gonogo.verify(kernel, "relu", device="cpu", strict=False, **given)
        told = f"{found.decision}, {found.notes or None}, {found.verdicts[0].record.framework}"
    except gonogo.errors.InputError as error:
        told = str(error)
    print(f"{name}: {told}")

assert "triton" not in sys.modules
verify("lazily", lazily, cases=2)
import on_gpu
ways = {
    "plain": on_gpu.relu, "apply": on_gpu.Function.apply, "lambda": lambda x: on_gpu.Function.apply(x),
    "module": on_gpu.Module(), "forward": on_gpu.Module().forward, "library": on_gpu.in_library,
}
for name, kernel in ways.items():
    verify(name, kernel, cases=2)
verify("control", torch.relu, cases=2, controls=[on_gpu.Module()])
verify("dispatched", lambda x: on_gpu.relu(x) if x.is_cuda else torch.relu(x), cases=2)
"""


def print_by_python(folder: Path, *words: object, interpret: str | None) -> str:
    """What Python prints, in an environment in which Triton's switch is as given."""
    given = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    switch = {} if interpret is None else {"TRITON_INTERPRET": interpret}
    done = run_python(*words, cwd=folder, environment=given | switch)
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interpret", "told"),
    [
        ("1", r"go, .*\b2 of 6 cases are not judged: Triton's interpreter computes bfloat16 as .*, triton"),
        (None, "block is compiled for a GPU, and this is the CPU. Set TRITON_INTERPRET=1 in the environment, .*"),
    ],
    ids=["interpreted", "compiled"],
)
def test_a_triton_kernel_without_a_gpu(tmp_path: Path, interpret: str | None, told: str) -> None:
    """Whatever it is wrapped in: what the interpreter gets wrong, and a missing GPU, are no fault of its own."""
    pytest.importorskip("triton")
    (tmp_path / "on_gpu.py").write_text(TRITON, encoding="utf-8")
    (tmp_path / "script.py").write_text(WRAPPED, encoding="utf-8")
    told_by = print_by_python(tmp_path, "script.py", interpret=interpret).splitlines()
    lines = dict(line.split(": ", 1) for line in told_by)
    assert lines.pop("dispatched") == "go, None, torch"  # it launches nothing here
    control = lines.pop("control")
    assert control == "go, None, torch" if interpret else re.fullmatch(told, control)
    assert list(lines) == ["lazily", "plain", "apply", "lambda", "module", "forward", "library"]
    for name, line in lines.items():
        assert re.fullmatch(told, line), (name, line)


ORDERED = """
import gonogo, pytest, torch

def test_of_torch():
    gonogo.verify(torch.relu, "relu", cases=1, dtypes="float32", device="cpu")

def test_imported_in_the_test():
    from on_gpu import relu
    gonogo.verify(relu, "relu", cases=1, dtypes="float32", device="cpu")

def test_imported_in_the_kernel():
    def kernel(x):
        from on_gpu import relu
        return relu(x)
    gonogo.verify(kernel, "relu", cases=1, dtypes="float32", device="cpu")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("interpret", "outcome"), [("1", "PASSED"), (None, "FAILED")])
def test_what_ran_before_changes_no_verdict(tmp_path: Path, interpret: str | None, outcome: str) -> None:
    """Triton's switch is the user's, whether a kernel is decorated before, between or during calls of gonogo."""
    pytest.importorskip("triton")
    (tmp_path / "on_gpu.py").write_text(TRITON, encoding="utf-8")
    (tmp_path / "test_order.py").write_text(ORDERED, encoding="utf-8")
    names = ("of_torch", "imported_in_the_test", "imported_in_the_kernel")
    tests = [f"test_order.py::test_{name}" for name in names]
    words = ("-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    for order in (tests, [tests[2], tests[1]], [tests[1]]):
        told = print_by_python(tmp_path, *words, *order, interpret=interpret)
        found = dict(re.findall(r"^(test_order\.py::\w+) (PASSED|FAILED)", told, re.MULTILINE))
        assert found == {test: "PASSED" if test == tests[0] else outcome for test in order}, told
        assert ("block is compiled for a GPU, and this is the CPU" in told) == (outcome == "FAILED")


@pytest.mark.parametrize("dtype", ["float64", "float8_e4m3fn"])
def test_one_output_in_other_formats(dtype: str) -> None:
    x = torch.linspace(-3, 3, 24).view(2, 3, 4).to(getattr(torch, dtype))
    right = torch.softmax(x.double(), -1)
    contract = gonogo.Contract(accumulate="float64") if dtype == "float64" else None
    for factor, decision in ((1.0, "go"), (1.3, "no-go")):
        output = (factor * right).to(x.dtype)
        assert gonogo.check(output, "softmax", inputs={"input": x}, contract=contract).decision == decision


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: gonogo.verify(softmax, "softmax", controls=softmax), "controls is one function; give a list"),
        (lambda: gonogo.verify(softmax, "softmax", limit=2.0), "limit is float; give a gonogo.limits.Limit"),
        (lambda: gonogo.verify(softmax, "softmax", contract=["tf32"]), "contract is list; give one of float32"),
        (lambda: gonogo.check(1, "softmax", inputs=[torch.ones(2)]), "inputs of op softmax are by name"),
        (lambda: gonogo.check(1, "softmax", expected=1), "op= and inputs=, or expected= alone"),
        (
            lambda: gonogo.check(torch.ones(1, 1, 2), "softmax", inputs={"input": torch.ones(1, 1, 2).int()}),
            "inputs of op softmax have dtype int32; give floating point",
        ),
        (
            lambda: gonogo.Op("o", inputs=["x"], output="n", sizes={"n": (1,)}, reference=abs),  # type: ignore[arg-type]
            "give names and axes",
        ),
    ],
)
def test_things_of_another_kind_are_refused(call: Callable[[], object], told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        call()


def test_a_lock_that_lets_anything_pass_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "gonogo.lock"
    write_lock(lock, [make_limit(1e9)], {})
    with pytest.raises(
        InputError, match=r"the limit 1e\+09 for softmax, contract float32, lets errors pass that no"
    ):
        gonogo.verify(softmax, "softmax", lock=lock, device="cpu", cases=1)


def test_a_pattern_that_a_case_refutes_is_not_told() -> None:
    """All eight failures have an H that is no multiple of 128, and with one that is it fails as well."""

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return softmax(x) * (1 + 1e-5)

    found = gonogo.verify(wrong, "softmax", device="cpu", cases=8, strict=False)
    assert found.failed
    assert "where" not in str(found.pattern)


@pytest.mark.slow
@pytest.mark.parametrize("op", find_ops(), ids=lambda op: op.name)
def test_a_reference_in_float16_keeps_a_float16_contract(op: Op) -> None:
    """On inputs that overflow on the way, too: NaN comes of many of them."""
    kernel = compute_in("float16", op)
    given: dict[str, Any] = {"dtypes": "float16", "cases": 16, "device": "cpu", "strict": False}
    found = gonogo.verify(kernel, op.name, contract="float16", **given)
    assert found.decision == "go", found
