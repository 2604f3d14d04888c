"""Runs → columns in memory, made for millions of rows: text as small codes, policies as one bit of truth each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from gonogo.errors import InputError
from gonogo.policies import load_policies
from gonogo.records.run_directory import JOURNAL, list_parts, read_description, read_run
from gonogo.records.schema import check_version, policy_column

TEXT = ("op", "dtype", "kernel", "role", "contract", "distribution", "outcome", "strategy", "calibrate_against")
READINGS = ("absolute", "magnitude", "ulp", "bound", "deterministic", "v_abft")
BATCH_ROWS = 2**18


@dataclass
class Columns:
    """All rows of some runs."""

    runs: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    """Of each run: the GPU's name, or cpu."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """What the codes of a text column stand for; −1 is none."""
    codes: dict[str, npt.NDArray[np.int16]] = field(default_factory=dict)
    run: npt.NDArray[np.int16] = field(default_factory=lambda: np.empty(0, np.int16))
    readings: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    """NaN where a row has none."""
    signal: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    bits_equal: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    """1, 0, or −1 where there was nothing to compare with."""
    size: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    """Elements of the output."""
    exceeds: dict[str, npt.NDArray[np.int8]] = field(default_factory=dict)
    """By policy, `current` among them: 1 where its reading is above 1, 0 where not, −1 where it has none."""

    def __len__(self) -> int:
        return len(self.run)

    def code(self, column: str, name: str) -> int:
        """The code of a name; −2, which no row has, for one that does not occur."""
        return self.names[column].index(name) if name in self.names[column] else -2

    def equals(self, column: str, *names: str) -> npt.NDArray[np.bool_]:
        """Rows whose text is one of `names`."""
        wanted = [self.code(column, name) for name in names]
        return np.isin(self.codes[column], wanted)

    def select(self, mask: npt.NDArray[np.bool_]) -> Columns:
        """Some of the rows."""
        return Columns(
            self.runs, self.devices, self.names,
            {name: codes[mask] for name, codes in self.codes.items()}, self.run[mask],
            {name: values[mask] for name, values in self.readings.items()}, self.signal[mask],
            self.bits_equal[mask], self.size[mask], {name: values[mask] for name, values in self.exceeds.items()},
        )  # fmt: skip


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run directories among `paths`, or right below them."""
    found: list[Path] = []
    for path in paths:
        below = sorted(entry.parent for entry in path.glob("*/run.json")) if path.is_dir() else []
        if (path / "run.json").exists():
            found.append(path)
        elif below:
            found.extend(below)
        else:
            read_description(path)  # says what is wrong
    return found


def load_columns(paths: Sequence[Path]) -> Columns:
    """Read the runs at or right below `paths`."""
    folders = find_runs(paths)
    columns = Columns(names={name: [] for name in TEXT})
    chunks: list[dict[str, npt.NDArray[Any]]] = []
    for number, folder in enumerate(folders):
        environment = read_description(folder).get("environment", {})
        columns.runs.append(folder.name)
        columns.devices.append(environment.get("gpu") or "cpu")
        for batch in _read_batches(folder):
            chunks.append(_pack(batch, number, columns.names))
    if not sum(len(chunk["run"]) for chunk in chunks):
        raise InputError(f"no records in {', '.join(map(str, paths))}. Make some with: gonogo run --out DIR")
    whole = {name: np.concatenate([chunk.pop(name) for chunk in chunks]) for name in list(chunks[0])}
    columns.run, columns.signal, columns.bits_equal = whole["run"], whole["signal"], whole["bits_equal"]
    columns.size = whole["count"]
    columns.codes = {name: whole[name] for name in TEXT}
    columns.readings = {name: whole[f"reading {name}"] for name in READINGS}
    columns.exceeds = {
        name.split(" ", 1)[1]: values for name, values in whole.items() if name.startswith("exceeds ")
    }
    return columns


def _read_batches(folder: Path) -> Iterator[pa.RecordBatch]:
    policies = [policy_column(policy.name) for policy in load_policies()]
    wanted = [*TEXT, *READINGS, *policies, "signal", "bits_equal", "count", "max_abs", "current_atol"]
    if (folder / JOURNAL).exists():  # a run that was cut off
        yield from read_run(folder, wanted).to_batches(max_chunksize=BATCH_ROWS)
        return
    parts = list_parts(folder)
    for part in parts:
        try:
            metadata = pq.read_schema(part).metadata or {}
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{part} is not readable as Parquet: {str(error).partition('.')[0]}") from None
        check_version(metadata.get(b"gonogo_schema", b"?").decode(), part)
    if not parts:
        return
    options = pads.ParquetReadOptions(dictionary_columns=list(TEXT))
    dataset = pads.dataset([str(part) for part in parts], format=pads.ParquetFileFormat(read_options=options))
    try:
        yield from dataset.to_batches(columns=wanted, batch_size=BATCH_ROWS)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{folder} has a part that is not readable: {str(error).partition('.')[0]}") from None


def _pack(batch: pa.RecordBatch, run: int, names: dict[str, list[str]]) -> dict[str, npt.NDArray[Any]]:
    packed: dict[str, npt.NDArray[Any]] = {"run": np.full(batch.num_rows, run, np.int16)}
    for name in TEXT:
        packed[name] = _encode(batch[name], names[name])
    for name in READINGS:
        packed[f"reading {name}"] = _to_numpy(batch[name], np.float32)
    packed["signal"] = _to_numpy(batch["signal"], np.float32)
    equal = batch["bits_equal"].cast(pa.int8()).fill_null(-1)
    packed["bits_equal"] = equal.to_numpy(zero_copy_only=False)
    packed["count"] = batch["count"].fill_null(0).to_numpy(zero_copy_only=False).astype(np.int32)
    errors, atol = _to_numpy(batch["max_abs"], np.float64), _to_numpy(batch["current_atol"], np.float64)
    packed["exceeds current"] = _compare(errors, atol)
    for policy in load_policies():
        readings = _to_numpy(batch[policy_column(policy.name)], np.float32)
        packed[f"exceeds {policy.name}"] = _compare(readings, np.float32(1))
    return packed


def _compare(readings: npt.NDArray[Any], limit: Any) -> npt.NDArray[np.int8]:
    absent = np.isnan(readings) | np.isnan(limit)
    return np.where(absent, np.int8(-1), readings > limit).astype(np.int8)


def _to_numpy(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=dtype)


def _encode(array: pa.Array, names: list[str]) -> npt.NDArray[np.int16]:
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    known = {name: code for code, name in enumerate(names)}
    codes = []
    for name in array.dictionary.to_pylist():
        if name not in known:
            known[name] = len(names)
            names.append(name)
        codes.append(known[name])
    table = np.array([*codes, -1], np.int16)  # a null index takes the last
    found: npt.NDArray[np.int16] = table[array.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)]
    return found
