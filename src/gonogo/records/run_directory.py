"""Records ↔ a run directory: `run.json`, parts in Parquet, and a journal of what no part holds yet.

A case's rows reach the journal in one write, so that a killed campaign loses only cases in flight. A full journal
becomes a part: written beside, renamed, and only then forgotten. In between a row may stand twice; readers keep the
first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gonogo.errors import InputError
from gonogo.records.schema import SCHEMA_VERSION, check_version, make_schema
from gonogo.schema import Record

Row = dict[str, Any]
"""A record as it is on disk: by column, what there is of it."""
Data = TypeVar("Data", pa.Table, pa.RecordBatch)
PART_ROWS = 20_000
RUN_FILE, JOURNAL = "run.json", "journal.jsonl"


class RunDirectory:
    """A run being written."""

    def __init__(self, folder: Path, description: dict[str, Any], *, part_rows: int = PART_ROWS) -> None:
        self.folder = folder
        self.part_rows = part_rows
        self._columns = frozenset(make_schema().names)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(
            folder / RUN_FILE,
            json.dumps({"schema": SCHEMA_VERSION} | description, indent=1, sort_keys=True).encode() + b"\n",
        )
        self._rows = list(_read_journal(folder))
        # A line cut short by a kill must not be glued to the next.
        self._rewrite_journal()

    def append(self, records: Sequence[Record]) -> None:
        """Keep the records of one case: of each, what the schema has a column for."""
        columns = self._columns
        self.append_rows(
            [{name: value for name, value in record.to_dict().items() if name in columns} for record in records]
        )

    def append_rows(self, rows: Sequence[Row]) -> None:
        """Keep the records of one case as they are on disk."""
        self._journal.write("".join([json.dumps(list(rows)), "\n"]).encode())
        self._journal.flush()
        self._rows.extend(rows)
        if len(self._rows) >= self.part_rows:
            self._write_part()

    def close(self) -> None:
        """Turn what is left into a part."""
        if self._rows:
            self._write_part()
        self._journal.close()
        (self.folder / JOURNAL).unlink(missing_ok=True)

    def _rewrite_journal(self) -> None:
        write_atomically(self.folder / JOURNAL, b"".join(json.dumps([row]).encode() + b"\n" for row in self._rows))
        self._journal = (self.folder / JOURNAL).open("ab")

    def _write_part(self) -> None:
        write_part(name_part(self.folder), self._rows)
        self._journal.close()
        self._rows = []
        self._rewrite_journal()


def write_part(path: Path, rows: Sequence[Row]) -> None:
    """Rows as a part, whole or not at all."""
    schema = make_schema()
    table = pa.table({name: [row.get(name) for row in rows] for name in schema.names}, schema=schema)
    partial = path.with_suffix(".partial")
    pq.write_table(
        table, partial, compression="zstd", compression_level=9,
        use_byte_stream_split=[field.name for field in schema if pa.types.is_floating(field.type)],
        use_dictionary=[field.name for field in schema if pa.types.is_string(field.type)],
    )  # fmt: skip
    partial.replace(path)


def write_atomically(path: Path, content: bytes) -> None:
    """Either the old file or the new one, never half of it, and nothing beside it."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def read_description(folder: Path) -> dict[str, Any]:
    """What run.json says: environment, seed and plan."""
    path = folder / RUN_FILE
    try:
        description = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        absent = "it is a file" if folder.exists() else "it does not exist"
        problem = f"it has no {RUN_FILE}" if folder.is_dir() else absent
        raise InputError(f"{folder} is no run directory: {problem}") from None
    except ValueError as error:
        raise InputError(f"{path} is not readable as JSON: {error}") from None
    if not isinstance(description, dict):
        raise InputError(f"{path} describes no run: it holds a JSON {type(description).__name__}, not an object")
    check_version(description.get("schema"), path)
    return description


def read_run(folder: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a run, each once, in the order of its plan; of `columns` only, if given."""
    read_description(folder)
    schema = make_schema()
    if columns is not None:
        wanted = {"number", "case", "kernel", "contract", *columns}
        schema = pa.schema([field for field in schema if field.name in wanted])
    tables = []
    for part in list_parts(folder):
        recorded = pq.read_schema(part)
        check_version((recorded.metadata or {}).get(b"gonogo_schema", b"?").decode(), part)
        there = [name for name in schema.names if name in recorded.names]
        tables.append(add_missing(pq.read_table(part, columns=there), schema).cast(schema))
    journal = list(_read_journal(folder))
    if journal:
        tables.append(pa.table({name: [row.get(name) for row in journal] for name in schema.names}, schema=schema))
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    table = _keep_first(table).sort_by([("number", "ascending")])
    return table.select(list(columns)) if columns is not None else table


def add_missing(table: Data, schema: pa.Schema) -> Data:
    """The columns of a schema in its order; one that rows lack, made before there was such a column, is null."""
    columns = [
        table[field.name] if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    completed: Data = type(table).from_arrays(columns, schema.names)
    return completed


def read_done(folder: Path) -> dict[tuple[int, str], str]:
    """(number of the case, kernel) of every row of a run → its outcome."""
    table = read_run(folder, ["number", "kernel", "outcome"])
    numbers, kernels, outcomes = (table[name].to_pylist() for name in ("number", "kernel", "outcome"))
    return dict(zip(zip(numbers, kernels, strict=True), outcomes, strict=True))


def _keep_first(table: pa.Table) -> pa.Table:
    columns = table["case"], table["kernel"], table["contract"]
    keys = pc.binary_join_element_wise(*columns, "|", null_handling="replace")
    counted = pa.table({"key": keys, "row": pa.array(range(table.num_rows), pa.int64())})
    first = counted.group_by("key").aggregate([("row", "min")])["row_min"]
    return table if len(first) == table.num_rows else table.take(first)


def list_parts(folder: Path) -> list[Path]:
    """Parts in the order they were written."""
    return sorted(folder.glob("part-*.parquet"))


def name_part(folder: Path) -> Path:
    """Path of the next part: behind the last, for one before it may have been deleted."""
    numbers = [part.stem.removeprefix("part-") for part in list_parts(folder)]
    last = max((int(number) for number in numbers if number.isdecimal()), default=-1)
    return folder / f"part-{last + 1:05d}.parquet"


def _read_journal(folder: Path) -> Iterator[Row]:
    path = folder / JOURNAL
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield from json.loads(line)
            except json.JSONDecodeError:  # the write a kill cut short
                return
