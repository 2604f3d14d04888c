"""Bits of two CUDA tensors → partials, by fused Triton kernels; a few numbers come back to the host.

What brackets keep stays on the GPU, where select_triton looks for the wanted ranks. A pass first assumes that
all is finite, which its sums tell; a NaN or an infinity costs a second, careful pass.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton

from gonogo.formats import FORMATS, Format
from gonogo.measure import path_numpy
from gonogo.measure.partials import Bracket, Caught, Moments, Pair, Scan, Unit, WorstError, saturate, sum_overflowed
from gonogo.measure.triton_kernels.read import moments_kernel, read_kernel
from gonogo.measure.triton_kernels.scan import scan_kernel
from gonogo.measure.triton_kernels.select import histogram_kernel

KIND = {name: kind for kind, name in enumerate(FORMATS)}
NO_INDEX = 2**63 - 1

BLOCK = 1024
VECTOR = 4
"""Consecutive elements a thread takes: 8 bytes of float16, 16 of float32."""
READ_BLOCK = 512
WARPS = 8
PROGRAMS_PER_SM = 6
# Blocks and programs: the fastest of seven settings on an NVIDIA H200 at 2^28 elements.
BINS = 4096


@dataclass(frozen=True, slots=True)
class DeviceValues:
    """What the brackets of one pass kept, seen by one of them: unused slots hold +inf."""

    slots: torch.Tensor
    scalars: torch.Tensor
    """Ends of all brackets, as the kernels read them."""
    bracket: Bracket
    number: int
    """Which of the brackets."""
    bins: npt.NDArray[np.int32]
    """How many of its values fall into each of BINS equal parts of the bracket."""
    ready: tuple[int, npt.NDArray[np.float64]] | None = None
    """How many values lie below the bins that hold the wanted ranks, and the values in them, if already fetched."""

    def __len__(self) -> int:
        return int(self.bins.sum())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = self.slots.cpu().numpy()
        return values[(values >= self.bracket.low) & (values < self.bracket.high)]


@cache
def _programs_at_most(device: torch.device) -> int:
    if device.type != "cuda":
        return 2  # Triton's interpreter
    return int(torch.cuda.get_device_properties(device).multi_processor_count) * PROGRAMS_PER_SM


def count_programs(tensor: torch.Tensor, block: int) -> int:
    """Programs to walk a tensor with: no more than there are blocks, and than the GPU holds."""
    return int(min(triton.cdiv(tensor.numel(), block), _programs_at_most(tensor.device)))


# A gauge's unit is the same from call to call, and a copy to the GPU costs as much as a launch.
@lru_cache(maxsize=64)
def make_scalars(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """Numbers for a kernel: Triton passes a Python float as float32, a tensor keeps all 53 bits."""
    return torch.tensor(values, dtype=torch.float64).to(device)


def _fetch(out: torch.Tensor) -> npt.NDArray[np.int64]:
    fetched: npt.NDArray[np.int64] = out.cpu().numpy()
    return fetched


def scan(pair: Pair, atol: float, brackets: Sequence[Bracket]) -> Scan:
    """Partial ErrorStats of a piece."""
    # What a bracket keeps also tells how many errors it holds, unless some were left out.
    count_high = any(b.stride > 1 or (b.capacity == 0 and b.low < b.high) for b in brackets)
    careful = False
    while True:
        launched = _launch_scan(pair, atol, brackets, careful=careful, count_high=count_high)
        if not careful and launched.is_odd():
            careful = True
        elif not count_high and launched.has_overflowed():
            count_high = True
        else:
            break
        del launched  # its slots, before the next launch takes its own
    total = launched.total(pair.actual.numel(), brackets)
    if sum_overflowed(total.sum_abs, total.max_abs) or sum_overflowed(total.sum_rel, total.max_rel):
        # Finite errors near the top of float64 whose sum overflows: rare enough to leave to exact fractions.
        exact = path_numpy.scan(_pair_on_host(pair), atol, brackets)
        return replace(total, sum_abs=exact.sum_abs, sum_rel=exact.sum_rel)
    return total


def _launch_scan(
    pair: Pair, atol: float, brackets: Sequence[Bracket], *, careful: bool, count_high: bool
) -> Launched:
    programs, device = count_programs(pair.actual, BLOCK), pair.actual.device
    ends = [end for b in brackets for end in (b.low, b.high)]
    keep_ends = [b.high if b.capacity else b.low for b in brackets]
    scalars = make_scalars((atol, pair.actual_format.largest, *ends, *keep_ends), device)
    coarse = all(coarsen(b.low, keep) == (b.low, keep) for b, keep in zip(brackets, keep_ends, strict=True))
    kept = make_slots(sum(b.capacity for b in brackets), programs, device)
    out = torch.zeros(OUT_ROWS * programs + OUT_REST, dtype=torch.int64, device=device)
    stride = max(b.stride for b in brackets)
    with on_device(device):
        enqueue_scan(pair, scalars, out, kept, stride, careful, coarse, count_high, has_atol=not math.isnan(atol))
    fetched: npt.NDArray[np.int64] = out.cpu().numpy()
    return Launched(fetched, programs, kept, scalars, stride, count_high)


OUT_ROWS = 16
OUT_REST = 3 * BINS // 2
"""One int64 buffer takes all results, so that one copy brings them: rows per program, then three histograms."""


def enqueue_scan(
    pair: Pair,
    scalars: torch.Tensor,
    out: torch.Tensor,
    kept: torch.Tensor,
    stride: int,
    careful: bool,
    coarse: bool,
    count_high: bool,
    has_atol: bool,
) -> None:
    """Launch the scan and the histogram of what it keeps."""
    fmt, programs = pair.actual_format, count_programs(pair.actual, BLOCK)
    scan_kernel[(programs,)](
        pair.actual, pair.expected, pair.actual.numel(), scalars, out, out[15 * programs :].view(torch.int32), kept,
        stride, kept.numel() // programs,
        KIND_A=KIND[fmt.name], KIND_E=KIND[pair.expected_format.name], WIDTH=fmt.bits,
        PRECISION=fmt.precision, MIN_EXPONENT=fmt.min_exponent, OVERFLOW=fmt.overflow_key,
        HAS_INFINITY=fmt.has_infinity, CAREFUL=careful, COARSE=coarse, COUNT_HIGH=count_high,
        KEEP=kept.numel() > 0, HAS_ATOL=has_atol, BLOCK=BLOCK, VECTOR=VECTOR,
        INTERPRETED=pair.actual.device.type != "cuda", num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    if kept.numel():
        histogram_kernel[(triton.cdiv(kept.numel(), BLOCK),)](
            kept, kept.numel(), scalars, out[OUT_ROWS * programs :].view(torch.int32),
            BINS=BINS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip


def make_slots(capacity: int, programs: int, device: torch.device) -> torch.Tensor:
    """Room for what the brackets keep, all +inf: each program's share and a quarter as much again."""
    room = int(capacity / programs * 1.25) + 64 if capacity else 0
    return torch.full((programs * room,), math.inf, dtype=torch.float64, device=device)


