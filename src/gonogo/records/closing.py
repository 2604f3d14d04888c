"""The parts of a run that nobody writes to any more → few large files, and a run.json that lists and seals them.

New files are whole before run.json lists them, and old ones are deleted after that. Whenever this is killed, every
row stands somewhere, and one that stands twice counts once.
"""

from __future__ import annotations

import secrets
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from gonogo.records.damage import name_damage
from gonogo.records.description import PARTS, read_description, write_description
from gonogo.records.parts import Part, choose_encoding, count_next, list_files, list_parts, read_seals
from gonogo.records.places import Place
from gonogo.records.schema import make_schema
from gonogo.records.sealed import Seal, seal_file
from gonogo.records.writing import PARTIAL, sync_file, sync_folder

FILE_ROWS = 2**20
GROUP_ROWS = 2**17
"""Rows that are written, and read, at once: some 100 MB of them with all columns."""
FEW_FILES = 8
"""So many are left as they are: opening them costs less than writing them again."""


def close_run(folder: Path, *, few: int = FEW_FILES) -> None:
    """Merge small files if they are more than `few`, drop rows that stand twice, and list the files in run.json."""
    parts = list_parts(folder, may_lack=True)
    if any(part.journal for part in parts):
        return  # what is still to be written there is no closed run
    rewritten, dropped = choose_rewritten(parts, few), choose_dropped(parts, few)
    merged = [seal for _, seal in merge_parts(folder, rewritten, count_next(folder))]
    seals = [part.seal or seal_part(part.path) for part in parts if part not in dropped]
    write_description(folder, read_description(folder) | {PARTS: [seal.to_dict() for seal in [*seals, *merged]]})
    for part in reversed(dropped):  # so that rows keep their order, should this be cut short
        part.path.unlink(missing_ok=True)


def seal_added(folder: Path, path: Path) -> None:
    """List in run.json a file that was just written, of rows that no other has; and others that are not listed."""
    seals = read_seals(folder)
    if {*seals, path.name} != {file.name for file in list_files(folder)} or path.name in seals:
        close_run(folder, few=sys.maxsize)
        return
    listed = [seal.to_dict() for seal in [*seals.values(), seal_part(path)]]
    write_description(folder, read_description(folder) | {PARTS: listed})


def choose_rewritten(parts: Sequence[Part], few: int = FEW_FILES) -> list[Part]:
    """Small files, where they are more than `few`; and any with some rows that an earlier one has."""
    is_many = sum(_is_small(part) for part in parts) > few
    return [part for part in parts if part.rows and (_repeats(part) or (is_many and _is_small(part)))]


def choose_dropped(parts: Sequence[Part], few: int = FEW_FILES) -> list[Part]:
    """Files that are not needed once some are rewritten: these, and any of whose rows none counts."""
    rewritten = choose_rewritten(parts, few)
    return [part for part in parts if part in rewritten or (not part.rows and _repeats(part))]


def _is_small(part: Part) -> bool:
    return 0 < part.rows <= FILE_ROWS // 2


def _repeats(part: Part) -> bool:
    """Whether it has rows that a part before it has, too."""
    return part.counts is not None and not part.counts.all()


def merge_parts(folder: Path, parts: Sequence[Part], number: int) -> Iterator[tuple[Path, Seal]]:
    """Write the rows of some parts to files in a folder, whose numbers start at `number`, one by one."""
    groups = _gather_groups(parts)
    while (first := next(groups, None)) is not None:
        path = _write_file(folder, number, first, groups)
        yield path, seal_part(path)
        number += 1


def _write_file(folder: Path, number: int, table: pa.Table, groups: Iterator[pa.Table]) -> Path:
    """A file of up to FILE_ROWS, taken from `groups` one by one."""
    partial, schema = folder / f".{secrets.token_hex(8)}{PARTIAL}", make_schema()
    try:
        with partial.open("xb") as file:
            sink = _Checked(file)
            with pq.ParquetWriter(sink, schema, **choose_encoding(schema)) as writer:
                rows = 0
                while True:
                    writer.write_table(table, row_group_size=GROUP_ROWS)
                    rows += table.num_rows
                    following = next(groups, None) if rows < FILE_ROWS else None
                    if following is None:
                        break
                    table = following
            sync_file(file)
        path = folder / f"part-{number:05d}-{sink.checksum:08x}.parquet"
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    return path


def _gather_groups(parts: Sequence[Part]) -> Iterator[pa.Table]:
    """All rows of some parts, in tables of GROUP_ROWS, but for the last."""
    names, held = make_schema().names, make_schema().empty_table()
    for part in parts:
        for table in part.iterate(names, rows=GROUP_ROWS):
            held = pa.concat_tables([held, table])
            while held.num_rows >= GROUP_ROWS:
                yield held.slice(0, GROUP_ROWS)
                held = held.slice(GROUP_ROWS)
    if held.num_rows:
        yield held


def seal_part(path: Place) -> Seal:
    """The seal of a file, or a line that says what is wrong with it."""
    with name_damage(path):
        return seal_file(path)


class _Checked:
    """A file that is written to from its start to its end, and the checksum of what was."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.checksum = 0

    def write(self, content: Any) -> int:
        self.checksum = zlib.crc32(content, self.checksum)
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Leave it open to whoever opened it."""
