"""Users' arrays → operands: bits in a known format on one device, laid out alike.

Nothing is copied whole but arrays in foreign byte order and torch's lazily negated views.

An operand holds the bit patterns (NumPy unsigned integers on the host, torch signed integers on a GPU), so
every later stage decodes them itself and no framework's rounding comes in between. torch is looked at only if
the caller has imported it or hands in an array that lives on a GPU.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gonogo.errors import (
    BackendMissing,
    DeviceMismatch,
    GonogoError,
    InputError,
    ShapeMismatch,
    UnknownFormat,
    UnsupportedArray,
    UnsupportedDtype,
)
from gonogo.formats import FORMATS, Format

if TYPE_CHECKING:
    import torch

Bits = Any
"""A NumPy array of unsigned integers or a torch tensor of signed ones: the operand's bit patterns."""

PIECE = 2**18
"""Elements copied at a time where an array cannot be read in place: 2 MiB of float64."""

_DLPACK_CPU = (1, 3)  # kDLCPU, kDLCUDAHost (pinned)
_FORMAT_BY_DTYPE = {np.dtype(name): FORMATS[name] for name in ("float16", "float32", "float64")}
_BIT_DTYPE = {bits: np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class Operand:
    """Bit patterns of one array, the format that gives them meaning, and where they stand."""

    role: str
    format: Format
    bits: Bits
    device: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.bits.shape)


def as_operand(array: object, role: str) -> Operand:
    """Anything that holds floating-point numbers → an operand over the same memory."""
    if isinstance(array, np.ndarray | np.generic):
        return _from_numpy(array, role)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _from_torch(array, role)
    return _from_protocol(array, role)


def _from_numpy(array: npt.NDArray[Any] | np.generic, role: str) -> Operand:
    if isinstance(array, np.ma.MaskedArray):
        raise UnsupportedArray(role, "a masked array")
    array = np.asarray(array)
    fmt = _FORMAT_BY_DTYPE.get(array.dtype)
    if fmt is None:
        if not array.dtype.isnative:
            return _from_numpy(array.astype(array.dtype.newbyteorder("=")), role)
        # ml_dtypes' formats are known by name, so that ml_dtypes itself is never imported.
        fmt = FORMATS.get(array.dtype.name)
    if fmt is None:
        if array.dtype.kind in "fV" and "float" in array.dtype.name:
            raise UnknownFormat(array.dtype.name, tuple(FORMATS), role=role)
        raise UnsupportedDtype(role, array.dtype.name)
    return Operand(role, fmt, array.view(_BIT_DTYPE[fmt.bits]), "cpu")


def _from_torch(tensor: torch.Tensor, role: str) -> Operand:
    known = _torch_formats().get((tensor.dtype, tensor.layout))
    if known is None or tensor.is_nested or tensor.is_meta:
        raise _refuse_torch(tensor, role)
    fmt, integer = known
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    bits = (tensor.detach() if tensor.requires_grad else tensor).view(integer)
    if bits.is_cuda:
        return Operand(role, fmt, bits, f"cuda:{bits.get_device()}")
    if not bits.is_cpu:
        raise UnsupportedArray(role, f"a tensor on {bits.device}")
    return Operand(role, fmt, bits.numpy().view(_BIT_DTYPE[fmt.bits]), "cpu")


@cache
def _torch_formats() -> dict[Any, tuple[Format, Any]]:
    """Torch dtype and layout → its format, and the integer dtype that holds its bits."""
    import torch

    integers = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
    return {(getattr(torch, name), torch.strided): (fmt, integers[fmt.bits]) for name, fmt in FORMATS.items()}


def _refuse_torch(tensor: torch.Tensor, role: str) -> InputError:
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        kinds = {"nested": tensor.is_nested, "quantized": tensor.is_quantized, "meta": tensor.is_meta}
        kind = next((kind for kind, holds in kinds.items() if holds), str(tensor.layout))
        return UnsupportedArray(role, f"a {kind.removeprefix('torch.')} tensor")
    if not tensor.dtype.is_floating_point:
        return UnsupportedDtype(role, name)
    return UnknownFormat(name, tuple(FORMATS), role=role)


def _from_protocol(array: object, role: str) -> Operand:
    """JAX, CuPy and kin: DLPack where the memory is on a GPU, __array__ (or DLPack) on the host."""
    try:
        return _read_protocol(array, role)
    except GonogoError:
        raise
    except Exception as error:  # whatever stands behind a stranger's array
        what = f"a {type(array).__name__} that cannot be read, {type(error).__name__}: {error}"
        raise UnsupportedArray(role, what.partition("\n")[0]) from error


def _read_protocol(array: object, role: str) -> Operand:
    where = getattr(array, "__dlpack_device__", None)
    if where is not None and where()[0] not in _DLPACK_CPU:
        try:
            import torch
        except ImportError:
            raise BackendMissing("torch", f"{role} is on a GPU: measuring it there") from None
        return _from_torch(torch.utils.dlpack.from_dlpack(array), role)
    if hasattr(array, "__array__"):
        return _from_numpy(np.asarray(array), role)
    if where is not None:
        return _from_host_dlpack(array, role)
    raise UnsupportedArray(role, f"a {type(array).__name__}")


