"""Runs → columns in memory, made for millions of rows: text as small codes, policies as one bit of truth each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gonogo.errors import InputError
from gonogo.policies import load_policies
from gonogo.records.description import read_description
from gonogo.records.find import find_distinct_runs
from gonogo.records.parts import Part, list_parts
from gonogo.schema import name_device, policy_column

Codes = npt.NDArray[np.int8] | npt.NDArray[np.int16]

TEXT = ("op", "dtype", "kernel", "role", "contract", "distribution", "outcome", "calibrate_against")
READINGS = ("absolute", "magnitude", "ulp", "bound", "deterministic", "v_abft")
LARGEST_RELATIVE = "max_rel"
"""Of ErrorStats; like the column of a policy, it is loaded only where it is asked for by name."""
EVERYTHING = (*READINGS, "signal", "bits_equal", "size", "reduced_length", "number", "exceeds")
"""What can be loaded beside text: readings, and fields of Columns."""
BATCH_ROWS = 2**18


@dataclass
class Columns:
    """All rows of some runs."""

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
    size: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Elements of the output."""
    reduced_length: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Terms of a sum; 1 where the op sums nothing."""
    number: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Of the case in its run: rows that share run and number are of the same inputs."""
    exceeds: dict[str, npt.NDArray[np.int8]] = field(default_factory=dict)
    """By policy, `current` among them: 1 where its reading is above 1, 0 where not, −1 where it has none."""

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

    def select(self, mask: npt.NDArray[np.bool_]) -> Columns:
        """Some of the rows."""

        def pick(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return values[mask] if len(values) else values  # not loaded

        return Columns(
            self.runs, self.devices, self.names,
            {name: codes[mask] for name, codes in self.codes.items()}, self.run[mask],
            {name: values[mask] for name, values in self.readings.items()}, pick(self.signal),
            pick(self.bits_equal), pick(self.size), pick(self.reduced_length), pick(self.number),
            {name: values[mask] for name, values in self.exceeds.items()},
        )  # fmt: skip


def load_columns(paths: Sequence[Path], *, wanted: Collection[str] = EVERYTHING) -> Columns:
    """Read the runs at or right below `paths`; text, and what is `wanted`: of EVERYTHING, or policies' columns."""
    folders, parts, sources = find_distinct_runs(paths), [], _list_sources(wanted)
    columns, rows, ends = Columns(), 0, []
    for folder in folders:
        columns.runs.append(folder.name)
        columns.devices.append(name_device(read_description(folder).get("environment")))
        for part in list_parts(folder):
            parts.append((rows, part))
            rows += part.rows
        ends.append(rows)
    if not rows:
        raise InputError(f"no records in {', '.join(map(str, paths))}. Make some with: gonogo run --out DIR")
    _allocate(columns, rows, wanted)
    for number, end in reversed(list(enumerate(ends))):
        columns.run[:end] = number
    # Arrow's own threads take a third longer over as many small files.
    numbers: dict[str, dict[str, int]] = {name: {} for name in TEXT}
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        for filled in pool.map(lambda start_and_part: _fill_part(columns, sources, *start_and_part), parts):
            for span, names in filled:
                _rename(columns.codes, numbers, span, names)
    columns.names = {name: list(known) for name, known in numbers.items()}
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
    }
    return list(dict.fromkeys([*TEXT, *(source for name in wanted for source in made_from.get(name, [name]))]))


def _allocate(columns: Columns, rows: int, wanted: Collection[str]) -> None:
    """Make room for all rows: gluing batches together would take their memory twice."""
    policies = ("current", *(policy.name for policy in load_policies())) if "exceeds" in wanted else ()
    columns.codes = {name: np.empty(rows, np.int16) for name in TEXT}
    columns.run = np.empty(rows, np.int16)
    readings = [name for name in wanted if name in (*READINGS, LARGEST_RELATIVE) or name.startswith("policy_")]
    columns.readings = {name: np.empty(rows, np.float32) for name in readings}
    columns.exceeds = {name: np.empty(rows, np.int8) for name in policies}
    if "signal" in wanted:
        columns.signal = np.empty(rows, np.float32)
    if "bits_equal" in wanted:
        columns.bits_equal = np.empty(rows, np.int8)
    for name in {"size", "reduced_length", "number"}.intersection(wanted):
        setattr(columns, name, np.empty(rows, np.int32))


def _fill_part(
    columns: Columns, sources: list[str], start: int, part: Part
) -> list[tuple[slice, dict[str, list[str]]]]:
    """Write a part's rows to their place; say where its batches lie and what their codes stand for."""
    filled = []
    for batch in part.read(sources, as_codes=TEXT).to_batches(BATCH_ROWS):
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
        if name == "current":
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
    return names


def _rename(
    codes: dict[str, Codes], numbers: dict[str, dict[str, int]], span: slice, names: dict[str, list[str]]
) -> None:
    """From a batch's own codes to those of all: names are numbered in the order of rows, not of reading."""
    for column, here in names.items():
        known = numbers[column]
        to_all = [known.setdefault(name, len(known)) for name in here]
        if to_all != list(range(len(here))):
            table = np.array([*to_all, -1], np.int16)  # −1, none, takes the last
            codes[column][span] = table[codes[column][span]]
