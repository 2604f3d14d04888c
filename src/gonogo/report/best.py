"""Rows, block by block → those with the largest values, so many of each stratum, and what is to be told of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


class Best:
    """Keeps few rows of each stratum; blocks may come from several threads, and in any order."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.strata: Numbers = np.empty(0, np.int64)
        self.values: Values = np.empty(0)
        self.rows: Numbers = np.empty(0, np.int64)
        """Of those that are kept: places among all rows, by which ties are settled."""
        self.told: dict[str, npt.NDArray[np.float64]] = {}
        self._least: Values = np.empty(0)
        """Of each stratum that has enough: what a row must reach to be kept."""
        self._lock = threading.Lock()

    def offer(
        self, strata: Numbers, values: npt.NDArray[np.float32] | Values, rows: Numbers,
        told: Mapping[str, npt.NDArray[np.floating] | npt.NDArray[np.integer]],
    ) -> None:  # fmt: skip
        """Take the best of a block."""
        wide: Values = values.astype(np.float64)
        with self._lock:
            most = int(strata.max(initial=-1)) + 1
            self._least = np.pad(self._least, (0, max(0, most - len(self._least))), constant_values=-np.inf)
            here = np.flatnonzero(wide >= self._least[strata])
        here = here[take_first(strata[here], wide[here], rows[here], self.each)]
        with self._lock:
            strata = np.concatenate([self.strata, strata[here]])
            wide = np.concatenate([self.values, wide[here]])
            rows = np.concatenate([self.rows, rows[here]])
            kept = take_first(strata, wide, rows, self.each)
            self.strata, self.values, self.rows = strata[kept], wide[kept], rows[kept]
            self.told = {
                name: np.concatenate([self.told.get(name, np.empty(0)), more[here]])[kept]
                for name, more in told.items()
            }
            counts = np.bincount(self.strata, minlength=len(self._least))
            full = np.flatnonzero(counts == self.each)
            ends = np.cumsum(counts)  # kept rows are sorted by stratum, the best first
            self._least[full] = self.values[ends[full] - 1]


def take_first(strata: Numbers, values: Values, rows: Numbers, each: int) -> Numbers:
    """Places of the largest few of each stratum, stratum by stratum; of equal ones the first come first."""
    order = np.lexsort((rows, -values, strata))
    ordered = strata[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(order) else np.empty(0, np.int64)
    ranks = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    first: Numbers = order[ranks < each]
    return first
