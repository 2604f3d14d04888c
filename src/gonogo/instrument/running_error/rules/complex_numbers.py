"""Complex numbers: taken apart, put together, turned, and transformed by Fourier.

The error of a complex number is a distance in the plane: both parts are off by no more, and of two parts together
it is their hypotenuse.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import EXACT, Error, join, spread_out, total
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode

BUTTERFLY = 3.0
"""Roundings of one step of a fast transform, of lengths that are no power of two, too."""


def take_parts(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """view_as_real: either part is off by the distance at most."""
    z, err = ctx.split(args[0])
    whole = total(z, err)
    extra = None if whole is None else spread_out(whole, z.shape).unsqueeze(-1).expand(*z.shape, 2)
    return op(z), Error(extra)


def join_parts(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """view_as_complex: √(E(x)² + E(y)²)."""
    x, err = ctx.split(args[0])
    whole = total(x, err)
    extra = None if whole is None else torch.linalg.vector_norm(spread_out(whole, x.shape), dim=-1)
    return op(x.contiguous()), Error(extra)


def make_complex(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """complex(x, y): the same, of two tensors."""
    (x, err_x), (y, err_y) = ctx.split(args[0]), ctx.split(args[1])
    first, second = total(x, err_x), total(y, err_y)
    if first is None or second is None:
        return op(x, y), Error(first if second is None else second)
    return op(x, y), Error(torch.hypot(first, second))


def make_polar(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """r·e^(iφ): E(r) + |r|·E(φ), and a sine, a cosine and a product."""
    (r, err_r), (angle, err) = ctx.split(args[0]), ctx.split(args[1])
    turned = total(angle, err)
    turned = None if turned is None else turned * r.abs()
    return op(r, angle), Error(join(total(r, err_r), turned, err_r.extra), ctx.accuracy("sin").relative + 1)


def find_angle(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """The angle of a number: E/|z|, π at most. Of real numbers it is 0 or π, by the sign."""
    z, err = ctx.split(args[0])
    value, whole = op(z), total(z, err)
    if not z.is_complex() and err.extra is None:
        return value, Error(None, 1.0)
    turned = None if whole is None else (whole / z.abs()).nan_to_num(nan=0.0).clamp(max=math.pi / ctx.unit)
    return value, Error(turned, ctx.accuracy("atan").relative)


def conjugate(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Keep E."""
    z, err = ctx.split(args[0])
    return z.conj().resolve_conj(), Error(err.extra, err.ulps)


def transform(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """FFTs over n numbers: ΣE, and 3·log2(n)·‖x‖₂ for the steps, by ‖x‖₁ where every rounding counts in full."""
    x, err = ctx.split(args[0])
    dims, normalization = list(args[1]), args[2]
    value = op(x, *args[1:], **kwargs)
    if not x.numel():
        return value, EXACT
    shape = [value.shape[dim] if op._schema.name == "aten::_fft_c2r" else x.shape[dim] for dim in dims]
    length = math.prod(shape)
    factor = {0: 1.0, 1: length**-0.5, 2: 1 / length}[normalization]
    # Of a real output half of the numbers stand for their conjugates, too.
    twice = 2.0 if op._schema.name == "aten::_fft_c2r" else 1.0
    steps = BUTTERFLY * (math.log2(max(length, 2)) + 1)
    ctx.summed |= length > 1
    order = 1 if ctx.contract.summation == "sequential" else 2
    own = torch.linalg.vector_norm(x, order, dims, keepdim=True) * (steps * factor * twice)
    whole = total(x, err)
    if whole is not None:
        own = own + spread_out(whole, x.shape).sum(dims, keepdim=True) * (factor * twice)
    return value, Error(own.expand(value.shape))


COMPLEX: dict[str, Rule] = {
    "aten.view_as_real": take_parts,
    "aten.view_as_complex": join_parts,
    "aten.complex": make_complex,
    "aten.polar": make_polar,
    "aten.angle": find_angle,
    "aten._conj": conjugate,
    "aten._conj_physical": conjugate,
    "aten.conj_physical": conjugate,
    "aten._fft_r2c": transform,
    "aten._fft_c2c": transform,
    "aten._fft_c2r": transform,
}
