"""Bits of two CUDA tensors → partials, by fused Triton kernels; a few numbers come back to the host.

What brackets keep stays on the GPU, where first_pass_triton and select_triton look for the wanted ranks. A pass
first assumes that all is finite, which its sums tell; a NaN or an infinity costs a second, careful pass.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
import torch

from gonogo.formats import FORMATS, Format
from gonogo.instrument import path_numpy
from gonogo.instrument.launch_triton import Launch, launch, on_device
from gonogo.instrument.launched_triton import BINS, HEAD, N_ROWS, PICKS_AT, Launched, Results, count_words
from gonogo.instrument.partials import (
    Bracket,
    Moments,
    Pair,
    Scan,
    Unit,
    WorstError,
    is_short,
)
from gonogo.instrument.triton_kernels.read import (
    moments_kernel,
    read_kernel,
    total_reading_kernel,
    units_kernel,
)
from gonogo.instrument.triton_kernels.scan import scan_kernel
from gonogo.instrument.triton_kernels.select import histogram_kernel, total_scan_kernel

KIND = {name: kind for kind, name in enumerate(FORMATS)}
NO_INDEX = 2**63 - 1

BLOCK = 1024
VECTOR = 4
"""Consecutive elements a thread takes: 8 bytes of float16, 16 of float32."""
WARPS = 8
PROGRAMS_PER_SM = 12
SHORT = 2
"""So much smaller and more are the programs that walk two arrays of one short format: 3 % faster for bfloat16."""
UNROLL = 2
"""Tiles in a round of the scan's loop where errors are tied: 4 % faster than one on an NVIDIA H200.

