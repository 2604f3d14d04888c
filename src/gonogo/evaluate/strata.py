"""Rows → strata: rows alike in all that a table tells apart, small enough in number to be counted by.

What was decided of millions of rows is kept as four counts of each stratum. Which dimensions strata have is up to
whoever counts: `gonogo evaluate` asks for bins and lengths, a report for cells, distributions, runs and classes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gonogo.errors import InputError
from gonogo.evaluate.beside_controls import CaseErrors
from gonogo.evaluate.rows import MANIFEST, Mask, Rows

Numbers = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int8]

CONTROLS, ALL, DIFFERING, MANIFESTS = range(4)
"""Bins: rows of controls; of faulty kernels with the control's bits; with others; beyond rounding."""
CURVE = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0, np.inf)
"""Where classes by signal begin and end."""
CONTROL, IDENTICAL, UNKNOWN, FIRST_BIN = 0, 1, 2, 3
"""Classes of rows. UNKNOWN ones differ by a signal that is not known; from FIRST_BIN on come those of CURVE."""
CLASSES = FIRST_BIN + len(CURVE) - 1
MANIFEST_CLASS = FIRST_BIN + CURVE.index(MANIFEST)
EDGES = (0, 64, 300, 1_100)
"""Where lengths begin. Chains and trees are apart by n/log2(n + 1): up to 10, 36 and 109 in the first three."""
LENGTHS = (
    f"< {EDGES[1]}", *(f"{low:,} to {high - 1:,}" for low, high in pairwise(EDGES[1:])), f"{EDGES[-1]:,} or more"
)  # fmt: skip
FOLDS = 4
"""Groups of runs that a sketch tells apart."""
SIZES = {"fold": FOLDS, "bin": 4, "class": CLASSES, "length": len(EDGES), "beside": 3, "distribution": 256}
"""How many codes each dimension has at most. Cells have no such number, and so come first in a key."""


@dataclass(frozen=True)
class StrataTable:
    """All strata that occur."""

    codes: dict[str, npt.NDArray[np.int64]]
    """Of each, by dimension."""

    def __len__(self) -> int:
        return len(next(iter(self.codes.values())))

    def has(self, dimension: str) -> bool:
        """Whether rows are told apart by it."""
        return dimension in self.codes

    @property
    def controls(self) -> Mask:
        """What false positives are counted over."""
        return (
            self._find("bin", CONTROLS, CONTROLS) if "bin" in self.codes else self._find("class", CONTROL, CONTROL)
        )

    @property
    def bins(self) -> dict[str, Mask]:
        """What recall is counted over, by name; those beside controls where rows are told apart by these."""
        last = CLASSES
        if "bin" in self.codes:
            bins = {name: self._find("bin", least, last) for name, least in
                    (("all", ALL), ("differing", DIFFERING), ("manifest", MANIFESTS))}  # fmt: skip
        else:
            bins = {name: self._find("class", least, last) for name, least in
                    (("all", IDENTICAL), ("differing", UNKNOWN), ("manifest", MANIFEST_CLASS))}  # fmt: skip
        if "beside" in self.codes:
            bins |= {"evident": self._find("beside", 1, last), "gross": self._find("beside", 2, last)}
        return bins

    def _find(self, dimension: str, least: int, most: int) -> Mask:
        codes = self.codes[dimension]
        return (codes >= least) & (codes <= most)


