"""A run directory → the parts that its rows are in, each row once.

A part is a Parquet file or the journal. Between a part's writing and the journal's end a row may stand in both, and
after a kill there it may stand in two files for good: the first counts. The name of a file ends with its checksum,
so that a flipped bit is noticed wherever it is; files from before that have none, and are read as they are.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gonogo.errors import InputError
from gonogo.records.schema import KEY, REQUIRED, check_version, make_schema
from gonogo.records.writing import write_atomically

Row = dict[str, Any]
"""A record as it is on disk: by column, what there is of it."""
JOURNAL = "journal.jsonl"
PART_NAME = re.compile(r"part-(\d+)(?:-([0-9a-f]{8}))?")


@dataclass(frozen=True)
class Part:
    """Rows of a run that stand together on disk."""

    path: Path
    rows: int
    """How many of them count."""
    counts: npt.NDArray[np.bool_]
    """Of every row, whether no part before has it."""
    journal: Sequence[Row] | None = None
    """The rows, where they are the journal's."""

    def read(self, names: Sequence[str], *, as_codes: Sequence[str] = ()) -> pa.Table:
        """Columns of the rows that count; of text those in `as_codes` as a dictionary and numbers."""
        table = _read_rows(self.path, self.journal, names, as_codes)
        return table if self.rows == len(self.counts) == table.num_rows else table.filter(pa.array(self.counts))

    def list_journal(self) -> list[Row]:
        """Rows of a journal that no Parquet file has."""
        return [row for row, count in zip(self.journal or (), self.counts, strict=True) if count]


def list_parts(folder: Path) -> list[Part]:
    """Parts in the order they were written, the journal last."""
    journal = list(read_journal(folder))
    sources = [(path, None) for path in list_files(folder)] + ([(folder / JOURNAL, journal)] if journal else [])
    keys = [join_key(_read_rows(path, rows, KEY)) for path, rows in sources]
    ends = np.cumsum([len(part) for part in keys], dtype=np.int64)
    counts = _mark_first(pa.chunked_array(keys, pa.string()))
    marked = np.split(counts, ends[:-1]) if sources else []
    return [
        Part(path, int(part.sum()), part, rows) for (path, rows), part in zip(sources, marked, strict=True)
    ]  # fmt: skip


def join_key(table: pa.Table) -> pa.Array:
    """What each row is known by, in one string."""
    return pc.binary_join_element_wise(*(table[name] for name in KEY), "|").combine_chunks()


def _mark_first(keys: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Of every key, whether it is the first of its kind."""
    counted = pa.table({"key": keys, "row": np.arange(len(keys))}).group_by("key").aggregate([("row", "min")])
    first = np.zeros(len(keys), np.bool_)
    first[counted["row_min"].to_numpy()] = True
    return first


def list_files(folder: Path) -> list[Path]:
    """The Parquet files of a run, in the order they were written."""
    with name_damage(folder):  # glob would find nothing in a folder that cannot be read
        return sorted(path for path in folder.iterdir() if path.match("part-*.parquet"))


def write_part(folder: Path, rows: Sequence[Row]) -> None:
    """Rows as the next Parquet file of a run, whole or not at all."""
    schema, file = make_schema(), BytesIO()
    table = pa.table({name: [row.get(name) for row in rows] for name in schema.names}, schema=schema)
    pq.write_table(
        table, file, compression="zstd", compression_level=9,
        use_byte_stream_split=[field.name for field in schema if pa.types.is_floating(field.type)],
        use_dictionary=[field.name for field in schema if pa.types.is_string(field.type)],
    )  # fmt: skip
    content = file.getvalue()
    # Behind the last, for one before it may have been deleted.
    names = [PART_NAME.fullmatch(path.stem) for path in list_files(folder)]
    number = 1 + max((int(name[1]) for name in names if name), default=-1)
    write_atomically(folder / f"part-{number:05d}-{zlib.crc32(content):08x}.parquet", content)


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
                f"{path} is damaged: line {number} is no JSON of rows ({_shorten(error)}). Delete that line; "
                f"gonogo run --resume --out {folder} runs its case again"
            ) from None
        yield from rows


def _read_rows(
    path: Path, journal: Sequence[Row] | None, names: Sequence[str], as_codes: Sequence[str] = ()
) -> pa.Table:
    schema = make_schema()
    fields = [
        pa.field(name, pa.dictionary(pa.int32(), pa.string()) if name in as_codes else schema.field(name).type)
        for name in names
    ]
    with name_damage(path):
        if journal is None:
            table = _read_file(path, names, as_codes)
        else:
            columns = {name: [row.get(name) for row in journal] for name in names}
            table = pa.table(columns, schema=pa.schema([schema.field(name) for name in names]))
        table = add_missing(table, pa.schema(fields)).cast(pa.schema(fields))
        table.validate(full=True)  # text that is no UTF-8, which fails only where it is looked at
        for name in set(names).intersection(REQUIRED):
            if table[name].null_count:
                raise ValueError(f"{table[name].null_count:,} of {table.num_rows:,} rows have no {name}")
    return table


def _read_file(path: Path, names: Sequence[str], as_codes: Sequence[str]) -> pa.Table:
    content, name = path.read_bytes(), PART_NAME.fullmatch(path.stem)
    if name and name[2] and int(name[2], 16) != zlib.crc32(content):
        raise ValueError("its bytes are not those that were written, by the checksum in its name")
    with pq.ParquetFile(pa.BufferReader(content), read_dictionary=list(as_codes)) as file:
        check_version((file.metadata.metadata or {}).get(b"gonogo_schema", b"?").decode(), path)
        return file.read([name for name in names if name in file.schema_arrow.names], use_threads=False)


def add_missing(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema in its order; one that rows lack, made before there was such a column, is null."""
    columns = [
        table[field.name] if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema.names)


@contextmanager
def name_damage(path: Path) -> Iterator[None]:
    """Around reading a file of rows: whatever is wrong with it is said in a line that names it."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        if error.errno is None:  # Arrow's own, on what it read
            raise _tell_damage(path, error) from None
        raise InputError(
            f"{path} cannot be read: {error.strerror}. Make it readable, or restore it from a copy"
        ) from None
    # Arrow raises kinds of its own for each of these; a flipped bit may ask for any amount of memory.
    except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError, pa.ArrowException) as error:
        raise _tell_damage(path, error) from None


def _tell_damage(path: Path, error: Exception) -> InputError:
    again = f"delete it and measure its cases again (of a campaign: gonogo run --resume --out {path.parent})"
    return InputError(f"{path} is damaged: {_shorten(error)}. Restore it from a copy, or {again}")


def _shorten(error: BaseException) -> str:
    """The first sentence of what Arrow says: more of them follow, and name its sources."""
    return re.split(r"\. |\.?\n", str(error) or type(error).__name__, maxsplit=1)[0].rstrip(".")[:200]
