"""Columns → which rows calibrate, which are judged, and by which limit each is.

A control's readings make limits; a faulty kernel is judged by the limit of what it promises: its own op and
contract, or, for rules that look at one kernel and dtype, the control it is calibrated against.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gonogo.cases import NON_FINITE
from gonogo.limits import DTYPE_FREE
from gonogo.records import MEASURED, Columns
from gonogo.rules import Rule

Mask = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

MANIFEST = 2.0
"""Signal from which a fault is beyond rounding.

The difference of two outputs carries the rounding of both: two correct kernels may differ by two units. Of pairs of
controls in the committed records 6 in 100 differ by one unit or more, 3 in 1,000 by two.
"""


@dataclass(frozen=True)
class Rows:
    """Rows of finite distributions, told apart by what they can show."""

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
        return self.columns.equals("role", "control") & self.finite & measured

    @cached_property
    def calibrating(self) -> Mask:
        """Control rows that limits are made from."""
        return self.controls & self.sound

    @cached_property
    def faulty(self) -> Mask:
        """Rows of faulty kernels that were run and could be compared with a control, or failed outright."""
        run = self.columns.equals("role", "faulty") & self.finite & ~self.columns.equals("outcome", "refused")
        return run & ~self.overflowed & ((self.columns.bits_equal >= 0) | ~self.sound)

    @cached_property
    def differing(self) -> Mask:
        """Faulty rows whose bits are not the control's; the others no oracle can flag."""
        return self.faulty & ((self.columns.bits_equal == 0) | ~self.sound)

    @cached_property
    def manifest(self) -> Mask:
        """Differing rows whose fault is larger than rounding."""
        with np.errstate(invalid="ignore"):
            beyond: Mask = self.columns.signal >= MANIFEST
        manifest: Mask = self.differing & (beyond | ~self.sound)
        return manifest

    def group(self, rule: Rule, gauge: str, *, across_kernels: bool = False) -> tuple[Codes, list[tuple[str, ...]]]:
        """The limit each row is judged by, as a code, and what the codes stand for: op, contract, kernel, dtype."""
        pooled = rule.pooled or across_kernels
        none = np.full(len(self.columns), -1, np.int16)
        keys = [
            self.columns.codes["op"],
            self._contract if pooled else self._contract_of_source,
            none if pooled else self.source,
            none if rule.pooled and gauge in DTYPE_FREE else self.columns.codes["dtype"],
        ]
        code = np.zeros(len(none), np.int64)
        for key in keys:
            code = code * (int(key.max(initial=0)) + 2) + (key + 1)
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        columns = ("op", "contract", "kernel", "dtype")
        names = [
            tuple(self._name(column, int(key[place])) for column, key in zip(columns, keys, strict=True))
            for place in first
        ]
        return inverse.astype(np.int32), names

    def _name(self, column: str, code: int) -> str:
        return self.columns.names[column][code] if code >= 0 else ""

    @cached_property
    def source(self) -> npt.NDArray[np.int16]:
        """Code of the kernel whose readings a row is held against: a control's own, a faulty one's control."""
        against = self.columns.names["calibrate_against"]
        to_kernel = np.array([self.columns.code("kernel", name) for name in against] + [-1], np.int16)
        named = to_kernel[self.columns.codes["calibrate_against"]]
        return np.where(self.columns.equals("role", "control"), self.columns.codes["kernel"], named).astype(
            np.int16
        )

    @cached_property
    def _contract(self) -> npt.NDArray[np.int16]:
        """A row's contract, or its control's where no control promises the same."""
        contract = self.columns.codes["contract"]
        controls = self.columns.equals("role", "control")
        pair = self.columns.codes["op"].astype(np.int64) * (len(self.columns.names["contract"]) + 1) + contract
        known = np.isin(pair, np.unique(pair[controls]))
        return np.where(known, contract, self._contract_of_source).astype(np.int16)

    @cached_property
    def _contract_of_source(self) -> npt.NDArray[np.int16]:
        """What a row's control promises in the row's dtype; −1 where it has no row."""
        controls = self.columns.equals("role", "control")
        kernel, dtype = self.columns.codes["kernel"], self.columns.codes["dtype"]
        shape = len(self.columns.names["kernel"]) + 1, len(self.columns.names["dtype"]) + 1
        table = np.full(shape, -1, np.int16)
        table[kernel[controls], dtype[controls]] = self.columns.codes["contract"][controls]
        found: npt.NDArray[np.int16] = table[self.source, dtype]
        return found
