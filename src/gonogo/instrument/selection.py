"""Counting passes over unsorted errors → exact order statistics, in bounded memory.

A sorted sample brackets each wanted rank. One pass counts what lies below each bracket and keeps what lies
inside; the counts then prove whether the bracket holds its rank. A bracket that misses, or holds more than
fits, is narrowed by what the pass has shown, so the result is exact whatever the sample was like: a bad sample
costs passes, never digits. Ties, which rounded outputs are full of, get brackets of a single value and need no
keeping.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.errors import ArraysChanged
from gonogo.instrument import path_native
from gonogo.instrument.partials import EMPTY_BRACKET, N_BRACKETS, Bracket, Caught
from gonogo.instrument.threads import thread_limit

Floats = npt.NDArray[np.float64]
RunPass = Callable[[Sequence[Bracket]], Sequence[Caught]]
Shrink = Callable[[float, float], tuple[float, float]]
SelectKept = Callable[[Sequence[tuple[Any, Sequence[int]]]], Sequence[Sequence[float]]]

KEEP_ALL = 2**16
"""Up to so many errors are all kept and selected from directly: half a megabyte."""
HOST_CAPACITY = 2**20
"""Errors a bracket may keep on the host: 8 MiB."""
THREADS_PAY = 2**17
"""Values to select from that make threads worth starting."""
SPREAD = 3.3
"""Half-width of a bracket in standard deviations of a sample rank: one of six ends missed once in 300 passes."""


def sample_size(count: int, *, tied: bool = False) -> int:
    """Sample whose brackets fit HOST_CAPACITY in one pass up to 2^27 errors, and in two beyond.

    Where errors are tied, as between two arrays of one short format, a small one finds the ties.
    """
    return min(2**12 if tied else max(count >> 9, 2**12), 2**18, count)


def stratified_positions(count: int, size: int) -> npt.NDArray[np.int64]:
    """One position in each of `size` equal strata of range(count), at a fixed pseudo-random place.

    A plain stride would meet the same columns in every row of a power-of-two matrix.
    """
    return ((np.arange(size) + _jitter(size)) * (count / size)).astype(np.int64)


@lru_cache(maxsize=1)
def _jitter(size: int) -> Floats:
    return np.random.Generator(np.random.Philox(0)).random(size)


def select_on_host(requests: Sequence[tuple[Floats, Sequence[int]]]) -> list[list[float]]:
    """For each (unsorted values, 0-based ranks), the values at those ranks."""
    if sum(len(values) for values, _ in requests) < THREADS_PAY:
        return [_select(*request) for request in requests]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(len(requests), thread_limit())) as pool:  # partition releases the GIL
        return list(pool.map(_select, *zip(*requests, strict=True)))


def _select(values: Floats, ranks: Sequence[int]) -> list[float]:
    # An array with stride 0 repeats one value, and needs no search.
    if values.strides != (0,) and path_native.available():
        return path_native.select_errors(values, ranks)
    ordered = values if values.strides == (0,) else np.partition(values, ranks)
    return [float(ordered[rank]) for rank in ranks]


def sort_errors(values: Floats) -> Floats:
    """Errors, sorted: by the native path where there is one, for NumPy's sort is slow on some chips."""
    return path_native.sort_errors(values) if path_native.available() else np.sort(values)


def keep_ends(low: float, high: float) -> tuple[float, float]:
    """A bracket as it is, where a pass compares all values alike."""
    return low, high


@np.errstate(over="ignore")
def shrink_to_float32(low: float, high: float) -> tuple[float, float]:
    """The widest bracket within [low, high) whose ends float32 has."""
    least, most = np.float32(low), np.float32(high)
    if float(least) < low:  # as they stand NumPy would compare them in float32
        least = np.nextafter(least, np.float32(math.inf))
    if float(most) > high:
        most = np.nextafter(most, np.float32(-math.inf))
    return float(least), float(most)


