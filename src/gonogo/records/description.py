"""`run.json` ↔ what a run is: its environment, its plan and, once it is closed, the files that hold its rows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any

from gonogo.errors import InputError
from gonogo.records.places import Place, S3Place
from gonogo.records.schema import SCHEMA_VERSION, check_version
from gonogo.records.writing import write_atomically

RUN_FILE = "run.json"
OPEN_FILE = "open.json"
"""In a store, the description of a campaign whose run is not closed: it has no run.json yet."""
CLAIM = "claim"
"""The field of open.json, and of no run.json, that tells two campaigns apart."""
PARTS = "parts"
"""The field that lists the files of a closed run, as seals; it attests that no row stands twice in them."""
PLANNED = "planned"
"""The field that tells how many rows a campaign has when it is complete."""
DESCRIBED = {
    "environment": (dict, NoneType),
    "plan": (dict, NoneType),
    PLANNED: (int, NoneType),
    "resumed": (list, NoneType),
    "appended": (list, NoneType),
    PARTS: (list, NoneType),
}
"""What run.json may hold beside the version, and as what."""


def write_description(folder: Path, description: dict[str, Any]) -> None:
    """Write run.json."""
    write_atomically(folder / RUN_FILE, format_description(description))


def format_description(description: dict[str, Any]) -> bytes:
    """What stands in run.json: the version, and what is given."""
    text = json.dumps({"schema": SCHEMA_VERSION} | description, indent=1, sort_keys=True)
    return text.encode() + b"\n"


def format_resume(folder: Place, plan: Mapping[str, Any] | None = None) -> str:
    """The command that completes a run; of its plan, if that is known, whether it had ops of its own."""
    ops = " --ops-path FOLDER" if plan and plan.get("ops_folders") else ""  # code from where the reader says
    return f"gonogo run --resume --out {shlex.quote(str(folder))}{ops}"


def tell_incomplete(folder: Place, description: dict[str, Any], rows: int) -> list[str]:
    """What to say of a campaign that was cut off, or is under way; nothing of one that has all of its rows."""
    planned = description.get(PLANNED) or 0
    if rows >= planned:
        return []
    remedy = f"Unless it is under way, complete it: {format_resume(folder, description.get('plan'))}"
    if isinstance(folder, S3Place):  # where nothing is read of a run that is not closed
        remedy = "It is closed, and nothing can be added to it there: complete the run that it is a copy of"
    return [f"{folder} is incomplete: it has {rows:,} of {planned:,} records. {remedy}"]


def tell_unclosed(folder: S3Place) -> str:
    """What to say of a campaign in a store that was cut off, or is under way: nothing is read of it."""
    return (
        f"{folder} is left out: a campaign writes to it, or was cut off. Then complete it: "
        f"{format_resume(folder, read_description(folder).get('plan'))}"
    )


def read_description(folder: Place) -> dict[str, Any]:
    """What run.json says: environment, seed and plan; in a store, before it is closed, what open.json says."""
    if isinstance(folder, S3Place):
        return _read_remote(folder)
    path = folder / RUN_FILE
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        absent = "it is a file" if folder.exists() else "it does not exist"
        problem = f"it has no {RUN_FILE}" if folder.is_dir() else absent
        raise InputError(f"{folder} is no run directory: {problem}") from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}. Make it readable, or restore it from a copy"
        ) from None
    return parse_description(content, path)


def _read_remote(folder: S3Place) -> dict[str, Any]:
    for path in (folder / RUN_FILE, folder / OPEN_FILE):
        with suppress(FileNotFoundError):
            return parse_description(path.read_bytes(), path)
    raise InputError(f"{folder} is no run: it has no {RUN_FILE}")


def parse_description(content: bytes, path: Place) -> dict[str, Any]:
    """The content of a run.json, checked."""
    try:
        description = json.loads(content)
        # Half of a pair of surrogates could be shown nowhere.
        json.dumps(description, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable as JSON: {error}. Restore it from a copy") from None
    if not isinstance(description, dict):
        raise InputError(f"{path} describes no run: it holds a JSON {type(description).__name__}, not an object")
    check_version(description.get("schema"), path)
    for name, kinds in DESCRIBED.items():
        if not isinstance(description.get(name), kinds):
            kind = type(description[name]).__name__
            raise InputError(f"{path} describes no run: {name} is a JSON {kind}. Restore it from a copy")
    return description
