"""Rows → how many times the worst error of a faulty case is that of the worst control on the same case.

No error scale is in it: only errors that were measured, on the same inputs. So it can tell whether recall over
manifest cases, which are found by the scale that gonogo also judges by, flatters gonogo.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from gonogo.evaluate.rows import Mask, Rows
from gonogo.records import Columns, Source

EVIDENT, GROSS = 2.0, 10.0
"""Times the worst control. Two correct kernels may each be off by a rounding; ten times that is no rounding."""
HALF_ULP = 0.5
"""What rounding the exact result may be off by."""
NEEDED = ("number", "ulp")
"""What it takes, beside what every score does."""


class CaseErrors:
    """The largest `max_abs` of all controls on each case of each run: 4 bytes a case, the one thing that grows."""

    def __init__(self) -> None:
        self._worst: dict[int, npt.NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    @classmethod
    def find(cls, source: Source) -> CaseErrors:
        """Go through all rows of controls once."""
        errors = cls()
        for _ in source.map_blocks(lambda columns: errors.add(columns, Rows(columns).calibrating),
                                   {"absolute", "number"}):  # fmt: skip
            pass
        return errors

    def add(self, columns: Columns, controls: Mask) -> None:
        """Take the controls of a block."""
        for run in np.unique(columns.run).tolist():
            here = np.flatnonzero(controls & (columns.run == run))
            numbers, most = columns.number[here], int(columns.number[here].max(initial=-1)) + 1
            with self._lock:
                worst = self._worst.get(run, np.empty(0, np.float32))
                if most > len(worst):
                    worst = np.pad(worst, (0, most - len(worst)), constant_values=-np.inf)
                np.fmax.at(worst, numbers, columns.readings["absolute"][here])  # one without an error says nothing
                self._worst[run] = worst

    def compare(self, columns: Columns, faulty: Mask) -> npt.NDArray[np.float32]:
        """For each faulty row its `max_abs` over the largest of all controls of the op on that case, in its run.

        Where all of these are exact, the error in units in the last place over a half: a correct kernel that is
        not exact there is off by that. NaN for other rows, and where no control was measured on the case.
        """
        absolute, ulp = columns.readings["absolute"], columns.readings["ulp"]
        ratios = np.full(len(columns), np.nan, np.float32)
        for run in np.unique(columns.run).tolist():
            of_faulty = np.flatnonzero(faulty & (columns.run == run))
            worst = np.append(self._worst.get(run, np.empty(0, np.float32)), np.float32(-np.inf))
            beside = worst[np.minimum(columns.number[of_faulty], len(worst) - 1)]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ratio = np.where(beside == 0, ulp[of_faulty] / np.float32(HALF_ULP), absolute[of_faulty] / beside)
            ratios[of_faulty] = np.where(beside < 0, np.nan, ratio)
        return ratios

    def classify(self, rows: Rows) -> npt.NDArray[np.int8]:
        """2 for gross rows, 1 for those that are only evident, 0 for all others."""
        ratio = self.compare(rows.columns, rows.differing & rows.sound)
        failed = rows.differing & ~rows.sound
        with np.errstate(invalid="ignore"):
            evident, gross = (rows.differing & (ratio > least) | failed for least in (EVIDENT, GROSS))
        return evident.view(np.int8) + gross.view(np.int8)
