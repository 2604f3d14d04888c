"""Rows of a process → a run directory that any number of processes add to, each whole or not at all.

A row is known by its case, kernel and contract. What a directory holds already is not added again, so that the same
cases measured twice count once: the first measurement stays. A campaign's directory is refused: its rows are
numbered by its plan. While rows are added the directory is locked, by the operating system: a killed process leaves
no lock behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.errors import InputError
from gonogo.records.closing import seal_added
from gonogo.records.description import RUN_FILE, read_description, write_description
from gonogo.records.parts import write_part
from gonogo.records.run_directory import read_run
from gonogo.records.schema import KEY
from gonogo.records.writing import lock_folder
from gonogo.schema import Record

MACHINE = ("device", "gpu", "processor")
"""Facts of an environment that all rows of a run share."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of rows that were to be added."""

    folder: Path
    added: int
    known: int
    """Rows that the directory had already, and kept."""

    def __str__(self) -> str:
        known = f"; {self.known:,} were there already, and stay as they were" if self.known else ""
        return f"{self.added:,} row{'' if self.added == 1 else 's'} added to {self.folder}{known}"


def check_appendable(folder: Path, environment: dict[str, Any]) -> None:
    """Refuse a folder that rows of this machine cannot be added to, before anything is measured."""
    try:
        _check_folder(folder, environment)
    except OSError as error:
        raise InputError(f"cannot record to {folder}: {error.strerror or error}") from None


def _check_folder(folder: Path, environment: dict[str, Any]) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a run directory to record to, or a new one")
    # Listed before run.json is looked for: another process may be writing it, which does so
    # before anything else. What begins with a dot is a lock, or a file that is not whole yet.
    entries = [entry.name for entry in folder.iterdir()] if folder.exists() else []
    if not (folder / RUN_FILE).exists():
        if any(not name.startswith(".") for name in entries):
            raise InputError(f"{folder} is no run directory: it has no {RUN_FILE}. Record to a new one")
        return
    description = read_description(folder)
    if "plan" in description:
        raise InputError(f"{folder} holds a campaign of gonogo run: record to a directory of its own")
    recorded = description.get("environment") or {}
    for fact in MACHINE:
        if recorded.get(fact) != environment.get(fact):
            raise InputError(
                f"{folder} was recorded on {fact} {recorded.get(fact)}, this is {environment.get(fact)}: record to "
                "another directory. gonogo calibrate takes several"
            )


def append_records(folder: Path, environment: dict[str, Any], records: Sequence[Record]) -> Appended:
    """Add records as one part; make the directory where there is none."""
    check_appendable(folder, environment)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder, wait=True):  # others add what they have in no time
            check_appendable(folder, environment)  # another process may have come first
            _describe(folder, environment)
            table = read_run(folder, ["number", *KEY], may_lack=True)
            known = set(zip(*(table[name].to_pylist() for name in KEY), strict=True))
            fresh = {(record.case, record.kernel, record.contract): record for record in reversed(records)}
            added = [record for key, record in reversed(fresh.items()) if key not in known]
            if added:
                first = 1 + max(table["number"].to_pylist(), default=-1)
                cases = dict.fromkeys(record.case for record in added)
                number_of = {case: first + at for at, case in enumerate(cases)}
                rows = [record.to_dict() | {"number": number_of[record.case]} for record in added]
                seal_added(folder, write_part(folder, rows))
    except OSError as error:
        raise InputError(f"cannot record to {folder}: {error.strerror or error}") from None
    return Appended(folder, len(added), len(records) - len(added))


def _describe(folder: Path, environment: dict[str, Any]) -> None:
    """Write run.json, or add to it an environment with other versions or switches."""
    if (folder / RUN_FILE).exists():
        description = read_description(folder)
        appended = description.get("appended") or []
        if environment in (description.get("environment"), *appended):
            return
        description["appended"] = [*appended, environment]
    else:
        description = {"environment": environment}
    write_description(folder, description)
