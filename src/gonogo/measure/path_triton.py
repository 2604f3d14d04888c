"""Bits of two CUDA tensors → partials, by fused Triton kernels; a few numbers come back to the host.

What brackets keep stays on the GPU: a histogram of a bracket's values leads to the few that hold the wanted
rank, and only those travel.
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
from gonogo.measure import triton_kernels as kernels
from gonogo.measure.operands import Aligned
from gonogo.measure.partials import EMPTY_BRACKET, Bracket, Caught, Moments, Pair, Scan, Unit, WorstError, saturate
from gonogo.measure.selection import (
    KEEP_ALL,
    RunPass,
    find_ranks,
    sample_ranks,
    select_on_host,
    stratified_positions,
)

_KIND = {name: kind for kind, name in enumerate(FORMATS)}
_NO_INDEX = 2**63 - 1

BLOCK = 1024
VECTOR = 4
"""Consecutive elements a thread takes: 8 bytes of float16, 16 of float32."""
READ_BLOCK = 512
WARPS = 8
PROGRAMS_PER_SM = 6
# Blocks and programs: the fastest of seven settings on an NVIDIA H200 at 2^28 elements.
SAMPLE = 2**19
"""Sampled errors: brackets then hold about 0.8 % of all, 17 MiB at 2^28 elements."""
SMALL_SAMPLE = 2**12
"""Sampled errors where they are tied: one program sorts them."""
THINNING = 16
"""Every so-manieth of the sorted sample goes to the host: brackets are some 2,000 sample ranks wide."""
CAPACITY = 2**22
"""Errors a bracket may keep: 32 MiB."""
BINS = 4096
READY = 4096
"""Values of wanted bins fetched per bracket along with everything else."""


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


def _grid(tensor: torch.Tensor, block: int) -> int:
    return int(min(triton.cdiv(tensor.numel(), block), _programs_at_most(tensor.device)))


@lru_cache(maxsize=64)  # a gauge's unit is the same from call to call, and a copy to the GPU costs as much as a launch
def _scalars(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    # Triton passes a Python float as float32; a tensor keeps all 53 bits.
    return torch.tensor(values, dtype=torch.float64).to(device, non_blocking=True)


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
    total = launched.total(pair.actual.numel(), brackets)
    if _overflowed(total.sum_abs, total.max_abs) or _overflowed(total.sum_rel, total.max_rel):
        # Finite errors near the top of float64 whose sum overflows: rare enough to leave to exact fractions.
        exact = path_numpy.scan(_pair_on_host(pair), atol, brackets)
        return replace(total, sum_abs=exact.sum_abs, sum_rel=exact.sum_rel)
    return total


def _launch_scan(
    pair: Pair, atol: float, brackets: Sequence[Bracket], *, careful: bool, count_high: bool
) -> _Launched:
    programs, device = _grid(pair.actual, BLOCK), pair.actual.device
    ends = [end for b in brackets for end in (b.low, b.high)]
    keep_ends = [b.high if b.capacity else b.low for b in brackets]
    scalars = _scalars((atol, pair.actual_format.largest, *ends, *keep_ends), device)
    coarse = all(coarsen(b.low, keep) == (b.low, keep) for b, keep in zip(brackets, keep_ends, strict=True))
    kept = _make_slots(sum(b.capacity for b in brackets), programs, device)
    out = torch.zeros(_OUT_ROWS * programs + _OUT_REST, dtype=torch.int64, device=device)
    stride = max(b.stride for b in brackets)
    with _on(device):
        _enqueue_scan(
            pair, scalars, out, kept, stride, careful, coarse, count_high, has_atol=not math.isnan(atol)
        )
    fetched: npt.NDArray[np.int64] = out.cpu().numpy()
    return _Launched(fetched, programs, kept, scalars, stride, count_high)


_OUT_ROWS = 16
_OUT_REST = 3 * BINS // 2
"""One int64 buffer takes all results, so that one copy brings them: rows per program, then three histograms."""


def _enqueue_scan(
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
    fmt, programs = pair.actual_format, _grid(pair.actual, BLOCK)
    kernels.scan_kernel[(programs,)](
        pair.actual, pair.expected, pair.actual.numel(), scalars, out, out[15 * programs :].view(torch.int32), kept,
        stride, kept.numel() // programs,
        KIND_A=_KIND[fmt.name], KIND_E=_KIND[pair.expected_format.name], WIDTH=fmt.bits,
        PRECISION=fmt.precision, MIN_EXPONENT=fmt.min_exponent, OVERFLOW=fmt.overflow_key,
        HAS_INFINITY=fmt.has_infinity, CAREFUL=careful, COARSE=coarse, COUNT_HIGH=count_high,
        KEEP=kept.numel() > 0, HAS_ATOL=has_atol, BLOCK=BLOCK, VECTOR=VECTOR,
        INTERPRETED=pair.actual.device.type != "cuda", num_warps=WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    if kept.numel():
        kernels.histogram_kernel[(triton.cdiv(kept.numel(), BLOCK),)](
            kept, kept.numel(), scalars, out[_OUT_ROWS * programs :].view(torch.int32),
            BINS=BINS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip


def _make_slots(capacity: int, programs: int, device: torch.device) -> torch.Tensor:
    """Room for what the brackets keep, all +inf: each program's share and a quarter as much again."""
    room = int(capacity / programs * 1.25) + 64 if capacity else 0
    return torch.full((programs * room,), math.inf, dtype=torch.float64, device=device)


