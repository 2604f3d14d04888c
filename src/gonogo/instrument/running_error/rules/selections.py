"""Element choices (where, clamp, maximum) → the chosen value with the error of what was chosen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import EXACT, Error, join, times, total
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode

Pair = tuple[Tensor, Error]


def is_zero(x: Any) -> bool:
    """Whether x is the number 0: relative errors stay right beside it."""
    return not isinstance(x, Tensor) and x == 0


def where(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Choose by condition: the selected E."""
    condition = args[0]
    (a, err_a), (b, err_b) = ctx.split(args[1]), ctx.split(args[2])
    value: Tensor = torch.where(condition, widen_number(a), widen_number(b))
    error = choose(ctx, condition, a, err_a, b, err_b)
    return value, add_jump(ctx, ctx.doubts.find(condition), value, error, (a, err_a), (b, err_b))


def widen_number(x: Any) -> Any:
    """A number as float64 has it: torch makes a tensor of its default dtype of two numbers."""
    return torch.tensor(x, dtype=torch.float64) if isinstance(x, float) else x


def find_doubt(ctx: RunningErrorMode, a: Any, err_a: Error, b: Any, err_b: Error) -> Tensor | None:
    """Where a kernel may compare a and b otherwise; None: nowhere, for both are exact."""
    # A relative error keeps a value's sign, so beside 0 it decides nothing.
    first = err_a.extra if is_zero(b) else total(a, err_a)
    second = err_b.extra if is_zero(a) else total(b, err_b)
    if first is None and second is None:
        return None
    reach = torch.as_tensor(ctx.reach(a, first) + ctx.reach(b, second))
    # What is 0 without an error, as behind a relu, is 0 in a kernel, too.
    return (torch.as_tensor(a - b).abs() <= reach) & (reach > 0)


def add_jump(
    ctx: RunningErrorMode, places: Tensor | None, value: Tensor, error: Error, one: Any, other: Any
) -> Error:
    """Where a kernel may take the other branch, both branches' E and what lies between them."""
    if places is None:
        return error
    (a, err_a), (b, err_b) = one, other
    jump = torch.as_tensor(a - b).abs() / ctx.unit
    either = jump + fill(total(a, err_a), jump) + fill(total(b, err_b), jump)
    return Error(torch.where(places, either, fill(total(value, error), value)))


def fill(error: Tensor | None, like: Tensor) -> Tensor:
    """The error, or a zero for none."""
    return torch.zeros((), dtype=torch.float64, device=like.device) if error is None else error


def choose(
    ctx: RunningErrorMode,
    condition: Tensor,
    a: Any,
    err_a: Error,
    b: Any,
    err_b: Error,
    apart: Tensor | None = None,
) -> Error:
    """Give the error of where(condition, a, b); the larger one where both meet, so little `apart` they are."""
    ulps = 0.0
    if is_zero(a) or is_zero(b) or err_a.ulps == err_b.ulps:
        ulps = max(err_a.ulps, err_b.ulps)
        first, second = err_a.extra, err_b.extra
    else:
        first, second = total(a, err_a), total(b, err_b)
    if first is None and second is None:
        return Error(None, ulps)
    first, second = fill(first, condition), fill(second, condition)
    chosen = torch.where(condition, first, second)
    if apart is not None:
        near = apart <= ctx.reach(a, first) + ctx.reach(b, second)
        chosen = torch.where(near, torch.maximum(first, second), chosen)
    return Error(chosen, ulps)


def masked_fill(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Fill under a mask: E outside it."""
    a, err = ctx.split(args[0])
    mask, (filler, err_filler) = args[1], ctx.split(args[2])
    value = op(a, mask, filler)
    error = choose(ctx, mask, filler, err_filler, a, err)
    return value, add_jump(ctx, ctx.doubts.find(mask), value, error, (a, err), (filler, err_filler))


def clamp(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """clamp: E where the value passed, the bound's where it did not, the larger one beside the bound."""
    a, err = ctx.split(args[0])
    bounds = [ctx.split(bound) for bound in (*args[1:], *kwargs.values()) if bound is not None]
    value = op(a, *ctx.values(args[1:]), **ctx.values(kwargs))
    if not all(is_zero(bound) for bound, _ in bounds):
        err = Error(total(a, err))
    for bound, err_bound in bounds:
        own = Error(total(bound, err_bound))
        err = choose(ctx, (value != bound) | (a == bound), a, err, bound, own, (a - bound).abs())
    return value, err


def relu(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """max(a, 0): E where a > 0, or may be."""
    a, err = ctx.split(args[0])
    return op(a), choose(ctx, a > 0, a, err, 0, EXACT, a.abs())


def leaky_relu(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Keep a, or slope·a below 0: the branch's E + |out|."""
    a, err = ctx.split(args[0])
    slope = args[1] if len(args) > 1 else kwargs.get("negative_slope", 0.01)
    slope, err_slope = ctx.split(slope)
    value = op(a, slope)
    extra = err.extra
    if extra is not None:
        below = extra * abs(slope)
        near = a.abs() <= ctx.reach(a, extra)
        extra = torch.where(near, torch.maximum(extra, below), torch.where(a > 0, extra, below))
    if not isinstance(slope, Tensor):
        return value, Error(extra, err.ulps + err_slope.ulps + 1)
    own = times(total(slope, err_slope), a)
    if own is not None:
        own = torch.where(a > 0, 0.0, own)
    return value, Error(join(extra, own, err.extra), err.ulps + 1)


def threshold(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Keep a above the threshold, else a number: the selected E."""
    a, err = ctx.split(args[0])
    value = op(a, *args[1:])
    error = choose(ctx, a > args[1], a, err, args[2], EXACT)
    return value, add_jump(ctx, find_doubt(ctx, a, err, args[1], EXACT), value, error, (a, err), (args[2], EXACT))


def extreme(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """maximum, minimum: the selected E, the larger one at a tie or nearly."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    value = op(a, b)
    return value, choose(ctx, value == a, a, err_a, b, err_b, (a - b).abs())


def replace_nonfinite(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """nan_to_num: E where the value was finite."""
    a, err = ctx.split(args[0])
    whole = total(a, err)
    extra = None if whole is None else torch.where(a.isfinite(), whole, 0.0)
    return op(a, *args[1:], **kwargs), Error(extra)


SELECTIONS: dict[str, Rule] = {
    "aten.where": where,
    "aten.masked_fill": masked_fill,
    "aten.clamp": clamp,
    "aten.clamp_min": clamp,
    "aten.clamp_max": clamp,
    "aten.hardtanh": lambda ctx, op, args, kwargs: clamp(ctx, torch.clamp, hardtanh_bounds(args), {}),
    "aten.relu": relu,
    "aten.leaky_relu": leaky_relu,
    "aten._prelu_kernel": leaky_relu,
    "aten.threshold": threshold,
    "aten.maximum": extreme,
    "aten.minimum": extreme,
    "aten.fmax": extreme,
    "aten.fmin": extreme,
    "aten.nan_to_num": replace_nonfinite,
}


def hardtanh_bounds(args: Any) -> Any:
    """Arguments of hardtanh with its default bounds filled in."""
    return (*args, *(-1.0, 1.0)[len(args) - 1 :])
