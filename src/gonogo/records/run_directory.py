"""Records ↔ a run, on disk or in an object store."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from gonogo.records.description import read_description
from gonogo.records.local_run import LocalRun
from gonogo.records.parts import Row, list_parts
from gonogo.records.places import Place, S3Place, parse_place
from gonogo.records.remote_run import RemoteRun
from gonogo.records.schema import make_schema
from gonogo.schema import Record

PART_ROWS = 20_000


class RunDirectory:
    """A run being written; closed when its block ends, and left to be resumed when that raises.

    An interrupt, of the block or of closing, leaves with a note of what a store was too slow for.
    """

    def __init__(self, folder: Place, description: dict[str, Any], *, part_rows: int = PART_ROWS) -> None:
        self._columns = frozenset(make_schema().names)
        self._run: RemoteRun | LocalRun = (
            RemoteRun(folder, description, part_rows=part_rows)
            if isinstance(folder, S3Place) else LocalRun(folder, description, part_rows=part_rows)
        )  # fmt: skip

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._run.suspend(error)

    def append(self, records: Sequence[Record]) -> None:
        """Keep the records of one case: of each, what the schema has a column for."""
        columns = self._columns
        self.append_rows(
            [{name: value for name, value in record.to_dict().items() if name in columns} for record in records]
        )

    def append_rows(self, rows: Sequence[Row]) -> None:
        """Keep the records of one case as they are on disk."""
        self._run.append_rows(rows)

    def close(self) -> None:
        """Turn what is left into a part, and list the parts: the run is complete."""
        self._run.close()


def read_run(folder: str | Place, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a run, each once, in the order of its plan; of `columns` only, if given.

    The run is a directory, or s3://bucket/prefix.
    """
    return read_begun(parse_place(folder), columns, may_lack=False)


def read_begun(folder: Place, columns: Sequence[str] | None = None, *, may_lack: bool = True) -> pa.Table:
    """The same of a run that is still written to: a file may be gone, and in a store it need not be closed."""
    read_description(folder)
    names = make_schema().names if columns is None else list(dict.fromkeys(["number", *columns]))
    empty = pa.schema([make_schema().field(name) for name in names]).empty_table()
    table = pa.concat_tables([empty, *(part.read(names) for part in list_parts(folder, may_lack=may_lack))])
    table = table.sort_by([("number", "ascending")])
    return table.select(list(columns)) if columns is not None else table


def read_done(folder: Place) -> dict[tuple[int, str], str]:
    """(number of the case, kernel) of every row of a run → its outcome."""
    table = read_begun(folder, ["number", "kernel", "outcome"])
    numbers, kernels, outcomes = (table[name].to_pylist() for name in ("number", "kernel", "outcome"))
    return dict(zip(zip(numbers, kernels, strict=True), outcomes, strict=True))
