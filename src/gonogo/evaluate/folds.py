"""A hold-out → folds: what limits are made from and what is judged by them, never the same.

Every row has a key: its run, its distribution, the implementation it is held against, … A fold is told by keys, so
that it takes no memory whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gonogo.errors import InputError, NoSuchHoldout
from gonogo.evaluate.cells import CellTable
from gonogo.evaluate.rows import Mask, Rows
from gonogo.records import Columns, Source

Keys = npt.NDArray[np.int16]

HOLDOUTS = ("none", "run", "implementation", "distribution", "shape", "op", "device")
"""`none` is in-sample: limits are judged on the rows they were made from, and look better than they are."""
SMALL, LARGE = 0, 1
"""Keys of the hold-out by shape."""
SIZE_BITS = 48
"""More than any output has elements."""
NOBODY = 0
"""Number of the fold of rows that no fold judges; the first is 1."""


@dataclass(frozen=True)
class Fold:
    """What is left out, and the keys on either side."""

    name: str
    calibrate: Mask
    judge: Mask
    leaks: bool = False
    """Whether the two sides may share rows: only in-sample."""

    def __post_init__(self) -> None:
        if not self.leaks and bool((self.calibrate & self.judge).any()):
            raise InputError(f"fold {self.name}: rows that are judged were calibrated on")


@dataclass(frozen=True)
class Holdout:
    """What rows are held out by."""

    name: str
    runs: tuple[str, ...]
    devices: tuple[str, ...]
    """Of each run."""
    medians: dict[str, float] = field(default_factory=dict)
    """By op, of the sizes of outputs; for the hold-out by shape."""

    @classmethod
    def find(cls, source: Source, name: str) -> Holdout:
        """A hold-out of some runs; refuse one that they cannot have."""
        if name not in HOLDOUTS:
            raise InputError(f"unknown hold-out {name!r}; known: {', '.join(HOLDOUTS)}")
        if name == "run" and len(source.runs) < 2:
            raise NoSuchHoldout(
                "hold-out run needs two runs or more; this is one. Use --holdout none, or add a run"
            )
        if name == "device" and len(set(source.devices)) < 2:
            raise NoSuchHoldout("hold-out device needs runs of two devices or more; these are of one")
        return cls(name, tuple(source.runs), tuple(source.devices), find_medians(source) if name == "shape" else {})

    @property
    def needed(self) -> set[str]:
        """What keys are made from, beside text."""
        return {"size"} if self.name == "shape" else set()

    def find_keys(self, columns: Columns, cell_of_row: npt.NDArray[np.int32], cells: CellTable | None) -> Keys:
        """Of each row; of rows that limits are made from, if `cells` are not known yet."""
        if self.name == "run":
            return columns.run
        if self.name == "device":
            kinds = sorted(set(self.devices))
            return np.array([kinds.index(device) for device in self.devices], np.int16)[columns.run]
        if self.name == "implementation":  # a control is held against its own readings
            source = columns.codes["kernel"] if cells is None else cells.source[cell_of_row]
            return source.astype(np.int16) + np.int16(1)
        if self.name in ("distribution", "op"):
            return columns.codes[self.name].astype(np.int16) + np.int16(1)
        if self.name == "shape":
            medians = [self.medians.get(op, np.inf) for op in columns.names["op"]]
            return (columns.size > np.array([*medians, np.inf])[columns.codes["op"]]).astype(np.int16)
        return np.zeros(len(columns), np.int16)

    def find_keys_of_cells(self, cells: CellTable) -> Keys | None:
        """Of each cell, where all of its rows have the same; None where they do not."""
        if self.name == "implementation":
            return cells.source + np.int16(1)
        return cells.codes["op"] + np.int16(1) if self.name == "op" else None

    def make_folds(self, calibrating: Mask, names: dict[str, list[str]]) -> Iterator[Fold]:
        """The folds; `calibrating` tells the keys that have readings to make limits from."""
        everything = np.ones(len(calibrating), bool)
        if self.name == "none":
            yield Fold("in-sample", everything, everything, leaks=True)
        elif self.name == "shape":
            # From the smaller half of an op's outputs to the larger: limits must grow with the op's own scale.
            large = np.arange(len(calibrating)) == LARGE
            yield Fold("larger shapes", ~large, large)
        else:
            if self.name == "op" and np.count_nonzero(calibrating) < 2:
                raise NoSuchHoldout("hold-out op needs records of two ops or more; these are of one")
            whole = self.name in ("run", "device")  # one without such readings is judged all the same
            for key in np.flatnonzero(everything if whole else calibrating):
                here = np.arange(len(calibrating)) == key
                yield Fold(self._name_key(int(key), names), ~here, here)

    def _name_key(self, key: int, names: dict[str, list[str]]) -> str:
        if self.name in ("run", "device"):
            return (self.runs if self.name == "run" else sorted(set(self.devices)))[key]
        return names["kernel" if self.name == "implementation" else self.name][key - 1] if key else "none"


def find_medians(source: Source) -> dict[str, float]:
    """By op, the median size of the outputs that limits are made from."""

    def count_sizes(columns: Columns) -> dict[tuple[int, int], int]:
        rows = Rows(columns)
        sizes, ops = columns.size[rows.calibrating], columns.codes["op"][rows.calibrating]
        pairs, counts = np.unique(ops.astype(np.int64) << SIZE_BITS | sizes, return_counts=True)
        return {
            (int(pair >> SIZE_BITS), int(pair) & ((1 << SIZE_BITS) - 1)): int(count)
            for pair, count in zip(pairs, counts, strict=True)
        }

    counted: dict[int, dict[int, int]] = {}
    for block in source.map_blocks(count_sizes, {"absolute", "size"}):
        for (op, size), count in block.items():
            of_op = counted.setdefault(op, {})
            of_op[size] = of_op.get(size, 0) + count
    return {source.names["op"][op]: _find_median(sizes) for op, sizes in counted.items()}


def _find_median(counts: dict[int, int]) -> float:
    """Of values that stand so often: the middle one, or the mean of both."""
    values = np.array(sorted(counts))
    ends = np.cumsum([counts[value] for value in values.tolist()])
    middle = [values[np.searchsorted(ends, rank, side="right")] for rank in ((ends[-1] - 1) // 2, ends[-1] // 2)]
    return float(np.mean(middle))
