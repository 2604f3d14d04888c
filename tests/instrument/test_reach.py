"""Bounds beyond first order against exact arithmetic: arguments moved as far as their errors reach."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
mpmath = pytest.importorskip("mpmath")
import torch.nn.functional as F  # noqa: E402, N812

from gonogo.instrument.running_error import error_scale  # noqa: E402
from gonogo.instrument.running_error.companion import Error, Tracked, total  # noqa: E402
from gonogo.instrument.running_error.mode import RunningErrorMode  # noqa: E402
from gonogo.instrument.running_error.rules import PASSIVE, RULES  # noqa: E402
from gonogo.schema import Contract  # noqa: E402

U32 = 2.0**-24


def run_mode(function, x, error):
    mode = RunningErrorMode(Contract(), RULES, PASSIVE, guarded=False)
    with torch.no_grad(), mode:
        made = function(Tracked(x, Error(error)))
    return made.value, total(made.value, made.error).expand(made.value.shape)


WHOLE = (0.0, 1e-6, -1e-6, 0.03, -0.7, 1.0, 1.5707963, 3.1, -9.0, 20.0)
ABOVE_0 = (1e-12, 1e-6, 1e-3, 0.5, 1.0, 30.0)
INSIDE = (0.0, 1e-6, -0.5, 0.9, 0.999, -0.9999999, 0.9999999999)

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[float, ...], tuple[float, float]]] = {
    # torch, mpmath, arguments, and the domain a kernel's argument stays in
    "exp": (torch.exp, mpmath.exp, WHOLE, (-math.inf, math.inf)),
    "exp2": (torch.exp2, lambda x: mpmath.mpf(2) ** x, WHOLE, (-math.inf, math.inf)),
    "expm1": (torch.expm1, mpmath.expm1, WHOLE, (-math.inf, math.inf)),
    "log": (torch.log, mpmath.log, ABOVE_0, (0, math.inf)),
    "log2": (torch.log2, lambda x: mpmath.log(x, 2), ABOVE_0, (0, math.inf)),
    "log10": (torch.log10, mpmath.log10, ABOVE_0, (0, math.inf)),
    "log1p": (torch.log1p, mpmath.log1p, (*INSIDE, -1 + 1e-9, 7.0), (-1, math.inf)),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), WHOLE, (-math.inf, math.inf)),
    "tanh": (torch.tanh, mpmath.tanh, WHOLE, (-math.inf, math.inf)),
    "erf": (torch.erf, mpmath.erf, WHOLE, (-math.inf, math.inf)),
    "erfc": (torch.erfc, mpmath.erfc, WHOLE, (-math.inf, math.inf)),
    "sin": (torch.sin, mpmath.sin, WHOLE, (-math.inf, math.inf)),
    "cos": (torch.cos, mpmath.cos, WHOLE, (-math.inf, math.inf)),
    "tan": (torch.tan, mpmath.tan, WHOLE[:6], (-1.57, 1.57)),
    "sinh": (torch.sinh, mpmath.sinh, WHOLE, (-math.inf, math.inf)),
    "cosh": (torch.cosh, mpmath.cosh, WHOLE, (-math.inf, math.inf)),
    "asin": (torch.asin, mpmath.asin, (*INSIDE, 1.0, -1.0), (-1, 1)),
    "acos": (torch.acos, mpmath.acos, (*INSIDE, 1.0, -1.0), (-1, 1)),
    "atan": (torch.atan, mpmath.atan, WHOLE, (-math.inf, math.inf)),
    "asinh": (torch.asinh, mpmath.asinh, WHOLE, (-math.inf, math.inf)),
    "acosh": (torch.acosh, mpmath.acosh, (1.0, 1 + 1e-9, 1.001, 2.0, 50.0), (1, math.inf)),
    "atanh": (torch.atanh, mpmath.atanh, INSIDE, (-1, 1)),
    "sqrt": (torch.sqrt, mpmath.sqrt, (0.0, *ABOVE_0), (0, math.inf)),
    "rsqrt": (torch.rsqrt, lambda x: 1 / mpmath.sqrt(x), ABOVE_0, (0, math.inf)),
    "reciprocal": (torch.reciprocal, lambda x: 1 / x, (*ABOVE_0, -1e-5, -2.0), (-math.inf, math.inf)),
    "3 / x": (lambda x: torch.tensor(3.0).double() / x, lambda x: 3 / x, ABOVE_0, (-math.inf, math.inf)),
    "x^0.25": (lambda x: x**0.25, lambda x: x ** mpmath.mpf(0.25), (0.0, *ABOVE_0), (0, math.inf)),
    "x^2": (lambda x: x**2, lambda x: x**2, WHOLE, (-math.inf, math.inf)),
    "x * x": (lambda x: x * x, lambda x: x**2, WHOLE, (-math.inf, math.inf)),
    "x^3": (lambda x: x**3, lambda x: x**3, WHOLE, (-math.inf, math.inf)),
    "x^2.5": (lambda x: x**2.5, lambda x: x ** mpmath.mpf(2.5), (0.0, *ABOVE_0), (0, math.inf)),
    "x^-2": (lambda x: x**-2, lambda x: x**-2, (*ABOVE_0, -1e-5), (-math.inf, math.inf)),
}
POLES = {"log", "log2", "log10", "rsqrt", "reciprocal", "3 / x", "x^-2"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_an_error_can_do_is_within_the_scale_however_large_it_is(name):
    function, exact, arguments, (low, high) = FUNCTIONS[name]
    sizes = [10.0**power for power in range(0, 9, 2)]
    x = torch.tensor([argument for argument in arguments for _ in sizes], dtype=torch.float64)
    error = torch.tensor(sizes * len(arguments), dtype=torch.float64)
    _, scale = run_mode(function, x, error)
    own = run_mode(function, x, torch.zeros_like(error))[1]
    with mpmath.workdps(60):
        for at, distance, whole, alone in zip(
            x.tolist(), error.tolist(), scale.tolist(), own.tolist(), strict=True
        ):
            ends = [at + part * distance * U32 for part in (-1, -0.9, -0.3, 0.3, 0.9, 1)]
            if name in POLES and min(ends) <= 0 <= max(ends):
                assert whole == math.inf, (at, distance)
                continue
            here = exact(mpmath.mpf(at))
            inside = [end for end in ends if low <= end <= high]
            moved = [abs(exact(mpmath.mpf(end)) - here) for end in inside if end not in (low, high) or end == at]
            if whole == math.inf:
                assert name in POLES or name in ("log1p", "atanh", "tan"), (at, distance)
                continue
            reached = float(max(moved)) if moved else 0.0
            assert reached <= U32 * whole * (1 + 1e-3), (at, distance)
            assert not moved or U32 * (whole - alone) <= 40 * reached + 1e-12, (at, distance)  # nor far more


def test_a_product_of_two_errors_counts_where_a_factor_is_nothing():
    x, error = torch.zeros(3).double(), torch.tensor([1.0, 1e3, 1e6]).double()
    mode = RunningErrorMode(Contract(), RULES, PASSIVE, guarded=False)
    with torch.no_grad(), mode:
        made = Tracked(x, Error(error)) * Tracked(x.clone(), Error(error))
    assert bool((total(made.value, made.error) >= error * error * U32).all())


@pytest.mark.parametrize("threshold", [20.0, 1.0])
def test_the_threshold_of_softplus_is_charged_what_it_jumps(threshold):
    """Above it torch returns x itself; a kernel whose argument is a rounding below does not."""
    x = threshold + torch.linspace(-3e-5, 3e-5, 41).double()
    error = torch.full_like(x, 100.0)
    _, scale = run_mode(lambda x: F.softplus(x, threshold=threshold), x, error)
    jump = math.log1p(math.exp(-threshold))
    for step in (-100 * U32, 100 * U32):
        moved = (F.softplus(x + step, threshold=threshold) - F.softplus(x, threshold=threshold)).abs()
        assert bool((moved <= U32 * scale).all())
    near = (x - threshold).abs() < 100 * U32
    assert bool((U32 * scale[near] <= 1.1 * jump + 1000 * U32).all())
    assert bool((U32 * scale[(x - threshold).abs() > 2e-5 * 10] <= 1000 * U32).all())


# Positions that a kernel may find elsewhere.

TIED = torch.tensor([[1.0, 3.0, 3.0 + 1e-9], [5.0, 1.0, 2.0]]).double()
CODES = torch.tensor([10.0, 20.0, 30.0]).double()

POSITIONS: dict[str, Callable[..., Any]] = {
    "argmax": lambda x: CODES[x.argmax(-1)],
    "argmin": lambda x: CODES[(-x).argmin(-1)],
    "max": lambda x: CODES.take(x.max(-1).indices),
    "sort": lambda x: CODES[x.sort(-1, descending=True).indices[:, 0]],
    "topk": lambda x: CODES.index_select(0, x.topk(1, -1).indices.flatten()),
    "as a number": lambda x: x.argmax(-1) * 0.5,
    "as a mask": lambda x: torch.where(x.argmax(-1) == 2, 1.0, 7.0),
    "searchsorted": lambda x: CODES[torch.searchsorted(torch.tensor([0.0, 3.0]).double(), x.amax(-1))],
    "bucketize": lambda x: CODES[torch.bucketize(x.amax(-1), torch.tensor([0.0, 3.0]).double())],
    "count": lambda x: (x > 3.0).sum(-1) * 0.5,
}


@pytest.mark.parametrize("name", POSITIONS)
def test_nothing_is_judged_where_a_position_may_be_another(name):
    reference = POSITIONS[name]
    expected, scale = error_scale(lambda x: reference(x * 3 / 3), [TIED])
    assert torch.equal(expected, reference(TIED * 3 / 3))
    assert bool(U32 * scale.flatten()[0] >= 6)  # 1 or 7 of the mask, anything of the others
    if name not in ("count", "as a mask"):
        assert scale.flatten()[-1].isfinite()
    assert bool(error_scale(reference, [TIED])[1].isfinite().all())  # of exact inputs the reference's answer counts


def test_a_sign_may_be_the_other_one_beside_zero():
    x = torch.tensor([1.0, 1.0 + 2.0**-23, 2.0, 0.5])
    scale = error_scale(lambda x: torch.sign(x * (1 / 3) - 1 / 3) * x, [x])[1]
    assert (U32 * scale >= 1.9).tolist() == [True, True, False, False]
    assert error_scale(torch.sign, [x])[1].count_nonzero() == 0


def test_a_one_hot_of_what_may_be_another_position_is_refused():
    with pytest.raises(Exception, match="may be another"):
        error_scale(lambda x: F.one_hot((x * 3 / 3).argmax(-1), 3) * 0.5, [TIED])
