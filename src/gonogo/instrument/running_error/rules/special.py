"""Functions of one or several numbers without a rule of their own → κ|out| + what their arguments' errors do.

What an error of an argument does is seen by moving it: f is evaluated beside it, in float64, as far off as a kernel
may be. That needs no derivative, holds at a pole or an extreme, and serves every pointwise function alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import EXACT, Error, join, spread_out, total
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode

RESOLVED = 2.0**-26
"""The least part of an argument that it is moved by: float64 tells two values that far apart to nine digits."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What float32 code of a function loses: relative·|out| + argument·|x·f′(x)| + absolute, in units of u_c.

    Near a zero that is no number of the format, as of lgamma or a Bessel function, the argument's counts.
    """

    relative: float = 8.0
    argument: float = 0.0
    absolute: float = 0.0
    by_degree: float = 0.0
    """Added to both for each degree of a polynomial: recurrences round at every step."""


def pointwise_rule(losses: Losses) -> Rule:
    """Rule of a function of floating arguments, element by element; integers among them are exact."""

    def rule(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
        values, named = ctx.values(args), ctx.values(kwargs)
        value = op(*values, **named)
        steps = losses.by_degree * _find_degree(values[1]) if losses.by_degree else 0.0
        relative, argument = losses.relative + steps, losses.argument + steps
        extra: Tensor | None = None
        for position, arg in enumerate(args):
            x, err = ctx.split(arg)
            if not isinstance(x, Tensor) or not x.is_floating_point():
                continue
            carried = total(x, Error(err.extra, err.ulps + argument))
            if carried is not None:
                moved = _move(ctx, op, values, named, position, value, carried)
                extra = moved if extra is None else extra + moved
        if losses.absolute:
            extra = join(extra, torch.full_like(value, losses.absolute))
        return value, Error(extra, relative)

    return rule


def _find_degree(given: Any) -> Any:
    """The largest degree of a polynomial."""
    degrees = torch.as_tensor(given)
    return float(degrees.abs().max()) if degrees.numel() else 0.0


def _move(
    ctx: RunningErrorMode, op: Any, values: Any, named: Any, position: int, value: Tensor, carried: Tensor
) -> Tensor:
    """How far the function is from `value` with one argument off by so many units; infinite where it ends."""
    x = values[position]
    distance = spread_out(carried, x.shape) * ctx.unit
    step = torch.maximum(distance, x.abs() * RESOLVED)
    ends = [op(*values[:position], end, *values[position + 1 :], **named) for end in (x - step, x + step)]
    apart = torch.maximum(*((end - value).abs() for end in ends))
    part = torch.where(step > 0, distance / step, 0.0)  # of the way that it was moved
    moved = torch.where(part > 0, apart * part, 0.0) / ctx.unit
    return torch.where(value.isfinite(), moved.nan_to_num(nan=torch.inf, posinf=torch.inf), 0.0)


def copy_sign(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """|a| with the sign of b: E(a), and 2|a| more where b's error reaches 0."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    value = op(a, b)
    if err_b.extra is None:
        return value, Error(err_a.extra, err_a.ulps)
    near = b.abs() <= ctx.reach(b, err_b.extra)
    jump = torch.where(near & (err_b.extra > 0), 2 * value.abs() / ctx.unit, 0.0)
    return value, Error(join(jump, err_a.extra, err_a.extra), err_a.ulps)


def split_exponent(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """frexp: the mantissa has x's error over the power of two that x is divided by."""
    x, err = ctx.split(args[0])
    mantissa, exponent = op(x)
    extra = None if err.extra is None else torch.ldexp(spread_out(err.extra, x.shape), -exponent)
    return (mantissa, exponent), (Error(extra, err.ulps), EXACT)


def next_after(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """nextafter: one step of the kernel's own format, two u_c, beside the argument's error."""
    (x, err), (other, _) = ctx.split(args[0]), ctx.split(args[1])
    return op(x, other), Error(err.extra, err.ulps + 2)


STEEP = Losses(argument=4.0)
"""Of functions that are zero between two numbers, or grow fast: their steps round numbers like the argument."""
WAVES = Losses(relative=16.0, argument=4.0, absolute=8.0)
"""Bessel functions of the first and second kind: beyond the first zeros code has an absolute accuracy (CUDA C++
programming guide, j0f and y0f: 2.2·10⁻⁶ from |x| = 8 on)."""
GAMMAS = Losses(relative=64.0, argument=16.0, absolute=16.0)
"""Incomplete gamma functions and zeta: series and continued fractions of many steps."""
POLYNOMIALS = Losses(relative=4.0, argument=2.0, absolute=2.0, by_degree=4.0)

FUNCTIONS: dict[str, Losses] = {
    **dict.fromkeys(("atan2", "erfinv", "i0", "special_i0e", "special_i1", "special_erfcx"), STEEP),
    "special_i1e": Losses(relative=12.0, argument=4.0),
    **dict.fromkeys(("lgamma", "digamma", "special_ndtri", "special_log_ndtr", "mvlgamma"), STEEP),
    **dict.fromkeys(("special_airy_ai", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0"), WAVES),
    **dict.fromkeys(("special_bessel_y1", "special_spherical_bessel_j0"), WAVES),
    **dict.fromkeys(
        (
            f"special_{kind}_{name}"
            for kind in ("modified_bessel", "scaled_modified_bessel")
            for name in ("k0", "k1")
        ),
        STEEP,
    ),
    **dict.fromkeys(("special_modified_bessel_i0", "special_modified_bessel_i1"), STEEP),
    **dict.fromkeys(("polygamma", "special_zeta", "igamma", "igammac"), GAMMAS),
    **dict.fromkeys((f"special_chebyshev_polynomial_{kind}" for kind in "tuvw"), POLYNOMIALS),
    **dict.fromkeys((f"special_shifted_chebyshev_polynomial_{kind}" for kind in "tuvw"), POLYNOMIALS),
    **dict.fromkeys(("special_hermite_polynomial_h", "special_hermite_polynomial_he"), POLYNOMIALS),
    **dict.fromkeys(("special_laguerre_polynomial_l", "special_legendre_polynomial_p"), POLYNOMIALS),
}

SPECIAL: dict[str, Rule] = {
    **{f"aten.{name}": pointwise_rule(losses) for name, losses in FUNCTIONS.items()},
    "aten.copysign": copy_sign,
    "aten.frexp": split_exponent,
    "aten.nextafter": next_after,
}
