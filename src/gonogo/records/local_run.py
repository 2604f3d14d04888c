"""Rows → a run directory on disk: `run.json`, parts in Parquet, and a journal of what no part holds yet.

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

from gonogo.errors import CampaignFailed
from gonogo.records.closing import close_run
from gonogo.records.description import PARTS, RUN_FILE, format_resume, write_description
from gonogo.records.parts import JOURNAL, Row, list_parts, write_part
from gonogo.records.schema import make_schema
from gonogo.records.writing import write_atomically


class LocalRun:
    """A run being written, by one process: see `lock_folder`."""

    def __init__(self, folder: Path, description: dict[str, Any], *, part_rows: int) -> None:
        self.folder = folder
        self.part_rows = part_rows
        folder.mkdir(parents=True, exist_ok=True)
        # Read whole before anything is written: what is damaged stays as it is.
        journals = [part for part in list_parts(folder, may_lack=True) if part.journal]
        for part in journals:
            part.read(make_schema().names)
        self._rows = [row for part in journals for row in part.list_journal()]
        self._plan = description.get("plan")
        # The list of parts is of a closed run, which this is no more.
        write_description(folder, {name: value for name, value in description.items() if name != PARTS})
        # A line cut short by a kill must not be glued to the next.
        self._rewrite_journal()

    def append_rows(self, rows: Sequence[Row]) -> None:
        """Keep the rows of one case."""
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

    def suspend(self, cause: BaseException) -> None:
        """The same, whatever the cause: a run on disk can be read and resumed, closed or not."""
        self.close()

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
            kept = f"What was recorded there stays; go on: {format_resume(self.folder, self._plan)}"
            remedy = kept if (self.folder / RUN_FILE).exists() else "Start again in another"
            raise CampaignFailed(
                f"cannot write to {self.folder}: {error.strerror or error}. {remedy}", says_rest=True
            ) from None
