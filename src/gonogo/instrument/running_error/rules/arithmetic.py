"""Sums, products, quotients and powers of elements → value and error, relative parts kept as numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import Error, join, magnitude, spread_out, times, total
from gonogo.instrument.running_error.fused import share_errors
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.origins import (
    Addition,
    Pair,
    Shift,
    Top,
    Total,
    cut_shift,
    cut_total,
    is_along,
    list_rows,
    share_error,
)
from gonogo.instrument.running_error.pieces import Cut, map_pieces
from gonogo.instrument.running_error.rules.reach import spread_power

Result = tuple[Tensor, Error]


def add(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Result:
    """Add or subtract: E(a) + |alpha|·E(b) + |out|; rsub with the terms the other way round."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    alpha, err_alpha = ctx.split(args[2] if len(args) > 2 else kwargs.get("alpha", 1))
    value = op(a, b, *args[2:], **kwargs)
    first, second = total(a, err_a), total(b, err_b)
    if alpha in (1, -1):
        top = err_b.origin
        if isinstance(top, Top) and top.terms is a and is_along(a, b, top.dims):
            # Every stable kernel shifts first: the terms of x − max are not to be added in another order.
            shift = None if second is None else Shift(second, top.dims)
            return value, Error(join(first, second, err_a.extra, second, err_b.extra), 1.0, shift)
        addition = count_terms((a, err_a), (b, err_b))
        if addition is not None:
            return value, charge_addition(addition)
        pair = Pair((a, err_a), (b, err_b))
        return value, Error(join(first, second, err_a.extra, err_b.extra), 1.0, pair)
    # rsub scales its first argument. |alpha·term| is one more rounding, and alpha has its own.
    reverse = getattr(op, "__name__", "").startswith("rsub")
    scaled = a if reverse else b
    rounding = times(torch.as_tensor(magnitude(scaled), dtype=torch.float64), alpha * (1 + err_alpha.ulps))
    if reverse:
        first = times(first, alpha)
    else:
        second = times(second, alpha)
    return value, Error(join(rounding, join(first, second, err_a.extra, err_b.extra)), 1.0)


MOST_TERMS = 16
"""Up to here log2(m + 1) covers √m, the growth of a chain, and little is lost by not knowing the signs."""


def count_terms(first: tuple[Any, Error], second: tuple[Any, Error]) -> Addition | None:
    """Merge the terms of two operands; None where there are only two, or too many to keep apart."""
    if not any(isinstance(err.origin, (Addition, Pair)) for _, err in (first, second)):
        return None
    one, other = list_terms(*first), list_terms(*second)
    if one.count + other.count > MOST_TERMS:
        return None
    carried = join(one.carried, other.carried, one.carried, other.carried)
    return Addition(one.count + other.count, carried, one.sizes + other.sizes)


def list_terms(value: Any, err: Error) -> Addition:
    """The terms a value is the sum of, or itself as the only one."""
    origin = err.origin
    if isinstance(origin, Pair):
        one, other = (list_terms(value, replace(err, origin=None)) for value, err in (origin.first, origin.second))
        carried = join(one.carried, other.carried, one.carried, other.carried)
        return Addition(2, carried, one.sizes + other.sizes)
    return origin if isinstance(origin, Addition) else Addition(1, total(value, err), magnitude(value))


def charge_addition(addition: Addition) -> Error:
    """Σ E(term) + log2(m + 1)·Σ|term|, whatever order a kernel takes."""
    own = torch.as_tensor(addition.sizes, dtype=torch.float64) * math.log2(addition.count + 1)
    return Error(own if addition.carried is None else own + addition.carried, 0.0, addition)


