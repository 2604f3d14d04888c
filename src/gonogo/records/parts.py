"""A run directory → the parts that its rows are in, each row once.

A part is a Parquet file or the journal. Of a closed run, run.json lists the files with a seal of each, and attests
that no row stands twice: nothing is read to list them. Otherwise, between a part's writing and the journal's end a
row may stand in both, and after a kill there it may stand in two files for good: the first counts. Where there is
no seal, the name of a file ends with its checksum, so that a flipped bit is noticed wherever it is; files from
before that have none, and are read as they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gonogo.errors import InputError
from gonogo.records.damage import name_damage, shorten
from gonogo.records.description import CLAIM, PARTS, RUN_FILE, format_resume, read_description
from gonogo.records.keys import hash_keys, join_key, mark_first
from gonogo.records.places import Place, S3Place
from gonogo.records.schema import KEY, REQUIRED, check_version, make_schema
from gonogo.records.sealed import PART_NAME, Seal, check_name, iterate_sealed
from gonogo.records.writing import write_atomically

Row = dict[str, Any]
"""A record as it is on disk: by column, what there is of it."""
JOURNAL = "journal.jsonl"
AT_ONCE = 16
"""Requests to a store at the same time."""
BATCH_ROWS = 2**18
"""Rows that are read at once, about: two row groups of a large file."""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a run that stand together on disk."""

    path: Place
    rows: int
    """How many of them count."""
    counts: npt.NDArray[np.bool_] | None = None
    """Of every row, whether no part before has it; None where all count."""
    journal: Sequence[Row] | None = None
    """The rows, where they are the journal's."""
    seal: Seal | None = None
    """Of a file of a closed run."""

    def read(self, names: Sequence[str], *, as_codes: Sequence[str] = ()) -> pa.Table:
        """Columns of the rows that count; of text those in `as_codes` as a dictionary and numbers."""
        tables = list(self.iterate(names, as_codes=as_codes))
        return pa.concat_tables(tables) if tables else _make_fields(names, as_codes).empty_table()

    def iterate(
        self, names: Sequence[str], *, as_codes: Sequence[str] = (), rows: int = BATCH_ROWS
    ) -> Iterator[pa.Table]:
        """The same in tables of at most so many rows each, in order; of a sealed file no more is in memory."""
        start = 0
        for table in self._iterate_all(names, as_codes, rows):
            counts = None if self.counts is None else self.counts[start : start + table.num_rows]
            start += table.num_rows
            chosen = table if counts is None or counts.all() else table.filter(pa.array(counts))
            for first in range(0, chosen.num_rows, rows):
                yield chosen.slice(first, rows)

    def _iterate_all(self, names: Sequence[str], as_codes: Sequence[str], rows: int) -> Iterator[pa.Table]:
        if self.seal is None:
            yield _read_rows(self.path, self.journal, names, as_codes)
            return
        with name_damage(self.path):
            for table in iterate_sealed(self.path, self.seal, names, as_codes, rows):
                yield _conform(table, names, as_codes)

    def list_journal(self) -> list[Row]:
        """Rows of a journal that no Parquet file has."""
        counts = [True] * self.rows if self.counts is None else self.counts
        return [row for row, count in zip(self.journal or (), counts, strict=True) if count]


def list_parts(folder: Place, *, may_lack: bool = False, description: dict[str, Any] | None = None) -> list[Part]:
    """Parts in the order they were written, the journal last.

    A file that run.json lists must be there, unless the run `may_lack` one since whoever asks measures again. In a
    store a `description` that was read before, which lists the parts too, saves asking for it again.
    """
    if isinstance(folder, S3Place):
        return _list_remote(folder, description or read_description(folder), may_lack=may_lack)
    # What lists the files is read first: one that is added meanwhile is there, and not yet listed.
    seals = read_seals(folder)
    journal, files = list(read_journal(folder)), list_files(folder)
    for name in set(seals).difference(path.name for path in files):
        if not may_lack and read_seals(folder) != seals:  # it was merged meanwhile
            return list_parts(folder)
        if not may_lack:
            raise InputError(
                f"{folder / name} is missing, though {RUN_FILE} lists it. Restore it from a copy, or measure its "
                f"cases again (of a campaign: {format_resume(folder)})"
            )
    if seals and seals.keys() == {path.name for path in files} and not journal:
        return [Part(path, seals[path.name].rows, seal=seals[path.name]) for path in files]
    return compare_parts(folder, files, journal)


def _list_remote(folder: S3Place, description: dict[str, Any], *, may_lack: bool) -> list[Part]:
    """In a store: of a closed run what run.json lists, whatever else is there; of one that is added to, all."""
    if CLAIM in description and not may_lack:
        raise InputError(
            f"{folder} is not closed: a campaign writes to it, or was cut off. Complete it: "
            f"{format_resume(folder, description.get('plan'))}"
        )
    if description.get(PARTS) is None:
        return compare_parts(folder, list_files(folder), ())
    seals = [Seal.from_dict(found, folder / RUN_FILE) for found in description[PARTS]]
    return [Part(folder / seal.name, seal.rows, seal=seal) for seal in seals]


def read_seals(folder: Path) -> dict[str, Seal]:
    """The files that run.json lists, by name: none while a run is written, and of runs older than seals."""
    path = folder / RUN_FILE
    if not path.exists():
        return {}
    seals = [Seal.from_dict(found, path) for found in read_description(folder).get(PARTS) or ()]
    return {seal.name: seal for seal in seals}


