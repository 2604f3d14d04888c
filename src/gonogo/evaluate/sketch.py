"""Runs → a sketch: counts that can be added to those of any other runs, of a size that records do not change.

For more records than anybody wants to read again. Of each cell, bin of faults and fold of runs a sketch counts
readings by the first 16 bits of their float32 pattern: sign, exponent and 7 bits of the mantissa. A reading taken
from it is the upper end of such a step, so it is less than 2^-7 of itself too large and never too small. Exact are
how many there are, the largest, every limit that is made from the largest, and what each policy says.

Runs are dealt to 4 folds, and one fold is held out at a time: a sketch does not tell its runs apart otherwise.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gonogo.errors import InputError
from gonogo.evaluate import count_left_out, order_reasons
from gonogo.evaluate.cells import PARTS, Cells, CellTable, number_cells
from gonogo.evaluate.policies import NEEDED, list_policies
from gonogo.evaluate.readings import Kind
from gonogo.evaluate.rows import Mask
from gonogo.evaluate.score import (
    Block,
    tally_rows,
)
from gonogo.evaluate.strata import FOLDS, Strata, StrataTable
from gonogo.evaluate.tally import Score
from gonogo.records import StreamedRuns
from gonogo.records.places import Place
from gonogo.records.places.globs import expand_globs
from gonogo.records.writing import write_atomically

SUFFIX = ".sketch"
SCHEMA = 1
STEP_BITS = 16
INFINITE = 0x7F80
"""The step of an infinite reading: those of finite ones are below, and whatever else a row may have is above."""
ABSENT, UNSOUND = 0x7FC0, 0x7FFF
"""Of a row without a reading, and of one whose outcome is not ok: both are above every limit."""
READ = (Kind("bound"), Kind("absolute"), Kind("absolute", passing_only=True))
"""What the default methods are made from, and judged by."""
TEXT = (*PARTS, "kind")
KEYS = [*PARTS, "bin", "fold", "kind", "step"]
MERGE_FROM = 2**20
"""Keys of a histogram that are worth sorting."""

Numbers = npt.NDArray[np.int64]


class Histogram:
    """Rows by stratum and step; blocks of rows may come from several threads."""

    def __init__(self) -> None:
        self._keys: list[Numbers] = []
        self._rows: list[Numbers] = []
        self._held = 0
        self.largest: npt.NDArray[np.float32] = np.empty(0, np.float32)
        """Of the finite readings of each stratum."""
        self._lock = threading.Lock()

    def add(self, strata: npt.NDArray[np.int32], readings: npt.NDArray[np.float32], sound: Mask) -> None:
        """Take a block of rows."""
        finite = sound & np.isfinite(readings)
        places = strata.astype(np.int64) << STEP_BITS | find_steps(readings, sound)
        keys, rows = np.unique(places, return_counts=True)
        largest = np.zeros(int(strata.max(initial=-1)) + 1, np.float32)
        np.maximum.at(largest, strata[finite], readings[finite])
        with self._lock:
            self._keys.append(keys)
            self._rows.append(rows)
            self._held += len(keys)
            if self._held > 2 * max(MERGE_FROM, len(self._keys[0])):
                self._merge()
            longer = max(len(largest), len(self.largest))
            self.largest = np.maximum(
                np.pad(self.largest, (0, longer - len(self.largest))), np.pad(largest, (0, longer - len(largest)))
            )

    def _merge(self) -> None:
        """Make one list of all: seldom, for it sorts them."""
        keys, rows = np.concatenate(self._keys), np.concatenate(self._rows)
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(keys[order]) > 0]) if len(keys) else order
        self._keys = [keys[order][starts]]
        self._rows = [np.add.reduceat(rows[order], starts) if len(keys) else rows]
        self._held = len(starts)

    def close(self) -> tuple[Numbers, Numbers]:
        """Keys that occur, ascending, and how many rows each has."""
        if not self._keys:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        self._merge()
        return self._keys[0], self._rows[0]


def find_steps(readings: npt.NDArray[np.float32], sound: Mask) -> Numbers:
    """The step of every row's reading."""
    steps = (np.ascontiguousarray(readings, np.float32).view(np.uint32) >> np.uint32(STEP_BITS)).astype(np.int64)
    steps[np.isnan(readings)] = ABSENT
    steps[readings == 0] = 0  # minus zero, too
    steps[~sound] = UNSOUND
    return steps


def find_upper_end(step: int) -> float:
    """The largest reading of a step."""
    return float(np.array([((step + 1) << STEP_BITS) - 1], np.uint32).view(np.float32)[0])


