"""A case → the inputs of its op, as torch tensors, each in its layout and with guard elements behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gonogo.cases._case import Case
from gonogo.cases.stream import open_stream
from gonogo.cases.values import draw_index, draw_int8, draw_scale, draw_values
from gonogo.formats import FLOAT32, get_format
from gonogo.ops import FOLLOWED, Input, Op, get_op

if TYPE_CHECKING:
    import torch

GUARD = 64
"""Elements behind an input that belong to nobody: a read past its end finds NaN, a write is found afterwards."""
GUARD_BITS = {1: 0x5A, 2: 0x7FDA, 4: 0x7FC5A5A5}
"""By element size: a NaN in every floating format; an odd number in int8."""
FIRST_KINDS = ("values", "index", "int8", "scale")
"""Kinds of inputs whose bits are those that were first recorded, where they follow the case's dtype."""
WHOLE = {"integers": "int64", "boolean": "bool", "index": "int64", "int8": "int8"}
"""Dtypes of whole numbers that name none."""
DRAWN_IN = ("float16", "bfloat16", "float32")
"""Formats that values are drawn in."""
FAR_OFFSET = 2**31
"""Elements from the first row of a far input to one of its last: what 32 bits do not hold. As many are before it,
where an offset that has wrapped around lands: there is memory."""


def make_inputs(case: Case, device: str = "cpu", op: Op | None = None) -> list[Any]:
    """The inputs, in the op's order: the same bits wherever this is called. The op is found by its name.

    All are tensors but constants.
    """
    op = op or get_op(case.op)
    return [_make_input(case, op, position, device) for position in range(len(op.inputs))]


def _make_input(case: Case, op: Op, position: int, device: str) -> Any:
    import torch

    described = op.inputs[position]
    if described.kind == "constant":
        return described.value
    shape = case.shape_of(op, described.axes)
    stream = open_stream(f"{case.id}/{described.name}")
    if described.kind not in FIRST_KINDS or described.dtype != FOLLOWED:
        return _fill(case, op, position, device)
    count, fmt = math.prod(shape), get_format(case.dtype)
    layout = case.layout_of(op, position)
    bits: npt.NDArray[Any]
    if described.kind == "index":
        below = case.axis_sizes(op)[str(described.below)]
        storage, strides, offset = lay_out(layout, shape, draw_index(case.distribution, stream, count, below))
        return torch.from_numpy(storage).to(device).as_strided(shape, strides, offset)
    if described.kind == "int8":
        dtype, bits = "int8", draw_int8(case.distribution, stream, count)
    elif described.kind == "scale":
        dtype, bits = case.dtype, draw_scale(case.distribution, stream, count, fmt)
    else:
        dtype, bits = case.dtype, draw_values(case.distribution, stream, shape, fmt)
    if layout == "far" and len(shape) > 1:
        return lay_far(_as_tensor(bits, dtype, device).reshape(shape))
    storage, strides, offset = lay_out(layout, shape, bits)
    guard = np.full(GUARD, GUARD_BITS[bits.itemsize], f"u{bits.itemsize}").view(bits.dtype)
    return _as_tensor(np.concatenate([storage, guard]), dtype, device).as_strided(shape, strides, offset)


def _fill(case: Case, op: Op, position: int, device: str) -> torch.Tensor:
    """An input of a dtype of its own, or of a kind that came later: drawn in float32, then cast by torch."""
    import torch

    described = op.inputs[position]
    shape, sizes = case.shape_of(op, described.axes), case.axis_sizes(op)
    stream, count = open_stream(f"{case.id}/{described.name}"), math.prod(shape)
    high = sizes[described.high] if isinstance(described.high, str) else described.high
    dtype = find_input_dtype(case, described)
    drawn: npt.NDArray[Any]
    if described.kind in ("integers", "boolean", "index", "int8"):
        low, most = {
            "integers": (described.low, high), "boolean": (0, 1), "int8": (-128, 127),
            "index": (0, sizes.get(str(described.below), 1) - 1),
        }[described.kind]  # fmt: skip
        drawn = np.floor(stream.uniform(count) * (most - low + 1)) + low
    elif described.kind in ("probability", "range"):
        low, most = (0.0, 1.0) if described.kind == "probability" else (described.low, high)
        drawn = (low + (most - low) * stream.uniform(count)).astype(np.float32)
    elif described.kind == "scale":
        drawn = decode_bits(draw_scale(case.distribution, stream, count, FLOAT32))
    else:
        # Within the range of what it is cast to, whatever the case's own format is.
        fmt = get_format(dtype) if dtype in DRAWN_IN else FLOAT32
        drawn = fmt.decode(draw_values(case.distribution, stream, shape, fmt)).reshape(-1)
        drawn = np.abs(drawn) + np.float64(fmt.smallest_normal) if described.kind == "positive" else drawn
    values = torch.from_numpy(np.ascontiguousarray(drawn)).to(getattr(torch, dtype))
    storage, strides, offset = lay_out(case.layout_of(op, position), shape, np.arange(count))
    laid = values[torch.from_numpy(np.ascontiguousarray(storage))]
    if laid.dtype.itemsize in GUARD_BITS:
        integers = _integers(laid)
        guard = torch.full((GUARD,), GUARD_BITS[laid.dtype.itemsize], dtype=integers)
        laid = torch.cat([laid.view(integers), guard]).view(laid.dtype)
    return laid.to(device).as_strided(shape, strides, offset)


