"""Rows → how many times the worst error of a faulty case is that of the worst control on the same case.

No error scale is in it: only errors that were measured, on the same inputs. So it can tell whether recall over
manifest cases, which are found by the scale that gonogo also judges by, flatters gonogo.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gonogo.records import Columns

EVIDENT, GROSS = 2.0, 10.0
"""Times the worst control. Two correct kernels may each be off by a rounding; ten times that is no rounding."""
HALF_ULP = 0.5
"""What rounding the exact result may be off by."""

Mask = npt.NDArray[np.bool_]


def can_compare(columns: Columns) -> bool:
    """Whether what it takes was loaded."""
    return len(columns.number) == len(columns) and {"absolute", "ulp"} <= columns.readings.keys()


def compare_with_controls(columns: Columns, controls: Mask, faulty: Mask) -> npt.NDArray[np.float32]:
    """For each faulty row its `max_abs` over the largest of all controls of the op on that case, in the same run.

    Where all of these are exact, the error in units in the last place over a half: a correct kernel that is not
    exact there is off by that. NaN for other rows, and where no control was measured on the case.
    """
    absolute, ulp = columns.readings["absolute"], columns.readings["ulp"]
    ratios = np.full(len(columns), np.nan, np.float32)
    for run in range(len(columns.runs)):
        here = columns.run == run
        of_control, of_faulty = np.flatnonzero(here & controls), np.flatnonzero(here & faulty)
        worst = np.full(columns.number[here].max(initial=-1) + 1, -np.inf, np.float32)
        np.maximum.at(worst, columns.number[of_control], absolute[of_control])
        beside = worst[columns.number[of_faulty]]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(beside == 0, ulp[of_faulty] / np.float32(HALF_ULP), absolute[of_faulty] / beside)
        ratios[of_faulty] = np.where(beside < 0, np.nan, ratio)
    return ratios
