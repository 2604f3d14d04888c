"""Columns → which rows calibrate, which are judged, and by which limit each is.

A control's readings make limits; a faulty kernel is judged by the limit of what it promises: its own op and
contract, or, for rules that look at one kernel and dtype, the control it is calibrated against.

Millions of rows fall into some hundreds of cells, of rows alike in all that chooses a limit. What depends on
nothing else is worked out once per cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gonogo.cases import NON_FINITE
from gonogo.evaluate.beside_controls import EVIDENT, GROSS, can_compare, compare_with_controls
from gonogo.limits import DTYPE_FREE, EVERY_OP
from gonogo.limits.calibrating import may_calibrate
from gonogo.limits.rules import Rule
from gonogo.records import MEASURED, Columns

Mask = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.uint64]
"""A mask, 64 rows to the word: one is kept of every method and policy, and there are millions of rows."""
Codes = npt.NDArray[np.int16] | npt.NDArray[np.int32]
T = TypeVar("T", bound=np.generic)

BLOCK_ROWS = 2**17
"""So few that what is worked out on the way stays in the cache; NumPy makes indices 8 bytes wide."""

MANIFEST = 2.0
"""Signal from which a fault is beyond rounding.

The difference of two outputs carries the rounding of both: two correct kernels may differ by two units. Of pairs of
controls in the committed records 6 in 100 differ by one unit or more, 1 in 1,000 by two.
"""

BINS = ("all", "differing", "manifest")
"""Of faulty rows: all; those whose bits are not the control's; those whose fault is beyond rounding."""
BINS_BESIDE_CONTROLS = ("evident", "gross")
"""Of faulty rows: those whose worst error is more than 2 times, and 10 times, the worst control's on the case."""


def split_blocks(rows: int) -> Iterator[slice]:
    """All rows, block by block."""
    return (slice(start, start + BLOCK_ROWS) for start in range(0, rows, BLOCK_ROWS))


