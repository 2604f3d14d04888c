"""A known op and a kernel file → the op with the file's function as its candidate, for workers to find by name.

A worker knows ops by their folders, so a small folder is written that stands in for the op. The file is loaded in
the worker, when the candidate is first run: one that raises is refused, one that crashes or hangs is no-go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from gonogo import ops as ops_package
from gonogo.errors import BadKernelFile
from gonogo.ops import Kernel, Op, get_op
from gonogo.own_op import CANDIDATE, WEAKER, OwnOp, find_control
from gonogo.schema import Contract
from gonogo.user.kernel_file import KernelFile

LOADED_AS = "checked_kernel"


@dataclass(frozen=True, slots=True)
class CheckedOp(OwnOp):
    """An op whose candidate, under any contract, is a function in a file."""

    path: str = ""
    function: str = ""

    def load_kernel(self, name: str) -> Callable[..., Any]:
        """The file's function; or the folder's of the known op."""
        if name == CANDIDATE or name in WEAKER:
            return _load_function(self.path, self.function)
        return get_op(self.name).load_kernel(name)


def make_checked_op(stand_in: str, op: str, path: str, function: str, contract: Contract) -> CheckedOp:
    """The op of the folder `stand_in`: the known one's data, its control, and the candidate."""
    known = get_op(op)
    control = find_control(known)
    kernels = [
        Kernel(name, "torch", "faulty", contract=promised, calibrate_against=control.name)
        for name, promised in ({CANDIDATE: contract} | WEAKER).items()
    ]
    values = {item.name: getattr(known, item.name) for item in fields(Op)}
    values |= {"name": stand_in, "kernels": (control, *kernels)}
    return CheckedOp(**values, path=path, function=function)


def _load_function(path: str, function: str) -> Callable[..., Any]:
    module = sys.modules.get(LOADED_AS)
    if module is None:
        sys.path += [str(Path(path).parent), str(Path.cwd())]
        spec = spec_from_file_location(LOADED_AS, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[LOADED_AS] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException as error:  # a SystemExit too
            del sys.modules[LOADED_AS]
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise BadKernelFile(path, f"cannot be loaded: {why}") from error
    if not hasattr(module, function):
        raise BadKernelFile(path, f"has no {function!r} once it is loaded")
    found: Callable[..., Any] | None = getattr(module, function)
    if not callable(found):
        raise BadKernelFile(path, f"has {function!r} as {type(found).__name__}, not as a function")
    return found


def write_stand_in(folder: Path, stand_in: str, kernel: KernelFile, op: Op, contract: Contract) -> None:
    """A folder of ops that holds the checked one."""
    home = folder / stand_in
    home.mkdir(parents=True)
    given = f"{stand_in!r}, {op.name!r}, {str(kernel.path)!r}, {kernel.function!r}, {contract!r}"
    lines = [
        "from gonogo.user.checked_op import make_checked_op",
        "from gonogo.schema import Contract",
        "",
        f"OP = make_checked_op({given})",
    ]
    (home / "__init__.py").write_text("\n".join(lines) + "\n", encoding="utf-8")


def forget_stand_in(folder: Path, stand_in: str) -> None:
    """Let the next check of the op begin anew: the folder is off the path and nothing of it stays imported."""
    with suppress(ValueError):
        ops_package.__path__.remove(str(folder.resolve()))
    full = f"{ops_package.__name__}.{stand_in}"
    for module in [key for key in sys.modules if key == full or key.startswith(f"{full}.")]:
        del sys.modules[module]
    if hasattr(ops_package, stand_in):
        delattr(ops_package, stand_in)
    get_op.cache_clear()
