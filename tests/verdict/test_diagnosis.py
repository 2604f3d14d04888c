"""What a failure is told to be: a weaker contract only if it would be go, growth only along sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gonogo  # noqa: E402
from gonogo.errors import NothingJudged  # noqa: E402
from gonogo.limits import Limit  # noqa: E402
from gonogo.limits.lock import write_lock  # noqa: E402
from gonogo.schema import Element  # noqa: E402
from gonogo.verdict.diagnosis import _list_summed  # noqa: E402
from gonogo.verdict.explain import Trial, list_patterns  # noqa: E402
from gonogo.verdict.shrinking import allowed_sizes  # noqa: E402
from gonogo.verdict.weaker import LOWEST_LIMIT, looks_like_rounding  # noqa: E402

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


def square_op(rows: tuple[int, ...] = (3,)) -> gonogo.Op:
    return gonogo.Op(
        "squared", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": rows, "cols": (64, 100)},
        reference=lambda x: x * x,
    )  # fmt: skip


def make_square(reading: float) -> Callable[..., Any]:
    """Reads so many bound, and as many deterministic, for nothing is summed; to either side, as roundings do."""

    def square(x: Any) -> Any:
        sides = 1 - 2 * (torch.arange(x.shape[-1]) % 2).double()
        return (x.double() ** 2 * (1 + reading * 2**-24 * sides)).float()

    return square


def wrong_eps(x: Any) -> Any:
    return normalise(x, lambda squares: squares.mean(-1, keepdim=True) + 1e-3)


def padded_lane(x: Any) -> Any:
    lanes = 1 << (x.shape[-1] - 1).bit_length()
    return normalise(x, lambda squares: squares.sum(-1, keepdim=True) / lanes + 1e-5)


def wrong_count(x: Any) -> Any:
    return normalise(x, lambda squares: squares.sum(-1, keepdim=True) / max(x.shape[-1] - 1, 1) + 1e-5)


def normalise(x: Any, square: Callable[..., Any]) -> Any:
    wide = x.double()
    return (wide / square(wide * wide).sqrt()).to(x.dtype)


def round_to_tf32(x: Any) -> Any:
    bits = x.float().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32).double()


def tf32_product(a: Any, b: Any) -> Any:
    return (round_to_tf32(a) @ round_to_tf32(b)).to(a.dtype)


def half_softmax(x: Any) -> Any:
    powers = (x - x.amax(-1, keepdim=True)).half().exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def fast_exp(x: Any) -> Any:
    """By way of 2^(x·log₂e), the product rounded to float32, as hardware does."""
    return torch.exp2((x.float() * 1.4426950408889634).double()).to(x.dtype)


def exp_op() -> gonogo.Op:
    return gonogo.Op(
        "growth", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (3, 8), "cols": (64, 100)},
        reference=torch.exp,
    )  # fmt: skip


@pytest.mark.parametrize("kernel", [wrong_eps, padded_lane, wrong_count])
def test_a_fault_that_shifts_all_one_way_is_no_contract(kernel: Callable[..., Any]) -> None:
    """In float16 the shift of a wrong epsilon is as small as a rounding, and float16 sums would allow it."""
    for dtypes in ("float16", "float32"):
        found = gonogo.verify(kernel, "rmsnorm", dtypes=dtypes, **SETTINGS)
        assert (found.decision, found.holds_under) == ("no-go", None)


def naive_log_softmax(x: Any) -> Any:
    """Without the largest element taken off first: an element is rounded as if it were its input."""
    return (x.float() - torch.logsumexp(x.float(), -1, keepdim=True)).to(x.dtype)


@pytest.mark.parametrize(
    ("kernel", "op", "dtype", "word"),
    [
        (tf32_product, "matmul", "float32", "tf32"),
        (half_softmax, "softmax", "float16", "float16"),
        pytest.param(half_sum, "matmul", "float32", "float16", marks=pytest.mark.slow),
        (fast_exp, exp_op(), "float32", "fast-math"),
        (naive_log_softmax, "log_softmax", "float32", "backward"),
    ],
)
def test_errors_of_rounding_are_told_as_a_contract(
    kernel: Callable[..., Any], op: Any, dtype: str, word: str, tmp_path: Path
) -> None:
    """A fast exponential is within backward, too: it is told by its cause. All ops' limit would let it pass."""
    lock = tmp_path / "gonogo.lock"
    write_lock(lock, [Limit("growth", "float32", None, None, "bound", "pooled", value=1.5, cases=9)], {})
    given = SETTINGS | {"distributions": ("uniform", "normal"), "dtypes": dtype, "cases": 12}
    if word == "backward":
        given |= {"distributions": ("normal", "uniform", "offset", "huge"), "cases": 24}
    if kernel is fast_exp:
        given |= {"lock": lock}
        assert gonogo.verify(kernel, op, contract="backward", **given).decision == "go"
    found = gonogo.verify(kernel, op, **given)
    assert (found.decision, found.holds_under) == ("no-go", word)
    assert gonogo.verify(kernel, op, contract=word, **given).decision == "go"