def pack(mask: Mask) -> Bits:
    """A mask as bits."""
    words = np.zeros(-(-len(mask) // 64), np.uint64)
    words.view(np.uint8)[: -(-len(mask) // 8)] = np.packbits(mask)
    return words


def unpack(bits: Bits, rows: int) -> Mask:
    """The mask of so many rows, from its bits."""
    return np.unpackbits(bits.view(np.uint8), count=rows).view(bool)


def look_up(table: npt.NDArray[T], codes: Codes) -> npt.NDArray[T]:
    """What a table holds for each row's code."""
    values = np.empty(len(codes), table.dtype)
    for block in split_blocks(len(codes)):
        values[block] = table[codes[block]]
    return values


@dataclass(frozen=True)
class Cells:
    """Rows by op, dtype, role, kernel, contract and control."""

    of_row: Codes
    codes: dict[str, npt.NDArray[np.int16]]
    """Of each cell, as in Columns."""

    def __len__(self) -> int:
        return len(self.codes["op"])

    @classmethod
    def number(cls, columns: Columns) -> Cells:
        """Number the combinations that occur, some columns at a time: of all columns there would be too many."""
        of_row = np.zeros(len(columns), np.int32)
        codes: dict[str, npt.NDArray[np.int16]] = {}
        cells = 1
        for names in (("op", "dtype", "role", "kernel"), ("contract",), ("calibrate_against",)):
            sizes = [len(columns.names[name]) + 1 for name in names]  # the first is none
            occurs = np.zeros(cells * math.prod(sizes), bool)
            for block in split_blocks(len(columns)):
                combination = of_row[block]
                for name, size in zip(names, sizes, strict=True):
                    combination = combination * size + columns.codes[name][block] + 1
                of_row[block] = combination
                occurs[combination] = True
            numbers = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
            for block in split_blocks(len(columns)):
                of_row[block] = numbers[of_row[block]]
            before, *new_codes = np.unravel_index(np.flatnonzero(occurs), (cells, *sizes))
            codes = {name: values[before] for name, values in codes.items()}
            codes |= {name: (code - 1).astype(np.int16) for name, code in zip(names, new_codes, strict=True)}
            cells = len(before)
        return cls(of_row.astype(np.int16) if cells < 2**15 else of_row, codes)


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
        control = self.columns.equals("role", "control")
        return may_calibrate(control, self.sound, self.finite, self.columns.readings["absolute"])

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

    @cached_property
    def control_bits(self) -> Bits:
        """What false positives are counted over."""
        return pack(self.controls)

    @cached_property
    def bins(self) -> dict[str, Bits]:
        """What recall is counted over, by name; those beside controls where what they take was loaded."""
        bins = dict(zip(BINS, map(pack, (self.faulty, self.differing, self.manifest)), strict=True))
        if can_compare(self.columns):
            ratio = compare_with_controls(self.columns, self.calibrating, self.differing & self.sound)
            with np.errstate(invalid="ignore"):
                for name, least in zip(BINS_BESIDE_CONTROLS, (EVIDENT, GROSS), strict=True):
                    bins[name] = pack(self.differing & ((ratio > least) | ~self.sound))
        return bins

    @cached_property
    def cells(self) -> Cells:
        """Rows that share their limit whatever the rule."""
        return Cells.number(self.columns)

    @cached_property
    def calibrating_by_cell(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Numbers of the rows that limits are made from, cell by cell, and where each cell starts and ends."""
        rows = np.flatnonzero(self.calibrating).astype(np.int32)
        cells = self.cells.of_row[rows]
        starts = np.cumsum([0, *np.bincount(cells, minlength=len(self.cells))])
        return rows[np.argsort(cells, kind="stable")], starts  # 16-bit codes are sorted by radix

    def group(self, rule: Rule, gauge: str, *, across_kernels: bool = False) -> tuple[Codes, list[tuple[str, ...]]]:
        """The limit each row is judged by, as a code, and what the codes stand for: op, contract, kernel, dtype."""
        groups, names = self.group_cells(rule, gauge, across_kernels=across_kernels)
        return look_up(groups, self.cells.of_row), names

    def group_cells(
        self, rule: Rule, gauge: str, *, across_kernels: bool = False
    ) -> tuple[npt.NDArray[np.int32], list[tuple[str, ...]]]:
        """The limit of each cell, as a code, and what the codes stand for: op, contract, kernel, dtype."""
        pooled = rule.pools != "control" or across_kernels
        none = np.full(len(self.cells), -1, np.int16)
        keys = {
            "op": none if rule.pools == "contract" else self.cells.codes["op"],
            "contract": self._contract if pooled else self._contract_of_source,
            "kernel": none if pooled else self._source,
            "dtype": none if rule.pools != "control" and gauge in DTYPE_FREE else self.cells.codes["dtype"],
        }
        distinct, groups = np.unique(np.stack(list(keys.values())), axis=1, return_inverse=True)
        names = [
            tuple(self._name(column, code) for column, code in zip(keys, group, strict=True))
            for group in distinct.T
        ]
        return groups.ravel().astype(np.int32), names

    def _name(self, column: str, code: int) -> str:
        return self.columns.names[column][code] if code >= 0 else EVERY_OP if column == "op" else ""

    @cached_property
    def source(self) -> npt.NDArray[np.int16]:
        """Code of the kernel whose readings a row is held against: a control's own, a faulty one's control."""
        return look_up(self._source, self.cells.of_row)

    # What follows is of cells.

    @cached_property
    def _is_control(self) -> Mask:
        is_control: Mask = self.cells.codes["role"] == self.columns.code("role", "control")
        return is_control

    @cached_property
    def _source(self) -> npt.NDArray[np.int16]:
        against = self.columns.names["calibrate_against"]
        codes = [max(self.columns.code("kernel", name), -1) for name in against]  # −1: none that occurs
        to_kernel = np.array([*codes, -1], np.int16)
        named = to_kernel[self.cells.codes["calibrate_against"]]
        return np.where(self._is_control, self.cells.codes["kernel"], named)

    @cached_property
    def _contract(self) -> npt.NDArray[np.int16]:
        """A cell's contract, or its control's where no control promises the same."""
        op, contract = self.cells.codes["op"], self.cells.codes["contract"]
        of_controls = set(zip(op[self._is_control].tolist(), contract[self._is_control].tolist(), strict=True))
        known = [pair in of_controls for pair in zip(op.tolist(), contract.tolist(), strict=True)]
        return np.where(known, contract, self._contract_of_source)

    @cached_property
    def _contract_of_source(self) -> npt.NDArray[np.int16]:
        """What a cell's control promises in its dtype; −1 where that has no row."""
        kernel, dtype, contract = (self.cells.codes[name] for name in ("kernel", "dtype", "contract"))
        shape = len(self.columns.names["kernel"]) + 1, len(self.columns.names["dtype"]) + 1
        table = np.full(shape, -1, np.int16)
        table[kernel[self._is_control], dtype[self._is_control]] = contract[self._is_control]
        contracts: npt.NDArray[np.int16] = table[self._source, dtype]
        return contracts
