"""Records ↔ Parquet: one row per kernel and case, a directory per run."""

from __future__ import annotations

from gonogo.records.append import Appended, append_records, check_appendable
from gonogo.records.closing import close_run
from gonogo.records.columns import Columns, Source, StreamedRuns, load_columns, open_runs
from gonogo.records.description import read_description
from gonogo.records.find import find_begun, find_distinct_runs, find_runs
from gonogo.records.run_directory import RunDirectory, read_done, read_run
from gonogo.records.schema import MEASURED, OUTCOMES, SCHEMA_VERSION, make_schema
from gonogo.records.writing import lock_folder

__all__ = [
    "MEASURED",
    "OUTCOMES",
    "SCHEMA_VERSION",
    "Appended",
    "Columns",
    "RunDirectory",
    "Source",
    "StreamedRuns",
    "append_records",
    "check_appendable",
    "close_run",
    "find_begun",
    "find_distinct_runs",
    "find_runs",
    "load_columns",
    "lock_folder",
    "make_schema",
    "open_runs",
    "read_description",
    "read_done",
    "read_run",
]
