"""Comparisons, positions, steps and casts → discrete results, or values with a cast's error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gonogo.errors import NoErrorRule
from gonogo.instrument.running_error.companion import CONSTANT, EXACT, Error, total
from gonogo.instrument.running_error.facts import constant_ulps, name_ops, narrow_format
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.rules.arithmetic import JUMP_HINT
from gonogo.instrument.running_error.rules.positions import POSITIONS
from gonogo.instrument.running_error.rules.selections import find_doubt


def decide(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Error]:
    """Find a position, or ask for a property: right or wrong, no error. The reference's answer counts."""
    return op(*ctx.values(args), **ctx.values(kwargs)), EXACT


def compare(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Error]:
    """Compare: no error, but doubt where computed operands are closer than their errors."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    made = op(a, b)
    places = find_doubt(ctx, a, err_a, b, err_b)
    if places is not None:
        ctx.doubts.note(made, places)
    return made, EXACT


def step(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Fmod and kin: exact on exact values, refused on computed ones."""
    if not all(ctx.split(arg)[1].exact for arg in args):
        raise NoErrorRule(op._schema.name.replace("::", ".") if hasattr(op, "_schema") else str(op), JUMP_HINT)
    return op(*ctx.values(args), **kwargs), EXACT


def round_to_whole(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Floor and kin: a whole number, another one where the value's own error reaches the next step."""
    x, err = ctx.split(args[0])
    value = op(x, **kwargs)
    if decimals := kwargs.get("decimals", 0):
        return value, round_decimals(ctx, x, err, decimals)
    if err.exact:
        return value, Error(whole=True)
    low, high = (op(end, **kwargs) for end in find_ends(ctx, x, err))
    jump = torch.maximum(high - value, value - low)
    return value, Error(jump / ctx.unit if bool((jump != 0).any()) else None, whole=True)


def round_decimals(ctx: RunningErrorMode, x: Tensor, err: Error, decimals: int) -> Error:
    """x·10^d, rounded as a product is, to a whole number, which another may be near; and 10^d out of it again."""
    factor = 10.0**decimals
    scaled = x * factor
    own = scaled.abs() * ((2 + constant_ulps(10.0 ** abs(decimals), ctx.contract.accumulate)) * ctx.unit)
    reach = own + (0.0 if err.exact else find_ends(ctx, x, err)[1] - x) * factor
    whole = scaled.round()
    jump = torch.maximum((scaled + reach).round() - whole, whole - (scaled - reach).round()).div_(factor * ctx.unit)
    return Error(jump if bool((jump != 0).any()) else None, ctx.accuracy("div").relative)


def find_ends(ctx: RunningErrorMode, x: Tensor, err: Error) -> tuple[Tensor, Tensor]:
    """Between which values a kernel may have x; the error of a whole number is the step itself."""
    if err.whole:
        reach: Tensor | float = 0.0 if err.extra is None else err.extra * ctx.unit
    else:
        reach = ctx.reach(x, total(x, err))
    return x - reach, x + reach


def cast(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Cast to a narrower format: the value stays float64, E + (u_narrow/u_c)·|out|; the device is followed.

    A format no narrower than the accumulator changes nothing, and neither does one that holds every value of
    an exact operand, such as an fp16 input taken to fp32.
    """
    x, err = ctx.split(args[0])
    dtype = kwargs.get("dtype") or (torch.complex128 if x.is_complex() else torch.float64)
    if not (dtype.is_floating_point or dtype.is_complex):
        made = op(x, **kwargs)
        if dtype != torch.bool and not err.exact and isinstance(x, Tensor) and x.is_floating_point():
            low, high = (end.trunc() for end in find_ends(ctx, x, err))
            ctx.doubts.note(made, low != high)
            ctx.doubts.allow(made, lambda other: (other.to(low.device) >= low) & (other.to(low.device) <= high))
        return made, EXACT
    if dtype.is_complex or x.is_complex():
        narrow = ctx.cast_ulps(narrow_format(dtype.to_real()))
        kept = replace(err, ulps=err.ulps + (narrow if narrow > 1 else 0.0), origin=None)
        return op(x, **{**kwargs, "dtype": torch.complex128 if dtype.is_complex else torch.float64}), kept
    value = op(x, **{**kwargs, "dtype": torch.float64})
    extra = err.extra
    if extra is not None and extra.device != value.device:
        extra = extra.to(value.device)
    ulps = 0.0 if dtype == torch.float64 else ctx.cast_ulps(narrow_format(dtype))
    if ulps <= 1 or (err.exact and torch.equal(x.to(dtype).to(x.dtype), x)):
        ulps = 0.0
    before = err if dtype.itemsize < 8 else None
    return value, Error(extra, err.ulps + ulps, uncast=before, cast_to=str(dtype).removeprefix("torch."))


def make_like(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """zeros_like and kin: only the shape is taken. Tracked where torch's composites may go on to write to it."""
    return op(*ctx.values(args), **kwargs), EXACT if ctx.functional else CONSTANT


DISCRETE: dict[str, Rule] = {
    **POSITIONS,
    **dict.fromkeys(
        name_ops(
            "isnan", "isinf", "isposinf", "isneginf", "isin", "signbit",
            "logical_and", "logical_or", "logical_xor", "logical_not", "any", "all",
            "nonzero", "count_nonzero", "_fused_sdp_choice",
        ),
        decide,
    ),
    **dict.fromkeys(name_ops("eq", "ne", "lt", "le", "gt", "ge"), compare),
    **dict.fromkeys(
        name_ops(
            "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full",
            "new_empty",
        ),
        make_like,
    ),
}  # fmt: skip

STEPS: dict[str, Rule] = {
    **dict.fromkeys(name_ops("floor_divide", "fmod", "remainder"), step),
    **dict.fromkeys(name_ops("floor", "ceil", "round", "trunc"), round_to_whole),
}

CASTS: dict[str, Rule] = {"aten._to_copy": cast}