Where some are kept, slower.
"""
VALUES_BLOCK = 1024
"""Kept values a program looks through."""
READ_BLOCK = 512
READ_WARPS = 4
READ_PROGRAMS_PER_SM = 4
MANY_PROGRAMS = 128
"""Of one unit, where many units are read side by side."""
# Blocks, warps and programs: the fastest of eight and of 24 settings on an NVIDIA H200.
N_READ_ROWS = 6


@cache
def find_capability(device: torch.device) -> int:
    """Compute capability × 10; 0 for Triton's interpreter."""
    if device.type != "cuda":
        return 0
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@cache
def _count_sms(device: torch.device) -> int:
    if device.type != "cuda":
        return 0  # Triton's interpreter
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def count_programs(tensor: torch.Tensor, block: int, per_sm: int) -> int:
    """Programs to walk a tensor with: no more than there are blocks, and than the GPU holds; 2 without one."""
    return min(-(-tensor.numel() // block), _count_sms(tensor.device) * per_sm or 2)


# A gauge's unit is the same from call to call, and a copy to the GPU costs as much as a launch.
@lru_cache(maxsize=64)
def make_scalars(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """Numbers for a kernel: Triton passes a Python float as float32, a tensor keeps all 53 bits."""
    return torch.tensor(values, dtype=torch.float64).to(device)


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
    count = pair.actual.numel()
    total = replace(launched.total(count), caught=tuple(launched.catch(count, brackets)))
    if launched.has_lost_sums():
        # Finite errors near the top of float64 whose sum overflows: rare enough to leave to exact fractions.
        exact = path_numpy.scan(_pair_on_host(pair), atol, brackets)
        return replace(total, sum_abs=exact.sum_abs, sum_rel=exact.sum_rel)
    return total


def _launch_scan(
    pair: Pair, atol: float, brackets: Sequence[Bracket], *, careful: bool, count_high: bool
) -> Launched:
    device = pair.actual.device
    ends = [end for b in brackets for end in (b.low, b.high)]
    keep_ends = [b.high if b.capacity else b.low for b in brackets]
    scalars = make_scalars((atol, pair.actual_format.largest, *ends, *keep_ends), device)
    coarse = all(coarsen(b.low, keep) == (b.low, keep) for b, keep in zip(brackets, keep_ends, strict=True))
    capacity = sum(b.capacity for b in brackets)
    results = make_results(pair, HEAD, cleared=capacity > 0)
    kept = torch.full((count_slots(capacity, results.programs),), math.inf, dtype=torch.float64, device=device)
    stride = max(b.stride for b in brackets)
    with on_device(device):
        enqueue_scan(
            pair, scalars, results, kept, stride, careful, coarse, count_high, has_atol=not math.isnan(atol)
        )
    return Launched.fetch(results, kept, scalars, stride, count_high=count_high)


def make_results(pair: Pair, fetched: int, *, cleared: bool) -> Results:
    """Room for a pass over `pair`, of which `fetched` words go to the host; brackets that keep need it cleared."""
    actual = pair.actual
    block, programs = choose_walk(pair.actual_format, pair.expected_format, actual.numel(), actual.device)
    make = torch.zeros if cleared else torch.empty
    out = make(count_words(fetched, programs), dtype=torch.int64, device=actual.device)
    return Results(block, programs, out, fetched)


def choose_walk(actual: Format, expected: Format, count: int, device: torch.device) -> tuple[int, int]:
    """How many elements a program of the scan takes at a time, and how many programs there are."""
    part = SHORT if is_short(actual, expected) else 1
    block = BLOCK // part
    return block, min(-(-count // block), _count_sms(device) * PROGRAMS_PER_SM * part or 2)


def enqueue_scan(
    pair: Pair,
    scalars: torch.Tensor,
    results: Results,
    kept: torch.Tensor,
    stride: int,
    careful: bool,
    coarse: bool,
    count_high: bool,
    has_atol: bool,
    ranks: torch.Tensor | None = None,
    tied: bool = False,
) -> list[Launch | None]:
    """Launch the scan, the histogram of what it keeps, and their totals, with the bins that hold `ranks`.

    If `tied`, upper counts are of errors up to the lower end, for one of which the bracket is meant: where it is
    another, they mean nothing.
    """
    fmt, programs, count = pair.actual_format, results.programs, pair.actual.numel()
    scanned = launch(
        scan_kernel, programs, pair.actual, pair.expected, count, scalars, results.out, results.rows_at,
        kept, stride, kept.numel() // programs,
        KIND_A=KIND[fmt.name], KIND_E=KIND[pair.expected_format.name], WIDTH=fmt.bits,
        PRECISION=fmt.precision, MIN_EXPONENT=fmt.min_exponent, OVERFLOW=fmt.overflow_key,
        HAS_INFINITY=fmt.has_infinity, CAREFUL=careful, COARSE=coarse, COUNT_HIGH=count_high,
        TIED=tied, KEEP=kept.numel() > 0, HAS_ATOL=has_atol, BLOCK=results.block, VECTOR=VECTOR,
        UNROLL=UNROLL if tied else 1, CAPABILITY=find_capability(pair.actual.device),
        num_warps=WARPS * results.block // BLOCK, enable_fp_fusion=False,
    )  # fmt: skip
    bins, counted = results.out, []
    if kept.numel():
        bins = results.bins
        counted = [launch(
            histogram_kernel, -(-kept.numel() // VALUES_BLOCK), kept, kept.numel(), scalars, bins,
            BINS=BINS, BLOCK=VALUES_BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )]  # fmt: skip
    totalled = launch(
        total_scan_kernel, N_ROWS + 3 if kept.numel() else N_ROWS - 1,
        results.out, results.rows_at, programs, -count % results.block, scalars,
        scalars if ranks is None else ranks, bins,
        KEEP=kept.numel() > 0, PICK=ranks is not None, PICKS_AT=PICKS_AT, ROWS=N_ROWS, BINS=BINS,
        PROGRAMS=1 << (programs - 1).bit_length(), num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return [scanned, *counted, totalled]


def count_slots(capacity: int, programs: int) -> int:
    """Room for what the brackets keep: each program's share and a quarter as much again."""
    return programs * (int(capacity / programs * 1.25) + 64 if capacity else 0)


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
    totals = _launch_read(pair, scale, scale_format, unit, careful=False)
    infinite = 0
    if totals[5] or totals.view(np.float64)[0] == math.inf:
        totals = _launch_read(pair, scale, scale_format, unit, careful=True)
        if totals[4] != NO_INDEX:
            return WorstError(0.0, 0, 0.0, 0, bad_scale=int(totals[4]))
        infinite = int(totals[3])
    top, _, signed_sum, *_ = totals.view(np.float64).tolist()
    if not math.isfinite(signed_sum):  # finite errors near the top of float64
        on_host = None if scale is None else scale.cpu().numpy()
        signed_sum = path_numpy.read(_pair_on_host(pair), on_host, scale_format, unit).signed_sum
    return WorstError(top, int(totals[1]), signed_sum, infinite)


def _launch_read(
    pair: Pair, scale: torch.Tensor | None, scale_format: Format | None, unit: Unit, *, careful: bool
) -> npt.NDArray[np.int64]:
    actual, fmt = pair.actual, pair.actual_format
    programs, device = count_programs(actual, READ_BLOCK, READ_PROGRAMS_PER_SM), actual.device
    out = torch.empty(N_READ_ROWS * (programs + 1), dtype=torch.int64, device=device)
    with on_device(device):
        launch(
            read_kernel, programs, actual, pair.expected, actual if scale is None else scale, actual.numel(),
            make_scalars((*unit[:4], fmt.overflow_start), device), out,
            KIND_A=KIND[fmt.name], KIND_E=KIND[pair.expected_format.name],
            KIND_S=0 if scale_format is None else KIND[scale_format.name],
            PRECISION=fmt.precision, MIN_EXPONENT=fmt.min_exponent, MAX_EXPONENT=fmt.max_exponent,
            HAS_INFINITY=fmt.has_infinity, HAS_AFFINE=unit.constant != 0 or unit.per_magnitude != 0,
            HAS_ULP=unit.per_ulp != 0, HAS_SCALE=scale is not None, FROM_CELL=unit.from_cell, CAREFUL=careful,
            BLOCK=READ_BLOCK, num_warps=READ_WARPS, enable_fp_fusion=False,
        )  # fmt: skip
        launch(
            total_reading_kernel, 1, out, programs,
            PROGRAMS=1 << (programs - 1).bit_length(), num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    fetched: npt.NDArray[np.int64] = out[:N_READ_ROWS].cpu().numpy()
    return fetched


def read_units(pair: Pair, units: Sequence[Unit]) -> list[float]:
    """Worst error of a piece in each of several units, without a scale or rounding cells: one launch, one wait."""
    actual, fmt, device = pair.actual, pair.actual_format, pair.actual.device
    programs = min(count_programs(actual, READ_BLOCK, READ_PROGRAMS_PER_SM), MANY_PROGRAMS)
    out = torch.zeros(len(units), dtype=torch.int64, device=device)
    scalars = make_scalars(tuple(number for unit in units for number in unit[:3]), device)
    with on_device(device):
        launch(
            units_kernel, programs * len(units), actual, pair.expected, actual.numel(), scalars, out, programs,
            KIND_A=KIND[fmt.name], KIND_E=KIND[pair.expected_format.name], PRECISION=fmt.precision,
            MIN_EXPONENT=fmt.min_exponent, MAX_EXPONENT=fmt.max_exponent, BLOCK=READ_BLOCK, num_warps=READ_WARPS,
            enable_fp_fusion=False,
        )  # fmt: skip
    worst: list[float] = out.cpu().numpy().view(np.float64).tolist()
    return worst


def measure_moments(values: torch.Tensor, fmt: Format, factor: float) -> Moments:
    """Largest finite |r|, sum of squares of finite r·factor, and how many are finite."""
    programs = count_programs(values, READ_BLOCK, READ_PROGRAMS_PER_SM)
    out = torch.empty((3, programs), dtype=torch.int64, device=values.device)
    with on_device(values.device):
        launch(
            moments_kernel, programs, values, values.numel(), make_scalars((factor,), values.device), out,
            KIND=KIND[fmt.name], BLOCK=READ_BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    fetched = out.cpu().numpy()
    floats = fetched.view(np.float64)
    return Moments(float(floats[0].max()), float(floats[1].sum()), int(fetched[2].sum()))
