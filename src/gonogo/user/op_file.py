"""A file with an op in it → the op, its functions loaded from the file wherever they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gonogo.errors import InputError, suggest
from gonogo.ops import InFile, OfOp, Op, load_file
from gonogo.user import own_op
from gonogo.user.target import split_target
from gonogo.words import need_torch

DRAWS = ("draw", "get_inputs")
"""What draws the arguments of a reference that stands in a file without an op, by name."""


def find_op_file(target: str) -> Op:
    """`FILE` or `FILE:NAME` → an op of that name, or of a reference of that name beside its draw(seed, dtype).

    The file is run here and in workers. By default it is the only op there, or the function `reference`.
    """
    need_torch("an op of a file")
    path, name = split_target(target)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    where = str(path.resolve())
    module = load_file(where)
    name = name or _choose(module, path)
    known = [public for public in vars(module) if not public.startswith("_")]
    if name not in known:
        raise InputError(f"{path} has no {name!r}{suggest(name, known)}")
    value = getattr(module, name)
    if isinstance(value, Op):
        return _settle(value, where, name)
    if not callable(value):
        kind = type(value).__name__
        raise InputError(f"{path}: {name} is {kind}; give a gonogo.Op, or a reference beside draw(seed, dtype)")
    return _make_op(value, where, name, known, path)


def ask_gradients(op: Op) -> Op:
    """The same, with the gradients of all floating arguments judged, too."""
    if not op.is_own or op.out or op.mutates:
        raise InputError("--grads goes with --op-file and --reference, and kernels that return their outputs")
    return replace(op, grads=True, is_nest=True)


def _choose(module: Any, path: Path) -> str:
    ops = [name for name, value in vars(module).items() if isinstance(value, Op)]
    if len(ops) == 1 or (not ops and hasattr(module, "reference")):
        return ops[0] if ops else "reference"
    problem = f"has {len(ops)} ops: {', '.join(ops)}" if ops else "has no gonogo.Op and no function 'reference'"
    raise InputError(f"{path} {problem}. Name one: {path}:NAME")


def _settle(op: Op, where: str, name: str) -> Op:
    """The same, its functions to be had in any process."""
    reference = OfOp(where, name, "reference")
    kernels = tuple(replace(kernel, source=reference) for kernel in op.kernels)
    draw = None if op.draw is None else OfOp(where, name, "draw")
    return replace(op, reference=reference, draw=draw, kernels=kernels)


def _make_op(reference: Callable[..., Any], where: str, name: str, known: list[str], path: Path) -> Op:
    draws = [draw for draw in DRAWS if draw in known]
    if not draws:
        raise InputError(
            f"{path}: {name} has no inputs: write draw(seed, dtype) beside it, which gives its arguments, or "
            "make it a gonogo.Op"
        )
    source = InFile(where, draws[0])
    op = own_op.Op(own_op.name_op(reference), reference=reference, inputs=source.load())
    kernels = tuple(replace(kernel, source=InFile(where, name)) for kernel in op.kernels)
    return replace(op, reference=InFile(where, name), draw=source, kernels=kernels)