@dataclass(frozen=True)
class Sketch:
    """Counts of some runs."""

    table: pa.Table
    """KEYS, rows, and of controls' readings the largest."""
    records: int
    runs: dict[str, tuple[str, str]]
    """By what its run.json says, the name of each and its device."""
    left_out: dict[str, int]

    @classmethod
    def make(cls, source: StreamedRuns) -> Sketch:
        """Go through some runs once."""
        strata = Strata(("cell", "bin", "fold"), folds=[int(run, 16) % FOLDS for run in source.identities])
        numbering, histograms = Cells(), {kind: Histogram() for kind in READ}
        left_out: dict[str, int] = {}
        lock = threading.Lock()

        def look(block: Block) -> None:
            numbers = strata.number(block.rows, block.cells)
            for kind, histogram in histograms.items():
                counted = numbers >= 0
                if kind.passing_only:  # what limits are made from, and nothing is judged by
                    counted = block.rows.calibrating & (block.columns.exceeds["current"] != 1)
                readings = block.columns.readings[kind.gauge]
                histogram.add(numbers[counted], readings[counted], block.rows.sound[counted])
            with lock:
                for reason, count in count_left_out(block.rows).items():
                    left_out[reason] = left_out.get(reason, 0) + count

        scores = tally_rows(source, strata, policies=list_policies(), needed={*NEEDED, "bound"}, watch=look,
                            numbering=numbering)  # fmt: skip
        described = _Described(strata.close(), numbering.close(source.names))
        tables = [described.tell_histogram(kind, histogram) for kind, histogram in histograms.items()]
        tables += [described.tell_score(score) for score in scores]
        runs = {
            identity: (name, device)
            for identity, name, device in zip(source.identities, source.runs, source.devices, strict=True)
        }
        return cls(pa.concat_tables(tables), len(source), runs, order_reasons(left_out))

    @classmethod
    def merge(cls, sketches: Sequence[Sketch]) -> Sketch:
        """What one sketch of all their runs would be."""
        runs: dict[str, tuple[str, str]] = {}
        left_out: dict[str, int] = {}
        for sketch in sketches:
            for run in runs.keys() & sketch.runs.keys():
                raise InputError(
                    f"run {runs[run][0]} is in two of these sketches: its rows would count twice. Leave one out"
                )
            runs |= sketch.runs
            for reason, count in sketch.left_out.items():
                left_out[reason] = left_out.get(reason, 0) + count
        table = _add_up(pa.concat_tables([sketch.table for sketch in sketches]))
        return cls(table, sum(sketch.records for sketch in sketches), runs, order_reasons(left_out))

    def write(self, path: Path) -> None:
        """As one Parquet file."""
        facts = {"records": self.records, "runs": self.runs, "left_out": self.left_out}
        told = json.dumps(facts | {"schema": SCHEMA}).encode()
        table = self.table.replace_schema_metadata({"gonogo_sketch": told})
        file = BytesIO()
        pq.write_table(table, file, compression="zstd", use_dictionary=[*PARTS, "kind"])
        write_atomically(path, file.getvalue())

    @classmethod
    def read(cls, path: Path) -> Sketch:
        """What `write` has written; anything else is refused."""
        try:
            table = pq.read_table(path)
            told = (table.schema.metadata or {}).get(b"gonogo_sketch")
            if told is None:
                raise InputError(f"{path} is not a sketch, but another Parquet file. Name it otherwise")
            facts = json.loads(told)
            if facts["schema"] != SCHEMA:
                raise InputError(f"{path} is a sketch of schema {facts['schema']}, and this gonogo reads {SCHEMA}")
            plain = table.select([*KEYS, "rows", "largest"]).replace_schema_metadata(None)
            for name in TEXT:
                if not pa.types.is_dictionary(plain[name].type):
                    plain = plain.set_column(KEYS.index(name), name, plain[name].dictionary_encode())
            runs = {identity: (str(name), str(device)) for identity, (name, device) in facts["runs"].items()}
            return cls(plain, int(facts["records"]), runs, dict(facts["left_out"]))
        except InputError:
            raise
        except FileNotFoundError:
            raise InputError(f"there is no sketch {path}. Make one with: gonogo sketch RUNS -o {path}") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(
                f"{path} is not a sketch: {why.rstrip('.')}. Make one with: gonogo sketch RUNS"
            ) from None