@dataclass(frozen=True, slots=True)
class Launched:
    """What one launch brought back: rows of a number per program, then histograms, then maybe values."""

    fetched: npt.NDArray[np.int64]
    programs: int
    kept: torch.Tensor
    scalars: torch.Tensor
    stride: int
    count_high: bool

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """A row per field, a column per program."""
        return self.fetched[: OUT_ROWS * self.programs].reshape(OUT_ROWS, self.programs)

    @property
    def bins(self) -> npt.NDArray[np.int32]:
        """Three histograms."""
        start = OUT_ROWS * self.programs
        return self.fetched[start : start + OUT_REST].view(np.int32).reshape(3, BINS)

    def is_odd(self) -> bool:
        """Whether there is a NaN or an infinity, or a reference that rounds to one."""
        return bool(self.rows[8].any()) or not bool(np.isfinite(self.rows[2].view(np.float64)).all())

    def has_overflowed(self) -> bool:
        """Whether more fell inside than a program could keep."""
        return bool((self.rows[15] > self.kept.numel() // self.programs * self.stride).any())

    def total(self, count: int, brackets: Sequence[Bracket]) -> Scan:
        """The programs' partials added up."""
        rows, padding = self.rows, -count % BLOCK  # padding reads as 0 against 0
        floats, whole = rows.view(np.float64), rows.sum(axis=1)
        with np.errstate(over="ignore"):
            sum_abs, sum_rel = float(floats[2].sum()), float(floats[5].sum())
        max_ulp, sum_ulp = saturate(
            int(rows[6].view(np.uint64).max()), float(floats[7].sum()), saturated=bool(whole[8])
        )
        return Scan(
            exceeding=int(whole[0]),
            max_abs=float(floats[1].max()),
            sum_abs=sum_abs,
            nonzero=count - (int(whole[3]) - padding),
            max_rel=float(floats[4].max()),
            sum_rel=sum_rel,
            max_ulp=max_ulp,
            sum_ulp=sum_ulp,
            caught=tuple(self._catch(k, bracket, whole, padding) for k, bracket in enumerate(brackets)),
        )

    def _catch(self, k: int, bracket: Bracket, whole: npt.NDArray[np.int64], padding: int) -> Caught:
        low = int(whole[9 + k]) - (padding if bracket.low > 0 else 0)
        if self.count_high:
            high = int(whole[12 + k]) - (padding if bracket.high > 0 else 0)
        else:
            high = low + int(self.bins[k].sum())
        values: Any = np.empty(0)
        if bracket.capacity:
            values = DeviceValues(self.kept, self.scalars, bracket, k, self.bins[k])
        return Caught(low, high, values)


def coarsen(low: float, high: float) -> tuple[float, float]:
    """[low, high) shrunk to ends whose lower 32 bits are 0: the kernel compares such in one instruction."""
    first, last = struct.unpack("<qq", struct.pack("<dd", low, high))
    ends = struct.unpack("<dd", struct.pack("<qq", -(-first >> 32) << 32, last >> 32 << 32))
    return float(ends[0]), float(ends[1])


def _pair_on_host(pair: Pair) -> Pair:
    bits = [x.cpu().numpy() for x in (pair.actual, pair.expected)]
    return Pair(bits[0], pair.actual_format, bits[1], pair.expected_format)


def read(pair: Pair, scale: torch.Tensor | None, scale_format: Format | None, unit: Unit) -> WorstError:
    """Worst error of a piece in a gauge's unit."""
    fetched = _launch_read(pair, scale, scale_format, unit, careful=False)
    worst = fetched[0].view(np.float64)
    top, infinite = float(worst.max()), 0
    if fetched[5].max() or top == math.inf:
        fetched = _launch_read(pair, scale, scale_format, unit, careful=True)
        bad = int(fetched[4].min())
        if bad != NO_INDEX:
            return WorstError(0.0, 0, 0.0, 0, bad_scale=bad)
        worst = fetched[0].view(np.float64)
        top, infinite = float(worst.max()), int(fetched[3].sum())
    index, signed_sum = int(fetched[1][worst == top].min()), float(fetched[2].view(np.float64).sum())
    if not math.isfinite(signed_sum):  # finite errors near the top of float64
        on_host = None if scale is None else scale.cpu().numpy()
        signed = path_numpy.read(_pair_on_host(pair), on_host, scale_format, unit).signed_sum
        return WorstError(top, index, signed, infinite)
    return WorstError(top, index, signed_sum, infinite)


def _launch_read(
    pair: Pair, scale: torch.Tensor | None, scale_format: Format | None, unit: Unit, *, careful: bool
) -> npt.NDArray[np.int64]:
    actual, fmt = pair.actual, pair.actual_format
    programs, device = count_programs(actual, READ_BLOCK), actual.device
    out = torch.empty((6, programs), dtype=torch.int64, device=device)
    with on_device(device):
        read_kernel[(programs,)](
            actual, pair.expected, actual if scale is None else scale, actual.numel(),
            make_scalars((*unit[:4], fmt.overflow_start), device), out,
            KIND_A=KIND[fmt.name], KIND_E=KIND[pair.expected_format.name],
            KIND_S=0 if scale_format is None else KIND[scale_format.name],
            PRECISION=fmt.precision, MIN_EXPONENT=fmt.min_exponent, MAX_EXPONENT=fmt.max_exponent,
            HAS_INFINITY=fmt.has_infinity, HAS_AFFINE=unit.constant != 0 or unit.per_magnitude != 0,
            HAS_ULP=unit.per_ulp != 0, HAS_SCALE=scale is not None, FROM_CELL=unit.from_cell, CAREFUL=careful,
            BLOCK=READ_BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    return _fetch(out)


def measure_moments(values: torch.Tensor, fmt: Format, factor: float) -> Moments:
    """Largest finite |r|, sum of squares of finite r·factor, and how many are finite."""
    programs = count_programs(values, READ_BLOCK)
    out = torch.empty((3, programs), dtype=torch.int64, device=values.device)
    with on_device(values.device):
        moments_kernel[(programs,)](
            values, values.numel(), make_scalars((factor,), values.device), out,
            KIND=KIND[fmt.name], BLOCK=READ_BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    fetched = _fetch(out)
    floats = fetched.view(np.float64)
    return Moments(float(floats[0].max()), float(floats[1].sum()), int(fetched[2].sum()))


def on_device(device: torch.device) -> Any:
    """Launch on the tensors' GPU, whatever the current one is."""
    from contextlib import nullcontext

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
