"""A pass over errors that was launched on a GPU → what it brought back: totals, and what brackets caught."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gonogo.instrument.partials import Bracket, Caught, Scan, saturate, sum_overflowed

BINS = 4096
"""Equal parts of a bracket, in which what it keeps is counted."""

# Where one int64 buffer takes all results, so that one copy brings them: totals as scan_kernel's rows, then per
# bracket the bins that hold the wanted ranks, how many kept values lie below these, and how many were kept. Of a
# first pass also the ends of brackets, three numbers of values seen in the bins, three pairs of extremes of those
# that found no room, and the values. Behind what is fetched stand the programs' rows and, in int32, histograms
# and the sample.
LOWS_AT, HIGHS_AT, PICKS_AT, HEAD = 9, 12, 16, 28
SCALARS_AT, SEEN_AT, EXTREMES_AT, VALUES_AT = HEAD, HEAD + 11, HEAD + 14, HEAD + 20
N_ROWS = 16

Ready = tuple[int, npt.NDArray[np.float64]]
"""How many values lie below the bins that hold the wanted ranks, and the values in them."""
NO_VALUES = np.empty(0)


@dataclass(frozen=True, slots=True)
class DeviceValues:
    """What the brackets of one pass kept, seen by one of them: unused slots hold +inf."""

    slots: torch.Tensor
    scalars: torch.Tensor
    """Ends of all brackets, as the kernels read them."""
    bracket: Bracket
    number: int
    """Which of the brackets."""
    count: int
    results: Results
    ready: Ready | None = None
    """What already came along with the totals."""

    def __len__(self) -> int:
        return self.count

    def count_bins(self) -> npt.NDArray[np.int32]:
        """How many of its values fall into each of BINS equal parts of the bracket."""
        counts: npt.NDArray[np.int32] = self.results.bins.cpu().numpy()
        return counts[self.number * BINS : (self.number + 1) * BINS]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = self.slots.cpu().numpy()
        return values[(values >= self.bracket.low) & (values < self.bracket.high)]


@dataclass(frozen=True, slots=True)
class Results:
    """One buffer for all a pass finds. Kernels get it whole: a slice costs the host half a launch."""

    block: int
    """Elements that a program takes at a time."""
    programs: int
    out: torch.Tensor
    rows_at: int
    """Words that are fetched; behind them int64 [N_ROWS, programs]: a row per field, the last what fell inside."""

    @property
    def bins(self) -> torch.Tensor:
        """int32 [3 · BINS]: three histograms."""
        start = self.rows_at + N_ROWS * self.programs
        return self.out[start : start + 3 * BINS // 2].view(torch.int32)


def count_words(fetched: int, programs: int) -> int:
    """Of the buffer for a pass: what is fetched, the programs' rows and the histograms."""
    return fetched + N_ROWS * programs + 3 * BINS // 2


@dataclass(frozen=True, slots=True)
class Launched:
    """What one launch brought back."""

    fetched: npt.NDArray[np.int64]
    words: list[int]
    """The first of what was fetched: all but values."""
    floats: list[float]
    """The same, read as float64."""
    results: Results
    kept: torch.Tensor
    scalars: torch.Tensor
    stride: int
    count_high: bool
    tied: bool
    """Whether brackets were placed for ties: to count, not to keep."""

    @classmethod
    def fetch(
        cls, results: Results, kept: torch.Tensor, scalars: torch.Tensor, stride: int, *, count_high: bool,
        tied: bool = False,
    ) -> Launched:  # fmt: skip
        """Wait for a pass that was launched."""
        fetched = results.out[: results.rows_at].cpu().numpy()
        words, floats = fetched[:VALUES_AT].tolist(), fetched[:VALUES_AT].view(np.float64).tolist()
        return cls(fetched, words, floats, results, kept, scalars, stride, count_high, tied)

    def is_odd(self) -> bool:
        """Whether there is a NaN or an infinity, or a reference that rounds to one."""
        return bool(self.words[8]) or not math.isfinite(self.floats[2])

    def has_overflowed(self) -> bool:
        """Whether more fell inside than a program could keep."""
        slots = self.kept.numel()
        return slots > 0 and self.words[15] > slots // self.results.programs * self.stride

    def has_lost_sums(self) -> bool:
        """Whether a sum is infinite though none of its terms is."""
        floats = self.floats
        return sum_overflowed(floats[2], floats[1]) or sum_overflowed(floats[5], floats[4])

    def total(self, count: int) -> Scan:
        """The totals, without the padding, which reads as 0 against 0."""
        whole, floats, padding = self.words, self.floats, -count % self.results.block
        max_ulp, sum_ulp = saturate(whole[6] % 2**64, floats[7], saturated=bool(whole[8]))
        return Scan(
            exceeding=whole[0],
            max_abs=floats[1],
            sum_abs=floats[2],
            nonzero=count - (whole[3] - padding),
            max_rel=floats[4],
            sum_rel=floats[5],
            max_ulp=max_ulp,
            sum_ulp=sum_ulp,
            caught=(),
        )

    def catch(
        self, count: int, brackets: Sequence[Bracket], ready: Sequence[Ready | None] = (None, None, None)
    ) -> list[Caught]:
        """What each bracket caught."""
        return [self._catch(k, bracket, count, ready[k]) for k, bracket in enumerate(brackets)]

    def _catch(self, k: int, bracket: Bracket, count: int, ready: Ready | None) -> Caught:
        below_low, below_high = self.count_below(k, bracket.low, bracket.high, count)
        values: Any = NO_VALUES
        if bracket.capacity:
            inside = self._count_kept(k)
            values = DeviceValues(self.kept, self.scalars, bracket, k, inside, self.results, ready)
        return Caught(below_low, below_high, values)

    def count_below(self, k: int, low: float, high: float, count: int) -> tuple[int, int]:
        """Errors below the two ends of bracket k, without the padding, which reads as 0 against 0."""
        padding = -count % self.results.block
        below_low = self.words[LOWS_AT + k] - (padding if low > 0 else 0)
        if not self.count_high:
            return below_low, below_low + self._count_kept(k)
        return below_low, self.words[HIGHS_AT + k] - (padding if high > 0 else 0)

    def _count_kept(self, k: int) -> int:
        return self.words[PICKS_AT + 4 * k + 3] if self.kept.numel() else 0
