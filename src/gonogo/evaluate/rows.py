"""Columns → what each row can show: whether it calibrates, is judged, and in which bin of faults it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gonogo.cases import NON_FINITE
from gonogo.limits.calibrating import may_calibrate
from gonogo.records import MEASURED, Columns

Mask = npt.NDArray[np.bool_]

MANIFEST = 2.0
"""Signal from which a fault is beyond rounding.

The difference of two outputs carries the rounding of both: two correct kernels may differ by two units. Of pairs of
controls in the committed records 6 in 100 differ by one unit or more, 1 in 1,000 by two.
"""


@dataclass(frozen=True)
class Rows:
    """Rows of a block, told apart by what they can show."""

    columns: Columns

    @cached_property
    def finite(self) -> Mask:
        """Rows whose inputs hold no NaN and no infinity."""
        return ~self.columns.equals("distribution", *NON_FINITE)

    @cached_property
    def sound(self) -> Mask:
        """Rows with outcome ok."""
        return self.columns.equals("outcome", "ok")

    @cached_property
    def control(self) -> Mask:
        """Rows of controls."""
        return self.columns.equals("role", "control")

    @cached_property
    def overflowed(self) -> Mask:
        """Sound rows where the reference itself is past the format's largest value.

        An infinite output is right there, and an infinite distance from an unrounded reference: what a tolerance
        says depends on whether the reference was rounded first. They are left out for every method, and counted.
        """
        return self.sound & np.isinf(self.columns.readings["absolute"])

    @cached_property
    def controls(self) -> Mask:
        """Control rows that were measured: what false positives are counted over."""
        measured: Mask = self.columns.equals("outcome", *MEASURED) & ~self.overflowed
        return self.control & self.finite & measured

    @cached_property
    def calibrating(self) -> Mask:
        """Control rows that limits are made from."""
        return may_calibrate(self.control, self.sound, self.finite, self.columns.readings["absolute"])

    @cached_property
    def faulty(self) -> Mask:
        """Rows of faulty kernels that were run and could be compared with a control, or failed outright."""
        run = self.columns.equals("role", "faulty") & self.finite & ~self.columns.equals("outcome", "refused")
        return run & ~self.overflowed & ((self.columns.bits_equal >= 0) | ~self.sound)

    @cached_property
    def differing(self) -> Mask:
        """Faulty rows whose bits are not the control's; the others no oracle can flag."""
        differing: Mask = self.faulty & ((self.columns.bits_equal == 0) | ~self.sound)
        return differing

    @cached_property
    def manifest(self) -> Mask:
        """Differing rows whose fault is larger than rounding."""
        with np.errstate(invalid="ignore"):
            beyond: Mask = self.columns.signal >= MANIFEST
        manifest: Mask = self.differing & (beyond | ~self.sound)
        return manifest

    @cached_property
    def counted(self) -> Mask:
        """Rows that a score counts, where it has a limit for them."""
        return self.controls | self.faulty
