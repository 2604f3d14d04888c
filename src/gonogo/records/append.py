"""Rows of a process → a run directory that any number of processes add to, each whole or not at all.

A row is known by its case, kernel and contract. What a directory holds already is not added again, so that the same
cases measured twice count once: the first measurement stays. A campaign's directory is refused: its rows are
numbered by its plan. While rows are added the directory is locked, by the operating system: a killed process leaves
no lock behind. In a store, parts are numbered, and of those who would create the next one succeeds: the others see
its rows, and take the one after.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.errors import InputError
from gonogo.records.closing import seal_added
from gonogo.records.description import (
    OPEN_FILE,
    RUN_FILE,
    format_description,
    read_description,
    write_description,
)
from gonogo.records.parts import Row, count_next, encode_rows, write_part
from gonogo.records.places import Place, S3Place
from gonogo.records.run_directory import read_begun
from gonogo.records.schema import KEY
from gonogo.records.writing import lock_folder
from gonogo.schema import Record

MACHINE = ("device", "gpu", "processor")
"""Facts of an environment that all rows of a run share."""
MEETINGS = 200
"""How often a writer to a store may find that another came first."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of rows that were to be added."""

    folder: Place
    added: int
    known: int
    """Rows that the directory had already, and kept."""

    def __str__(self) -> str:
        known = f"; {self.known:,} were there already, and stay as they were" if self.known else ""
        return f"{self.added:,} row{'' if self.added == 1 else 's'} added to {self.folder}{known}"


def check_appendable(folder: Place, environment: dict[str, Any]) -> None:
    """Refuse a folder that rows of this machine cannot be added to, before anything is measured."""
    try:
        _check_folder(folder, environment)
    except OSError as error:
        raise InputError(f"cannot record to {folder}: {error.strerror or error}") from None


def _check_folder(folder: Place, environment: dict[str, Any]) -> None:
    if isinstance(folder, Path) and folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a run directory to record to, or a new one")
    # Listed before run.json is looked for: another process may be writing it, which does so
    # before anything else. What begins with a dot is a lock, or a file that is not whole yet.
    entries = _list_names(folder)
    if not (folder / RUN_FILE).exists():
        if OPEN_FILE in entries:
            raise InputError(f"{folder} is taken by a campaign of gonogo run: record to a prefix of its own")
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


def _list_names(folder: Place) -> list[str]:
    if isinstance(folder, S3Place):
        return [entry.name for entry in folder.list_below()[1]]
    return [entry.name for entry in folder.iterdir()] if folder.exists() else []


def append_records(folder: Place, environment: dict[str, Any], records: Sequence[Record]) -> Appended:
    """Add records as one part; make the directory where there is none."""
    check_appendable(folder, environment)
    try:
        if isinstance(folder, S3Place):
            added = _append_remote(folder, environment, records)
        else:
            added = _append_local(folder, environment, records)
    except OSError as error:
        raise InputError(f"cannot record to {folder}: {error.strerror or error}") from None
    return Appended(folder, added, len(records) - added)


def _append_local(folder: Path, environment: dict[str, Any], records: Sequence[Record]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, wait=True):  # others add what they have in no time
        check_appendable(folder, environment)  # another process may have come first
        _describe(folder, environment)
        rows = _choose_added(folder, records)
        if rows:
            seal_added(folder, write_part(folder, rows))
    return len(rows)


def _append_remote(folder: S3Place, environment: dict[str, Any], records: Sequence[Record]) -> int:
    """Whoever creates the next part has added to all parts before it; others look again at what is there."""
    for attempt in range(MEETINGS):
        check_appendable(folder, environment)
        _describe_remote(folder, environment)
        number = count_next(folder)  # before the rows are read: a part that comes in between is met
        rows = _choose_added(folder, records)
        if not rows:
            return 0
        with suppress(FileExistsError):
            (folder / f"part-{number:05d}.parquet").create(encode_rows(rows))
            return len(rows)
        time.sleep(random.uniform(0, 0.02) * min(attempt + 1, 50))  # so that two do not meet in step
    raise InputError(f"cannot record to {folder}: {MEETINGS} times another writer came first. Try again later")


def _choose_added(folder: Place, records: Sequence[Record]) -> list[Row]:
    """Rows that the run does not have, numbered behind those that it has."""
    table = read_begun(folder, ["number", *KEY])
    known = set(zip(*(table[name].to_pylist() for name in KEY), strict=True))
    fresh = {(record.case, record.kernel, record.contract): record for record in reversed(records)}
    added = [record for key, record in reversed(fresh.items()) if key not in known]
    first = 1 + max(table["number"].to_pylist(), default=-1)
    number_of = {case: first + at for at, case in enumerate(dict.fromkeys(record.case for record in added))}
    return [record.to_dict() | {"number": number_of[record.case]} for record in added]


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


def _describe_remote(folder: S3Place, environment: dict[str, Any]) -> None:
    """Create run.json; another environment gets an object of its own, for nothing there is written again."""
    if not (folder / RUN_FILE).exists():
        with suppress(FileExistsError):
            (folder / RUN_FILE).create(format_description({"environment": environment}))
    if read_description(folder).get("environment") != environment:
        content = format_description({"environment": environment})
        with suppress(FileExistsError):
            (folder / f"environment-{zlib.crc32(content):08x}.json").create(content)