def find_ranks(
    ranks: Sequence[Sequence[int]],
    count: int,
    run_pass: RunPass,
    draw_sample: Callable[[], Floats],
    select_kept: SelectKept = select_on_host,
    capacity: int = HOST_CAPACITY,
    sample_weight: int = 1,
    shrink: Shrink = keep_ends,
    first: tuple[Sequence[Bracket], Sequence[Caught]] | None = None,
) -> dict[int, float]:
    """Exact values of the errors at 0-based `ranks`, given in up to three groups of neighbours.

    The sample is sorted; each of its entries stands for `sample_weight` drawn ones. `shrink` moves
    the ends of a bracket a little inwards, to where a pass compares them fastest. `first` is a pass already made.
    """
    search = _Search(count, select_kept, capacity, shrink)
    if count <= KEEP_ALL:
        everything = [Bracket(0.0, math.inf, 1, count), *[EMPTY_BRACKET] * (N_BRACKETS - 1)]
        search.learn(everything, run_pass(everything), [[rank for group in ranks for rank in group]])
        return search.found
    if first is not None:
        search.learn(*first, ranks)
    if search.has_found(ranks):
        return search.found
    samples = [(draw_sample(), sample_weight)] * len(ranks)
    tried: list[set[tuple[float, float]]] = [set() for _ in ranks]
    while not search.has_found(ranks):
        open_ranks = [[rank for rank in group if rank not in search.found] for group in ranks]
        brackets = [
            search.place_bracket(group, *samples[i], tried[i]) if group else EMPTY_BRACKET
            for i, group in enumerate(open_ranks)
        ]
        brackets += [EMPTY_BRACKET] * (N_BRACKETS - len(brackets))
        kept = search.learn(brackets, run_pass(brackets), open_ranks)
        samples = [(fresh, 1) if fresh is not None else old for fresh, old in zip(kept, samples, strict=True)]
    return search.found


