"""Runs → columns, made for millions of rows: text as small codes, policies as one bit of truth each.

`load_columns` holds all rows at once. `open_runs` goes through them block by block, as often as it is asked to, in
memory that does not grow with their number. Whatever goes through a `Source` takes either.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gonogo.errors import InputError
from gonogo.policies import load_policies
from gonogo.records.description import read_description, tell_incomplete, tell_unclosed
from gonogo.records.find import find_distinct_runs, find_unclosed
from gonogo.records.parts import Part, list_parts
from gonogo.records.places import Place
from gonogo.schema import name_device, policy_column

Codes = npt.NDArray[np.int8] | npt.NDArray[np.int16]
Result = TypeVar("Result")

TEXT = ("op", "dtype", "kernel", "role", "contract", "distribution", "outcome", "calibrate_against")
READINGS = ("absolute", "magnitude", "ulp", "bound", "deterministic", "v_abft")
LARGEST_RELATIVE = "max_rel"
"""Of ErrorStats; like the column of a policy, it is loaded only where it is asked for by name."""
EVERYTHING = (*READINGS, "signal", "bits_equal", "size", "reduced_length", "number", "exceeds")
"""What can be loaded beside text: readings, and fields of Columns."""
MOST = int(np.iinfo(np.int16).max)
"""Runs, and names in a column of text, that codes tell apart."""
CURRENT = "current"
"""Of `exceeds`, the hand-picked tolerance alone."""
BLOCK_ROWS = 2**18
"""Rows that are worked on at once: what is worked out of them on the way fits the caches of a server."""


class Source(Protocol):
    """Rows of some runs, to be gone through as often as need be."""

    @property
    def runs(self) -> list[str]:
        """Their names."""

    @property
    def devices(self) -> list[str]:
        """Of each run: the name of its GPU or processor."""

    @property
    def names(self) -> dict[str, list[str]]:
        """What the codes of a text column stand for; of a source that is read in blocks, as far as it was read."""

    def __len__(self) -> int: ...

    def has(self, *wanted: str) -> bool:
        """Whether it was opened with all of these."""

    def map_blocks(self, work: Callable[[Columns], Result], wanted: Collection[str] = ()) -> Iterator[Result]:
        """What `work` makes of each block, in order; it is called by several threads."""


@dataclass
class Columns:
    """All rows of some runs, or a block of them."""

    runs: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    """Of each run: the name of its GPU or processor."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """What the codes of a text column stand for; −1 is none."""
    codes: dict[str, Codes] = field(default_factory=dict)
    run: npt.NDArray[np.int16] = field(default_factory=lambda: np.empty(0, np.int16))
    readings: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    """NaN where a row has none."""
    signal: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    bits_equal: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    """1, 0, or −1 where there was nothing to compare with."""
    size: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Elements of the output."""
    reduced_length: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Terms of a sum; 1 where the op sums nothing."""
    number: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Of the case in its run: rows that share run and number are of the same inputs."""
    exceeds: dict[str, npt.NDArray[np.int8]] = field(default_factory=dict)
    """By policy, `current` among them: 1 where its reading is above 1, 0 where not, −1 where it has none."""
    start: int = 0
    """Rows of the runs before the first of these."""

    def __len__(self) -> int:
        return len(self.run)

    def code(self, column: str, name: str) -> int:
        """The code of a name; −2, which no row has, for one that does not occur."""
        return self.names[column].index(name) if name in self.names[column] else -2

    def equals(self, column: str, *names: str) -> npt.NDArray[np.bool_]:
        """Rows whose text is one of `names`."""
        codes = self.codes[column]
        mask = np.zeros(len(codes), bool)
        for name in set(names).intersection(self.names[column]):  # few: cheaper than looking every row up
            mask |= codes == self.code(column, name)
        return mask

    def select(self, rows: npt.NDArray[np.bool_] | slice) -> Columns:
        """Some of the rows."""

        def pick(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return values[rows] if len(values) else values  # not loaded

        return Columns(
            self.runs, self.devices, self.names,
            {name: codes[rows] for name, codes in self.codes.items()}, self.run[rows],
            {name: values[rows] for name, values in self.readings.items()}, pick(self.signal),
            pick(self.bits_equal), pick(self.size), pick(self.reduced_length), pick(self.number),
            {name: values[rows] for name, values in self.exceeds.items()},
            self.start + (rows.start or 0) if isinstance(rows, slice) else self.start,
        )  # fmt: skip

    def has(self, *wanted: str) -> bool:
        """Whether all of these are loaded."""
        if not len(self):
            return True
        fields = {name for name in ("signal", "bits_equal", "size", "reduced_length", "number")
                  if len(getattr(self, name))}  # fmt: skip
        return {*wanted} <= {*self.readings, *fields, *([CURRENT, "exceeds"] if self.exceeds else [])}

    def map_blocks(self, work: Callable[[Columns], Result], wanted: Collection[str] = ()) -> Iterator[Result]:
        """What `work` makes of each block, in order, by threads; all that is loaded is there, wanted or not."""
        spans = [slice(at, at + BLOCK_ROWS) for at in range(0, len(self), BLOCK_ROWS)]
        if len(spans) == 1:
            yield work(self)
            return
        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            yield from pool.map(lambda span: work(self.select(span)), spans)


@dataclass(frozen=True)
class _Stretch:
    """Parts of one run that are read one after another: a large one, or as many small ones as make a block."""

    run: int
    start: int
    """Rows of the runs before it."""
    parts: tuple[Part, ...]


class StreamedRuns:
    """Rows of runs on disk or in an object store, read anew each time they are gone through."""

    def __init__(self, paths: Sequence[Place], wanted: Collection[str] = EVERYTHING) -> None:
        self.runs: list[str] = []
        self.devices: list[str] = []
        self._stretches: list[_Stretch] = []
        self._rows = 0
        self._wanted = frozenset(wanted) | ({CURRENT} if "exceeds" in wanted else set())
        self._codes: dict[str, dict[str, int]] = {name: {} for name in TEXT}
        self.names: dict[str, list[str]] = {name: [] for name in TEXT}
        self._filters: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()
        self.folders = find_distinct_runs(paths)
        check_count("runs", len(self.folders))
        self.identities: list[str] = []
        """Of each run, by what its run.json says: two of the same are one run, whatever they are called."""
        self.incomplete: list[str] = []
        """What there is to say of runs that have fewer rows than were planned, or none yet that can be read."""
        for number, folder in enumerate(self.folders):
            self.runs.append(folder.name)
            description = read_description(folder)
            self.identities.append(_identify(description))
            self.devices.append(name_device(description.get("environment")))
            parts = list_parts(folder, description=description)
            self._add_parts(number, parts)
            self.incomplete += tell_incomplete(folder, description, sum(part.rows for part in parts))
        self.incomplete += [
            tell_unclosed(folder) for folder in find_unclosed([path for path in paths if path not in self.folders])
        ]
        if not self._rows:
            raise InputError(f"no records in {', '.join(map(str, paths))}. Make some with: gonogo run --out DIR")

    def _add_parts(self, run: int, parts: Sequence[Part]) -> None:
        together: list[Part] = []
        rows = 0
        for part in parts:
            if together and rows + part.rows > BLOCK_ROWS:
                self._add_stretch(run, together)
                together, rows = [], 0
            together.append(part)
            rows += part.rows
        if together:
            self._add_stretch(run, together)

    def _add_stretch(self, run: int, parts: Sequence[Part]) -> None:
        self._stretches.append(_Stretch(run, self._rows, tuple(parts)))
        self._rows += sum(part.rows for part in parts)

    def __len__(self) -> int:
        return self._rows

    def has(self, *wanted: str) -> bool:
        """Whether it was opened with all of these."""
        return self._wanted >= {*wanted}

    @property
    def rows_of_runs(self) -> list[int]:
        """How many each run has."""
        rows = [0] * len(self.runs)
        for stretch in self._stretches:
            rows[stretch.run] += sum(part.rows for part in stretch.parts)
        return rows

    def map_tables(self, work: Callable[[pa.Table], Result], names: Sequence[str]) -> Iterator[Result]:
        """What `work` makes of columns as they are recorded, some rows at a time; by several threads."""

        def go_through(stretch: _Stretch) -> list[Result]:
            return [work(table) for part in stretch.parts for table in part.iterate(names, rows=BLOCK_ROWS)]

        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            for results in pool.map(go_through, self._stretches):
                yield from results

    def fetch(self, column: str, rows: Collection[int]) -> dict[int, Any]:
        """What some rows have in a column, by their place among all."""
        ordered, fetched = np.unique(np.array([*rows], np.int64)), dict[int, Any]()
        for stretch in self._stretches:
            start = stretch.start
            for part in stretch.parts:
                here = ordered[(ordered >= start) & (ordered < start + part.rows)]
                if here.size:
                    values = part.read([column])[column].take(pa.array(here - start)).to_pylist()
                    fetched |= dict(zip(here.tolist(), values, strict=True))
                start += part.rows
        return fetched

    def survey(self) -> dict[str, list[str]]:
        """All names that occur, read from text alone."""
        for _ in self.map_blocks(len):
            pass
        return self.names

    def keep_only(self, **words: Sequence[str]) -> None:
        """From here on, only rows whose text is one of some words, where any are given."""
        self._filters = {column: tuple(asked) for column, asked in words.items() if asked}
        if self._filters:
            self._rows = sum(self.map_blocks(len))

    def map_blocks(self, work: Callable[[Columns], Result], wanted: Collection[str] = ()) -> Iterator[Result]:
        """What `work` makes of each block, in order; threads read and work side by side."""
        lacking = {*wanted} - self._wanted
        assert not lacking, f"opened without {lacking}"
        sources = _list_sources(wanted)

        def go_through(stretch: _Stretch) -> list[Result]:
            with self._tell_changed(stretch.run):
                return [work(block) for block in self._read(stretch, sources, wanted)]

        # Arrow's own threads take a third longer over as many small files.
        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            for results in pool.map(go_through, self._stretches):
                yield from results
        pa.default_memory_pool().release_unused()

    @contextmanager
    def _tell_changed(self, run: int) -> Iterator[None]:
        """Around reading: a run that was closed meanwhile is whole, though a file of it is gone."""
        try:
            yield
        except InputError:
            folder = self.folders[run]
            if _identify(read_description(folder)) == self.identities[run]:
                raise
            raise InputError(f"run {folder} was added to or closed while it was read: start again") from None

    def _read(self, stretch: _Stretch, sources: list[str], wanted: Collection[str]) -> Iterator[Columns]:
        start = stretch.start
        for tables in _join_small(stretch.parts, sources):
            rows = sum(table.num_rows for table in tables)
            block = Columns(self.runs, self.devices, self.names, start=start)
            _allocate(block, rows, wanted)
            block.run[:] = stretch.run
            done = 0
            for table in tables:
                for batch in table.to_batches():
                    span = slice(done, done + batch.num_rows)
                    for name in TEXT:
                        self._rename(name, _encode(batch[name], block.codes[name][span]), block.codes[name][span])
                    _fill_measured(block, span, batch)
                    done = span.stop
            start += rows
            yield self._filter(block)

    def _rename(self, column: str, names: list[str], codes: Codes) -> None:
        """From a batch's own codes to those of all, in place."""
        with self._lock:
            known = self._codes[column]
            for name in names:
                if name not in known:
                    known[name] = len(known)
                    self.names[column].append(name)
            to_all = [known[name] for name in names]
        check_count(f"different names in column {column}", len(known))
        _take_codes(codes, to_all)

    def _filter(self, block: Columns) -> Columns:
        if not self._filters:
            return block
        mask = np.ones(len(block), bool)
        for column, words in self._filters.items():
            mask &= block.equals(column, *words)
        return block if mask.all() else block.select(mask)


def _join_small(parts: Sequence[Part], sources: list[str]) -> Iterator[list[pa.Table]]:
    """Tables of one part after another, or of all parts at once where these are small."""
    if len(parts) > 1:
        yield [part.read(sources, as_codes=TEXT) for part in parts]
    else:
        for table in parts[0].iterate(sources, as_codes=TEXT, rows=BLOCK_ROWS):
            yield [table]


def _identify(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]


def open_runs(paths: Sequence[Place], *, wanted: Collection[str] = EVERYTHING) -> StreamedRuns:
    """The runs at or right below `paths`, to be read in blocks: text, and what is `wanted`, as of load_columns."""
    return StreamedRuns(paths, wanted)


def load_columns(paths: Sequence[Place], *, wanted: Collection[str] = EVERYTHING) -> Columns:
    """Read the runs at or right below `paths`; text, and what is `wanted`: of EVERYTHING, or policies' columns."""
    folders, parts, sources = find_distinct_runs(paths), [], _list_sources(wanted)
    columns, rows, ends = Columns(), 0, []
    for folder in folders:
        columns.runs.append(folder.name)
        description = read_description(folder)
        columns.devices.append(name_device(description.get("environment")))
        for part in list_parts(folder, description=description):
            parts.append((rows, part))
            rows += part.rows
        ends.append(rows)
    if not rows:
        raise InputError(f"no records in {', '.join(map(str, paths))}. Make some with: gonogo run --out DIR")
    _allocate(columns, rows, wanted)
    for number, end in reversed(list(enumerate(ends))):
        columns.run[:end] = number
    numbers: dict[str, dict[str, int]] = {name: {} for name in TEXT}
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        for filled in pool.map(lambda start_and_part: _fill_part(columns, sources, *start_and_part), parts):
            for span, names in filled:
                _rename(columns.codes, numbers, span, names)
    columns.names = {name: list(known) for name, known in numbers.items()}
    for name, known in columns.names.items():
        check_count(f"different names in column {name}", len(known))
    for name, codes in columns.codes.items():
        if len(columns.names[name]) <= np.iinfo(np.int8).max:
            columns.codes[name] = codes.astype(np.int8)
    pa.default_memory_pool().release_unused()  # what batches lay in, for what is worked out next
    return columns


def _list_sources(wanted: Collection[str]) -> list[str]:
    """The columns of a record that what is wanted is made from."""
    made_from = {
        "size": ["count"],
        "exceeds": ["max_abs", "current_atol", *(policy_column(policy.name) for policy in load_policies())],
        CURRENT: ["max_abs", "current_atol"],
    }
    return list(dict.fromkeys([*TEXT, *(source for name in wanted for source in made_from.get(name, [name]))]))


def _allocate(columns: Columns, rows: int, wanted: Collection[str]) -> None:
    """Make room for all rows: gluing batches together would take their memory twice."""
    policies = (CURRENT, *(policy.name for policy in load_policies())) if "exceeds" in wanted else ()
    policies = policies or ((CURRENT,) if CURRENT in wanted else ())
    columns.codes = {name: np.empty(rows, np.int16) for name in TEXT}
    columns.run = np.empty(rows, np.int16)
    readings = [name for name in wanted if name in (*READINGS, LARGEST_RELATIVE) or name.startswith("policy_")]
    columns.readings = {name: np.empty(rows, np.float32) for name in readings}
    columns.exceeds = {name: np.empty(rows, np.int8) for name in policies}
    if "signal" in wanted:
        columns.signal = np.empty(rows, np.float32)
    if "bits_equal" in wanted:
        columns.bits_equal = np.empty(rows, np.int8)
    if "size" in wanted:
        columns.size = np.empty(rows, np.int64)
    for name in {"reduced_length", "number"}.intersection(wanted):
        setattr(columns, name, np.empty(rows, np.int32))


def _fill_part(
    columns: Columns, sources: list[str], start: int, part: Part
) -> list[tuple[slice, dict[str, list[str]]]]:
    """Write a part's rows to their place; say where its batches lie and what their codes stand for."""
    filled = []
    for batch in part.read(sources, as_codes=TEXT).to_batches(BLOCK_ROWS):
        span = slice(start, start + batch.num_rows)
        filled.append((span, {name: _encode(batch[name], columns.codes[name][span]) for name in TEXT}))
        _fill_measured(columns, span, batch)
        start += batch.num_rows
    return filled


def _fill_measured(columns: Columns, span: slice, batch: pa.RecordBatch) -> None:
    for name, values in columns.readings.items():
        with np.errstate(over="ignore"):  # of max_rel, which is float64
            values[span] = _to_numpy(batch[name])
    if len(columns.signal):
        columns.signal[span] = _to_numpy(batch["signal"])
    if len(columns.bits_equal):
        columns.bits_equal[span] = _to_numpy(batch["bits_equal"].cast(pa.int8()).fill_null(-1))
    if len(columns.size):
        columns.size[span] = _to_numpy(batch["count"].fill_null(0))
    if len(columns.reduced_length):
        columns.reduced_length[span] = _to_numpy(batch["reduced_length"].fill_null(1))
    if len(columns.number):
        columns.number[span] = _to_numpy(batch["number"])
    for name, exceeds in columns.exceeds.items():
        if name == CURRENT:
            exceeds[span] = _compare(_to_numpy(batch["max_abs"]), _to_numpy(batch["current_atol"]))
        else:
            exceeds[span] = _compare(_to_numpy(batch[policy_column(name)]), np.float32(1))


def _compare(readings: npt.NDArray[Any], limit: Any) -> npt.NDArray[np.int8]:
    """1 where above the limit, 0 where not, −1 where either is absent; NaN is above nothing."""
    absent = np.isnan(readings) | np.isnan(limit)
    exceeds: npt.NDArray[np.int8] = (readings > limit).view(np.int8) - absent.view(np.int8)
    return exceeds


def _to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _encode(array: pa.Array, codes: Codes) -> list[str]:
    """Write a batch's own codes, and return what they stand for."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes[:] = _to_numpy(array.indices.fill_null(-1) if array.null_count else array.indices)
    names: list[str] = array.dictionary.to_pylist()
    check_count("names in a column", len(names))
    return names


def check_count(what: str, count: int) -> None:
    """Refuse more than codes of two bytes can tell apart."""
    if count > MOST:
        raise InputError(f"{count:,} {what}, and {MOST:,} can be told apart. Read them in several sets")


def _rename(
    codes: dict[str, Codes], numbers: dict[str, dict[str, int]], span: slice, names: dict[str, list[str]]
) -> None:
    """From a batch's own codes to those of all: names are numbered in the order of rows, not of reading."""
    for column, here in names.items():
        known = numbers[column]
        _take_codes(codes[column][span], [known.setdefault(name, len(known)) for name in here])


def _take_codes(codes: Codes, to_all: list[int]) -> None:
    """Codes for codes, in place; −1, none, stays."""
    if to_all != list(range(len(to_all))):
        codes[:] = np.array([*to_all, -1], np.int16)[codes]  # −1 takes the last
