"""Views, copies, gathers and concatenations → the values moved, and the same move on their errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gonogo.errors import NoErrorRule
from gonogo.instrument.running_error.companion import (
    EXACT,
    Error,
    before_cast,
    find_cast,
    is_inexact,
    spread_out,
    total,
    widen_error,
)
from gonogo.instrument.running_error.facts import find_tensors, name_ops
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.origins import move_origin


def move(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """One data tensor, first in line: the same op on E. Relative errors travel with the values."""
    x, err = ctx.split(args[0])
    rest, named = ctx.values(args[1:]), ctx.values(kwargs)
    value = op(x, *rest, **named)
    extra = None if err.extra is None else op(spread_out(err.extra, x.shape), *rest, **named)
    errors = spread_errors(value, extra, err.ulps)
    doubts = [(index, ctx.doubts.find(index)) for index in find_tensors(args[1:])]
    doubtful = [(index, places) for index, places in doubts if places is not None]
    if not doubtful or isinstance(errors, list):
        return value, errors
    lost = torch.zeros_like(value).masked_fill_(place_doubt(op, args, value, doubtful), torch.inf)
    return value, Error(lost if extra is None else extra + lost, err.ulps)


def place_doubt(op: Any, args: Any, value: Tensor, doubtful: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Where what was picked by doubtful positions stands; everywhere if that is not plain to see."""
    (index, places), name = doubtful[0], op._schema.name.split("::")[-1]
    if len(doubtful) == 1 and index.dtype != torch.bool:
        if name in ("gather", "take") or (name == "index_select" and value.dim() == 1):
            return places
        if name == "embedding" or (name == "index" and args[1][0] is index):
            return places.reshape(*places.shape, *[1] * (value.dim() - places.dim()))
    return torch.ones_like(value, dtype=torch.bool)