class _Search:
    """What the passes so far have proved: cuts with the number of errors below each, and ranks found."""

    def __init__(self, count: int, select_kept: SelectKept, capacity: int, shrink: Shrink) -> None:
        self.cuts = [0.0]
        self.counts = [0]
        self.count = count
        self.found: dict[int, float] = {}
        self.select_kept = select_kept
        self.capacity = capacity
        self.shrink = shrink

    def place_bracket(
        self, ranks: Sequence[int], sample: Floats, weight: int, tried: set[tuple[float, float]]
    ) -> Bracket:
        """The bracket in which `ranks` most likely lie, given a sorted sample of errors around them."""
        low, below_low, high, below_high = self._known_interval(ranks[0])
        population = below_high - below_low
        # Until a pass has counted the infinite errors they are part of the topmost interval.
        end = np.searchsorted(sample, high) if high in self.cuts else len(sample)
        inside = sample[np.searchsorted(sample, low) : end]
        size = len(inside)
        first, last = 0, size - 1
        if size:
            offsets = [rank - below_low for rank in ranks]
            first, last = sample_ranks(offsets, population, size, weight)
            low, high = _tighten(inside, first, last, low, high)
        if self.shrink(low, high)[0] < self.shrink(low, high)[1]:
            low, high = self.shrink(low, high)
        if (low, high) in tried:
            # No narrower by sampling: any value inside splits it.
            low = float(inside[size // 2]) if size else _halfway(low, high)
            high = math.nextafter(low, math.inf)
        tried.add((low, high))
        if high == math.nextafter(low, math.inf):
            return Bracket(low, high)  # one value: counting is enough
        expected = population * min(1.0, (last - first + 2) / size if size else 1.0)
        stride = math.ceil(expected * 1.25 / self.capacity)
        return Bracket(low, high, stride, min(self.capacity, int(expected / stride * 1.25) + 1024))

    def _known_interval(self, rank: int) -> tuple[float, int, float, int]:
        at = bisect_right(self.counts, rank) - 1
        if at + 1 < len(self.cuts):
            return self.cuts[at], self.counts[at], self.cuts[at + 1], self.counts[at + 1]
        return self.cuts[at], self.counts[at], math.inf, self.count

    def has_found(self, ranks: Sequence[Sequence[int]]) -> bool:
        """Whether the errors at all ranks are known."""
        return all(rank in self.found for group in ranks for rank in group)

    def learn(
        self, brackets: Sequence[Bracket], caught: Sequence[Caught], ranks: Sequence[Sequence[int]]
    ) -> list[Floats | None]:
        """Note the cuts of one pass, settle the ranks it decides, return what it kept of undecided ones."""
        for bracket, catch in zip(brackets, caught, strict=True):
            self._add_cut(bracket.low, catch.below_low)
            self._add_cut(bracket.high, catch.below_high)
        undecided: list[Floats | None] = []
        decided: list[tuple[Sequence[int], Caught]] = []
        for bracket, catch, group in zip(brackets, caught, ranks, strict=False):
            self._settle_infinite(group)
            inside = [rank for rank in group if catch.below_low <= rank < catch.below_high]
            undecided.append(None)
            if inside and bracket.capacity == 0:
                self.found.update(dict.fromkeys(inside, bracket.low))
            elif inside and bracket.stride == 1 and len(catch.values) == catch.below_high - catch.below_low:
                decided.append((inside, catch))
            elif inside:
                undecided[-1] = sort_errors(np.asarray(catch.values))
        requests = [(catch.values, [rank - catch.below_low for rank in inside]) for inside, catch in decided]
        for (settled, _), values in zip(decided, self.select_kept(requests), strict=True):
            self.found.update(zip(settled, values, strict=True))
        return undecided

    def _settle_infinite(self, ranks: Sequence[int]) -> None:
        """Ranks past all finite errors are infinite."""
        if self.cuts[-1] == math.inf:
            self.found.update({rank: math.inf for rank in ranks if rank >= self.counts[-1]})

    def _add_cut(self, cut: float, below: int) -> None:
        at = bisect_left(self.cuts, cut)
        if at == len(self.cuts) or self.cuts[at] != cut:
            self.cuts.insert(at, cut)
            self.counts.insert(at, below)
        # Counts that contradict each other would send the search round for ever.
        least, most = self.counts[max(at - 1, 0)], self.counts[min(at + 1, len(self.counts) - 1)]
        if below != self.counts[at] or not least <= below <= most:
            raise ArraysChanged(cut, self.counts[at] if below != self.counts[at] else least, below)


def _halfway(low: float, high: float) -> float:
    """The value in the middle of the float64 values from low to high, both ≥ 0."""
    words = np.array([low, high]).view(np.int64)
    return float((words[:1] + (words[1:] - words[:1]) // 2).view(np.float64)[0])


def sample_ranks(ranks: Sequence[int], population: int, size: int, weight: float = 1) -> tuple[int, int]:
    """Ranks of a sample between which the population's `ranks` lie, but for SPREAD deviations; may overshoot."""
    spots = []
    for rank, side in ((ranks[0], -1), (ranks[-1] + 1, 1)):
        fraction = min(max(rank / population, 0.0), 1.0)
        deviation = math.sqrt(size * fraction * (1 - fraction) / weight)
        spots.append(round(fraction * size + side * (SPREAD * deviation + 1)))
    return spots[0], spots[1]


def _tighten(sample: Floats, first: int, last: int, low: float, high: float) -> tuple[float, float]:
    """[low, high) narrowed to sample ranks first … last; a tie at an end is left out, or taken alone."""
    size = len(sample)
    bottom = float(sample[first]) if first >= 0 else None
    top = float(sample[last]) if last < size else None
    if bottom is not None and bottom == top:
        return bottom, math.nextafter(bottom, math.inf)
    tied_bottom = bottom is not None and first + 1 < size and sample[first + 1] == bottom
    tied_top = top is not None and last >= 1 and sample[last - 1] == top
    if bottom is not None:
        low = math.nextafter(bottom, math.inf) if tied_bottom else bottom
    if top is not None:
        high = top if tied_top else math.nextafter(top, math.inf)
    middle = float(sample[min(max((first + last) // 2, 0), size - 1)])
    if not low <= middle < high:
        # Only the two tied ends were seen: settle the likelier one; the counts tell which side is left.
        return middle, math.nextafter(middle, math.inf)
    return low, high


def interpolate(low: float, high: float, fraction: float) -> float:
    """Linear interpolation as numpy's default percentile does it, to the bit; between infinities, infinity."""
    if fraction == 0.0 or low == high:
        return low
    if math.isinf(high):
        return math.inf
    step = high - low
    return low + step * fraction if fraction < 0.5 else high - step * (1.0 - fraction)
