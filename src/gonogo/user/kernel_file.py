"""A file and an op → the function in it to check, found without running the file."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gonogo.errors import InputError, suggest
from gonogo.parsing import parse_source
from gonogo.user.target import split_target

UNSEEN = ("__import__", "exec(", "eval(", "sys.modules", "inductor", "torch.compile", "triton")
"""Of a source's words, those by which more may run than its imports tell."""
WITHOUT_TRITON = frozenset({"torch", "numpy", "ml_dtypes"})


@dataclass(frozen=True)
class KernelFile:
    """A function in a file, found without running the file."""

    path: Path
    function: str
    text: str
    """Read once: this is what runs."""
    folders: tuple[str, ...] = ()
    """Where it may import from, besides what is installed."""
    told: str = ""
    """What a user calls it by, where that is not a file and a function."""

    @property
    def target(self) -> str:
        """What `gonogo check` takes for it."""
        return self.told or f"{self.path}:{self.function}"


def find_kernel(target: str, op: str) -> KernelFile:
    """`FILE` or `FILE:FUNC` → the function. By default the only public one, or the one named like the op."""
    path, function = split_target(target)
    if not target.partition(":")[0] or target.endswith(":"):
        missing = "function" if target.partition(":")[0] else "file"
        raise InputError(f"{target!r} names no {missing}; write FILE, or FILE:FUNC")
    text = decode_source(path)
    return find_in_text(text, path.resolve(), function, op, folders=(str(path.resolve().parent), str(Path.cwd())))


def decode_source(path: Path) -> str:
    """The text of a file of Python; refused where there is none."""
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} is no Python: {error.args[0]}") from None


def find_in_text(text: str, path: Path, function: str | None, op: str, folders: tuple[str, ...] = ()) -> KernelFile:
    """The function of a source; by default the only public one, or the one named like the op."""
    text = text.removeprefix("\ufeff")
    try:
        tree = parse_source(text)
        if function:
            _check_function(tree, path, function)
        return KernelFile(path, function or _choose_function(tree, path, op), text, folders)
    except InputError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise InputError(f"{path}{where} is no Python: {next(iter(error.args), 'nested too deeply')}") from None


def may_launch_triton(text: str) -> bool:
    """Whether a source imports anything but Python's own modules, torch and NumPy, or might do so unseen."""
    if any(word in text for word in UNSEEN):
        return True
    roots = set()
    for node in ast.walk(parse_source(text)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add("" if node.level else str(node.module).partition(".")[0])
    return not roots <= (sys.stdlib_module_names | WITHOUT_TRITON) - {"importlib"}


def _decode(source: bytes) -> str:
    """A source as Python reads it, by its mark or its coding line."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    return io.TextIOWrapper(io.BytesIO(source), encoding).read()


def _check_function(tree: ast.Module, path: Path, function: str) -> None:
    known = list(_list_names(tree))
    if function.partition(".")[0] not in known:
        public = _list_public(tree)
        near = suggest(function, known)
        there = f" Its functions: {', '.join(public)}" if public and not near else ""
        raise InputError(f"{path} has no function {function!r}{near or '.'}{there}")


def _choose_function(tree: ast.Module, path: Path, op: str) -> str:
    public = _list_public(tree)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    if op in public or (op in _list_names(tree) and op not in classes):  # a lambda, or what a call returns
        return op
    if len(public) == 1:
        return public[0]
    if not public and classes:
        raise InputError(
            f"{path} has the class {classes[-1]} and no public function. Name an instance of it in the file, "
            f"model = {classes[-1]}(…), and give {path}:model"
        )
    if not public:
        raise InputError(f"{path} defines no public function. Name one of another kind: {path}:FUNC")
    raise InputError(
        f"{path} has {len(public)} functions, none of them named {op}: {', '.join(public)}. "
        f"Name one: {path}:{public[0]}"
    )


def _list_public(tree: ast.Module) -> list[str]:
    """Functions that can be called: those under a jit decorator are launched by others."""
    return [
        node.name for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        and not any(ast.unparse(decorator).partition("(")[0].endswith(("jit", "autotune", "heuristics"))
                    for decorator in node.decorator_list)
    ]  # fmt: skip


def _list_names(tree: ast.AST) -> Iterator[str]:
    """All that the file may bind at its top level, under an `if` or `try` too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name  # what it holds is not bound outside
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        yield from _list_names(node)
