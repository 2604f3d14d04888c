"""Element choices (where, clamp, maximum) → the chosen value with the error of what was chosen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gonogo.measure.running_error.companion import EXACT, Error, join, times, total
from gonogo.measure.running_error.mode import Rule, RunningErrorMode

Pair = tuple[Tensor, Error]


def is_zero(x: Any) -> bool:
    """Whether x is the number 0: relative errors stay right beside it."""
    return not isinstance(x, Tensor) and x == 0


def where(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Choose by condition: the selected E."""
    condition = args[0]
    (a, err_a), (b, err_b) = ctx.split(args[1]), ctx.split(args[2])
    return op(condition, a, b), choose(condition, a, err_a, b, err_b)


def choose(condition: Tensor, a: Any, err_a: Error, b: Any, err_b: Error) -> Error:
    """Give the error of where(condition, a, b)."""
    ulps = 0.0
    if is_zero(a) or is_zero(b) or err_a.ulps == err_b.ulps:
        ulps = max(err_a.ulps, err_b.ulps)
        first, second = err_a.extra, err_b.extra
    else:
        first, second = total(a, err_a), total(b, err_b)
    if first is None and second is None:
        return Error(None, ulps)
    return Error(torch.where(condition, 0.0 if first is None else first, 0.0 if second is None else second), ulps)


def masked_fill(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Fill under a mask: E outside it."""
    a, err = ctx.split(args[0])
    mask, (fill, err_fill) = args[1], ctx.split(args[2])
    return op(a, mask, fill), choose(mask, fill, err_fill, a, err)


def clamp(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """clamp: E where the value passed, the bound's where it did not."""
    a, err = ctx.split(args[0])
    bounds = [ctx.split(bound) for bound in (*args[1:], *kwargs.values()) if bound is not None]
    value = op(a, *ctx.values(args[1:]), **ctx.values(kwargs))
    if not all(is_zero(bound) for bound, _ in bounds):
        err = Error(total(a, err))
    for bound, err_bound in bounds:
        own = Error(total(bound, err_bound))
        err = choose((value != bound) | (a == bound), a, err, bound, own)
    return value, err


def relu(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """max(a, 0): E where a > 0, or where a is lost."""
    a, err = ctx.split(args[0])
    extra = None if err.extra is None else torch.where(ctx.add_lost(a > 0, a, err.extra), err.extra, 0.0)
    return op(a), Error(extra, err.ulps)


def leaky_relu(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Keep a, or slope·a below 0: the branch's E + |out|."""
    a, err = ctx.split(args[0])
    slope = args[1] if len(args) > 1 else kwargs.get("negative_slope", 0.01)
    slope, err_slope = ctx.split(slope)
    value = op(a, slope)
    extra = err.extra
    if extra is not None:
        extra = torch.where(a > 0, extra, extra * abs(slope))
    if not isinstance(slope, Tensor):
        return value, Error(extra, err.ulps + err_slope.ulps + 1)
    own = times(total(slope, err_slope), a)
    if own is not None:
        own = torch.where(a > 0, 0.0, own)
    return value, Error(join(extra, own, err.extra), err.ulps + 1)


def threshold(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Keep a above the threshold, else a number: the selected E."""
    a, err = ctx.split(args[0])
    return op(a, *args[1:]), choose(a > args[1], a, err, args[2], EXACT)


def extreme(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """maximum, minimum: the selected E, the larger one at a tie."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    value = op(a, b)
    chosen = choose(value == a, a, err_a, b, err_b)
    if err_b.exact:
        return value, chosen
    other = choose(value == b, b, err_b, a, err_a)
    first, second = total(value, chosen), total(value, other)
    zero = torch.zeros((), dtype=torch.float64, device=value.device)
    return value, Error(torch.maximum(zero if first is None else first, zero if second is None else second))


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
