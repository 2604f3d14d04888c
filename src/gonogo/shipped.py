"""The limits that come with the package, made from the committed records by `make shipped`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def shipped_lock() -> Path:
    """Path of the lock file inside the package."""
    return Path(str(files("gonogo").joinpath("shipped.lock")))
