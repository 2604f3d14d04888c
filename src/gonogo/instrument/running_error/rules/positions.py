"""Positions found among computed values (argmax, sort, searchsorted) → where a kernel may find another one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import EXACT, Error, spread_out, total
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode


def reach_of(ctx: RunningErrorMode, x: Tensor, err: Error) -> Tensor:
    """How far each element of x may be off, in the shape of x."""
    reach = ctx.reach(x, total(x, err))
    return spread_out(torch.as_tensor(reach, dtype=torch.float64, device=x.device), x.shape)


def find_rivals(ctx: RunningErrorMode, x: Tensor, err: Error, best: Tensor, dims: Any, keepdim: bool) -> Tensor:
    """Where more than one element along `dims` may be the `best`; dimensions of the latter are kept."""
    reach = reach_of(ctx, x, err)
    own = torch.where(x == best, reach, 0.0).amax(dims, True)
    # Ties of exact values go as the reference breaks them.
    near = ((x - best).abs() <= reach + own) & (reach + own > 0)
    return near.sum(dims, keepdim) > 1


def find_extreme(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """argmax, argmin: a position, in doubt where another element is nearly as extreme."""
    x, err = ctx.split(args[0])
    at = op(x, *args[1:], **kwargs)
    if not err.exact and x.numel():
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
        extreme = torch.amax if op._schema.name == "aten::argmax" else torch.amin
        flat, dims = (x.flatten(), 0) if dim is None else (x, dim)
        flat_err = err if dim is not None or err.extra is None else Error(spread_out(err.extra, x.shape).flatten())
        best = extreme(flat, dims, keepdim=True)
        ctx.doubts.defer(at, lambda: find_rivals(ctx, flat, flat_err, best, dims, keepdim).reshape(at.shape))

        def allows(other: Tensor) -> Tensor:
            kept = best.shape if dim is not None else (1,)
            near = point_near(ctx, flat, flat_err, dims, other.reshape(kept), at.reshape(kept))
            return near.reshape(at.shape)

        ctx.doubts.allow(at, allows)
    return at, EXACT


def point_near(ctx: RunningErrorMode, x: Tensor, err: Error, dim: int, other: Tensor, at: Tensor) -> Tensor:
    """Where values at other positions along `dim` may be those at the reference's."""
    size, reach = x.shape[dim], reach_of(ctx, x, err)
    there = other.to(at.device).long()
    safe = there.clamp(0, size - 1)
    apart = (x.gather(dim, safe) - x.gather(dim, at)).abs()
    return (there >= 0) & (there < size) & (apart <= reach.gather(dim, safe) + reach.gather(dim, at))


def find_ties(ctx: RunningErrorMode, x: Tensor, err: Error, dim: int) -> Tensor:
    """Elements that may change places with another along `dim`."""
    ordered, order = x.sort(dim)
    reach = reach_of(ctx, x, err).gather(dim, order)
    later = x.shape[dim] - 1
    ends = (ordered + reach).cummax(dim).values.narrow(dim, 0, later)
    begins = (ordered - reach).flip(dim).cummin(dim).values.flip(dim).narrow(dim, 1, later)
    close = (begins <= ends) & (reach.narrow(dim, 0, later) + reach.narrow(dim, 1, later) > 0)
    none = torch.zeros_like(order.narrow(dim, 0, 1), dtype=torch.bool)
    tied = torch.cat([none, close], dim) | torch.cat([close, none], dim)
    return torch.zeros_like(tied).scatter(dim, order, tied)


def doubt_ranks(ctx: RunningErrorMode, x: Tensor, err: Error, dim: int, indices: Tensor) -> None:
    """Note where the indices of sort and kin may be others."""
    if err.exact or not x.dim() or not x.numel():
        return

    def look() -> Tensor:
        kept = indices if indices.dim() == x.dim() else indices.unsqueeze(dim)
        return find_ties(ctx, x, err, dim).gather(dim, kept).reshape(indices.shape)

    def allows(other: Tensor) -> Tensor:
        kept, other = (one if one.dim() == x.dim() else one.unsqueeze(dim) for one in (indices, other))
        return point_near(ctx, x, err, dim, other, kept).reshape(indices.shape)

    ctx.doubts.defer(indices, look)
    ctx.doubts.allow(indices, allows)


def find_bucket(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """searchsorted, bucketize: a position, in doubt where a value is beside a boundary."""
    at = op(*ctx.values(args), **ctx.values(kwargs))
    first, second = ctx.split(args[0]), ctx.split(args[1])
    (x, err), (bounds, err_bounds) = (first, second) if "bucketize" in op._schema.name else (second, first)
    if not (err.exact and err_bounds.exact) and isinstance(x, Tensor) and bounds.numel():

        def look() -> Tensor:
            if bounds.dim() > 1 or not err_bounds.exact:
                return torch.ones_like(at, dtype=torch.bool)
            reach = reach_of(ctx, x, err)
            ends = (bounds[side.clamp(0, bounds.numel() - 1)] for side in (at, at - 1))
            beside = torch.stack([(x - end).abs() <= reach for end in ends]).any(0)
            return beside & (reach > 0)

        ctx.doubts.defer(at, look)
    return at, EXACT


def find_sign(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """sign: 2 off where a value's own error reaches 0; of a complex number z/|z|, which turns by E/|z|."""
    x, err = ctx.split(args[0])
    if x.is_complex():
        whole = total(x, err)
        turned = None if whole is None else (whole / x.abs()).nan_to_num(nan=2 / ctx.unit).clamp(max=2 / ctx.unit)
        return op(x), Error(turned, 6.0)
    if err.extra is None:  # a relative error keeps the sign
        return op(x), EXACT
    near = (x.abs() <= ctx.reach(x, err.extra)) & (err.extra > 0)
    jump = torch.zeros_like(x).masked_fill_(near, 2 / ctx.unit)
    return op(x), Error(jump) if bool(near.any()) else EXACT


POSITIONS: dict[str, Rule] = {
    "aten.argmax": find_extreme,
    "aten.argmin": find_extreme,
    "aten.searchsorted": find_bucket,
    "aten.bucketize": find_bucket,
    "aten.sign": find_sign,
    "aten.sgn": find_sign,
}
