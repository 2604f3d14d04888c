"""A problem's source → its names, run for a device, with some of its numbers others than it says.

Problems are trusted, as a file of --op-file is; solutions never run here.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any

from gonogo.errors import BadKernelFile, InputError
from gonogo.parsing import parse_source

SIZE = 8
"""Whole numbers at the top of a problem from this on are taken for sizes."""


def run_source(
    text: str,
    path: str,
    device: str,
    folders: tuple[str, ...] = (),
    known: Mapping[str, Any] = MappingProxyType({}),
) -> ModuleType:
    """A source as a module of its own, with names that it may use without importing them.

    Where there is no GPU, what it puts on one is put on the CPU.
    """
    code = compile_source(text, path, device)
    key = blake2b(f"{path}\0{device}\0{text}".encode(), digest_size=6).hexdigest()
    module = sys.modules[f"gonogo_problem_{key}"] = ModuleType(f"gonogo_problem_{key}")
    module.__file__ = path
    vars(module).update(known)
    before, kept = list(sys.path), set(sys.modules)
    sys.path[:0] = folders
    try:
        exec(code, module.__dict__)
    except BaseException as error:  # a SystemExit, too
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise BadKernelFile(path, f"does not import: {why}") from error
    finally:
        sys.path[:] = before
        _forget(set(sys.modules) - kept, folders)
    return module


def compile_source(text: str, path: str, device: str) -> CodeType:
    """A source for a device."""
    try:
        tree = parse_source(text)
        if device == "cpu":
            tree = ast.fix_missing_locations(_ToCpu().visit(tree))
        return compile(tree, path, "exec")
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is no Python: {next(iter(error.args), '')}") from None


def _forget(names: set[str], folders: tuple[str, ...]) -> None:
    """Modules that lie beside a problem: the next one has others of the same name."""
    for name in names:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and any(Path(file).is_relative_to(folder) for folder in folders):
            del sys.modules[name]


class _ToCpu(ast.NodeTransformer):
    """Writes "cpu" for "cuda", and leaves out x.cuda()."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and (node.value == "cuda" or node.value.startswith("cuda:")):
            return ast.copy_location(ast.Constant("cpu"), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and len(node.args) <= 1:
            return node.func.value
        return node


def list_sizes(module: ModuleType) -> dict[str, Any]:
    """Whole numbers at the top of a module, and tuples and lists of them, that may be sizes."""
    found = {}
    for name, value in vars(module).items():
        numbers = value if isinstance(value, tuple | list) else (value,)
        are_whole = all(type(number) is int for number in numbers)
        if not name.startswith("_") and are_whole and any(number >= SIZE for number in numbers):
            found[name] = value
    return found


def check_scale(scale: float) -> None:
    """Refuse what is no part of a size."""
    if not 0 < scale <= 1:
        raise InputError(f"scale {scale:g}: give a number above 0, and 1 at most")


def scale_sizes(module: ModuleType, scale: float, survives: Callable[[], bool], path: str) -> None:
    """Multiply sizes of a module by a factor: all, or as many as it survives, the largest at least."""
    if scale == 1.0:
        return
    check_scale(scale)
    sizes = list_sizes(module)
    for chosen in filter(None, _list_choices(sizes)):
        vars(module).update({name: _scale(sizes[name], scale) for name in chosen})
        if survives():
            return
        vars(module).update(sizes)
    what = "none of its sizes can be changed" if sizes else "it has no whole numbers at its top"
    raise InputError(f"{path} does not survive --scale {scale:g}: {what}. Leave it out")


def _list_choices(sizes: Mapping[str, Any]) -> Iterator[list[str]]:
    """Which sizes to change together, the most first."""
    ordered = sorted(sizes, key=lambda name: -_largest(sizes[name]))
    yield ordered
    yield [name for name in ordered if _largest(sizes[name]) >= 256]
    yield [name for name in ordered if "batch" in name.lower()]
    for name in ordered:
        yield [name]


def _largest(value: Any) -> int:
    return max(value) if isinstance(value, tuple | list) else int(value)


def _scale(value: Any, scale: float) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_scale(number, scale) for number in value)
    if value < SIZE:
        return value
    scaled = max(1, round(value * scale))
    return max(SIZE, scaled // SIZE * SIZE) if value % SIZE == 0 else scaled