def mul(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Result:
    """a·b: E(a)|b| + E(b)|a| + |out|; of two complex numbers 2√2|out|, by four products and two sums."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    value = op(a, b, **kwargs)
    if value.is_complex():
        extra = join(times(err_a.extra, b), times(err_b.extra, a))
        own = 2 * math.sqrt(2) if is_complex(a) and is_complex(b) else 1.0
        return value, Error(ctx.keep_lost(extra), err_a.ulps + err_b.ulps + own)
    if isinstance(err_b.origin, Total) and err_b.origin.inverse and is_share(a, err_b.origin, b):
        shared = find_shared(a, err_a, value, err_b.origin, b.abs())
        return value, Error(ctx.keep_lost(shared), 1.0)
    if isinstance(err_a.origin, Total) and not isinstance(b, Tensor) and b == 1:
        return value, err_a  # torch writes 1/x as the reciprocal times 1
    if a is b:
        extra = None if err_a.extra is None else square_error(err_a.extra, a, ctx.unit)
        return value, Error(ctx.keep_lost(extra), 2 * err_a.ulps + 1)
    if err_a.extra is not None and err_b.extra is not None:
        # Both are off: E(a)·E(b) counts, too, where one of them is 0 or was a choice between 0 and 1.
        extra = join(err_a.extra * (magnitude(b) + err_b.extra * ctx.unit), times(err_b.extra, a))
    else:
        extra = join(times(err_a.extra, b), times(err_b.extra, a))
    return value, Error(ctx.keep_lost(extra), err_a.ulps + err_b.ulps + 1)


def is_complex(x: Any) -> bool:
    """Whether x is complex, a tensor or a number."""
    return isinstance(x, complex) or (isinstance(x, Tensor) and x.is_complex())


def is_share(a: Any, origin: Total, b: Any) -> bool:
    """Whether a is what b is the sum of, side by side."""
    return origin.terms is a and is_along(a, b, origin.dims)


def own_total(a: Tensor, err: Error) -> Tensor:
    """All of a's error, in memory of its own."""
    whole = total(a, err)
    if whole is None:
        return torch.zeros_like(a)
    return whole if err.ulps else spread_out(whole, a.shape).clone()


def find_shared(a: Tensor, err: Error, share: Tensor, origin: Total, weight: Tensor) -> Tensor:
    """Error of a/Σa, a slice at a time; `weight` is |1/Σa|."""
    shift = find_shift(err, origin)

    def find_slice(cut: Cut) -> Tensor:
        extra = None if err.extra is None else cut(spread_out(err.extra, a.shape))
        if shift is None or shift.reach is None:
            rows = list_rows(cut_total(origin, cut), cut_shift(shift, cut), cut(weight))
            shared = share_errors(cut(a), extra, err.ulps, cut(share), rows, origin.dims)
            if shared is not None:
                return shared
        error = own_total(cut(a), replace(err, extra=extra))
        return share_error(
            cut(a), error, cut(share), cut_total(origin, cut), cut_shift(shift, cut), cut(weight)
        )  # fmt: skip

    return map_pieces(find_slice, a, origin.dims)


def find_shift(err: Error, origin: Total) -> Shift | None:
    """The error all exponents of a row share, where the sum runs over that row."""
    shift = err.origin
    return shift if isinstance(shift, Shift) and shift.relative and shift.dims == origin.dims else None


def div(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Result:
    """a/b: (E(a) + |out|E(b))/|b| + |out|; rounded to a whole number, a step where that is within reach."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    value = op(a, b, **kwargs)
    if value.is_complex():  # by Smith's formula, or a product with the conjugate
        weight = magnitude(b)
        first = None if err_a.extra is None else err_a.extra / weight
        second = None if err_b.extra is None else err_b.extra / weight * value.abs()
        return value, Error(join(first, second), err_a.ulps + err_b.ulps + 12)
    if (mode := kwargs.get("rounding_mode")) is not None:
        return round_quotient(ctx, op, args, value, torch.floor if mode == "floor" else torch.trunc)
    if isinstance(err_b.origin, Total) and not err_b.origin.inverse and is_share(a, err_b.origin, b):
        shared = find_shared(a, err_a, value, err_b.origin, b.abs().reciprocal_())
        return value, Error(ctx.keep_lost(shared), ctx.accuracy("div").relative)
    ulps = err_a.ulps + err_b.ulps + ctx.accuracy("div").relative
    if err_a.extra is None and err_b.extra is None:
        return value, Error(None, ulps)
    weight = magnitude(b)
    if err_b.extra is None:
        assert err_a.extra is not None
        return value, Error(ctx.keep_lost(err_a.extra / weight), ulps)
    # 1/(b ± d) is off by d/(|b| − d) of itself, and by anything once 0 is within reach, also where a is 0.
    nearest = weight - err_b.extra * ctx.unit
    made = times(err_b.extra / nearest, value)
    if err_a.extra is not None:
        made = join(made, err_a.extra / nearest)
    assert made is not None
    return value, Error(ctx.keep_lost(made.masked_fill_(~(nearest > 0), torch.inf)), ulps)


def round_quotient(
    ctx: RunningErrorMode, op: Any, args: Any, value: Tensor, to_whole: Callable[[Tensor], Tensor]
) -> Result:
    """A quotient as a whole number: another one where what is divided, or the division itself, reaches the next."""
    quotient, error = div(ctx, torch.div, args, {})
    reach = ctx.reach(quotient, total(quotient, error))
    if ctx.split(args[0])[1].exact and ctx.split(args[1])[1].exact:  # off by one rounding alone
        reach = quotient.abs() * (ctx.unit * 2)
    jump = torch.maximum(to_whole(quotient + reach) - value, value - to_whole(quotient - reach)).clamp_(min=0.0)
    return value, Error(jump / ctx.unit if bool((jump != 0).any()) else None, whole=True)


JUMP_HINT = (
    "a rounding error of any size can move it by a whole step, which no first-order scale covers; "
    "compare the value before the step, or pass the discrete value as an input"
)


def negate(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Result:
    """Keep E: −a and |a| round nothing, but for |a| of a complex number, √(x² + y²)."""
    a, err = ctx.split(args[0])
    if a.is_complex() and op._schema.name == "aten::abs":
        return op(a), Error(err.extra, err.ulps + 4)
    # −(x + y) + z is a sum of three terms as well.
    signed = isinstance(err.origin, (Addition, Pair)) and op._schema.name == "aten::neg"
    return op(a), Error(err.extra, err.ulps, err.origin if signed else None)


def square_root(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Result:
    """Take √a: E/(2√a), at most √E where a is lost in its own error, + κ|out|."""
    a, err = ctx.split(args[0])
    value = op(a)
    ulps = err.ulps / 2 + ctx.accuracy("sqrt").relative
    if err.extra is None:
        return value, Error(None, ulps)
    # |√(a ± d) − √a| ≤ d/(√a + √(a − d)) and ≤ √d: exact, and finite where the first-order term divides by 0.
    distance = err.extra * ctx.unit
    below = (a - distance).clamp_(min=0.0).sqrt_()
    extra = torch.fmin(err.extra / below.add_(value), torch.sqrt(err.extra / ctx.unit))
    return value, Error(extra, ulps)


def raise_fixed(ctx: RunningErrorMode, value: Tensor, a: Tensor, err: Error, power: float) -> Result:
    """a^power for a known power: |power|·|a|^(power−1)·E + κ|out|."""
    # x² is one rounding, x³ two, 1/x² that of 1/x and one more; the rest is a library call.
    inverse = ctx.accuracy("reciprocal").relative
    roundings = {0.0: 0.0, 1.0: 0.0, 2.0: 1.0, 3.0: 2.0, -1.0: inverse, -2.0: 1 + inverse}
    roundings |= {0.5: ctx.accuracy("sqrt").relative, -0.5: ctx.accuracy("rsqrt").relative}
    ulps = abs(power) * err.ulps + roundings.get(float(power), ctx.accuracy("pow").relative)
    if err.extra is None or power == 0:
        return value, Error(None, ulps)
    if power == 1:
        return value, Error(err.extra, ulps)
    if power == 2:
        return value, Error(square_error(err.extra, a, ctx.unit), ulps)
    return value, Error(spread_power(a, value, power, err.extra * ctx.unit) / ctx.unit, ulps)


def square_error(error: Tensor, a: Tensor, unit: float) -> Tensor:
    """|(a ± u·E)² − a²|/u: E·(2|a| + u·E)."""
    return torch.add(error * unit, a.abs(), alpha=2).mul_(error)


def power_rule(fixed: float) -> Rule:
    """Rule of an op that is a fixed power of its argument."""

    def rule(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Result:
        a, err = ctx.split(args[0])
        value, error = raise_fixed(ctx, op(a), a, err, fixed)
        if fixed == -1 and isinstance(err.origin, Total) and not err.origin.inverse:
            roundings = ctx.accuracy("reciprocal").relative
            error = replace(error, origin=replace(err.origin, inverse=True, ulps=roundings))
        return value, error

    return rule


def power(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Result:
    """a^b: |b·out/a|·E(a) + |out·log a|·E(b) + κ|out|, and the rounding of b·log2(a) under fast math."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    value = op(a, b)
    if not isinstance(b, Tensor):
        return raise_fixed(ctx, value, a, err_a, float(b))
    if err_b.exact and b.dim() == 0 and b.device.type == "cpu":
        return raise_fixed(ctx, value, a, err_a, float(b))
    base = a if isinstance(a, Tensor) else torch.tensor(float(a), dtype=torch.float64, device=b.device)
    first = None
    if err_a.extra is not None:
        first = times(err_a.extra, b * torch.pow(base, b - 1))
    log_error = total(b, err_b)
    second = None if log_error is None else times(log_error, torch.xlogy(value, base.abs()))
    extra = join(first, second)
    if err_a.ulps:
        extra = join(extra, times(torch.tensor(err_a.ulps, dtype=torch.float64, device=b.device), b * value))
    if ctx.contract.fast_math:
        extra = join(extra, (b * torch.xlogy(value, base.abs())).abs_())
    return value, Error(extra, ctx.accuracy("pow").relative)


ARITHMETIC: dict[str, Rule] = {
    "aten.add": add,
    "aten.sub": add,
    "aten.rsub": add,
    "aten.mul": mul,
    "aten.div": div,
    "aten.neg": negate,
    "aten.abs": negate,
    "aten.sqrt": square_root,
    "aten.reciprocal": power_rule(-1.0),
    "aten.rsqrt": power_rule(-0.5),
    "aten.pow": power,
}
