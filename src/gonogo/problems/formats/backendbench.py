"""BackendBench: recorded arguments of torch's ops, as text; a solution has OP__OVERLOAD_kernel_impl.

A file has `Operator: aten.add.Tensor` and below it lines as `cnt: 2, ((T([5, 3], f16), 1), {'alpha': 2})`. Which of
its ops is meant follows from the solution's function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from gonogo.errors import InputError
from gonogo.guest.arguments import Call
from gonogo.guest.nests import list_leaves
from gonogo.parsing import parse_source
from gonogo.problems.problem import (
    OWN_SEEDS,
    Options,
    Problem,
    Solution,
    find_dtype,
    list_bound,
    make_kernel_file,
    make_op,
    name_problem,
    read_text,
)
from gonogo.problems.values import cast_nest, vary_nest
from gonogo.user.target import split_target

NAME = "backendbench"
KNOWN_BY = "a text with lines `Operator: aten.OP.OVERLOAD` and recorded arguments below them"
OPERATOR = re.compile(r"^Operator:\s*(aten\.\w+\.\w+|aten\.\w+)\s*$")
SUFFIX = "_kernel_impl"
TOLERANCE = 1e-2
DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "b8": "bool",
}  # fmt: skip
MOST = 12
"""Recorded calls of an op that are run."""


def detect(path: Path) -> bool:
    """By a line that names an op."""
    if not path.is_file() or path.suffix not in (".txt", ""):
        return False
    try:
        return any(OPERATOR.match(line) for line in read_text(path, "problem").splitlines()[:200])
    except InputError:
        return False


def list_problems(path: Path) -> list[Path]:
    """Files of recorded arguments."""
    return sorted(file for file in path.rglob("*.txt") if detect(file))


@lru_cache(maxsize=8)
def read_recorded(where: str) -> dict[str, list[str]]:
    """By op, the arguments that were recorded, as text."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in read_text(Path(where), "problem").splitlines():
        if named := OPERATOR.match(line):
            name = named[1] if named[1].count(".") == 2 else f"{named[1]}.default"
            current = found.setdefault(name, [])
        elif "(" in line:
            current.append(line[line.index("(") :].strip())
    return found


def choose(path: Path, target: str, options: Options) -> Options:
    """The op that a solution's function is named after."""
    file, name = split_target(target)
    bound = [name] if name else list_bound(read_text(file, "solution"), file)
    for op in read_recorded(str(path.resolve())):
        if name_function(op) in bound:
            return replace(options, op=op)
    own = next((each for each in bound if each.endswith(SUFFIX)), None)
    told = f"has {own}, of an op that {path} has not" if own else f"has no function OP__OVERLOAD{SUFFIX}"
    raise InputError(f"{file} {told}")


def name_function(op: str) -> str:
    """What a solution's function is called.

    >>> name_function("aten.add.Tensor")
    'add__Tensor_kernel_impl'
    """
    _, name, overload = op.split(".")
    return f"{name}__{overload}{SUFFIX}"


def open_problems(path: Path, options: Options) -> list[Problem]:
    """The problem of the op that is asked for; of all of them, where none is."""
    where = str(path.resolve())
    recorded = read_recorded(where)
    chosen = [options.op] if options.op else list(recorded)
    return [_open(where, replace(options, op=op), recorded) for op in chosen]


def _open(where: str, options: Options, recorded: Mapping[str, list[str]]) -> Problem:
    op = str(options.op)
    drawn = make_draw(where, options)(OWN_SEEDS)
    name, count = name_problem(op), min(MOST, len(recorded[op]))
    return Problem(
        name, NAME, make_op(name, __name__, where, options, dtype=find_dtype(drawn)),
        f"assert_close(atol = rtol = {TOLERANCE:g}) on recorded arguments",
        tuple(range(OWN_SEEDS, OWN_SEEDS + count)), partial(read_solution, op),
    )  # fmt: skip


def make_reference(where: str, options: Options) -> Callable[..., Any]:
    """The op itself."""
    _, name, overload = str(options.op).split(".")
    try:
        reference: Callable[..., Any] = getattr(getattr(torch.ops.aten, name), overload)
    except AttributeError:
        raise InputError(f"{where}: this torch has no op {options.op}") from None
    return reference


def make_draw(where: str, options: Options) -> Callable[..., Any]:
    """Recorded arguments, with values drawn by the seed."""
    lines = read_recorded(where).get(str(options.op), [])[:MOST]
    if not lines:
        raise InputError(f"{where} has no recorded arguments of {options.op}")

    def draw(seed: int) -> Call:
        args, kwargs = parse_arguments(lines[seed % len(lines)], where)
        drawn = Call(args, kwargs, name_places(str(options.op), len(args)))
        drawn = drawn if options.dtype is None else cast_nest(drawn, options.dtype)
        return vary_nest(drawn, seed) if options.vary else drawn

    return draw


def name_places(op: str, count: int) -> tuple[str, ...]:
    """Names that an op's schema has for its first arguments."""
    _, name, overload = op.split(".")
    schema = getattr(getattr(torch.ops.aten, name), overload)._schema
    return tuple(argument.name for argument in schema.arguments)[:count]


def parse_arguments(line: str, where: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by place and by name, of a text that is evaluated as literals and T(shape, dtype) alone."""
    try:
        args, kwargs = _evaluate(parse_source(line, mode="eval").body)
        return tuple(args), dict(kwargs)
    except (SyntaxError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{where}: {line[:80]!r} are no recorded arguments: {error}") from None


def _evaluate(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(map(_evaluate, node.elts))
    if isinstance(node, ast.List):
        return [_evaluate(part) for part in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_evaluate(key): _evaluate(value) for key, value in pairs if key is not None}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "T":
        return _draw_tensor(*map(_evaluate, node.args))
    if isinstance(node, ast.Name):
        return node.id  # a dtype's short name
    return ast.literal_eval(node)


def _draw_tensor(shape: list[int], dtype: str, strides: list[int] | None = None) -> torch.Tensor:
    wanted = getattr(torch, DTYPES[dtype])
    if wanted is torch.bool:
        made = torch.rand(shape) > 0.5
    elif wanted.is_floating_point:
        made = torch.randn(shape).to(wanted)
    else:
        made = torch.randint(0, 8, shape).to(wanted)
    if strides is None:
        return made
    laid_out = torch.empty_strided(shape, strides, dtype=wanted)
    laid_out.copy_(made)
    return laid_out


def make_check(where: str, options: Options) -> Callable[[Call, Mapping[str, Any]], bool]:
    """assert_close, leaf by leaf."""
    reference = make_reference(where, options)

    def check(call: Call, leaves: Mapping[str, Any]) -> bool:
        expected = [x for _, x in list_leaves(reference(*call.args, **call.kwargs)) if isinstance(x, torch.Tensor)]
        outputs = [x for x in leaves.values() if isinstance(x, torch.Tensor)]
        pairs = zip(outputs, expected, strict=True)
        return all(x.dtype == y.dtype and tolerates(x.to(y.device), y) for x, y in pairs)

    return check


def tolerates(output: torch.Tensor, expected: torch.Tensor, dtype: str = "") -> bool:
    """Close by the benchmark's tolerance, NaN for NaN."""
    if output.shape != expected.shape:
        return False
    return bool(torch.allclose(output.double(), expected.double(), atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True))


def read_solution(op: str, target: str) -> Solution:
    """OP__OVERLOAD_kernel_impl of a file."""
    path, name = split_target(target)
    text = read_text(path, "solution")
    return Solution(make_kernel_file(path, text, function=name or name_function(op)), path.stem)
