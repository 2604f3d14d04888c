"""An output and its reference → ErrorStats, exact in every field but the means (1e-12 relative)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gonogo.errors import check_tolerance
from gonogo.formats import FORMATS
from gonogo.guest.arithmetic import plain_arithmetic
from gonogo.instrument.operands import Aligned, Bits, align, as_operand
from gonogo.instrument.partials import (
    EMPTY_BRACKET,
    N_BRACKETS,
    Bracket,
    Caught,
    Pair,
    Scan,
    add_scans,
    is_short,
    mean_of,
)
from gonogo.instrument.paths import Path, pick_path
from gonogo.instrument.selection import (
    RunPass,
    find_ranks,
    interpolate,
    keep_ends,
    sample_size,
    shrink_to_float32,
    sort_errors,
    stratified_positions,
)
from gonogo.schema import ErrorStats

if TYPE_CHECKING:
    from gonogo.instrument.launched_triton import Launched

PERCENTILES = (50, 90, 99)


def measure(actual: object, expected: object, *, atol: float | None = None) -> ErrorStats:
    """Measure `actual` against `expected`: a float64 reference, or one in any narrower format.

    ULPs are those of the format of `actual`, to which `expected` is rounded for that purpose only.

    >>> import numpy as np
    >>> stats = measure(np.float32([1.0, 2.0, 4.5]), np.array([1.0, 2.0, 4.0]), atol=0.1)
    >>> stats.num_exceeding, stats.max_abs, stats.max_rel, stats.max_ulp
    (1, 0.5, 0.125, 1048576)
    """
    if atol is not None:
        check_tolerance("atol", atol)
    aligned = align([as_operand(actual, "actual"), as_operand(expected, "expected")])
    if aligned.count == 0:
        return ErrorStats(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0)
    # Nothing exceeds a tolerance that was not given: NaN compares false with everything, +inf included.
    tolerance = math.nan if atol is None else float(atol)
    return _measure_aligned(*pick_path(aligned), tolerance)


def _measure_aligned(aligned: Aligned, path: Path, atol: float) -> ErrorStats:
    first_pass = None
    if aligned.device != "cpu":
        from gonogo.instrument.first_pass_triton import begin_pass

        # As soon as may be: what follows is done while the GPU is at it.
        first_pass = begin_pass(aligned, atol, _find_places(aligned.count)[1])
    with plain_arithmetic():
        launched = None if first_pass is None else first_pass.finish()
        del first_pass  # with its memory, if it is to be redone
        return _compute_stats(aligned, path, atol, launched)


def _compute_stats(aligned: Aligned, path: Path, atol: float, launched: Launched | None) -> ErrorStats:
    count = aligned.count
    passes: list[Scan] = []

    def run_pass(brackets: Sequence[Bracket]) -> Sequence[Caught]:
        scan = _scan_pieces(aligned, path, atol, brackets)
        passes.append(replace(scan, caught=()))  # what a pass kept must not outlive its use
        return scan.caught

    places, ranks = _find_places(count)
    values = find_errors_at(aligned, path, ranks, run_pass, passes, launched)
    percentiles = [
        interpolate(values[low], values[high], place - low)
        for (low, high), place in zip(ranks, places, strict=True)
    ]
    first = passes[0]
    return ErrorStats(
        count=count,
        num_exceeding=first.exceeding,
        max_abs=first.max_abs,
        mean_abs=mean_of(first.sum_abs, count),
        p50_abs=percentiles[0],
        p90_abs=percentiles[1],
        p99_abs=percentiles[2],
        max_rel=first.max_rel,
        mean_rel=mean_of(first.sum_rel, first.nonzero),
        max_ulp=first.max_ulp,
        mean_ulp=mean_of(first.sum_ulp, count),
    )


@lru_cache(maxsize=64)
@plain_arithmetic()
def _find_places(count: int) -> tuple[tuple[float, ...], tuple[tuple[int, int], ...]]:
    """Where the percentiles of so many errors lie, and the ranks to either side."""
    places = tuple((count - 1) * (percent / 100) for percent in PERCENTILES)
    return places, tuple((math.floor(place), min(math.floor(place) + 1, count - 1)) for place in places)


def find_errors_at(
    aligned: Aligned,
    path: Path,
    ranks: Sequence[Sequence[int]],
    run_pass: RunPass,
    passes: list[Scan],
    launched: Launched | None,
) -> dict[int, float]:
    """Exact errors at 0-based ranks, by passes over all pieces, each of which is appended to `passes`."""
    if aligned.device == "cpu":
        actual, expected = aligned.operands[:2]
        # Errors between two float32 arrays are mostly float32 values, and compared twice as fast with such.
        shrink = shrink_to_float32 if actual.format is expected.format is FORMATS["float32"] else keep_ends
        return find_ranks(ranks, aligned.count, run_pass, lambda: _draw_sample(aligned, path), shrink=shrink)
    from gonogo.instrument import select_triton

    return select_triton.find_errors_at(aligned, ranks, run_pass, passes, launched)


def _draw_sample(aligned: Aligned, path: Path) -> npt.NDArray[np.float64]:
    """Sorted errors at a stratified sample of positions."""
    actual, expected = aligned.operands[:2]
    size = sample_size(aligned.count, tied=is_short(actual.format, expected.format))
    bits = aligned.take(stratified_positions(aligned.count, size))
    everything = Bracket(0.0, math.inf, capacity=size)
    scan = path.scan(_pair(aligned, bits), math.nan, [everything, *[EMPTY_BRACKET] * (N_BRACKETS - 1)])
    finite = sort_errors(scan.caught[0].values)
    return np.concatenate([finite, np.full(size - finite.size, np.inf)])


def _scan_pieces(aligned: Aligned, path: Path, atol: float, brackets: Sequence[Bracket]) -> Scan:
    scans = []
    for _, bits in aligned.pieces():
        pair = _pair(aligned, bits)
        share = math.prod(bits[0].shape) / aligned.count
        if share == 1.0:
            return path.scan(pair, atol, brackets)
        # Twice its share of a bracket is room enough for a piece, and what it kept must not stay on a GPU.
        smaller = [
            b._replace(capacity=math.ceil(2 * share * b.capacity) + 1024 * (b.capacity > 0)) for b in brackets
        ]
        scan = path.scan(pair, atol, smaller)
        scans.append(replace(scan, caught=tuple(replace(c, values=np.array(c.values)) for c in scan.caught)))
    return add_scans(scans)


def _pair(aligned: Aligned, bits: Sequence[Bits]) -> Pair:
    actual, expected = aligned.operands[:2]
    return Pair(bits[0], actual.format, bits[1], expected.format)