def compare_parts(folder: Place, files: Sequence[Place], journal: Sequence[Row]) -> list[Part]:
    """Files and a journal whose rows nobody has compared: each row counts where it stands first."""
    sources: list[tuple[Place, Sequence[Row] | None]] = [(path, None) for path in files]
    sources += [(folder / JOURNAL, journal)] if journal else []
    # Of a store, requests are waited for side by side.
    with ThreadPoolExecutor(AT_ONCE if isinstance(folder, S3Place) else 1) as pool:
        hashes = list(pool.map(lambda source: hash_keys(_read_rows(source[0], source[1], KEY, KEY)), sources))
    marks = mark_first(hashes, lambda at: join_key(_read_rows(sources[at][0], sources[at][1], KEY)))
    return [
        Part(path, int(counts.sum()), counts, rows) for (path, rows), counts in zip(sources, marks, strict=True)
    ]  # fmt: skip


def list_files(folder: Place) -> Sequence[Place]:
    """The Parquet files of a run, in the order they were written."""
    if isinstance(folder, S3Place):
        return [entry for entry in folder.list_below()[1] if fnmatchcase(entry.name, "part-*.parquet")]
    with name_damage(folder):  # glob would find nothing in a folder that cannot be read
        return sorted(path for path in folder.iterdir() if path.match("part-*.parquet"))


def encode_rows(rows: Sequence[Row]) -> bytes:
    """Rows as a Parquet file."""
    schema, file = make_schema(), BytesIO()
    table = pa.table({name: [row.get(name) for row in rows] for name in schema.names}, schema=schema)
    pq.write_table(table, file, **choose_encoding(schema))
    return file.getvalue()


def write_part(folder: Path, rows: Sequence[Row]) -> Path:
    """Rows as the next Parquet file of a run, whole or not at all."""
    content = encode_rows(rows)
    path = folder / f"part-{count_next(folder):05d}-{zlib.crc32(content):08x}.parquet"
    write_atomically(path, content)
    return path


def choose_encoding(schema: pa.Schema) -> dict[str, Any]:
    """Options of every file of rows; without statistics, which nothing asks for: they are most of a footer."""
    return {
        "compression": "zstd", "compression_level": 9, "write_page_checksum": True, "write_statistics": False,
        "use_byte_stream_split": [field.name for field in schema if pa.types.is_floating(field.type)],
        "use_dictionary": [field.name for field in schema if pa.types.is_string(field.type)],
    }  # fmt: skip


def count_next(folder: Place) -> int:
    """The number of the next file: behind the last, for one before it may have been deleted."""
    names = [PART_NAME.fullmatch(path.stem) for path in list_files(folder)]
    return 1 + max((int(name[1]) for name in names if name), default=-1)


def read_journal(folder: Path) -> Iterator[Row]:
    """Rows that no Parquet file holds yet. What a kill cut short is left out: a last line without an end."""
    path = folder / JOURNAL
    with name_damage(path):
        lines = path.read_bytes().splitlines(keepends=True) if path.is_symlink() or path.exists() else []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        try:
            rows = json.loads(line)
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise ValueError("it holds no list of rows")
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path} is damaged: line {number} is no JSON of rows ({shorten(error)}). Delete that line; "
                f"{format_resume(folder)} runs its case again"
            ) from None
        yield from rows


def _make_fields(names: Sequence[str], as_codes: Sequence[str]) -> pa.Schema:
    schema, codes = make_schema(), pa.dictionary(pa.int32(), pa.string())
    return pa.schema([pa.field(name, codes if name in as_codes else schema.field(name).type) for name in names])


def _read_rows(
    path: Place, journal: Sequence[Row] | None, names: Sequence[str], as_codes: Sequence[str] = ()
) -> pa.Table:
    with name_damage(path):
        if journal is None:
            table = _read_file(path, names, as_codes)
        else:
            columns = {name: [row.get(name) for row in journal] for name in names}
            table = pa.table(columns, schema=_make_fields(names, ()))
        table = _conform(table, names, as_codes)
        table.validate(full=True)  # text that is no UTF-8, which fails only where it is looked at
    return table


def _conform(table: pa.Table, names: Sequence[str], as_codes: Sequence[str]) -> pa.Table:
    """Give a table the columns and types that are asked for; refuse rows without what every row has."""
    fields = _make_fields(names, as_codes)
    table = add_missing(table, fields).cast(fields)
    for name in set(names).intersection(REQUIRED):
        if table[name].null_count:
            raise ValueError(f"{table[name].null_count:,} of {table.num_rows:,} rows have no {name}")
    return table


def _read_file(path: Place, names: Sequence[str], as_codes: Sequence[str]) -> pa.Table:
    content = path.read_bytes()
    check_name(path, content)
    with pq.ParquetFile(
        pa.BufferReader(content), read_dictionary=list(as_codes), page_checksum_verification=True
    ) as file:
        check_version((file.metadata.metadata or {}).get(b"gonogo_schema", b"?").decode(), path)
        return file.read([name for name in names if name in file.schema_arrow.names], use_threads=False)


def add_missing(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema in its order; one that rows lack, made before there was such a column, is null."""
    columns = [
        table[field.name] if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema.names)