class Strata:
    """Numbers of strata, given as rows of them come; blocks of rows may come from several threads."""

    def __init__(
        self, dimensions: Sequence[str], *, errors: CaseErrors | None = None, devices: Sequence[str] = (),
        folds: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.dimensions = tuple(sorted(dimensions, key=lambda name: (name != "cell", name)))
        self._errors = errors
        self.devices = sorted(set(devices))
        self._device_of_run = np.array([self.devices.index(device) for device in devices], np.int16)
        self._fold_of_run = np.array(folds, np.int16)
        self._sizes = SIZES | {"device": max(len(self.devices), 1)}
        self._number_of = np.full(0, -1, np.int32)
        self._keys: list[int] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def needed(self) -> set[str]:
        """What is read to tell rows apart, beside text."""
        needed = {"absolute", "signal", "bits_equal"}
        needed |= {"reduced_length"} if "length" in self.dimensions else set()
        return needed | ({"number", "ulp"} if "beside" in self.dimensions else set())

    def number(self, rows: Rows, cells: Numbers) -> Numbers:
        """The stratum of each row that a score counts; −1 for all others."""
        keys = cells.astype(np.int64) if "cell" in self.dimensions else np.zeros(len(cells), np.int32)
        for name in self.dimensions:
            if name != "cell":
                keys *= self._sizes[name]
                codes = self._find_codes(name, rows)
                if name == "distribution" and int(codes.max(initial=0)) >= self._sizes[name]:
                    raise InputError(f"records of more than {self._sizes[name] - 1} distributions of values")
                keys += codes
        keys[~rows.counted] = -1  # takes the last, which stands for none
        return self._look_up(keys)

    def _look_up(self, keys: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> Numbers:
        with self._lock:
            most = int(keys.max(initial=-1)) + 2
            if most > len(self._number_of):
                self._number_of = np.pad(self._number_of, (0, most - len(self._number_of)), constant_values=-1)
            table = self._number_of
        numbers = table[keys]
        unknown = (numbers < 0) & (keys >= 0)
        if not unknown.any():
            return numbers
        with self._lock:  # meanwhile some may have become known, and the table another
            fresh = np.unique(keys[unknown])
            fresh = fresh[self._number_of[fresh] < 0]
            self._number_of = self._number_of.copy()
            self._number_of[fresh] = np.arange(len(self._keys), len(self._keys) + len(fresh))
            self._keys += fresh.tolist()
            return self._number_of[keys]

    def _find_codes(self, name: str, rows: Rows) -> Codes | npt.NDArray[np.int16]:
        columns = rows.columns
        if name == "bin":
            return rows.faulty.view(np.int8) + rows.differing.view(np.int8) + rows.manifest.view(np.int8)
        if name == "class":
            return classify(rows)
        if name == "length":
            return _count_edges(columns.reduced_length, EDGES[1:])
        if name == "distribution":
            return columns.codes["distribution"] + np.int16(1)
        if name == "device":
            return self._device_of_run[columns.run]
        if name == "fold":
            return self._fold_of_run[columns.run]
        assert name == "beside"
        assert self._errors is not None
        return self._errors.classify(rows)

    def close(self) -> StrataTable:
        """What is known of all strata that have come."""
        keys, codes = np.array(self._keys, np.int64), {}
        for name in reversed(self.dimensions):
            if name == "cell":
                codes[name] = keys
            else:
                keys, codes[name] = np.divmod(keys, self._sizes[name])
        return StrataTable(codes)


def classify(rows: Rows) -> Codes:
    """The class of every row that a score counts, −1 for all others."""
    signal = rows.columns.signal
    with np.errstate(invalid="ignore"):
        bins = _count_edges(signal, CURVE[1:-1]) + np.int8(FIRST_BIN)
    bins[np.isnan(signal)] = UNKNOWN
    bins[~rows.sound] = CLASSES - 1  # beyond any bin, as in the curve
    others = np.where(rows.controls, np.int8(CONTROL), np.where(rows.faulty, np.int8(IDENTICAL), np.int8(-1)))
    return np.where(rows.differing, bins, others)


def _count_edges(values: npt.NDArray[np.float32] | npt.NDArray[np.int32], edges: Sequence[float]) -> Codes:
    """How many edges each value has reached: a few passes of comparisons beat a search per value."""
    reached = np.zeros(len(values), np.int8)
    for edge in edges:
        reached += (values >= values.dtype.type(edge)).view(np.int8)
    return reached