@dataclass(frozen=True, slots=True)
class _Launched:
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
        return self.fetched[: _OUT_ROWS * self.programs].reshape(_OUT_ROWS, self.programs)

    @property
    def bins(self) -> npt.NDArray[np.int32]:
        """Three histograms."""
        start = _OUT_ROWS * self.programs
        return self.fetched[start : start + _OUT_REST].view(np.int32).reshape(3, BINS)

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
        max_ulp, sum_ulp = saturate(
            int(rows[6].view(np.uint64).max()), float(floats[7].sum()), saturated=bool(whole[8])
        )
        return Scan(
            exceeding=int(whole[0]),
            max_abs=float(floats[1].max()),
            sum_abs=float(floats[2].sum()),
            nonzero=count - (int(whole[3]) - padding),
            max_rel=float(floats[4].max()),
            sum_rel=float(floats[5].sum()),
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


def _overflowed(total: Any, largest: float) -> bool:
    return bool(total == math.inf and largest < math.inf)


def _pair_on_host(pair: Pair) -> Pair:
    bits = [x.cpu().numpy() for x in (pair.actual, pair.expected)]
    return Pair(bits[0], pair.actual_format, bits[1], pair.expected_format)


def find_errors_at(
    aligned: Aligned, atol: float, ranks: Sequence[Sequence[int]], run_pass: RunPass, passes: list[Scan]
) -> dict[int, float]:
    """Exact errors at 0-based ranks; the scans made for it are appended to `passes`."""
    first = _scan_unseen(aligned, atol, ranks) if aligned.contiguous and aligned.count > KEEP_ALL else None
    if first is not None:
        passes.append(first[1])
    return find_ranks(
        ranks,
        aligned.count,
        run_pass,
        lambda: draw_sample(aligned)[THINNING // 2 :: THINNING].cpu().numpy(),
        first=None if first is None else (first[0], first[1].caught),
        select_kept=select_kept,
        capacity=CAPACITY,
        sample_weight=THINNING,
        shrink=coarsen,
    )


def _scan_unseen(
    aligned: Aligned, atol: float, ranks: Sequence[Sequence[int]]
) -> tuple[list[Bracket], Scan] | None:
    """The first pass with everything decided on the GPU, so that the host waits once; None if it must be redone.

    The same as drawing a sample, placing brackets, scanning and selecting in turn, with one guess: two arrays of
    one short format have tied errors, which only need counting, others have not, and are kept. A wrong guess is a
    bracket that settles nothing.
    """
    count, (actual, expected) = aligned.count, aligned.operands[:2]
    flat = aligned.flat()
    pair = Pair(flat[0], actual.format, flat[1], expected.format)
    tied = actual.format is expected.format and actual.format.bits <= 16
    size = SMALL_SAMPLE if tied else SAMPLE
    spots = [spot for group in ranks for spot in sample_ranks(group, count, size)]
    expect = 0 if tied else 1.25 * sum(count * (spots[i + 1] - spots[i] + 2) / size for i in (0, 2, 4))
    if count < size or expect > CAPACITY:
        return None
    programs, device = _grid(pair.actual, BLOCK), pair.actual.device
    # Behind rows and histograms: ends of brackets, wanted bins, numbers seen, extremes, values of the wanted bins.
    start = _OUT_ROWS * programs + _OUT_REST
    out = torch.zeros(start + 24 + (0 if tied else 3 * READY), dtype=torch.int64, device=device)
    scalars = out[start : start + 11].view(torch.float64)
    given = _scalars((atol, actual.format.largest, *(float(r) for g in ranks for r in (g[0], g[-1]))), device)
    with _on(device):
        if tied:
            kernels.sample_and_place_kernel[(1,)](
                *flat, count, torch.empty(size, dtype=torch.int32, device=device), *spots, given, scalars,
                KIND_A=_KIND[actual.format.name], KIND_E=_KIND[expected.format.name], SIZE=size,
                num_warps=WARPS, enable_fp_fusion=False,
            )  # fmt: skip
        else:
            kernels.place_kernel[(1,)](draw_sample(aligned, high_words=True), size, *spots, given, scalars)
        kept = scalars[:0] if tied else _make_slots(int(expect), programs, device)
        _enqueue_scan(pair, scalars, out, kept, 1, False, True, count_high=tied, has_atol=not math.isnan(atol))
        if not tied:
            bins = out[start + 11 :].view(torch.int32)
            kernels.pick_kernel[(3,)](
                out, programs, -count % BLOCK, scalars, given[2:], out[_OUT_ROWS * programs :].view(torch.int32), bins,
                BINS=BINS, PROGRAMS=triton.next_power_of_2(programs), num_warps=WARPS,
            )  # fmt: skip
            kernels.bin_values_kernel[(triton.cdiv(kept.numel(), BLOCK),)](
                kept, kept.numel(), scalars, bins, out[start + 14 :].view(torch.int32), out[start + 17 :],
                out[start + 24 :].view(torch.float64), READY,
                BINS=BINS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
            )  # fmt: skip
    fetched: npt.NDArray[np.int64] = out.cpu().numpy()
    launched = _Launched(fetched, programs, kept, scalars, 1, count_high=tied)
    if launched.is_odd() or launched.has_overflowed():
        return None
    return _settle_unseen(launched, fetched[start:], count, tied)


def _settle_unseen(
    launched: _Launched, fetched: npt.NDArray[np.int64], count: int, tied: bool
) -> tuple[list[Bracket], Scan] | None:
    """Brackets and scan from what the first pass brought back; a bracket that settles nothing is made empty."""
    ends = fetched[:11].view(np.float64)
    brackets = []
    for k in range(3):
        low, high, keep_end = (float(ends[i]) for i in (2 + 2 * k, 3 + 2 * k, 8 + k))
        guessed = (keep_end == low) == tied
        brackets.append(Bracket(low, high, 1, 0 if tied else 1) if guessed else EMPTY_BRACKET)
    scan = launched.total(count, brackets)
    if _overflowed(scan.sum_abs, scan.max_abs) or _overflowed(scan.sum_rel, scan.max_rel):
        return None
    caught = list(scan.caught)
    for k, bracket in enumerate(brackets):
        seen = int(fetched[14:17].view(np.int32)[k])
        largest, least = int(fetched[17 + 2 * k]), _NO_INDEX - int(fetched[18 + 2 * k])
        if bracket is EMPTY_BRACKET:
            # Its counts are of the ends the kernel used; of infinity nothing is known.
            caught[k] = Caught(0, 0, np.empty(0))
            brackets[k] = Bracket(0.0, 0.0)
        elif bracket.capacity and (seen <= READY or least == largest):
            first = int(fetched[11:14].view(np.int32)[2 * k])
            values = fetched[24 + k * READY :][: min(seen, READY)].view(np.float64)
            if seen > READY:  # all of them tied
                values = np.broadcast_to(values[0], seen)
            ready = int(caught[k].values.bins[:first].sum()), values
            caught[k] = replace(caught[k], values=replace(caught[k].values, ready=ready))
    return brackets, replace(scan, caught=tuple(caught))


def draw_sample(aligned: Aligned, *, high_words: bool = False) -> torch.Tensor:
    """Sorted errors at a stratified sample of positions, or their high words, on the GPU."""
    size = min(SAMPLE, aligned.count)
    actual, expected = (x.bits for x in aligned.operands[:2])
    if not aligned.contiguous:
        positions = torch.from_numpy(stratified_positions(aligned.count, size)).to(actual.device)
        index = torch.unravel_index(positions, actual.shape)
        actual, expected = actual[index], expected[index]
    errors = torch.empty(size, dtype=torch.int32 if high_words else torch.float64, device=actual.device)
    with _on(actual.device):
        kernels.sample_kernel[(triton.cdiv(size, BLOCK),)](
            actual, expected, actual.numel(), errors, size,
            KIND_A=_KIND[aligned.operands[0].format.name], KIND_E=_KIND[aligned.operands[1].format.name],
            HIGH_WORDS=high_words, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    return errors.sort().values


def select_kept(requests: Sequence[tuple[Any, Sequence[int]]]) -> list[list[float]]:
    """Values at 0-based ranks of what brackets of one pass kept, fetching only the bins that hold them."""
    if not requests or not all(isinstance(values, DeviceValues) for values, _ in requests):
        return select_on_host([(np.asarray(values), ranks) for values, ranks in requests])
    if all(_is_ready(values, ranks) for values, ranks in requests):
        return select_on_host([(v.ready[1], [rank - v.ready[0] for rank in ranks]) for v, ranks in requests])
    wanted = np.tile(np.array([1, 0], np.int32), (3, 1))  # first and last bin; none by default
    before, sizes = [0, 0, 0], [0, 0, 0]
    for values, ranks in requests:
        ends = np.cumsum(values.bins)
        wanted[values.number] = np.searchsorted(ends, [ranks[0], ranks[-1]], side="right")
        first, last = wanted[values.number]
        before[values.number] = int(ends[first - 1]) if first else 0
        sizes[values.number] = int(ends[last]) - before[values.number]
    slots, device, room = requests[0][0].slots, requests[0][0].slots.device, max(sizes)
    found = torch.empty((3, room), dtype=torch.float64, device=device)
    with _on(device):
        kernels.bin_values_kernel[(triton.cdiv(slots.numel(), BLOCK),)](
            slots, slots.numel(), requests[0][0].scalars, torch.from_numpy(wanted).to(device),
            torch.zeros(3, dtype=torch.int32, device=device), torch.zeros(6, dtype=torch.int64, device=device),
            found, room,
            BINS=BINS, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    fetched = found.cpu().numpy()
    return select_on_host([
        (fetched[v.number, : sizes[v.number]], [rank - before[v.number] for rank in ranks]) for v, ranks in requests
    ])  # fmt: skip


def _is_ready(values: DeviceValues, ranks: Sequence[int]) -> bool:
    """Whether the values at `ranks` are among those already fetched."""
    if values.ready is None:
        return False
    below, fetched = values.ready
    return below <= ranks[0] and ranks[-1] < below + len(fetched)


def read(pair: Pair, scale: torch.Tensor | None, scale_format: Format | None, unit: Unit) -> WorstError:
    """Worst error of a piece in a gauge's unit."""
    fetched = _launch_read(pair, scale, scale_format, unit, careful=False)
    worst = fetched[0].view(np.float64)
    top, infinite = float(worst.max()), 0
    if fetched[5].max() or top == math.inf:
        fetched = _launch_read(pair, scale, scale_format, unit, careful=True)
        bad = int(fetched[4].min())
        if bad != _NO_INDEX:
            return WorstError(0.0, 0, 0.0, 0, bad_scale=bad)
        worst = fetched[0].view(np.float64)
        top, infinite = float(worst.max()), int(fetched[3].sum())
    index, signed_sum = int(fetched[1][worst == top].min()), float(fetched[2].view(np.float64).sum())
    return WorstError(top, index, signed_sum, infinite)


def _launch_read(
    pair: Pair, scale: torch.Tensor | None, scale_format: Format | None, unit: Unit, *, careful: bool
) -> npt.NDArray[np.int64]:
    actual, fmt = pair.actual, pair.actual_format
    programs, device = _grid(actual, READ_BLOCK), actual.device
    out = torch.empty((6, programs), dtype=torch.int64, device=device)
    with _on(device):
        kernels.read_kernel[(programs,)](
            actual, pair.expected, actual if scale is None else scale, actual.numel(),
            _scalars((*unit[:4], fmt.overflow_start), device), out,
            KIND_A=_KIND[fmt.name], KIND_E=_KIND[pair.expected_format.name],
            KIND_S=0 if scale_format is None else _KIND[scale_format.name],
            PRECISION=fmt.precision, MIN_EXPONENT=fmt.min_exponent, MAX_EXPONENT=fmt.max_exponent,
            HAS_INFINITY=fmt.has_infinity, HAS_AFFINE=unit.constant != 0 or unit.per_magnitude != 0,
            HAS_ULP=unit.per_ulp != 0, HAS_SCALE=scale is not None, FROM_CELL=unit.from_cell, CAREFUL=careful,
            BLOCK=READ_BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    return _fetch(out)


def measure_moments(values: torch.Tensor, fmt: Format, factor: float) -> Moments:
    """Largest finite |r|, sum of squares of finite r·factor, and how many are finite."""
    programs = _grid(values, READ_BLOCK)
    out = torch.empty((3, programs), dtype=torch.int64, device=values.device)
    with _on(values.device):
        kernels.moments_kernel[(programs,)](
            values, values.numel(), _scalars((factor,), values.device), out,
            KIND=_KIND[fmt.name], BLOCK=READ_BLOCK, num_warps=WARPS, enable_fp_fusion=False,
        )  # fmt: skip
    fetched = _fetch(out)
    floats = fetched.view(np.float64)
    return Moments(float(floats[0].max()), float(floats[1].sum()), int(fetched[2].sum()))


def _on(device: torch.device) -> Any:
    """Launch on the tensors' GPU, whatever the current one is."""
    from contextlib import nullcontext

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