def make_elements(signs: list[int], bound: float = 9.0) -> dict[str, list[Element]]:
    return {"case": [Element((row, 0), -1.0, -1.0 + sign / 8, 1, bound) for row, sign in enumerate(signs)]}


@pytest.mark.parametrize(
    ("signs", "rounding"), [([1, -1] * 4, True), ([1] * 7 + [-1], True), ([1] * 8 + [-1], False),
                            ([1] * 64, False), ([1, -1] * 3, False)],
)  # fmt: skip
def test_roundings_err_to_both_sides(signs: list[int], rounding: bool) -> None:
    elements = make_elements(signs)
    assert looks_like_rounding(elements, 2.0) is rounding
    assert not looks_like_rounding(make_elements(signs, bound=1.0), 2.0)  # within the limit: no evidence
    one_row = {"case": [replace(element, index=(0, at)) for at, element in enumerate(elements["case"])]}
    assert not looks_like_rounding(one_row, 2.0)
    no_rows = {"case": [replace(element, index=(at,)) for at, element in enumerate(elements["case"])]}
    assert looks_like_rounding(no_rows, 2.0) is rounding


def test_a_smaller_case_fails_for_the_same_reason() -> None:
    """Below three columns it raises, which is no smaller NaN; and the layout has nothing to do with it."""

    def kernel(x: Any) -> Any:
        output = x * x
        output[-1, 2] = torch.nan
        return output

    for rows, smallest in (((1, 3), "1x3"), ((3,), "3x3")):  # an axis beside the main one keeps to listed sizes
        found = gonogo.verify(kernel, square_op(rows), only="squared:f32:3x64:t:uniform:1", **SETTINGS)
        assert [case.verdict.reason for case in found.failed] == ["non-finite"]
        assert found.smallest == f"squared:f32:{smallest}:c:uniform:1"


@pytest.mark.parametrize(
    ("only_listed", "allowed"), [(False, (None, None)), (True, ((3,), (64, 100))), (("cols",), (None, (64, 100)))]
)
def test_sizes_that_an_op_allows(only_listed: Any, allowed: tuple[Any, Any]) -> None:
    op = replace(square_op(), only_listed=only_listed)
    assert (allowed_sizes(op, "rows"), allowed_sizes(op, "cols")) == allowed


def make_trial(rows: int, failed: bool, layout: str = "contiguous", dtype: str = "float32") -> Trial:
    return Trial({"rows": rows, "cols": 8}, layout, "normal", failed, 9.0, (0, 0), (rows, 8), dtype=dtype)


@pytest.mark.parametrize(
    ("bad", "good", "told"),
    [
        ((64, "contiguous", "float32"), (8, "contiguous", "float32"), "fails only where rows is above 8"),
        ((8, "transposed", "float32"), (8, "strided", "float32"), "fails only on transposed inputs"),
        (
            (8, "transposed", "float32"),
            (8, "contiguous", "float32"),
            "fails only on inputs that are not contiguous",
        ),
        ((8, "contiguous", "float32"), (8, "strided", "float32"), "fails only on contiguous inputs"),
        ((8, "contiguous", "float16"), (8, "contiguous", "float32"), "fails only in float16"),
    ],
)
def test_patterns_of_any_axis_layout_and_dtype(bad: tuple[Any, ...], good: tuple[Any, ...], told: str) -> None:
    for count, words in ((4, told), (3, None)):
        trials = [make_trial(bad[0], True, *bad[1:]), make_trial(good[0], False, *good[1:])] * count
        assert next((pattern.told for pattern in list_patterns(trials, "cols")), None) == words


def test_a_pattern_of_another_axis_is_tried_on_a_case_that_should_escape_it() -> None:
    op = gonogo.Op(
        "same", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (2, 4, 12, 20), "cols": (8, 16)},
        reference=lambda x: x * 2.0, only_listed=True,
    )  # fmt: skip
    given = SETTINGS | {"cases": 24, "dtypes": "float32"}
    found = gonogo.verify(lambda x: x * (3.0 if x.shape[0] > 4 else 2.0), op, **given)
    assert found.pattern == "fails only where rows is above 4"
    turned = gonogo.verify(lambda x: x * (2.0 if x.is_contiguous() else 3.0), op, **given)
    assert turned.pattern == "fails only on inputs that are not contiguous"

    def half(x: Any) -> Any:
        return x * (3.0 if x.dtype == torch.float16 else 2.0)

    assert gonogo.verify(half, op, **SETTINGS | {"cases": 12}).pattern == "fails only in float16"
    alone = gonogo.verify(half, op, dtypes="float16", distributions="normal", **SETTINGS)  # nothing escapes it
    assert alone.pattern == "the worst elements are off by one factor, about 1.5"


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
    assert math.isnan(found.worst.actual)
    assert math.isfinite(found.worst.expected)


