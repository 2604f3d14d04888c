"""Names → ops. One folder per op, found by its name: adding one edits no other file.

A folder `ops/<op>/` holds `__init__.py` with `OP = Op(…)`, plain data; `reference.py` with `reference(*inputs)` in
primitive torch ops; and `torch.py`, `triton.py`, `numpy.py` with one function per kernel, named like it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gonogo.errors import InputError, UnknownOp
from gonogo.ops._op import (
    DTYPES,
    FOLLOWED,
    INPUT_DTYPES,
    LAID_OUT,
    Framework,
    Index,
    Input,
    Kernel,
    Op,
    Out,
    evaluate,
)
from gonogo.ops._source import (
    ALONE,
    AtHand,
    Elsewhere,
    InFile,
    InFolder,
    InModule,
    InText,
    Made,
    OfOp,
    Source,
    import_op,
    load_file,
)

__all__ = [
    "ALONE", "DTYPES", "FOLLOWED", "INPUT_DTYPES", "LAID_OUT", "AtHand", "Elsewhere", "Framework", "InFile",
    "InFolder", "InModule", "InText", "Index", "Input",
    "Kernel", "Made", "OfOp", "Op", "Out", "Source", "add_folder", "evaluate", "find_ops", "get_op", "import_op",
    "load_file", "op_names",
]  # fmt: skip

more_folders: list[str] = []
"""Folders of ops beside the package's."""


def op_names() -> tuple[str, ...]:
    """Names of all ops, sorted."""
    return _list_names([*__path__, *more_folders])


def _list_names(folders: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules(folders) if m.ispkg and not m.name.startswith("_")))


@cache
def get_op(name: str) -> Op:
    """The op called `name`."""
    if name not in op_names():
        raise UnknownOp(name, op_names())
    home = next((folder for folder in more_folders if name in _list_names([folder])), None)
    op = getattr(import_op(home, name), "OP", None)
    if not isinstance(op, Op) or op.name != name:
        raise InputError(f"folder ops/{name}: OP must be an Op of that name, not {op!r}")
    return op.settle_in(home)


def find_ops(names: Sequence[str] = ()) -> list[Op]:
    """The ops called `names`, or all."""
    return [get_op(name) for name in names or op_names()]


def add_folder(folder: Path) -> None:
    """Look for ops in `folder`, too, laid out like gonogo/ops."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of ops")
    path = str(folder.resolve())
    if path in more_folders:
        return
    known = op_names()
    for name in _list_names([path]):
        if name in known:
            raise InputError(f"{folder}: op {name} exists already; rename the folder and OP.name")
    more_folders.append(path)
