"""Rows of controls → the readings that limits are made from, by cell and by key of a hold-out.

How many there are and the largest is kept of each cell and key, and that is all that most rules ask for. For those
that ask for a rank, readings are written to a temporary file, block by block and sorted by cell: a group of them is
read back when its limit is made, so memory holds a group for each thread and never all.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.errors import InputError
from gonogo.evaluate.cells import Cells, CellTable
from gonogo.evaluate.folds import Fold, Holdout, Keys
from gonogo.evaluate.rows import Mask, Rows
from gonogo.records import Columns, Source

IN_MEMORY_BYTES = 2**25
"""Of readings that are written down, what is kept in memory before a file is made."""
VALUE, KEY = np.dtype(np.float32), np.dtype(np.int16)

Numbers = npt.NDArray[np.int64]
CellNumbers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Kind:
    """Which readings: in a gauge, and whether only of rows that pass the hand-picked tolerance."""

    gauge: str
    passing_only: bool = False


class Summary:
    """Of cell and key, how many readings there are and the largest."""

    def __init__(self) -> None:
        self.counts: Numbers = np.zeros((0, 0), np.int64)
        self.largest: Floats = np.zeros((0, 0), np.float32)

    def grow(self, cells: int, keys: int) -> None:
        """Have room for so many, if there is less."""
        more = [(0, max(0, new - old)) for new, old in zip((cells, keys), self.counts.shape, strict=True)]
        if any(after for _, after in more):
            self.counts, self.largest = np.pad(self.counts, more), np.pad(self.largest, more)


class Readings:
    """Readings of one kind."""

    def __init__(self, *, keeps_all: bool) -> None:
        self.finite, self.infinite = Summary(), Summary()
        self._lock = threading.Lock()
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) if keeps_all else None  # noqa: SIM115
        if self._file is not None:
            weakref.finalize(self, self._file.close)
        self._blocks: list[tuple[int, Numbers]] = []
        """Of each block in the file: where it stands, and where its cells start and end."""

    def add(
        self, cells: npt.NDArray[np.int32], keys: npt.NDArray[np.int16], values: npt.NDArray[np.float32]
    ) -> None:
        """Take the readings of a block; of infinite ones no more than their number."""
        infinite, finite = np.isinf(values), np.isfinite(values)
        if infinite.any():
            self._add(cells[infinite], keys[infinite], values[infinite], self.infinite)
        if not finite.all():
            cells, keys, values = cells[finite], keys[finite], values[finite]
        if not len(values):
            return
        if bool((values < 0).any()):
            raise InputError(f"a reading of {values.min()} is negative: no gauge has one. Make the records anew")
        self._add(cells, keys, values, self.finite)
        if self._file is not None:
            self._write(cells, keys, values)

    def _add(self, cells: CellNumbers, keys: Keys, values: Floats, summary: Summary) -> None:
        there, place = np.unique(keys, return_inverse=True)  # of one run, mostly
        shape = int(cells.max()) + 1, len(there)
        places = cells * np.int32(shape[1]) + place.astype(np.int32)
        counts = np.bincount(places, minlength=shape[0] * shape[1]).reshape(shape)
        largest = np.zeros(shape[0] * shape[1], np.float32)
        np.maximum.at(largest, places, values)
        with self._lock:
            summary.grow(shape[0], int(there[-1]) + 1)
            summary.counts[: shape[0], there] += counts
            summary.largest[: shape[0], there] = np.maximum(
                summary.largest[: shape[0], there], largest.reshape(shape)
            )

    @property
    def counts(self) -> Numbers:
        """Finite readings of each cell and key."""
        return self.finite.counts

    @property
    def largest(self) -> Floats:
        """Of these."""
        return self.finite.largest

    def _write(
        self, cells: npt.NDArray[np.int32], keys: npt.NDArray[np.int16], values: npt.NDArray[np.float32]
    ) -> None:
        by_cell = cells.astype(np.int16) if cells.max() < 2**15 else cells  # 16-bit codes are sorted by radix
        order = np.argsort(by_cell, kind="stable")
        starts = np.cumsum([0, *np.bincount(cells)])
        content = values[order].tobytes() + keys[order].tobytes()
        assert self._file is not None
        with self._lock:
            self._file.seek(0, 2)
            self._blocks.append((self._file.tell(), starts))
            try:
                self._file.write(content)
            except OSError as error:
                raise InputError(
                    f"no room for readings in {tempfile.gettempdir()}: {error.strerror}. They take 6 bytes each; "
                    "name a larger folder by TMPDIR"
                ) from None

    def resize(self, cells: int, keys: int) -> None:
        """Have room for all cells and keys, also those without a reading."""
        for summary in (self.finite, self.infinite):
            summary.grow(cells, keys)

    def group(self, cells: Numbers) -> Group:
        """The readings of some cells, by key."""
        counts, largest = self.counts[cells].sum(0), self.largest[cells].max(0, initial=0.0)
        infinite = self.infinite.counts[cells].sum(0)
        if self._file is None:
            return Group(counts, largest, infinite)
        values, keys = self._fetch(cells)
        order = np.argsort(values, kind="stable")
        by_key = np.argsort(keys[order], kind="stable").astype(np.int64)  # places in the order, key by key
        return SortedGroup(counts, largest, infinite, values[order], by_key, np.cumsum([0, *counts]))

    def _fetch(self, cells: Numbers) -> tuple[Floats, Keys]:
        """The readings of some cells, and their keys."""
        assert self._file is not None
        values, keys = [np.empty(0, VALUE)], [np.empty(0, KEY)]
        with self._lock:
            for place, starts in self._blocks:
                for cell in cells[cells < len(starts) - 1].tolist():
                    start, end, rows = int(starts[cell]), int(starts[cell + 1]), int(starts[-1])
                    if start < end:
                        values.append(self._read(VALUE, place, start, end))
                        keys.append(self._read(KEY, place + rows * VALUE.itemsize, start, end))
        return np.concatenate(values), np.concatenate(keys)

    def _read(self, kind: np.dtype[Any], place: int, start: int, end: int) -> npt.NDArray[Any]:
        assert self._file is not None
        self._file.seek(place + start * kind.itemsize)
        return np.frombuffer(self._file.read((end - start) * kind.itemsize), kind)


@dataclass(frozen=True)
class Group:
    """Readings of some cells: how many of each key, and the largest."""

    counts: Numbers
    largests: Floats
    infinite: Numbers
    """How many of each key are infinite, and in nothing else here."""

    def of_keys(self, keys: Mask) -> OfKeys:
        """Those of some keys."""
        return OfKeys(self, keys, int(self.counts[keys].sum()), float(self.largests[keys].max(initial=0.0)))

    def pick(self, keys: Mask, rank: int) -> float:
        """The reading of a rank among those of some keys: of others than the largest nothing is known."""
        assert rank == self.counts[keys].sum() - 1
        return float(self.largests[keys].max())

    def count_above(self, keys: Mask, value: float) -> int:
        """How many of some keys are above a value: none, for a rule that looks at the largest alone."""
        assert float(self.largests[keys].max(initial=0.0)) <= value
        return 0


@dataclass(frozen=True)
class SortedGroup(Group):
    """All of them, sorted once: whatever a fold leaves out, the rest has its ranks without another sort."""

    values: Floats
    by_key: Numbers
    """Places among the sorted ones, key by key."""
    starts: Numbers

    def _find_left_out(self, keys: Mask) -> Numbers:
        """Places of what is of no such key, in order."""
        places = [self.by_key[self.starts[key] : self.starts[key + 1]] for key in np.flatnonzero(~keys)]
        return np.sort(np.concatenate([np.empty(0, np.int64), *places]))

    def pick(self, keys: Mask, rank: int) -> float:
        """The reading of a rank among those of some keys."""
        left_out = self._find_left_out(keys)
        before = np.searchsorted(left_out - np.arange(len(left_out)), rank, side="right")
        return float(self.values[rank + before])

    def count_above(self, keys: Mask, value: float) -> int:
        """How many of some keys are above a value."""
        first = int(np.searchsorted(self.values, round_down(np.array([value]))[0], side="right"))
        left_out = self._find_left_out(keys)
        return len(self.values) - first - int((left_out >= first).sum())

    def take(self, keys: Mask) -> npt.NDArray[np.float64]:
        """The readings of some keys, infinite ones among them."""
        finite = np.delete(self.values, self._find_left_out(keys)).astype(np.float64)
        return np.append(finite, np.full(int(self.infinite[keys].sum()), np.inf))


def round_down(limits: npt.NDArray[np.float64]) -> Floats:
    """The largest float32 that is no larger: a float32 reading is above the one where it is above the other."""
    with np.errstate(over="ignore"):
        near = limits.astype(np.float32)
    return np.where(near > limits, np.nextafter(near, np.float32(-np.inf)), near)


@dataclass(frozen=True)
class OfKeys:
    """Readings of some cells and keys, as limits are made from them."""

    group: Group
    keys: Mask
    count: int
    largest: float

    def pick(self, rank: int) -> float:
        """The one of a rank, 0 for the smallest."""
        return self.group.pick(self.keys, rank)

    def count_above(self, value: float) -> int:
        """How many are larger."""
        return self.group.count_above(self.keys, value)


@dataclass(frozen=True)
class Gathered:
    """What limits are made from."""

    holdout: Holdout
    numbering: Cells
    cells: CellTable
    readings: dict[Kind, Readings]
    folds: Sequence[Fold]
    keys: int
    """How many there are."""
    rows: int
    """That limits may be made from."""
    everywhere: Mask = field(repr=False)
    """All keys."""

    def number_folds(self) -> npt.NDArray[np.int16]:
        """Of each key, the fold that judges it, or NOBODY."""
        numbers = np.zeros(self.keys, np.int16)
        for number, fold in enumerate(self.folds, start=1):
            numbers[fold.judge] = number
        return numbers


def gather(
    source: Source, kinds: dict[Kind, bool], holdout: str = "none", *, numbering: Cells | None = None
) -> Gathered:
    """Readings of each kind, of all where it says so, and the folds of a hold-out.

    Numbers of cells are those of `numbering`, where what is gathered is to be used beside something else.
    """
    found = Holdout.find(source, holdout)
    numbering = Cells() if numbering is None else numbering
    readings = {kind: Readings(keeps_all=keeps_all) for kind, keeps_all in kinds.items()}

    def take(columns: Columns) -> tuple[int, Mask, int]:
        """How many rows calibrate, keys of these, and the largest key of all."""
        rows, cells = Rows(columns), numbering.number(columns)
        keys = found.find_keys(columns, cells, None)
        which = np.flatnonzero(rows.calibrating)
        cells_here, keys_here = cells[which], keys[which]
        for kind, of_kind in readings.items():
            passing = columns.exceeds["current"][which] != 1 if kind.passing_only else slice(None)
            of_kind.add(cells_here[passing], keys_here[passing], columns.readings[kind.gauge][which][passing])
        return len(which), np.bincount(keys_here) > 0, int(keys.max(initial=-1))

    rows, calibrating, largest = 0, np.zeros(0, bool), -1
    for count, here, most in source.map_blocks(take, _list_needed(kinds) | found.needed):
        rows, largest = rows + count, max(largest, most)
        longer = max(len(here), len(calibrating))
        calibrating = np.pad(calibrating, (0, longer - len(calibrating))) | np.pad(here, (0, longer - len(here)))
    cells = numbering.close(source.names)
    keys = _count_keys(found, source, cells, largest)
    calibrating = np.pad(calibrating, (0, keys - len(calibrating)))
    for of_kind in readings.values():
        of_kind.resize(len(cells), keys)
    folds = list(found.make_folds(calibrating, source.names))
    return Gathered(found, numbering, cells, readings, folds, keys, rows, np.ones(keys, bool))


def _count_keys(holdout: Holdout, source: Source, cells: CellTable, largest: int) -> int:
    """Keys that rows of any kind may have."""
    known = {
        "run": len(source.runs), "device": len(set(source.devices)), "shape": 2, "none": 1,
        "implementation": len(source.names["kernel"]) + 1,
    }  # fmt: skip
    return max(largest + 1, known.get(holdout.name, len(source.names.get(holdout.name, ())) + 1))


def _list_needed(kinds: Collection[Kind]) -> set[str]:
    """What is read for readings; the largest absolute error tells where a format overflows."""
    return {"absolute", *(kind.gauge for kind in kinds)} | (
        {"current"} if any(k.passing_only for k in kinds) else set()
    )