def test_an_element_that_is_not_judged_is_not_shown() -> None:
    """One row overflows on the way in float16, where a kernel may return anything; the other is wrong."""
    from gonogo.cases import Call, parse_case
    from gonogo.execution.bench import prepare
    from gonogo.execution.execute import look_at
    from gonogo.execution.job import Job, describe
    from gonogo.execution.judging import Judged
    from gonogo.execution.leaves import Pair
    from gonogo.ops import AtHand
    from gonogo.user.kernels import make_candidate
    from gonogo.words import find_contract

    x = torch.tensor([[300.0] * 8, [1.0] * 8], dtype=torch.float16)
    op = gonogo.Op(
        "energy", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (2,), "cols": (8,)},
        reference=lambda x: (x * x).sum(-1) / 1000,
    )  # fmt: skip
    kernel = make_candidate(op, AtHand(lambda x: x[:, 0] * 0 + 7), find_contract("float16"))
    job = Job(0, parse_case("energy:f16:2x8:c:uniform:0", op), "replay", op, (kernel,), "cpu")
    bench = prepare(job, call=Call((x,), {}, ("x",)))
    output = torch.tensor([torch.nan, 7.0], dtype=torch.float16)
    bench.judged[kernel.name] = [Judged(Pair("", bench.reference(kernel.contract)), output)]
    record = look_at(describe(job, kernel), bench, kernel, 9)
    assert [one.index for one in record.worst] == [(1,)]
    assert record.error_map is not None
    assert record.error_map.along == ((-1.0, record.worst[0].bound),)