def decode_bits(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Bit patterns of float32 as its values."""
    return bits.view(np.float32)


def _integers(tensor: torch.Tensor) -> torch.dtype:
    """The integers that hold the bits of a tensor's elements."""
    import torch

    return {1: torch.uint8 if tensor.dtype in (torch.bool, torch.uint8) else torch.int8, 2: torch.int16,
            4: torch.int32}[tensor.dtype.itemsize]  # fmt: skip


def find_guard(tensor: torch.Tensor) -> torch.Tensor | None:
    """The guard behind an input, as integers; None where it has none."""
    import torch

    if tensor.dtype.itemsize not in GUARD_BITS or (tensor.numel() == 0 and not tensor.untyped_storage().nbytes()):
        return None
    stored = tensor.untyped_storage().nbytes() // tensor.dtype.itemsize
    guard = tensor.as_strided((GUARD,), (1,), stored - GUARD)
    return guard.view(torch.int8 if tensor.dtype.itemsize == 1 else _integers(tensor))


def _as_tensor(bits: npt.NDArray[Any], dtype: str, device: str) -> torch.Tensor:
    import torch

    signed = bits.view(f"i{bits.itemsize}")
    return torch.from_numpy(signed).view(getattr(torch, dtype)).to(device)


def lay_out(
    layout: str, shape: tuple[int, ...], bits: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], tuple[int, ...], int]:
    """Storage, strides in elements and offset of an array whose elements in C order are `bits`."""
    array = bits.reshape(shape)
    if layout == "transposed" and len(shape) >= 2:
        stored = np.ascontiguousarray(array.swapaxes(-1, -2))
        strides = [stride // bits.itemsize for stride in stored.swapaxes(-1, -2).strides]
        return stored.reshape(-1), tuple(strides), 0
    strides = [stride // bits.itemsize for stride in np.empty(shape, bits.dtype).strides]
    # What stands in gaps are the same values in another place: a kernel that reads them gets it wrong.
    if layout == "strided" and shape:
        stored = np.stack([bits, np.roll(bits, 1)], axis=1).reshape(-1)
        return stored, tuple(2 * stride for stride in strides), 0
    if layout == "pitched" and len(shape) >= 2 and bits.size:
        width, pitch = shape[-1], shape[-1] + 8 + shape[-1] % 8
        stored = np.resize(np.roll(bits, 1), (bits.size // width, pitch))
        stored[:, :width] = array.reshape(-1, width)
        return stored.reshape(-1), (*(stride // width * pitch for stride in strides[:-1]), 1), 0
    if layout == "expanded" and any(size > 1 for size in shape):
        # The first axis of several entries, so that a sum over the last one has terms of all kinds.
        axis = next(axis for axis, size in enumerate(shape) if size > 1)
        kept = np.ascontiguousarray(array.take([0], axis))
        strides = [stride // bits.itemsize for stride in kept.strides]
        # As much memory as a copy would have: what takes it for one must read wrong numbers, not fault. What stands
        # there are values of the other entries, for a single one repeated would be right.
        stored = np.roll(bits, 1)
        stored[: kept.size] = kept.reshape(-1)
        return stored, (*strides[:axis], 0, *strides[axis + 1 :]), 0
    if layout == "offset":
        return np.concatenate([bits[:1], bits]), tuple(strides), 1
    return bits, tuple(strides), 0


def find_input_dtype(case: Case, described: Input) -> str:
    """The dtype of an input in a case."""
    if described.dtype != FOLLOWED:
        return described.dtype
    return WHOLE.get(described.kind, case.dtype)


def count_stored(layout: str, shape: tuple[int, ...]) -> int:
    """Elements that an array takes in memory at least, without its guard."""
    if layout != "far" or len(shape) < 2:
        return math.prod(shape)
    rows = shape[_find_far_axis(shape)]
    return FAR_OFFSET + (rows - 1) * far_stride(rows) + math.prod(shape) // max(rows, 1)


def _find_far_axis(shape: tuple[int, ...]) -> int:
    """The longest axis but the last."""
    return max(range(len(shape) - 1), key=lambda axis: (shape[axis], axis))


def far_stride(rows: int) -> int:
    """Elements between two rows of a far input: the least power of two that takes one of them past 32 bits.

    Between two rows that are near each other 32 bits hold the offset, if there are many: only kernels that reckon
    from the start of the tensor in 32 bits go wrong.
    """
    return FAR_OFFSET >> max((rows - 1).bit_length() - 1, 1)


def lay_far(values: torch.Tensor) -> torch.Tensor:
    """The same values: entries of the longest axis but the last far apart, those of the others side by side."""
    import torch

    shape, width = tuple(values.shape), values.dtype.itemsize
    far = _find_far_axis(shape)
    near = np.empty((*shape[:far], *shape[far + 1 :]), np.int8).strides
    end = count_stored("far", shape) + GUARD
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32}[width]
    stored = torch.full((end,), GUARD_BITS[width], dtype=integers, device=values.device).view(values.dtype)
    laid = stored.as_strided(shape, (*near[:far], far_stride(shape[far]), *near[far:]), FAR_OFFSET)
    return laid.copy_(values)


def is_far(tensor: torch.Tensor) -> bool:
    """Whether an input is one that `lay_far` has laid: no other begins so far behind its memory's first element."""
    return tensor.storage_offset() == FAR_OFFSET
