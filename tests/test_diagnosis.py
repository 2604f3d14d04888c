"""What a failure is told to be: a weaker contract only if it would be go, growth only along sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gonogo  # noqa: E402
from gonogo.diagnosis import LOWEST_LIMIT  # noqa: E402
from gonogo.errors import NothingJudged  # noqa: E402
from gonogo.limits import Limit  # noqa: E402
from gonogo.lock import write_lock  # noqa: E402

SETTINGS: dict[str, Any] = {"cases": 6, "device": "cpu", "strict": False}


def half_sum(a: Any, b: Any) -> Any:
    """A matrix product whose sums are one long chain in float16."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float16)
    for k in range(a.shape[1]):
        total = total + (a[:, k : k + 1] * b[k : k + 1]).half()
    return total.to(a.dtype)


def make_product(off: float) -> Callable[..., Any]:
    """A right matrix product, all of it too large by a share."""
    return lambda a, b: ((a.double() @ b.double()) * (1 + off)).to(a.dtype)


def square_op() -> gonogo.Op:
    return gonogo.Op(
        "squared", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (3,), "cols": (64, 100)},
        reference=lambda x: x * x,
    )  # fmt: skip


def square(x: Any) -> Any:
    """Reads 1.7 bound, and as much deterministic, for nothing is summed."""
    return (x.double() ** 2 * (1 + 1.7 * 2**-24)).float()


def test_a_reference_of_nothing_but_nan_judges_nothing() -> None:
    """Neither a kernel that agrees nor one that does not: nothing of the inputs explains a NaN."""
    op = gonogo.Op(
        "roots", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (3,), "cols": (8,)},
        reference=lambda x: (-1 - x * x).sqrt(),
    )  # fmt: skip
    for kernel in (lambda x: (-1 - x * x).sqrt(), lambda x: x + 0):
        with pytest.raises(NothingJudged, match="op roots: nothing was judged: the reference is NaN everywhere"):
            gonogo.verify(kernel, op, **SETTINGS)
    injected = SETTINGS | {"distributions": "nan_injected", "dtypes": "float32"}
    found = gonogo.verify(lambda x: torch.softmax(x.nan_to_num(), -1), "softmax", **injected)
    assert {case.verdict.reason for case in found.failed} == {"non-finite"}


def test_the_element_of_a_non_finite_output_is_not_finite() -> None:
    """Beside it half of the rows are wrong by far."""

    def kernel(x: Any) -> Any:
        output = x * x
        output[0] *= 100
        output[-1, -1] = torch.nan
        return output

    found = gonogo.verify(kernel, square_op(), dtypes="float32", **SETTINGS)
    assert found.worst is not None
    assert {case.verdict.reason for case in found.failed} == {"non-finite"}
    assert math.isnan(found.worst["actual"])
    assert math.isfinite(found.worst["expected"])


def test_an_element_that_is_not_judged_is_not_shown() -> None:
    """One row overflows on the way in float16, where a kernel may return anything; the other is wrong."""
    from gonogo.campaign.bench import Job, prepare
    from gonogo.campaign.execute import find_worst
    from gonogo.cases import parse_case
    from gonogo.choices import find_contract
    from gonogo.own_op import CANDIDATE, add_candidate

    x = torch.tensor([[300.0] * 8, [1.0] * 8], dtype=torch.float16)
    op = gonogo.Op(
        "energy", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (2,), "cols": (8,)},
        reference=lambda x: (x * x).sum(-1) / 1000,
    )  # fmt: skip
    source = add_candidate(op, lambda x: x[:, 0] * 0 + 7, find_contract("float16"))
    job = Job(0, parse_case("energy:f16:2x8:c:uniform:0", op), "replay", (CANDIDATE,), "cpu")
    bench = prepare(job, op=source, inputs=[x])
    bench.outputs[CANDIDATE] = torch.tensor([torch.nan, 7.0], dtype=torch.float16)
    assert [one["index"] for one in find_worst(bench, source.kernel(CANDIDATE), 9)] == [[1]]


@pytest.mark.parametrize(
    ("kernel", "dtype", "declared"),
    [
        (half_sum, "float16", "float32"),
        (half_sum, "float32", "float32"),
        (make_product(3e-6), "float32", "float32"),
        (make_product(1e-3), "float32", "float32"),
        (make_product(1e-3), "float16", "float16"),
        (make_product(1e-6), "float16", "tf32"),
    ],
)
def test_what_is_declared_as_told_is_go(kernel: Callable[..., Any], dtype: str, declared: str) -> None:
    found = gonogo.verify(kernel, "matmul", contract=declared, dtypes=dtype, **SETTINGS)
    if found.holds_under is not None:
        again = gonogo.verify(kernel, "matmul", contract=found.holds_under, dtypes=dtype, **SETTINGS)
        assert again.decision == "go", again