@pytest.mark.parametrize(
    ("kernel", "dtype", "declared"),
    [
        pytest.param(half_sum, "float16", "float32", marks=pytest.mark.slow),
        pytest.param(half_sum, "float32", "float32", marks=pytest.mark.slow),
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
    """tf32 and fast-math change nothing of a square: what reads 1.7 is no-go under each.

    float32 and float16 have a limit for all ops, and atomics that of float32. A rounding of the input is two of the
    output: 1.7 is within backward, where it is 0.57; 6 is not.
    """
    weaker = {"tf32": "no-go", "fast-math": "no-go", "float16": "go"}
    both = ("float32", "atomics", "backward")
    for reading, more in {1.7: dict.fromkeys(both, "go"), 6.0: dict.fromkeys(both, "no-go")}.items():
        for contract, decision in (weaker | more).items():
            found = gonogo.verify(
                make_square(reading), square_op(), contract=contract, dtypes="float32", **SETTINGS
            )
            assert found.decision == decision, (reading, contract)
            if (reading, contract) == (1.7, "tf32"):
                assert 1 < max(one.record.bound for one in found.verdicts) < LOWEST_LIMIT
    found = gonogo.verify(make_square(6.0), square_op(), dtypes="float32", **SETTINGS)
    assert (found.decision, found.holds_under) == ("no-go", "float16")


def test_cases_that_passed_must_pass_there_too(tmp_path: Path) -> None:
    """Long rows flip a bit between calls, which atomics allow; short ones read 4, which only float32 does here."""
    calls = iter(range(10**6))

    def kernel(x: Any) -> Any:
        if x.shape[-1] > 90:
            return (x.double() ** 2).float() * (1 + 2**-23 * (next(calls) % 2))
        return (x.double() ** 2 * (1 + 4 * 2**-24)).float()

    lock = tmp_path / "gonogo.lock"
    limits = {"float32": 5.0, "float32+atomics": 2.0}
    write_lock(lock, [Limit("squared", name, None, None, "bound", "pooled", value=value, cases=9)
                      for name, value in limits.items()], {})  # fmt: skip
    given: dict[str, Any] = SETTINGS | {"dtypes": "float32", "lock": lock}
    found = gonogo.verify(kernel, square_op(), **given)
    assert {one.verdict.reason for one in found.failed} == {"not-repeatable"}
    assert 0 < len(found.failed) < len(found.verdicts)
    assert gonogo.verify(kernel, square_op(), contract="atomics", **given).decision == "no-go"
    assert found.holds_under is None


def test_the_limit_of_a_given_lock_is_asked(tmp_path: Path) -> None:
    """The lock's float16 is tighter than this error, which the deterministic bound of float16 would let pass."""
    from gonogo.limits.shipped import choose_limit
    from gonogo.ops import AtHand
    from gonogo.runners.in_process import InProcess
    from gonogo.user.kernels import make_candidate
    from gonogo.verdict.diagnosis import explain_failure
    from gonogo.verdict.referee import Referee
    from gonogo.words import find_contract

    lock = tmp_path / "gonogo.lock"
    tight = [Limit("squared", word, None, None, "bound", "pooled", value=1e-9, cases=9) for word in
             ("float16", "bfloat16")]  # fmt: skip
    write_lock(lock, tight, {})
    op, declared = square_op(), find_contract(None)
    # 4 bound are 1.3 of backward, which the lock has no limit for; 1.7 are 0.6.
    for reading, locked, shipped in ((4.0, None, "float16"), (1.7, "backward", "backward")):
        square = make_square(reading)
        found = gonogo.verify(square, op, dtypes="float32", lock=lock, **SETTINGS)
        assert found.failed
        candidate = make_candidate(op, AtHand(square), declared)
        referee = Referee(InProcess(op, "cpu"), candidate, choose_limit(op, declared, lock=lock))
        assert explain_failure(found, referee, declared, lock=lock).holds_under == locked
        assert explain_failure(found, referee, declared).holds_under == shipped


def test_a_float32_kernel_declared_as_float64() -> None:
    """Its true promise is the default; atomics would allow no larger error."""
    given = SETTINGS | {"dtypes": "float32", "distributions": ("uniform", "normal")}  # far down all err low
    found = gonogo.verify(torch.nn.functional.silu, "silu", contract="float64", **given)
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


def test_an_output_with_a_derived_axis() -> None:
    """Its size is none of the case's own."""
    op = gonogo.Op(
        "gate", inputs={"x": "rows K"}, output="rows P", sizes={"rows": (1, 7), "K": (1, 33), "P": "2*K"},
        reference=lambda x: x.repeat(1, 2),
    )  # fmt: skip

    def spoil_last(x: torch.Tensor) -> torch.Tensor:
        made = x.repeat(1, 2)
        made[:, -1] *= 1.5
        return made

    found = gonogo.verify(spoil_last, op, dtypes="float32", distributions="uniform", **SETTINGS)
    assert (found.decision, found.pattern) == ("no-go", "the worst element is always in the last column")


@pytest.mark.parametrize(("output", "summed"), [("rows P", ()), ("rows", ("K",)), ("P", ("rows",))])
def test_what_a_derived_axis_of_the_output_is_made_of_is_not_summed_over(
    output: str, summed: tuple[str, ...]
) -> None:
    op = gonogo.Op(
        "gate", inputs={"x": "rows K", "y": "P"}, output=output, sizes={"rows": (1, 7), "K": (1, 33), "P": "2*K"},
        reference=lambda x, y: x,
    )  # fmt: skip
    assert _list_summed(op) == summed


def test_the_worst_of_more_elements_is_no_pattern() -> None:
    """An op without sums: the error is that of another function, and its largest value the larger the output."""
    found = gonogo.verify(lambda x: x.relu(), "gelu", **SETTINGS | {"cases": 4})
    assert (found.decision, found.pattern) == ("no-go", None)


def test_an_edge_is_found_from_afar() -> None:
    """By halves alone and then one by one, a fault beyond 128 columns was not reached from 255."""

    def drops_tail(x: torch.Tensor) -> torch.Tensor:
        cols = x.shape[-1]
        return x[..., : cols // 128 * 128 or cols].double().sum(-1).to(x.dtype)

    op = gonogo.Op("total", inputs={"x": "rows cols"}, output="rows", reference=lambda x: x.sum(-1),
                   sizes={"rows": (4,), "cols": (255,)})  # fmt: skip
    verification = gonogo.verify(drops_tail, op, only="total:f32:16x255:c:normal:2", device="cpu", strict=False)
    assert "x129:" in str(verification.smallest)


def test_a_contract_that_leaves_failures_out_explains_nothing() -> None:
    """In float16 squares overflow: what is not judged there is not within the contract."""

    def rounds(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).half().to(x.dtype)

    op = gonogo.Op("norm", inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (4,), "cols": (64,)},
                   reference=lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6))  # fmt: skip
    usual: dict[str, Any] = {"dtypes": "float32", "cases": 16, "device": "cpu", "strict": False}
    for distributions in ("huge", "normal"):
        found = gonogo.verify(rounds, op, distributions=distributions, **usual)
        assert found.decision == "no-go"
        assert found.holds_under == ("float16" if distributions == "normal" else "bfloat16")
