"""Sums, means, cumulative sums and extremes along dimensions → value and error op(E) + what adding up rounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import EXACT, Error, is_inexact, join, spread_out, total
from gonogo.instrument.running_error.fused import Looks, look_at_sums
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.origins import Top, Total
from gonogo.instrument.running_error.pieces import Cut, map_pieces
from gonogo.instrument.running_error.rules.positions import doubt_ranks
from gonogo.instrument.running_error.summation import (
    FEW,
    LONG,
    are_whole,
    bound_chains,
    bound_growth,
    bound_orders,
    find_chains,
    find_longest,
    grow_repeated,
    is_mixed,
    limit_whole,
    list_constants,
)

Pair = tuple[Tensor, Error]


def add_up(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """sum, mean over n: op(E) + what adding rounds; infinite where a sum of some terms may be past the range."""
    x, err = ctx.split(args[0])
    rest, named = args[1:], keep_wide(kwargs)
    value = op(x, *rest, **named)
    if not x.numel():  # a sum of nothing is 0 in every kernel
        return value, EXACT
    length = x.numel() // value.numel()
    if not is_inexact(x):
        return value, Error(None, math.log2(length + 1))
    share = length if op_name(op) == "mean" else 1
    total, looks = value * share, None
    if ctx.contract.summation == "blocked" and length > LONG:
        looks = look_at_sums(x, total, find_dims(x, rest, named), list_constants(length, ctx.unit))
    absolute = add_magnitudes(x, 1, value, rest, named) if looks is None else looks.absolute
    lost = ctx.lose_overflow(lambda: absolute, ctx.growth(length) + err.ulps)
    own = round_sum(ctx, x, err, total, absolute, length, rest, named, looks)
    carried = absolute.mul_(err.ulps / share) if err.ulps else None
    if err.extra is not None:
        carried = join(carried, op(spread_out(err.extra, x.shape), *rest, **named))
    own = own.div_(share) if lost is None else own.div_(share).add_(lost)
    # Both parts are kept beside their sum, so neither is written to.
    origin = Total(x, find_dims(x, rest, named), carried, own)
    return value, Error(own if carried is None else own + carried, 0.0, origin)


def find_dims(x: Tensor, rest: Any, named: Any) -> frozenset[int]:
    """Dimensions an op with arguments (dim, keepdim) reduces; all of them where none is named."""
    dims = rest[0] if rest else named.get("dim")
    if dims is None or dims == []:
        return frozenset(range(x.dim()))
    return frozenset(dim % max(x.dim(), 1) for dim in (dims if isinstance(dims, (tuple, list)) else (dims,)))


def round_sum(
    ctx: RunningErrorMode,
    x: Tensor,
    err: Error,
    value: Tensor,
    absolute: Tensor,
    length: int,
    rest: Any,
    named: Any,
    looks: Looks | None = None,
) -> Tensor:
    """What adding up `length` terms of x rounds, by Σ|x| and, where that is less, by Σx² and Σx."""
    if looks is not None and not are_whole(x, err):
        return add_lost(err, value, absolute, looks.bound, looks.lean, looks.lost)
    growth = ctx.growth(length)
    bound = absolute * growth
    if ctx.contract.summation != "blocked" or x.is_complex():
        return bound
    mixed = length > FEW or is_mixed(growth, length, absolute, value)
    if mixed:
        squares = add_magnitudes(x, 2, value, rest, named).square_()
        bound = torch.minimum(bound, bound_orders(min(length, find_longest(ctx.unit)), squares.clone(), value))
        bound = grow_repeated(bound, squares, value, length, ctx.unit)
    if are_whole(x, err):
        return limit_whole(bound, absolute, length, ctx.unit)
    if length <= LONG:
        return bound
    dims = tuple(find_dims(x, rest, named))
    kept = restore_dims(value, x, dims) if x.dim() else value
    lean, lost = bound_chains(x, kept, length, ctx.unit, dims)
    return add_lost(err, value, absolute, bound, lean.reshape(bound.shape), lost.reshape(bound.shape))


def add_lost(err: Error, value: Tensor, absolute: Tensor, bound: Tensor, lean: Tensor, lost: Tensor) -> Tensor:
    """A bound that covers terms that lean one way, and those that are lost where sums are of one sign."""
    if err.ulps or err.extra is not None:  # raw inputs have few bits, and lean neither way
        bound = torch.maximum(bound, lean)
    one_sided = (2 * value.abs() > absolute).any()
    return torch.where(one_sided, bound + lost, bound)


def add_magnitudes(x: Tensor, order: int, value: Tensor, rest: Any, named: Any) -> Tensor:
    """Σ|x|, or √(Σx²), with the shape of `value`, in one pass: a norm needs no |x| in memory."""
    dims = rest[0] if rest else named.get("dim")
    keepdim = rest[1] if len(rest) > 1 else named.get("keepdim", False)
    dims = list(range(x.dim())) if dims is None or dims == [] else dims
    if x.dim() == 0:
        return x.abs()
    summed: Tensor = torch.linalg.vector_norm(x, order, dims, keepdim)
    return summed.reshape(value.shape)


def keep_wide(kwargs: Any) -> Any:
    """Keyword arguments with a floating dtype replaced by float64: a sum's result is not rounded here."""
    dtype = kwargs.get("dtype")
    narrow = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    return {**kwargs, "dtype": torch.float64} if narrow else kwargs