def _add_up(table: pa.Table) -> pa.Table:
    """Rows of the same key as one."""
    table = table.unify_dictionaries().combine_chunks()
    codes = {name: take_codes(table, name) for name in TEXT}
    keys = number_cells(codes)[0].astype(np.int64)
    for values, size in (
        (table["bin"].to_numpy(), 4), (table["fold"].to_numpy(), FOLDS),
        (codes["kind"], int(codes["kind"].max(initial=0)) + 1), (table["step"].to_numpy(), 1 << STEP_BITS),
    ):  # fmt: skip
        keys = keys * size + values
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(keys[order]) > 0]) if len(keys) else order
    largest = table["largest"].to_numpy(zero_copy_only=False)[order]
    added = {
        "rows": pa.array(np.add.reduceat(table["rows"].to_numpy()[order], starts)),
        "largest": pa.array(np.fmax.reduceat(largest, starts), from_pandas=True),
    }
    firsts = table.select(KEYS).take(pa.array(order[starts]))
    return pa.table({name: firsts[name] for name in KEYS} | added)


def take_codes(table: pa.Table, name: str) -> npt.NDArray[np.int32]:
    """The codes of a column of words, −1 where there is none; the first word of all is that."""
    chunks = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in table[name].chunks]
    codes: npt.NDArray[np.int32] = np.concatenate([np.empty(0, np.int32), *chunks]).astype(np.int32)
    return codes


def list_words(table: pa.Table, name: str) -> list[str]:
    """What the codes of a column stand for."""
    words: list[str] = table[name].chunk(0).dictionary.to_pylist() if table[name].num_chunks else []
    return words


def split_sketches(paths: Sequence[Place]) -> tuple[list[Path], list[Place]]:
    """Those that are files of sketches, by their names, and the others; what a shell would expand is expanded."""
    named = [path for path in paths if isinstance(path, Path) and path.suffix == SUFFIX]
    sketches = [Path(str(match)) for path in named for match in expand_globs(path)]
    return sketches, [path for path in paths if path not in named]


def read_sketches(files: Sequence[Path]) -> list[Sketch]:
    """Each of them; refuse one that is named twice."""
    for file in files:
        if files.count(file) > 1:
            raise InputError(f"sketch {file} is given twice: its rows would count twice. Name it once")
    return [Sketch.read(file) for file in files]


@dataclass(frozen=True)
class _Described:
    """Strata by names, as they stand in a sketch."""

    strata: StrataTable
    cells: CellTable

    def tell_histogram(self, kind: Kind, histogram: Histogram) -> pa.Table:
        keys, rows = histogram.close()
        strata, steps = keys >> STEP_BITS, keys & ((1 << STEP_BITS) - 1)
        # In the row of the last step that has a finite reading of the stratum: merging takes the larger.
        largest = np.full(len(strata), np.nan, np.float32)
        finite = np.flatnonzero(steps < INFINITE)
        last = finite[np.r_[strata[finite][1:] != strata[finite][:-1], True]] if len(finite) else finite
        largest[last] = histogram.largest[strata[last]]
        return self._make_table(strata, name_kind(kind), steps, rows, largest)

    def tell_score(self, score: Score) -> pa.Table:
        strata, decisions = np.nonzero(score.counts)
        rows = score.counts[strata, decisions]
        nothing = np.full(len(strata), np.nan, np.float32)
        return self._make_table(strata, f"policy {score.name}", decisions, rows, nothing)

    def _make_table(
        self, strata: Numbers, kind: str, steps: Numbers, rows: Numbers, largest: npt.NDArray[np.float32]
    ) -> pa.Table:
        cells = self.strata.codes["cell"][strata]
        columns: dict[str, Any] = {}
        for name in PARTS:
            words = ["", *self.cells.names[name]]
            codes = (self.cells.codes[name] + 1).astype(np.int32)[cells]
            columns[name] = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words, pa.string()))
        columns["bin"] = pa.array(self.strata.codes["bin"][strata].astype(np.int8))
        columns["fold"] = pa.array(self.strata.codes["fold"][strata].astype(np.int8))
        kinds = pa.array(np.zeros(len(strata), np.int32))
        columns["kind"] = pa.DictionaryArray.from_arrays(kinds, pa.array([kind], pa.string()))
        columns["step"] = pa.array(steps.astype(np.int32))
        columns["rows"] = pa.array(rows.astype(np.int64))
        columns["largest"] = pa.array(largest, from_pandas=True)
        return pa.table(columns)


def name_kind(kind: Kind) -> str:
    """As it stands in a sketch."""
    return f"{kind.gauge} passing" if kind.passing_only else kind.gauge
