"""A case → the inputs of its op, as torch tensors in the case's layout."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gonogo.cases._case import Case
from gonogo.cases.values import Stream, draw_values, round_to_bits
from gonogo.formats import get_format
from gonogo.ops import Input, Op, get_op

if TYPE_CHECKING:
    import torch


def make_inputs(case: Case, device: str = "cpu", op: Op | None = None) -> list[torch.Tensor]:
    """The inputs, in the op's order: the same bits wherever this is called. The op is found by its name."""
    op = op or get_op(case.op)
    return [_make_input(case, op, given, device) for given in op.inputs]


def _make_input(case: Case, op: Op, given: Input, device: str) -> torch.Tensor:
    import torch

    shape = case.shape_of(op, given.axes)
    stream = Stream(f"{case.id}/{given.name}")
    count = math.prod(shape)
    if given.kind == "index":
        below = case.axis_sizes(op)[str(given.below)]
        return torch.from_numpy((stream.uniform(count) * below).astype(np.int64).reshape(shape)).to(device)
    if given.kind == "int8":
        return torch.from_numpy((np.floor(stream.uniform(count) * 255) - 127).astype(np.int8).reshape(shape)).to(
            device
        )
    fmt = get_format(case.dtype)
    if given.kind == "scale":
        bits = round_to_bits((0.001 + 0.019 * stream.uniform(count)).astype(np.float32), fmt)
        return _as_tensor(bits, case.dtype, device).view(shape)
    storage, shape, strides, offset = _lay_out(
        case.layout, shape, draw_values(case.distribution, stream, count, fmt)
    )
    return _as_tensor(storage, case.dtype, device).as_strided(shape, strides, offset)


def _as_tensor(bits: npt.NDArray[Any], dtype: str, device: str) -> torch.Tensor:
    import torch

    signed = bits.view(f"i{bits.itemsize}")
    return torch.from_numpy(signed).view(getattr(torch, dtype)).to(device)


def _lay_out(
    layout: str, shape: tuple[int, ...], bits: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], tuple[int, ...], tuple[int, ...], int]:
    """Storage, shape, strides in elements and offset of an array with these elements in C order."""
    array = bits.reshape(shape)
    if layout == "transposed" and len(shape) >= 2:
        stored = np.ascontiguousarray(array.swapaxes(-1, -2))
        strides = [stride // bits.itemsize for stride in stored.swapaxes(-1, -2).strides]
        return stored.reshape(-1), shape, tuple(strides), 0
    strides = [stride // bits.itemsize for stride in np.empty(shape, bits.dtype).strides]
    if layout == "strided" and shape:
        # What stands in the gaps are the same values in another place: a kernel that reads them gets it wrong.
        stored = np.stack([bits, np.roll(bits, 1)], axis=1).reshape(-1)
        return stored, shape, tuple(2 * stride for stride in strides), 0
    if layout == "offset":
        return np.concatenate([bits[:1], bits]), shape, tuple(strides), 1
    return bits, shape, tuple(strides), 0