def op_name(op: Any) -> str:
    """Short name of an aten op: mean for aten.mean.dim."""
    name: str = op._schema.name if hasattr(op, "_schema") else op.__name__
    return name.split("::")[-1]


def accumulate(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Cumsum: cumsum(E) + what adding up each prefix rounds."""
    x, err = ctx.split(args[0])
    rest, named = args[1:], keep_wide(kwargs)
    value = op(x, *rest, **named)
    dim = rest[0] if rest else named["dim"]
    length = x.shape[dim] if x.dim() else 1
    buffer = x.abs()
    absolute = op(buffer, *rest, **named)
    lost = ctx.lose_overflow(lambda: absolute, ctx.growth(length) + err.ulps)
    if ctx.contract.summation == "blocked" and length:
        squares = op(torch.mul(x, x, out=buffer), *rest, **named)
        lengths = count_prefixes(x, length, dim)
        chains = find_chains(lengths, ctx.unit)
        own = bound_orders(chains, squares.clone(), value)
        torch.minimum(own, torch.mul(absolute, bound_growth(chains), out=buffer), out=own)
        own = grow_repeated(own, squares, value, lengths, ctx.unit)
        own = limit_whole(own, absolute, lengths, ctx.unit) if are_whole(x, err) else own
    else:
        own = absolute * ctx.growth(length)
    carried = absolute.mul_(err.ulps) if err.ulps else None
    if err.extra is not None:
        carried = join(carried, op(spread_out(err.extra, x.shape), *rest, **named))
    return value, Error(join(join(own, lost), carried))


def count_prefixes(x: Tensor, length: int, dim: int) -> Tensor:
    """1 to `length` along `dim`: it is a prefix's own length that counts, not that of the whole."""
    lengths = torch.arange(1, length + 1, dtype=torch.float64, device=x.device)
    return lengths.reshape([-1 if position == dim % x.dim() else 1 for position in range(x.dim())])


def multiply_up(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Prod of n, cumprod: n roundings each way, and what the factors' own E can do to the product."""
    x, err = ctx.split(args[0])
    rest, named = args[1:], keep_wide(kwargs)
    value = op(x, *rest, **named)
    if not x.numel():  # a product of nothing is 1 in every kernel
        return value, EXACT
    whole = op_name(op) == "prod" or not x.dim()
    length = x.numel() // value.numel() if whole else x.shape[args[1]]
    ulps = length * err.ulps + length - 1
    sizes = x.abs()
    # Factors below 1 may come after the others.
    lost = ctx.lose_overflow(lambda: op(sizes.clamp(min=1.0), *rest, **named), ulps)
    if err.extra is None:
        return value, Error(lost, ulps)
    # Π(|x| + u·E) − Π|x|; 0 times an infinite error is as unknown as that.
    spread = (op(sizes + ctx.unit * err.extra, *rest, **named) - op(sizes, *rest, **named)) / ctx.unit
    return value, Error(join(lost, spread.nan_to_num(nan=torch.inf, posinf=torch.inf)), ulps)


def pick_extreme(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """amax, max and kin, whole or along dimensions: the selected E, the largest among ties and near ones."""
    x, err = ctx.split(args[0])
    made = op(x, *args[1:], **kwargs)
    value = made[0] if isinstance(made, tuple) else made
    error = Error(None, err.ulps)
    if err.extra is not None:
        dims = args[1] if len(args) > 1 else kwargs.get("dim")
        keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        dims = tuple(range(x.dim())) if dims is None or dims == [] else dims
        kept = value if keepdim or not x.dim() else restore_dims(value, x, dims)
        spread = spread_out(err.extra, x.shape)
        extra = spread
        if x.dim():

            def find_slice(cut: Cut) -> Tensor:
                return find_nearest(ctx, cut(x), cut(spread), cut(kept), dims)

            extra = map_pieces(find_slice, x, find_dims(x, args[1:], kwargs)).reshape(value.shape)
        error = Error(extra, err.ulps)
    if op_name(op) in ("amax", "max"):
        error = replace(error, origin=Top(x, find_dims(x, args[1:], kwargs)))
    if isinstance(made, tuple):
        doubt_ranks(ctx, x, err, read_dim(op, args, kwargs), made[1])
    return made, (error, EXACT) if isinstance(made, tuple) else error


def find_nearest(ctx: RunningErrorMode, x: Tensor, spread: Tensor, extreme: Tensor, dims: Any) -> Tensor:
    """The largest error of all that may be the extreme along `dims` in a kernel."""
    ties = x == extreme
    chosen = torch.where(ties, spread, 0.0).amax(dims, True)
    near = (x - extreme).abs_() <= ctx.reach(x, spread) + ctx.reach(extreme, chosen)
    return torch.where(near.logical_or_(ties), spread, 0.0).amax(dims, True)


def restore_dims(value: Tensor, x: Tensor, dims: Any) -> Tensor:
    """`value` with the reduced dimensions back, of size 1."""
    reduced = {dim % x.dim() for dim in (dims if isinstance(dims, (tuple, list)) else (dims,))}
    return value.reshape([1 if dim in reduced else size for dim, size in enumerate(x.shape)])


def pick_ranked(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """sort, topk, kthvalue, median, cummax: values with the errors of the positions they came from."""
    x, err = ctx.split(args[0])
    made = op(x, *args[1:], **kwargs)
    if isinstance(made, Tensor):  # median of all elements, without a position
        if not x.numel():
            return made, EXACT
        if err.extra is None or not x.dim():
            return made, Error(err.extra, err.ulps)
        flat = x.flatten()
        merged = merge_near(ctx, flat, Error(spread_out(err.extra, x.shape).flatten(), err.ulps), 0)
        return made, Error(torch.where(flat == made, merged, 0.0).amax(), err.ulps)
    values, indices = made
    doubt_ranks(ctx, x, err, read_dim(op, args, kwargs), indices)
    if err.extra is None or not x.dim():
        return made, (Error(err.extra, err.ulps), EXACT)
    dim = read_dim(op, args, kwargs)
    kept = indices if indices.dim() == x.dim() else indices.unsqueeze(dim)
    extra = torch.gather(merge_near(ctx, x, err, dim), dim, kept).reshape(values.shape)
    return made, (Error(extra, err.ulps), EXACT)


def merge_near(ctx: RunningErrorMode, x: Tensor, err: Error, dim: int) -> Tensor:
    """Every element's extra error, the largest of all that may change places with it along `dim`."""
    extra = torch.zeros_like(x) if err.extra is None else spread_out(err.extra, x.shape)
    if x.numel() == 0:
        return extra
    ordered, order = x.sort(dim)
    sizes = extra.gather(dim, order)
    reach = ctx.reach(ordered, total(ordered, Error(sizes, err.ulps)))
    ends = (ordered + reach).cummax(dim).values
    begins = (ordered - reach).flip(dim).cummin(dim).values.flip(dim)
    # A group ends where all that come after begin past the end of all before.
    later = x.shape[dim] - 1
    apart = begins.narrow(dim, 1, later) > ends.narrow(dim, 0, later)
    group = torch.cat([torch.zeros_like(order.narrow(dim, 0, 1)), apart.long().cumsum(dim)], dim)
    largest = torch.zeros_like(sizes).scatter_reduce(dim, group, sizes, "amax")
    return torch.zeros_like(sizes).scatter(dim, order, largest.gather(dim, group))


def read_dim(op: Any, args: Any, kwargs: Any) -> int:
    """Read the `dim` argument of an op by its schema."""
    for position, declared in enumerate(op._schema.arguments):
        if declared.name == "dim":
            given = args[position] if position < len(args) else kwargs.get("dim", declared.default_value)
            return int(given)
    return -1


REDUCTIONS: dict[str, Rule] = {
    "aten.sum": add_up,
    "aten.mean": add_up,
    "aten.cumsum": accumulate,
    "aten.prod": multiply_up,
    "aten.cumprod": multiply_up,
    "aten.amax": pick_extreme,
    "aten.amin": pick_extreme,
    "aten.max": pick_extreme,
    "aten.min": pick_extreme,
    "aten.sort": pick_ranked,
    "aten.topk": pick_ranked,
    "aten.kthvalue": pick_ranked,
    "aten.median": pick_ranked,
    "aten.nanmedian": pick_ranked,
    "aten.mode": pick_ranked,
    "aten.cummax": pick_ranked,
    "aten.cummin": pick_ranked,
}