def _from_host_dlpack(array: Any, role: str) -> Operand:
    """NumPy reads DLPack but for the formats it has no dtype for, bfloat16 among them; torch reads those."""
    try:
        return _from_numpy(np.from_dlpack(array), role)
    except (RuntimeError, BufferError, TypeError):
        torch = sys.modules.get("torch")
        if torch is None:
            raise UnsupportedArray(
                role, f"a {type(array).__name__} of a dtype NumPy cannot take by DLPack"
            ) from None
    try:
        return _from_torch(torch.utils.dlpack.from_dlpack(array), role)
    except (RuntimeError, BufferError, TypeError) as error:
        raise UnsupportedArray(role, f"a {type(array).__name__} that DLPack cannot hand over ({error})") from None


@dataclass(frozen=True, slots=True)
class Aligned:
    """Operands of one shape on one device, their axes put in memory order where all of them share it."""

    operands: tuple[Operand, ...]
    shape: tuple[int, ...]
    order: tuple[int, ...] | None
    """Axis permutation that was applied; None for none."""

    @property
    def count(self) -> int:
        """Elements of each operand."""
        return math.prod(self.shape)

    @property
    def device(self) -> str:
        """The device of all operands."""
        return self.operands[0].device

    @property
    def contiguous(self) -> bool:
        """Whether every operand can be read in place as one flat array."""
        return all(_is_contiguous(x.bits) for x in self.operands)

    def flat(self) -> tuple[Bits, ...]:
        """The operands as flat arrays over the same memory; only if `contiguous`."""
        return tuple(x.bits if x.bits.ndim == 1 else x.bits.reshape(-1) for x in self.operands)

    def pieces(self) -> Iterator[tuple[int, tuple[Bits, ...]]]:
        """(flat index of its first element, flat contiguous arrays), piece by piece in flat order."""
        if self.contiguous:
            yield 0, self.flat()
        elif self.device == "cpu":
            yield from _host_pieces([x.bits for x in self.operands])
        else:
            yield from _device_pieces([x.bits for x in self.operands])

    def take(self, positions: npt.NDArray[np.int64]) -> tuple[Bits, ...]:
        """The elements at flat `positions` of every operand, on the host only."""
        if self.contiguous:
            return tuple(bits.take(positions) for bits in self.flat())
        index = np.unravel_index(positions, self.operands[0].shape)
        return tuple(x.bits[index] for x in self.operands)

    def locate(self, flat_index: int) -> tuple[int, ...]:
        """Flat index → index into the users' arrays."""
        index = [int(i) for i in np.unravel_index(flat_index, self.operands[0].shape)]
        if self.order is None:
            return tuple(index)
        original = [0] * len(index)
        for axis, i in zip(self.order, index, strict=True):
            original[axis] = i
        return tuple(original)


def align(operands: Sequence[Operand]) -> Aligned:
    """Check that operands belong together and find the axis order in which they lie flat."""
    first, second = operands[0], operands[1]
    shape = first.shape
    if shape != second.shape:
        raise ShapeMismatch(shape, second.shape)
    if len({x.device for x in operands}) > 1:
        raise DeviceMismatch({x.role: x.device for x in operands})
    aligned = Aligned(tuple(operands), shape, None)
    if len(shape) < 2 or aligned.contiguous:
        return aligned
    strides = _strides(first.bits)
    order = tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))
    permuted = tuple(replace(x, bits=_permute(x.bits, order)) for x in operands)
    if all(_is_contiguous(x.bits) for x in permuted):
        return Aligned(permuted, shape, order)
    return aligned


def _is_contiguous(bits: Bits) -> bool:
    if isinstance(bits, np.ndarray):
        return bits.flags.c_contiguous and bits.flags.aligned  # C reads whole elements
    return bool(bits.is_contiguous())


def _strides(bits: Bits) -> tuple[int, ...]:
    return bits.strides if isinstance(bits, np.ndarray) else tuple(bits.stride())


def _permute(bits: Bits, order: tuple[int, ...]) -> Bits:
    return bits.transpose(order) if isinstance(bits, np.ndarray) else bits.permute(order)


def _host_pieces(arrays: Sequence[npt.NDArray[Any]]) -> Iterator[tuple[int, tuple[Bits, ...]]]:
    """C-order pieces through nditer's buffers: no copy larger than a piece, whatever the strides."""
    pieces = np.nditer(
        arrays,
        flags=["external_loop", "buffered"],
        op_flags=[["readonly", "aligned"]] * len(arrays),
        order="C",
        buffersize=PIECE,
    )
    start = 0
    for piece in pieces:
        yield start, tuple(np.ascontiguousarray(x) for x in piece)
        start += piece[0].size


def _device_pieces(tensors: Sequence[Any], start: int = 0) -> Iterator[tuple[int, tuple[Bits, ...]]]:
    """C-order pieces by halving the leading axis until a piece is small enough to copy."""
    count = tensors[0].numel()
    if count <= 2 * PIECE or all(x.is_contiguous() for x in tensors):
        yield start, tuple(x.contiguous().reshape(-1) for x in tensors)
        return
    axis = next(i for i, size in enumerate(tensors[0].shape) if size > 1)
    half = tensors[0].shape[axis] // 2
    yield from _device_pieces([x.narrow(axis, 0, half) for x in tensors], start)
    rest = tensors[0].shape[axis] - half
    done = start + count // tensors[0].shape[axis] * half
    yield from _device_pieces([x.narrow(axis, half, rest) for x in tensors], done)
