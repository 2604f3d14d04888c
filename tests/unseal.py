"""A closed run → the same run as it was before run.json listed its files."""

from __future__ import annotations

from pathlib import Path

from gonogo.records import read_description
from gonogo.records.description import PARTS, write_description


def unseal(folder: Path) -> None:
    """Forget which files there are."""
    write_description(folder, {name: value for name, value in read_description(folder).items() if name != PARTS})
