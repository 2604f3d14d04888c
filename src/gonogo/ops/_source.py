"""Where a function is from → the function, loaded where it is asked for, so that a worker can be sent it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from gonogo.errors import BadKernelFile, InputError

Function = Callable[..., Any]
ALONE = threading.RLock()
"""Held by a thread while users' and benchmarks' code is loaded, or draws: generators of random numbers, modules and
standard output are of the whole process, and another thread would seed and draw in between."""


@dataclass(frozen=True, slots=True)
class AtHand:
    """A function of this process; no other process can have it."""

    function: Function

    def load(self) -> Function:
        """The function, as it was given."""
        return self.function


@dataclass(frozen=True, slots=True)
class InFolder:
    """A function in a module of an op's folder."""

    home: str | None
    """The folder that has the op's folder in it; None for the package's own."""
    op: str
    module: str
    name: str

    @property
    def path(self) -> Path:
        """The file that should have the function."""
        return Path(str(import_op(self.home, self.op).__file__)).with_name(f"{self.module}.py")

    def load(self) -> Function:
        """The function; imports its module, and with it the framework that it is written in."""
        module = _import_part(self)
        if not hasattr(module, self.name):
            raise InputError(f"kernel {self.name}: {self.path} has no function of that name")
        function: Function = getattr(module, self.name)
        return function

    def find_file(self) -> Path:
        """The file of the function, which must be there."""
        if not self.path.exists():
            raise InputError(
                f"kernel {self.name}: there is no {self.path}, which should have a function of that name"
            )
        return self.path


@lru_cache(maxsize=4096)
def _import_part(source: InFolder) -> ModuleType:
    """The module of a function: found once, for a campaign asks for it with every case."""
    source.find_file()
    return import_module(f"{import_op(source.home, source.op).__name__}.{source.module}")


@dataclass(frozen=True, slots=True)
class InFile:
    """A function in a user's file, which is run when the function is first asked for."""

    path: str
    name: str

    def load(self) -> Function:
        """The function; refused where the file raises, or has no such function."""
        function: Function | None = load_object(self.path, self.name)
        if not callable(function):
            raise BadKernelFile(self.path, f"has {self.name!r} as {type(function).__name__}, not as a function")
        return function


@dataclass(frozen=True, slots=True)
class InText:
    """A function in a file that was read once: what is run is this text, in a process of its own alone."""

    path: str
    name: str
    text: str
    folders: tuple[str, ...] = ()
    """Where it may import from, besides what is installed."""

    def load(self) -> Function:
        """Never: a stranger's code does not run here."""
        raise BadKernelFile(self.path, "is run in a process of its own alone")


@dataclass(frozen=True, slots=True)
class InModule:
    """A function at hand that a process of its own can import, too."""

    module: str
    path: str
    """The module's file: what is loaded where no module of that name is found."""
    name: str
    folders: tuple[str, ...]
    """Where modules are looked for."""

    def load(self) -> Function:
        """Never: it is to run in a process of its own."""
        raise BadKernelFile(self.path, "is run in a process of its own alone")


Elsewhere = InText | InModule
"""Sources of kernels that run in a process of their own."""


@dataclass(frozen=True, slots=True)
class OfOp:
    """A function of an op that a user's file makes: its reference, or what draws its arguments."""

    path: str
    name: str
    """Of the op, in the file."""
    part: str
    """`reference` or `draw`."""

    def load(self) -> Function:
        """The function, of the op that the file makes; the file is run when first asked for."""
        source: Source = getattr(load_object(self.path, self.name), self.part)
        return source.load()


@dataclass(frozen=True, slots=True)
class Made:
    """A function that one of ours makes of plain values: of a problem in somebody's format, say."""

    module: str
    name: str
    path: str
    """The file or folder that it is made from, its first argument."""
    options: Hashable = None

    def load(self) -> Function:
        """The function; made once, for what it is made from may take long."""
        with ALONE:
            return _make(self)


Source = AtHand | InFolder | InFile | InText | InModule | OfOp | Made

KEPT = 4
"""Functions that are made and kept: of a benchmark's problems each may hold gigabytes."""


@lru_cache(maxsize=KEPT)
def _make(source: Made) -> Function:
    made: Function = getattr(import_module(source.module), source.name)(source.path, source.options)
    return made


def load_object(path: str, name: str) -> Any:
    """What a user's file has by a name, once it is run."""
    module = load_file(path)
    if not hasattr(module, name):
        raise BadKernelFile(path, f"has no {name!r} once it is loaded")
    return getattr(module, name)


def import_op(home: str | None, name: str) -> ModuleType:
    """The package of an op's folder: of ours, or of a folder of ops somewhere else."""
    if home is None:
        return import_module(f"gonogo.ops.{name}")
    parent = f"gonogo_ops_{blake2b(home.encode(), digest_size=6).hexdigest()}"
    if parent not in sys.modules:  # a package without a file, whose modules are the folder's
        package = sys.modules[parent] = ModuleType(parent)
        package.__path__ = [home]
    return import_module(f"{parent}.{name}")


def load_file(path: str) -> ModuleType:
    """A file as a module of this process, run once; what it imports may lie beside it."""
    with ALONE:
        return _load_file(path)


def _load_file(path: str) -> ModuleType:
    name = f"gonogo_file_{blake2b(path.encode(), digest_size=6).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    for folder in (str(Path(path).parent), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.append(folder)
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # a SystemExit too
        del sys.modules[name]
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise BadKernelFile(path, f"cannot be loaded: {why}") from error
    return module
