"""Argument and how far it may be off → how far an elementary function may be off, a bound beyond first order too.

First order fails where u_c·E is not small beside the distance to a pole, a branch point or a flat spot. All bounds
here hold for every argument within u_c·E of the reference's: infinite where that reaches a pole, no more than the
range of a function that saturates.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Spread = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x, f(x), d) → a bound of |f(x ± d) − f(x)|."""

VANISHED = -1100.0
"""Exponents whose power, of 2 or e, is 0 in float64."""
SMALL = 2.0**-10
"""Below this, relative to where a function bends, first order is right to one part in a thousand."""


def grow(exponent: float = 1.0, offset: float = 0.0) -> Spread:
    """b^x + offset: (y − offset)·(b^d − 1), and b^(x + d) where d is large: b^x may have vanished there."""

    def spread(x: Tensor, y: Tensor, d: Tensor) -> Tensor:
        near = (y - offset) * torch.expm1(d * exponent)
        return torch.where(d < 1, near, torch.exp((x + forgive_masks(x, d)) * exponent))

    return spread


def forgive_masks(x: Tensor, d: Tensor) -> Tensor:
    """Exponents' errors, none of masks: past the range of a narrow format they are −∞, and 2^x is 0 either way."""
    return torch.where(d.isinf() & (x < VANISHED), 0.0, d)


def approach(where: Callable[[Tensor], Tensor], factor: float = 1.0) -> Spread:
    """A logarithm of a value `where` away from its pole: −log(1 − d/away), infinite from there on."""

    def spread(x: Tensor, y: Tensor, d: Tensor) -> Tensor:
        return torch.log1p(-(d / where(x)).clamp(max=1.0)).mul_(-factor)

    return spread


def steepest(slope: Callable[[Tensor], Tensor]) -> Spread:
    """A function whose slope is even and falls away from 0: the slope at the end nearest to 0, times d."""
    return lambda x, y, d: slope((x.abs() - d).clamp_(min=0.0)) * d


def turn(slope: Callable[[Tensor], Tensor]) -> Spread:
    """sin, cos: |f′|·d + ½d², for |f″| ≤ 1."""
    return lambda x, y, d: (slope(x).abs_() + d / 2) * d


def widen_hyperbolic(slope: Callable[[Tensor], Tensor]) -> Spread:
    """sinh, cosh by their addition theorems: |f′|·sinh d + |f|·(cosh d − 1)."""
    return lambda x, y, d: slope(x).abs_() * d.sinh() + y.abs() * 2 * (d / 2).sinh().square()


def spread_inverse_sine(x: Tensor, y: Tensor, d: Tensor) -> Tensor:
    """asin, acos are vertical at ±1: the slope at the outer end, and π·√(d/2), which holds everywhere."""
    outer = x.abs() + d
    inside = (1 - outer * outer).rsqrt() * d
    return torch.fmin(torch.where(outer < 1, inside, torch.inf), math.pi * (d / 2).sqrt())


def spread_inverse_cosine(x: Tensor, y: Tensor, d: Tensor) -> Tensor:
    """Acosh is vertical at 1: the slope at the inner end, and acosh(1 + d), which holds everywhere."""
    inner = x - d
    inside = (inner * inner - 1).rsqrt() * d
    return torch.fmin(torch.where(inner > 1, inside, torch.inf), torch.acosh(1 + d))


def spread_inverse_tangent(x: Tensor, y: Tensor, d: Tensor) -> Tensor:
    """Atanh has its poles at ±1: ½·(log(1 + d/(1 + |x|)) − log(1 − d/(1 − |x|)))."""
    size = x.abs()
    return (torch.log1p(d / (1 + size)) - torch.log1p(-(d / (1 - size)).clamp(max=1.0))) / 2


def spread_tangent(x: Tensor, y: Tensor, d: Tensor) -> Tensor:
    """tan(x + d) − tan x = tan d·(1 + tan² x)/(1 − tan x·tan d), infinite from the pole on."""
    step = torch.where(d < math.pi / 2, d.tan(), torch.inf)
    left = 1 - y.abs() * step
    return torch.where(left > 0, step * (1 + y * y) / left, torch.inf)


SPREADS: dict[str, Spread] = {
    "exp": grow(),
    "exp2": grow(math.log(2)),
    "expm1": grow(1.0, -1.0),
    "log": approach(torch.abs),
    "log2": approach(torch.abs, 1 / math.log(2)),
    "log10": approach(torch.abs, 1 / math.log(10)),
    "log1p": approach(lambda x: (1 + x).abs_()),
    "sigmoid": steepest(lambda x: torch.sigmoid(x) * torch.sigmoid(-x)),
    "tanh": steepest(lambda x: torch.cosh(x).square_().reciprocal_()),
    "erf": steepest(lambda x: (-x * x).exp_().mul_(2 / math.sqrt(math.pi))),
    "erfc": steepest(lambda x: (-x * x).exp_().mul_(2 / math.sqrt(math.pi))),
    "atan": steepest(lambda x: (1 + x * x).reciprocal_()),
    "asinh": steepest(lambda x: (1 + x * x).rsqrt_()),
    "sin": turn(torch.cos),
    "cos": turn(torch.sin),
    "sinh": widen_hyperbolic(torch.cosh),
    "cosh": widen_hyperbolic(torch.sinh),
    "tan": spread_tangent,
    "asin": spread_inverse_sine,
    "acos": spread_inverse_sine,
    "acosh": spread_inverse_cosine,
    "atanh": spread_inverse_tangent,
}

RANGES = {
    "sigmoid": 1.0, "tanh": 2.0, "erf": 2.0, "erfc": 2.0, "sin": 2.0, "cos": 2.0,
    "atan": math.pi, "asin": math.pi, "acos": math.pi,
}  # fmt: skip
"""How far apart two values of the function can be."""

ROOMS: dict[str, Callable[[Tensor], Tensor]] = {
    "log": torch.abs,
    "log2": torch.abs,
    "log10": torch.abs,
    "log1p": lambda x: (1 + x).abs_(),
    "tan": lambda x: x.cos().abs_(),
    "asin": lambda x: 1 - x.abs(),
    "acos": lambda x: 1 - x.abs(),
    "atanh": lambda x: 1 - x.abs(),
    "acosh": lambda x: x - 1,
}
"""Distance to the nearest pole or branch point, for the functions that have one."""

FLAT = frozenset({"sin", "cos", "cosh"})
"""Functions with a slope of 0 somewhere: what bends there counts however little the argument is off."""


def is_far(function: str, x: Tensor, error: Tensor, unit: float) -> bool:
    """Whether first order is not enough for any element, off by `error` units."""
    if function in FLAT:
        return True
    if not error.numel():
        return False
    if function in ROOMS:
        return bool((error * unit >= ROOMS[function](x) * SMALL).any())
    return bool(error.max() >= SMALL / unit)


def spread_power(a: Tensor, value: Tensor, power: float, distance: Tensor) -> Tensor:
    """|(a ± d)^p − a^p|: infinite at a pole, d^p at a branch point, the slope at the outer end for p > 1."""
    size = a.abs()
    if power > 1:
        return abs(power) * (size + distance) ** (power - 1) * distance
    part = (distance / size).clamp(max=1.0)
    change = torch.expm1(power * torch.log1p(-part)).abs_() * value.abs()
    if power < 0:
        return torch.where(part < 1, change, torch.inf)
    return torch.where(part < 1, change, distance**power)
