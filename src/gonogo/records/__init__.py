"""Records ↔ Parquet: one row per kernel and case, a directory per run."""

from __future__ import annotations

from gonogo.records.append import Appended, append_rows, check_appendable
from gonogo.records.columns import Columns, load_columns
from gonogo.records.find import find_distinct_runs, find_runs
from gonogo.records.run_directory import RunDirectory, read_description, read_done, read_run
from gonogo.records.schema import MEASURED, OUTCOMES, SCHEMA_VERSION, make_schema, policy_column

__all__ = [
    "MEASURED",
    "OUTCOMES",
    "SCHEMA_VERSION",
    "Appended",
    "Columns",
    "RunDirectory",
    "append_rows",
    "check_appendable",
    "find_distinct_runs",
    "find_runs",
    "load_columns",
    "make_schema",
    "policy_column",
    "read_description",
    "read_done",
    "read_run",
]
