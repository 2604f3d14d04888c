"""Gradients torch has as one op → sums of what flows back, each weighed by what flowed there.

Pooling, resizing and padding are linear with weights that are not negative: the same op on E and on |gradient|
bounds carried errors and sizes. A convolution's gradients are two convolutions and a sum.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import EXACT, Error, spread_out, total
from gonogo.instrument.running_error.facts import name_ops
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.rules.products import product_error


def return_linear(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Backward of pooling, resizing, padding: op(E) + (g(n) + 4)·op(|gradient|); weights are rounded, too."""
    given, err = ctx.split(args[0])
    rest, named = ctx.values(args[1:]), ctx.values(kwargs)

    def flow(x: Tensor) -> Tensor:
        returned: Tensor = op(x, *rest, **named)
        return returned

    value = flow(given)
    absolute = flow(given.abs()).abs_()
    rank = max(given.dim() - 2, 1)
    wide = zip(given.shape[-rank:], value.shape[-rank:], strict=True)
    meeting = math.prod(2 * math.ceil(out / max(full, 1)) + 4 for out, full in wide)
    # Weights of a resampling lie between positions, which are rounded.
    positions = 2 * sum(value.shape[-rank:]) if "upsample" in op._schema.name else 0
    own = absolute * (ctx.growth(meeting) + 4 + positions)
    whole = total(given, err)
    return value, Error(own if whole is None else own + flow(spread_out(whole, given.shape).contiguous()).abs_())


def return_kept(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Backward of hardshrink and softshrink: the gradient where x passed; all of it where x may have."""
    (given, err), (x, err_x) = ctx.split(args[0]), ctx.split(args[1])
    threshold = args[2]
    value = op(given, x, *args[2:], **kwargs)
    whole = total(given, err)
    extra = (
        torch.zeros_like(value) if whole is None else torch.where(value != 0, spread_out(whole, value.shape), 0.0)
    )
    if not err_x.exact:
        near = (x.abs() - threshold).abs() <= ctx.reach(x, total(x, err_x))
        extra = torch.where(near, given.abs() / ctx.unit + extra, extra)
    return value, Error(extra)


def return_convolution(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Gradients of x (a sum over filters), of the weights (over all positions), and of the bias."""
    (given, err), (x, err_x), (weight, err_w) = (ctx.split(arg) for arg in args[:3])
    settings, wanted = args[3:10], list(args[10])
    made = op(given, x, weight, *settings, wanted)
    groups, transposed = settings[6], settings[4]
    taps, places = math.prod(weight.shape[2:]), given.shape[0] * math.prod(given.shape[2:])
    channels = weight.shape[1] if transposed else weight.shape[0] // groups
    errors: list[Error] = [EXACT, EXACT, EXACT]

    def flow(which: int, first: Tensor, second: Tensor) -> Tensor:
        mask = [which == position for position in range(3)]
        back = (first, x, second) if which == 0 else (first, second, weight)
        returned: Tensor = op(*back, *settings, mask)[which]
        return returned

    if wanted[0]:
        operands = ((given, err), (weight, err_w))
        errors[0] = Error(product_error(ctx, lambda a, b: flow(0, a, b), made[0], operands, channels * taps))
    if wanted[1]:
        operands = ((given, err), (x, err_x))
        errors[1] = Error(product_error(ctx, lambda a, b: flow(1, a, b), made[1], operands, places))
    if wanted[2]:
        dims = [0, *range(2, given.dim())]
        whole = total(given, err)
        own = given.abs().sum(dims) * ctx.growth(places)
        errors[2] = Error(own if whole is None else own + spread_out(whole, given.shape).sum(dims))
    return made, tuple(errors)


BACKWARD: dict[str, Rule] = {
    **dict.fromkeys(
        name_ops(
            "avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward",
            "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward",
            "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "replication_pad1d_backward",
            "replication_pad2d_backward", "replication_pad3d_backward", "reflection_pad1d_backward",
            "reflection_pad2d_backward", "reflection_pad3d_backward", "upsample_nearest1d_backward",
            "upsample_nearest2d_backward", "upsample_nearest3d_backward", "_upsample_nearest_exact1d_backward",
            "_upsample_nearest_exact2d_backward", "_upsample_nearest_exact3d_backward",
            "upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward",
            "_upsample_bilinear2d_aa_backward", "masked_scatter_backward",
        ),
        return_linear,
    ),
    **dict.fromkeys(name_ops("hardshrink_backward", "softshrink_backward"), return_kept),
    "aten.convolution_backward": return_convolution,
}  # fmt: skip
