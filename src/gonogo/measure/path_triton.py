"""Bits of two CUDA tensors → partials, by fused Triton kernels; a few numbers come back to the host.

What brackets keep stays on the GPU: a histogram of a bracket's values leads to the few that hold the wanted
rank, and only those travel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton

from gonogo.formats import FORMATS, Format
from gonogo.measure import path_numpy
from gonogo.measure import triton_kernels as kernels
from gonogo.measure.operands import Aligned
from gonogo.measure.partials import Bracket, Caught, Moments, Pair, Scan, Unit, WorstError, saturate
from gonogo.measure.selection import RunPass, find_ranks, select_on_host, stratified_positions

_KIND = {name: kind for kind, name in enumerate(FORMATS)}
_NO_INDEX = 2**63 - 1

BLOCK = 1024
WARPS = 8
PROGRAMS_PER_SM = 4
SAMPLE = 2**18
"""Sampled errors: brackets then hold about 1.4 % of all, 30 MiB at 2^28 elements."""
THINNING = 16
"""Every so-manieth of the sorted sample goes to the host: brackets are some 2,000 sample ranks wide."""
CAPACITY = 2**22
"""Errors a bracket may keep: 32 MiB."""
BINS = 4096


@dataclass(frozen=True, slots=True)
class DeviceValues:
    """What a bracket kept: `count` values in a tensor of more slots, the others +inf."""

    slots: torch.Tensor
    count: int
    bracket: Bracket

    def __len__(self) -> int:
        return self.count

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = self.slots.cpu().numpy()
        return values[np.isfinite(values)]


@cache
def _programs_at_most(device: torch.device) -> int:
    if device.type != "cuda":
        return 2  # Triton's interpreter
    return int(torch.cuda.get_device_properties(device).multi_processor_count) * PROGRAMS_PER_SM


def _grid(tensor: torch.Tensor) -> int:
    return int(min(triton.cdiv(tensor.numel(), BLOCK), _programs_at_most(tensor.device)))


def _scalars(values: Sequence[float], device: torch.device) -> torch.Tensor:
    # Triton passes a Python float as float32; a tensor keeps all 53 bits.
    return torch.tensor(values, dtype=torch.float64).to(device, non_blocking=True)


def _fetch(out: torch.Tensor) -> npt.NDArray[np.int64]:
    fetched: npt.NDArray[np.int64] = out.cpu().numpy()
    return fetched


def scan(pair: Pair, atol: float, brackets: Sequence[Bracket]) -> Scan:
    """Partial ErrorStats of a piece."""
    actual, fmt = pair.actual, pair.actual_format
    programs, device = _grid(actual), actual.device
    rooms = [_room(bracket, programs) for bracket in brackets]
    kept = [torch.full((programs * max(room, 1),), math.inf, dtype=torch.float64, device=device) for room in rooms]
    seen = torch.zeros((3, programs), dtype=torch.int32, device=device)
    out = torch.empty((15, programs), dtype=torch.int64, device=device)
    bounds = [bound for bracket in brackets for bound in (bracket.low, bracket.high)]
    with _on(device):
        kernels.scan_kernel[(programs,)](
            actual, pair.expected, actual.numel(), _scalars([atol, fmt.largest, *bounds], device), out, seen,
            *kept, *(bracket.stride for bracket in brackets), *rooms,
            KIND_A=_KIND[fmt.name], KIND_E=_KIND[pair.expected_format.name], WIDTH=fmt.bits,
            PRECISION=fmt.precision, MIN_EXPONENT=fmt.min_exponent, LARGEST_KEY=fmt.largest_key,
            OVERFLOW=fmt.overflow_key, HAS_INFINITY=fmt.has_infinity,
            KEEP0=rooms[0] > 0, KEEP1=rooms[1] > 0, KEEP2=rooms[2] > 0,
            BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    total = _add_programs(_fetch(torch.cat([out, seen.to(torch.int64)])), brackets, rooms, kept)
    if _overflowed(total.sum_abs, total.max_abs) or _overflowed(total.sum_rel, total.max_rel):
        # Finite errors near the top of float64 whose sum overflows: rare enough to leave to exact fractions.
        exact = path_numpy.scan(_pair_on_host(pair), atol, brackets)
        return Scan(
            total.exceeding, total.max_abs, exact.sum_abs, total.nonzero, total.max_rel, exact.sum_rel,
            total.max_ulp, total.sum_ulp, total.caught,
        )  # fmt: skip
    return total


def _room(bracket: Bracket, programs: int) -> int:
    """Values a program may keep: its share and half as much again."""
    return int(bracket.capacity / programs * 1.5) + 64 if bracket.capacity else 0


def _add_programs(
    out: npt.NDArray[np.int64], brackets: Sequence[Bracket], rooms: Sequence[int], kept: Sequence[torch.Tensor]
) -> Scan:
    floats = out.view(np.float64)
    max_ulp, sum_ulp = saturate(
        int(out[6].view(np.uint64).max()), math.fsum(floats[7]), saturated=bool(out[8].any())
    )
    caught = []
    for k, bracket in enumerate(brackets):
        count = int(np.minimum(-(-out[15 + k] // bracket.stride), rooms[k]).sum()) if rooms[k] else 0
        values: Any = DeviceValues(kept[k], count, bracket) if rooms[k] else np.empty(0)
        caught.append(Caught(int(out[9 + k].sum()), int(out[12 + k].sum()), values))
    return Scan(
        exceeding=int(out[0].sum()),
        max_abs=float(floats[1].max()),
        sum_abs=math.fsum(floats[2]) if np.isfinite(floats[2]).all() else math.inf,
        nonzero=int(out[3].sum()),
        max_rel=float(floats[4].max()),
        sum_rel=math.fsum(floats[5]) if np.isfinite(floats[5]).all() else math.inf,
        max_ulp=max_ulp,
        sum_ulp=sum_ulp,
        caught=tuple(caught),
    )


def _overflowed(total: Any, largest: float) -> bool:
    return bool(total == math.inf and largest < math.inf)


def _pair_on_host(pair: Pair) -> Pair:
    bits = [x.cpu().numpy() for x in (pair.actual, pair.expected)]
    return Pair(bits[0], pair.actual_format, bits[1], pair.expected_format)


def find_errors_at(aligned: Aligned, ranks: Sequence[Sequence[int]], run_pass: RunPass) -> dict[int, float]:
    """Exact errors at 0-based ranks, by the passes `run_pass` makes over all pieces."""
    return find_ranks(
        ranks,
        aligned.count,
        run_pass,
        lambda: draw_sample(aligned),
        select_kept=select_kept,
        capacity=CAPACITY,
        sample_weight=THINNING,
    )


def draw_sample(aligned: Aligned) -> npt.NDArray[np.float64]:
    """Sorted errors at a stratified sample of positions, thinned."""
    size = min(SAMPLE, aligned.count)
    actual, expected = (x.bits for x in aligned.operands[:2])
    if not aligned.contiguous:
        positions = torch.from_numpy(stratified_positions(aligned.count, size)).to(actual.device)
        index = torch.unravel_index(positions, actual.shape)
        actual, expected = actual[index], expected[index]
    errors = torch.empty(size, dtype=torch.float64, device=actual.device)
    with _on(actual.device):
        kernels.sample_kernel[(triton.cdiv(size, BLOCK),)](
            actual, expected, actual.numel(), errors, size,
            KIND_A=_KIND[aligned.operands[0].format.name], KIND_E=_KIND[aligned.operands[1].format.name],
            BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    thinned: npt.NDArray[np.float64] = errors.sort().values[THINNING // 2 :: THINNING].cpu().numpy()
    return thinned


def select_kept(values: DeviceValues, ranks: Sequence[int]) -> Sequence[float]:
    """Values at 0-based `ranks` of what a bracket kept, fetching only the bins that hold them."""
    low, high = values.bracket.low, values.bracket.high
    if len(values) <= BINS or not math.isfinite(high):
        return select_on_host(np.asarray(values), ranks)
    slots, device = values.slots, values.slots.device
    scalars = _scalars([low, BINS / (high - low)], device)
    counts = torch.zeros(BINS, dtype=torch.int32, device=device)
    grid = (triton.cdiv(slots.numel(), BLOCK),)
    with _on(device):
        kernels.histogram_kernel[grid](
            slots, slots.numel(), scalars, counts, BINS=BINS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False
        )
        ends = np.cumsum(_fetch(counts))
        first, last = (int(np.searchsorted(ends, rank, side="right")) for rank in (ranks[0], ranks[-1]))
        before = int(ends[first - 1]) if first else 0
        room = int(ends[last]) - before
        found = torch.empty(room, dtype=torch.float64, device=device)
        seen = torch.zeros(1, dtype=torch.int32, device=device)
        kernels.bin_values_kernel[grid](
            slots, slots.numel(), scalars, first, last, seen, found, room,
            BINS=BINS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    return select_on_host(found.cpu().numpy(), [rank - before for rank in ranks])


def read(pair: Pair, scale: torch.Tensor | None, scale_format: Format | None, unit: Unit) -> WorstError:
    """Worst error of a piece in a gauge's unit."""
    actual, fmt = pair.actual, pair.actual_format
    programs, device = _grid(actual), actual.device
    out = torch.empty((5, programs), dtype=torch.int64, device=device)
    scalars = _scalars([*unit[:4], fmt.overflow_start], device)
    with _on(device):
        kernels.read_kernel[(programs,)](
            actual, pair.expected, actual if scale is None else scale, actual.numel(), scalars, out,
            KIND_A=_KIND[fmt.name], KIND_E=_KIND[pair.expected_format.name],
            KIND_S=0 if scale_format is None else _KIND[scale_format.name],
            PRECISION=fmt.precision, MIN_EXPONENT=fmt.min_exponent, MAX_EXPONENT=fmt.max_exponent,
            HAS_INFINITY=fmt.has_infinity, HAS_ULP=unit.per_ulp != 0, HAS_SCALE=scale is not None,
            FROM_CELL=unit.from_cell, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    fetched = _fetch(out)
    worst = fetched[0].view(np.float64)
    bad = int(fetched[4].min())
    return WorstError(
        worst=float(worst.max()),
        index=int(fetched[1][worst == worst.max()].min()),
        signed_sum=math.fsum(fetched[2].view(np.float64)),
        infinite=int(fetched[3].sum()),
        bad_scale=None if bad == _NO_INDEX else bad,
    )


def measure_moments(values: torch.Tensor, fmt: Format, factor: float) -> Moments:
    """Largest finite |r|, sum of squares of finite r·factor, and how many are finite."""
    programs = _grid(values)
    out = torch.empty((3, programs), dtype=torch.int64, device=values.device)
    with _on(values.device):
        kernels.moments_kernel[(programs,)](
            values, values.numel(), _scalars([factor], values.device), out,
            KIND=_KIND[fmt.name], BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    fetched = _fetch(out)
    floats = fetched.view(np.float64)
    return Moments(float(floats[0].max()), math.fsum(floats[1]), int(fetched[2].sum()))


def _on(device: torch.device) -> Any:
    """Launch on the tensors' GPU, whatever the current one is."""
    from contextlib import nullcontext

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
