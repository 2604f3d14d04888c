"""Columns → cells: rows alike in all that chooses a limit, and by which limit each cell is judged.

A control's readings make limits; a faulty kernel is judged by the limit of what it promises: its own op and
contract, or, for rules that look at one kernel and dtype, the control it is calibrated against.

Millions of rows fall into some hundreds of cells. What depends on nothing else is worked out once per cell.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gonogo.limits import DTYPE_FREE, EVERY_OP
from gonogo.limits.rules import Rule
from gonogo.records import Columns

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int16]

STEPS = (("op", "dtype", "role"), ("kernel",), ("contract",), ("calibrate_against",))
"""What makes a cell, some columns at a time: of all at once there would be too many combinations."""
PARTS = tuple(name for names in STEPS for name in names)


class Cells:
    """Numbers of cells, given as rows of them come; blocks of rows may come from several threads."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, columns: Columns) -> Numbers:
        """The cell of each row."""
        of_row, codes = number_cells(columns.codes)
        with self._lock:
            numbers = [
                self._numbers.setdefault(key, len(self._numbers))
                for key in zip(*(codes[name].tolist() for name in PARTS), strict=True)
            ]
        return np.array(numbers, np.int32)[of_row]

    def close(self, names: dict[str, list[str]]) -> CellTable:
        """What is known of all cells that have come."""
        codes = np.array(list(self._numbers), np.int16).reshape(-1, len(PARTS)).T
        return CellTable(dict(zip(PARTS, codes, strict=True)), names)


def number_cells(words: Mapping[str, npt.NDArray[np.integer]]) -> tuple[Numbers, dict[str, Codes]]:
    """The combinations of codes that occur, numbered from 0: of each row, and what each stands for."""
    of_row = np.zeros(len(words["op"]), np.int32)
    codes: dict[str, Codes] = {}
    cells = 1
    for names in STEPS:
        sizes = [int(words[name].max(initial=-1)) + 2 for name in names]  # the first is none
        for name, size in zip(names, sizes, strict=True):
            of_row *= np.int32(size)
            of_row += words[name].astype(np.int32, copy=False)
            of_row += np.int32(1)
        occurs = np.zeros(cells * math.prod(sizes), bool)
        occurs[of_row] = True
        of_row = (np.cumsum(occurs, dtype=np.int32) - np.int32(1))[of_row]
        before, *new_codes = np.unravel_index(np.flatnonzero(occurs), (cells, *sizes))
        codes = {name: values[before] for name, values in codes.items()}
        codes |= {name: (code - 1).astype(np.int16) for name, code in zip(names, new_codes, strict=True)}
        cells = len(before)
    return of_row, codes


@dataclass(frozen=True)
class CellTable:
    """All cells of some runs."""

    codes: dict[str, Codes]
    """Of each cell, as in Columns."""
    names: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.codes["op"])

    def group(
        self, rule: Rule, gauge: str, *, across_kernels: bool = False
    ) -> tuple[Numbers, list[tuple[str, ...]]]:
        """The limit of each cell, as a code, and what the codes stand for: op, contract, kernel, dtype."""
        pooled = rule.pools != "control" or across_kernels
        none = np.full(len(self), -1, np.int16)
        keys = {
            "op": none if rule.pools == "contract" else self.codes["op"],
            "contract": self._contract if pooled else self._contract_of_source,
            "kernel": none if pooled else self.source,
            "dtype": none if rule.pools != "control" and gauge in DTYPE_FREE else self.codes["dtype"],
        }
        distinct, groups = np.unique(np.stack(list(keys.values())), axis=1, return_inverse=True)
        names = [
            tuple(self._name(column, code) for column, code in zip(keys, group, strict=True))
            for group in distinct.T
        ]
        return groups.ravel().astype(np.int32), names

    def _name(self, column: str, code: int) -> str:
        return self.names[column][code] if code >= 0 else EVERY_OP if column == "op" else ""

    def name(self, column: str, cell: int) -> str:
        """What a cell has in a column; nothing where it has none."""
        code = int(self.codes[column][cell])
        return self.names[column][code] if code >= 0 else ""

    @cached_property
    def is_control(self) -> Mask:
        """Of each cell."""
        is_control: Mask = self.codes["role"] == _find(self.names["role"], "control")
        return is_control

    @cached_property
    def source(self) -> Codes:
        """Code of the kernel whose readings a cell is held against: a control's own, a faulty one's control."""
        kernels = self.names["kernel"]
        codes = [max(_find(kernels, name), -1) for name in self.names["calibrate_against"]]  # −1: none that occurs
        to_kernel = np.array([*codes, -1], np.int16)
        named = to_kernel[self.codes["calibrate_against"]]
        return np.where(self.is_control, self.codes["kernel"], named)

    @cached_property
    def _contract(self) -> Codes:
        """A cell's contract, or its control's where no control promises the same."""
        op, contract = self.codes["op"], self.codes["contract"]
        of_controls = set(zip(op[self.is_control].tolist(), contract[self.is_control].tolist(), strict=True))
        known = [pair in of_controls for pair in zip(op.tolist(), contract.tolist(), strict=True)]
        return np.where(known, contract, self._contract_of_source)

    @cached_property
    def _contract_of_source(self) -> Codes:
        """What a cell's control promises in its dtype; −1 where that has no row.

        Of a control with rows of several contracts, the last by name: cells come in any order.
        """
        op, kernel, dtype, contract = (self.codes[name] for name in ("op", "kernel", "dtype", "contract"))
        promised: dict[tuple[int, int, int], int] = {}
        for cell in sorted(np.flatnonzero(self.is_control).tolist(), key=lambda cell: self.name("contract", cell)):
            promised[int(op[cell]), int(kernel[cell]), int(dtype[cell])] = int(contract[cell])
        keys = zip(op.tolist(), self.source.tolist(), dtype.tolist(), strict=True)
        return np.array([promised.get(key, -1) for key in keys], np.int16)


def _find(names: list[str], name: str) -> int:
    """The code of a name; −2, which nothing has, for one that does not occur."""
    return names.index(name) if name in names else -2
