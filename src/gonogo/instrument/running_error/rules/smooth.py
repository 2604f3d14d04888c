"""Elementary functions of one argument → value and error |f′(x)|·E(x) + κ|out|, from exact derivatives.

Where first order is not enough the bounds of `reach` take its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import Error, covers, join, total
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.origins import Reach, Shift
from gonogo.instrument.running_error.rules.reach import RANGES, SPREADS, forgive_masks, is_far

Slope = Callable[[Tensor, Tensor], Tensor]

SLOPES: dict[str, Slope] = {
    # |f′| from argument and value; never written to, so it may be the value itself.
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * math.log(2),
    "expm1": lambda x, y: y + 1,
    "log": lambda x, y: x.abs().reciprocal_(),
    "log2": lambda x, y: (x.abs() * math.log(2)).reciprocal_(),
    "log10": lambda x, y: (x.abs() * math.log(10)).reciprocal_(),
    "log1p": lambda x, y: (1 + x).abs_().reciprocal_(),
    "sigmoid": lambda x, y: y * torch.sigmoid(-x),
    # cosh⁻² keeps its digits where 1 − tanh² has lost them.
    "tanh": lambda x, y: torch.cosh(x).square_().reciprocal_(),
    "sin": lambda x, y: x.cos().abs_(),
    "cos": lambda x, y: x.sin().abs_(),
    "tan": lambda x, y: 1 + y * y,
    "sinh": lambda x, y: x.cosh(),
    "cosh": lambda x, y: x.sinh().abs_(),
    "asin": lambda x, y: (1 - x * x).rsqrt_(),
    "acos": lambda x, y: (1 - x * x).rsqrt_(),
    "atan": lambda x, y: (1 + x * x).reciprocal_(),
    "asinh": lambda x, y: (1 + x * x).rsqrt_(),
    "acosh": lambda x, y: (x * x - 1).rsqrt_(),
    "atanh": lambda x, y: (1 - x * x).abs_().reciprocal_(),
    "erf": lambda x, y: (-x * x).exp_().mul_(2 / math.sqrt(math.pi)),
    "erfc": lambda x, y: (-x * x).exp_().mul_(2 / math.sqrt(math.pi)),
}


def smooth_rule(function: str) -> Rule:
    """Rule of one elementary function."""
    slope = SLOPES[function]

    def rule(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
        x, err = ctx.split(args[0])
        accuracy = ctx.accuracy(function)
        value = op(x)
        carried = total(x, Error(err.extra, err.ulps + accuracy.argument))
        origin = None
        if isinstance(err.origin, Shift) and not err.origin.relative and function in ("exp", "exp2"):
            origin = shift_exponents(ctx, function, x, carried, err.origin)
        if carried is not None:
            if is_far(function, x, carried, ctx.unit):
                carried = SPREADS[function](x, value, carried * ctx.unit) / ctx.unit
                if function in RANGES:
                    carried = carried.clamp_(max=RANGES[function] / ctx.unit)
            else:
                steep = slope(x, value)
                if accuracy.absolute:
                    own = value.new_full((), accuracy.absolute)
                    return value, Error(torch.addcmul(own, carried, steep), accuracy.relative, origin)
                fresh = carried is not err.extra and covers(carried, steep)
                carried = carried.mul_(steep) if fresh else carried * steep
        if accuracy.absolute:
            own = value.new_full((), accuracy.absolute)
            carried = join(carried, own, err.extra)
        return value, Error(carried, accuracy.relative, origin)

    return rule


def shift_exponents(ctx: RunningErrorMode, function: str, x: Tensor, carried: Tensor | None, shift: Shift) -> Shift:
    """What powers share of an error that their exponents x share; `carried` is all of the exponents' error."""
    steepness = 1.0 if function == "exp" else math.log(2)
    reach = None
    if carried is not None and is_far(function, x, carried, ctx.unit):
        # All of an infinite error may be an exponent's own: the shift may be infinite, and what is left NaN.
        apart = (carried - shift.common).nan_to_num_(nan=torch.inf, posinf=torch.inf).clamp_(min=0.0)
        apart = apart.mul_(steepness).add_(ctx.accuracy(function).relative)
        reach = Reach(x * steepness, forgive_masks(x, apart).mul_(ctx.unit), ctx.unit)
    return Shift(shift.common * steepness, shift.dims, relative=True, reach=reach)


def sigmoid(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """σ, and an allowance for how kernels make it, 1/(1 + e^−x): (1 − σ)(1 + |x|)·|out| for −x·log2(e) in e^−x."""
    x, _ = ctx.split(args[0])
    value, error = smooth_rule("sigmoid")(ctx, op, args, kwargs)
    inner = (x.abs() + 1).mul_(SLOPES["sigmoid"](x, value))
    if ctx.range < math.inf:  # past the range e^−x is infinite, and all of σ is lost
        inner.add_(torch.where(torch.exp(-x) >= ctx.range, value / ctx.unit, 0.0))
    return value, Error(join(inner, error.extra), error.ulps)


SMOOTH: dict[str, Rule] = {f"aten.{function}": smooth_rule(function) for function in SLOPES}
SMOOTH["aten.sigmoid"] = sigmoid
