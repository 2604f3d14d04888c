"""Records ↔ a run directory: `run.json`, parts in Parquet, and a journal of what no part holds yet.

A case's rows reach the journal in one write, so that a killed campaign loses only cases in flight. A full journal
becomes a part: written beside, renamed, and only then forgotten. In between a row may stand twice: the first
counts. Closing the run merges its parts and lists them in run.json, which attests that no row stands twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from gonogo.errors import CampaignFailed
from gonogo.records.closing import close_run
from gonogo.records.description import PARTS, RUN_FILE, read_description, write_description
from gonogo.records.parts import JOURNAL, Row, list_parts, write_part
from gonogo.records.schema import make_schema
from gonogo.records.writing import write_atomically
from gonogo.schema import Record

PART_ROWS = 20_000


class RunDirectory:
    """A run being written, by one process: see `lock_folder`."""

    def __init__(self, folder: Path, description: dict[str, Any], *, part_rows: int = PART_ROWS) -> None:
        self.folder = folder
        self.part_rows = part_rows
        self._columns = frozenset(make_schema().names)
        folder.mkdir(parents=True, exist_ok=True)
        # Read whole before anything is written: what is damaged stays as it is.
        journals = [part for part in list_parts(folder, may_lack=True) if part.journal]
        for part in journals:
            part.read(make_schema().names)
        self._rows = [row for part in journals for row in part.list_journal()]
        # The list of parts is of a closed run, which this is no more.
        write_description(folder, {name: value for name, value in description.items() if name != PARTS})
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
        with self._say_what_stops():
            self._journal.write("".join([json.dumps(list(rows)), "\n"]).encode())
            self._journal.flush()
            if not os.fstat(self._journal.fileno()).st_nlink:  # a file that is gone takes rows all the same
                raise FileNotFoundError(2, "it was removed while it was written to")
            self._rows.extend(rows)
            if len(self._rows) >= self.part_rows:
                self._write_part()

    def close(self) -> None:
        """Turn what is left into a part, and list the parts."""
        with self._say_what_stops():
            try:
                if self._rows:
                    self._write_part()
            finally:
                self._journal.close()
            (self.folder / JOURNAL).unlink(missing_ok=True)
            if (self.folder / RUN_FILE).exists():  # else somebody removed it all
                close_run(self.folder)

    def _rewrite_journal(self) -> None:
        write_atomically(self.folder / JOURNAL, b"".join(json.dumps([row]).encode() + b"\n" for row in self._rows))
        self._journal = (self.folder / JOURNAL).open("ab")

    def _write_part(self) -> None:
        write_part(self.folder, self._rows)
        self._journal.close()
        self._rows = []
        self._rewrite_journal()

    @contextmanager
    def _say_what_stops(self) -> Iterator[None]:
        """Around writing: a disk that is full, a folder that is gone."""
        try:
            yield
        except OSError as error:
            kept = f"What was recorded there stays; go on: gonogo run --resume --out {self.folder}"
            remedy = kept if (self.folder / RUN_FILE).exists() else "Start again in another"
            raise CampaignFailed(f"cannot write to {self.folder}: {error.strerror or error}. {remedy}") from None


def read_run(folder: Path, columns: Sequence[str] | None = None, *, may_lack: bool = False) -> pa.Table:
    """All rows of a run, each once, in the order of its plan; of `columns` only, if given."""
    read_description(folder)
    names = make_schema().names if columns is None else list(dict.fromkeys(["number", *columns]))
    empty = pa.schema([make_schema().field(name) for name in names]).empty_table()
    table = pa.concat_tables([empty, *(part.read(names) for part in list_parts(folder, may_lack=may_lack))])
    table = table.sort_by([("number", "ascending")])
    return table.select(list(columns)) if columns is not None else table


def read_done(folder: Path) -> dict[tuple[int, str], str]:
    """(number of the case, kernel) of every row of a run → its outcome."""
    table = read_run(folder, ["number", "kernel", "outcome"], may_lack=True)
    numbers, kernels, outcomes = (table[name].to_pylist() for name in ("number", "kernel", "outcome"))
    return dict(zip(zip(numbers, kernels, strict=True), outcomes, strict=True))
