"""A file or folder → the problems in it, by whichever format knows it. A new format is a new file in formats/."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from gonogo.errors import InputError
from gonogo.ops import ALONE
from gonogo.problems import formats
from gonogo.problems.problem import Options, Problem, list_bound, read_text


class Format(Protocol):
    """What a module of formats/ has, beside make_reference, make_draw and make_check of a path and options."""

    NAME: str
    """What the format is called."""
    KNOWN_BY: str
    """What it is known by, in words."""

    def detect(self, path: Path) -> bool:
        """Whether a file or folder is a problem of this format; looks, and runs nothing."""

    def open_problems(self, path: Path, options: Options) -> list[Problem]:
        """The problem there; one for each shape, where it has several."""

    def list_problems(self, path: Path) -> list[Path]:
        """Of a checkout of the benchmark, its problems."""


@cache
def list_formats() -> dict[str, Format]:
    """All formats, by name."""
    modules = [
        import_module(f"{formats.__name__}.{found.name}") for found in pkgutil.iter_modules(formats.__path__)
    ]
    return {module.NAME: cast(Format, module) for module in modules}


def detect_format(path: Path) -> Format:
    """The format of a problem."""
    for known in list_formats().values():
        if known.detect(path):
            return known
    if not path.exists():
        raise InputError(f"there is no problem {path}")
    if path.suffix == ".py":
        list_bound(read_text(path, "problem"), path)  # which says so where it is no Python
    told = "; ".join(f"{known.NAME}: {known.KNOWN_BY}" for known in list_formats().values())
    raise InputError(f"{path} is a problem of no format that is known. {told}")


def find_problems(path: Path, options: Options) -> list[Problem]:
    """The problem of a file or folder, as whatever format it is in; several, if it has several shapes."""
    known = detect_format(path)
    with ALONE:  # it runs here, and many solutions may wait for it at once
        return known.open_problems(path, options)