def widen(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Move as above; a value with no more than dimensions of size 1 added is still what it was."""
    x, err = ctx.split(args[0])
    value, moved = move(ctx, op, args, kwargs)
    if err.origin is not None and value.numel() == x.numel():
        moved = replace(moved, origin=move_origin(err.origin, lambda part: op(part, *args[1:], **kwargs)))
    return value, moved


def spread_errors(value: Any, extra: Any, ulps: float) -> Any:
    """Make an Error for each result."""
    if isinstance(value, Tensor):
        return Error(extra, ulps)
    extras = [None] * len(value) if extra is None else extra
    return [Error(one, ulps) for one in extras]


def keep(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Keep E: the same elements in the same places."""
    x, err = ctx.split(args[0])
    return op(x, *args[1:], **kwargs), err


def view(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Reshape E, copied where it was a broadcast."""
    x, err = ctx.split(args[0])
    if isinstance(args[1], torch.dtype):
        raise NoErrorRule("aten.view.dtype", "it reads bits as another format; an error has no bits")
    value = op(x, *args[1:], **kwargs)
    origin = move_origin(err.origin, lambda part: part.reshape(value.shape))
    if err.extra is None:
        return value, Error(None, err.ulps, origin)
    return value, Error(spread_out(err.extra, x.shape).reshape(value.shape), err.ulps, origin)


def concatenate(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """cat, stack: the same on the errors."""
    pairs = [ctx.split(one) for one in args[0]]
    # Integer parts are promoted by torch as the plain reference would.
    value = op([x for x, _ in pairs], *args[1:], **kwargs)
    ulps = {err.ulps for _, err in pairs}
    common = ulps.pop() if len(ulps) == 1 else 0.0
    wholes = [err.extra if common else total(x, err) for x, err in pairs]
    if all(whole is None for whole in wholes):
        return value, Error(None, common)
    filled = [
        torch.zeros_like(x, dtype=torch.float64) if whole is None else spread_out(whole, x.shape)
        for (x, _), whole in zip(pairs, wholes, strict=True)
    ]
    return value, Error(op(filled, *args[1:], **kwargs), common)


def pad(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Constant padding: E padded with 0."""
    x, err = ctx.split(args[0])
    fill = args[2] if len(args) > 2 else kwargs.get("value", 0)
    value = op(x, *args[1:], **kwargs)
    extra, ulps = (err.extra, err.ulps) if fill == 0 else (total(x, err), 0.0)
    if extra is None:
        return value, Error(None, ulps)
    return value, Error(op(spread_out(extra, x.shape), args[1], 0.0), ulps)


def write(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Scatter and kin without accumulation: the same op, target's and source's errors in their places."""
    if kwargs.get("reduce"):
        raise NoErrorRule(op._schema.name.replace("::", "."), "it adds where indices meet; use scatter_reduce")
    value = op(*ctx.values(args), **kwargs)
    if any(ctx.doubts.find(index) is not None for index in find_tensors(args)):
        return value, Error(torch.full_like(value, torch.inf))
    errors = [ctx.split(arg)[1] for arg in args]
    if all(error.exact for error in errors):
        return value, EXACT

    def place(choose: Callable[[Error], Error]) -> Tensor:
        sources: list[Any] = []
        for position, arg in enumerate(args):
            x, err = ctx.split(arg)
            # The fourth argument of scatter and index_fill is a number to write: it has no error.
            fill = position == 3 and op._schema.name in ("aten::scatter", "aten::index_fill")
            sources.append(widen_error(x, choose(err)) if is_inexact(x) else 0.0 if fill else ctx.values(arg))
        placed: Tensor = op(*sources, **kwargs)
        return placed

    return value, place_cast(errors, place)


def place_cast(errors: Sequence[Error], place: Callable[[Callable[[Error], Error]], Tensor]) -> Error:
    """Errors in their places; those before their last cast, too, where all that is not exact was cast alike."""
    cast = find_cast(errors)
    uncast = None if cast is None else Error(place(before_cast))
    return Error(place(lambda error: error), uncast=uncast, cast_to=cast, buffered=True)


def stride(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """as_strided: the same on a copy of the memory, in which E stands; nothing is known of what x is no part of."""
    x, err = ctx.split(args[0])
    value = op(x, *args[1:], **kwargs)
    whole = total(x, err)
    if whole is None:
        return value, EXACT
    size = x.untyped_storage().nbytes() // x.itemsize
    memory = torch.full((size,), torch.inf, dtype=torch.float64, device=x.device)
    memory.as_strided(x.shape, x.stride(), x.storage_offset()).copy_(whole)
    return value, Error(memory.as_strided(value.shape, value.stride(), value.storage_offset()))


def find_unique(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """unique: of exact values, which are equal or not."""
    if not ctx.split(args[0])[1].exact:
        raise NoErrorRule(
            op._schema.name.replace("::", "."), "computed values that are equal here may differ in a kernel"
        )
    made = op(*ctx.values(args), **kwargs)
    return made, tuple(EXACT for _ in made)


def overwrite(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """copy, fill: what is written, in the shape of what it is written to, whose values are gone."""
    target, (source, err) = ctx.split(args[0])[0], ctx.split(args[1])
    written = Error(err.extra, err.ulps, uncast=err.uncast, cast_to=err.cast_to, buffered=True)
    return op(target, source), written


MOVEMENT: dict[str, Rule] = {
    **dict.fromkeys(
        name_ops(
            "permute", "transpose", "t", "expand", "select", "index", "index_select", "gather",
            "take", "masked_select", "split", "split_with_sizes", "unbind", "squeeze", "flip",
            "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "roll", "repeat", "rot90", "tril",
            "triu", "diagonal", "diag_embed", "unfold", "embedding",
            "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
            "replication_pad2d", "replication_pad3d", "pixel_shuffle", "upsample_nearest1d",
            "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
            "_upsample_nearest_exact3d",
        ),
        move,
    ),
    **dict.fromkeys(name_ops("unsqueeze", "slice"), widen),
    **dict.fromkeys(name_ops("clone", "detach", "lift_fresh", "alias"), keep),
    **dict.fromkeys(name_ops("view", "_unsafe_view"), view),
    **dict.fromkeys(name_ops("cat", "stack"), concatenate),
    "aten.constant_pad_nd": pad,
    "aten.as_strided": stride,
    **dict.fromkeys(name_ops("_unique2", "unique_consecutive", "unique_dim"), find_unique),
}  # fmt: skip

WRITES: dict[str, Rule] = {
    **dict.fromkeys(name_ops("copy", "fill"), overwrite),
    **dict.fromkeys(
        name_ops(
            "scatter", "index_put", "slice_scatter", "select_scatter", "diagonal_scatter", "index_copy",
            "masked_scatter", "index_fill", "as_strided_scatter",
        ),
        write,
    ),
}  # fmt: skip