def test_a_contract_without_a_limit_is_judged_by_the_deterministic_bound() -> None:
    """tf32, fast-math and atomics change nothing of a square: what reads 1.7 is no-go under each."""
    found = gonogo.verify(square, square_op(), dtypes="float32", **SETTINGS)
    assert 1 < max(one.record["bound"] for one in found.verdicts) < LOWEST_LIMIT
    assert (found.decision, found.holds_under) == ("no-go", "float16")
    for contract, decision in {"tf32": "no-go", "fast-math": "no-go", "atomics": "no-go", "float16": "go"}.items():
        assert (
            gonogo.verify(square, square_op(), contract=contract, dtypes="float32", **SETTINGS).decision == decision
        )


def test_cases_that_passed_must_pass_there_too(tmp_path: Path) -> None:
    """Long rows flip a bit between calls, which atomics allow; short ones read 4, which only float32 does here."""
    calls = iter(range(10**6))

    def kernel(x: Any) -> Any:
        if x.shape[-1] > 90:
            return (x.double() ** 2).float() * (1 + 2**-23 * (next(calls) % 2))
        return (x.double() ** 2 * (1 + 4 * 2**-24)).float()

    lock = tmp_path / "gonogo.lock"
    write_lock(lock, [Limit("squared", "float32", None, None, "bound", "pooled", value=5.0, cases=9)], {})
    given: dict[str, Any] = SETTINGS | {"dtypes": "float32", "lock": lock}
    found = gonogo.verify(kernel, square_op(), **given)
    assert {one.verdict.reason for one in found.failed} == {"not-repeatable"}
    assert 0 < len(found.failed) < len(found.verdicts)
    assert gonogo.verify(kernel, square_op(), contract="atomics", **given).decision == "no-go"
    assert found.holds_under is None


def test_the_limit_of_a_given_lock_is_asked(tmp_path: Path) -> None:
    """The lock's float16 is tighter than this error, which the deterministic bound of float16 would let pass."""
    from gonogo.choices import find_contract
    from gonogo.diagnosis import explain_failure
    from gonogo.in_process import InProcess
    from gonogo.own_op import add_candidate
    from gonogo.referee import Referee
    from gonogo.shipped import choose_limit

    lock = tmp_path / "gonogo.lock"
    tight = [Limit("squared", word, None, None, "bound", "pooled", value=1e-9, cases=9) for word in
             ("float16", "bfloat16")]  # fmt: skip
    write_lock(lock, tight, {})
    op, declared = square_op(), find_contract(None)
    found = gonogo.verify(square, op, dtypes="float32", lock=lock, **SETTINGS)
    assert found.failed
    runner = InProcess(add_candidate(op, square, declared), "cpu")
    referee = Referee(runner, choose_limit(op, declared, lock=lock))
    assert explain_failure(found, referee, declared, lock=lock).holds_under is None
    assert explain_failure(found, referee, declared).holds_under == "float16"


def test_a_float32_kernel_declared_as_float64() -> None:
    """Its true promise is the default; atomics would allow no larger error."""
    found = gonogo.verify(torch.nn.functional.silu, "silu", contract="float64", dtypes="float32", **SETTINGS)
    assert (found.decision, found.holds_under) == ("no-go", "float32")


def grow(x: Any) -> Any:
    """Its error grows faster with the last axis than that of any order of sums."""
    wide = x.double()
    return (wide.sum(-1) + 1e-5 * x.shape[-1] ** 2 * wide.abs().sum(-1)).to(x.dtype)


@pytest.mark.parametrize("reduced", [(), ("cols",)])
def test_an_error_grows_with_what_is_summed_over(reduced: tuple[str, ...]) -> None:
    """An axis that the output lacks is summed over, whether the op says so or not."""
    op = gonogo.Op(
        "added", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (1, 7), "cols": (8, 32, 100, 300, 700)},
        reference=lambda x: x.sum(-1), reduced=reduced,
    )  # fmt: skip
    found = gonogo.verify(grow, op, dtypes="float32", distributions="uniform", **SETTINGS | {"cases": 12})
    assert found.pattern == "the error grows with cols"


def test_the_worst_of_more_elements_is_no_pattern() -> None:
    """An op without sums: the error is that of another function, and its largest value the larger the output."""
    found = gonogo.verify(lambda x: x.relu(), "gelu", **SETTINGS | {"cases": 4})
    assert (found.decision, found.pattern) == ("no-go", None)
