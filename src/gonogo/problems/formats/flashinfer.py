"""FlashInfer-Bench and SOL-ExecBench: a definition in JSON, workloads beside it, solutions in JSON with sources."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.errors import InputError
from gonogo.guest.arguments import Call
from gonogo.ops import INPUT_DTYPES, Out
from gonogo.problems.definition import Definition, draw_inputs, read_definition
from gonogo.problems.problem import (
    OWN_SEEDS,
    SOLUTION,
    Options,
    Problem,
    Solution,
    find_changed,
    find_dtype,
    find_stored,
    make_kernel_file,
    make_op,
    name_problem,
    need_bound,
    read_text,
    tell_unjudged,
)
from gonogo.problems.values import rebuild, vary_nest
from gonogo.user.kernel_file import KernelFile

if TYPE_CHECKING:
    import torch

NAME = "flashinfer"
KNOWN_BY = "a JSON file with axes, inputs, outputs and a reference"
PYTHON = ("python", "triton", "pytorch", "tilelang", "cute_dsl", "cutedsl", "")
TOLERANCE = 1e-2


def detect(path: Path) -> bool:
    """By the keys of a JSON file."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        told = json.loads(read_text(path, "definition"))
    except (ValueError, RecursionError, InputError):
        return False
    return isinstance(told, dict) and all(key in told for key in ("axes", "inputs", "outputs", "reference"))


def list_problems(path: Path) -> list[Path]:
    """Of a trace set, its definitions."""
    return sorted(file for file in path.rglob("*.json") if detect(file))


def open_problems(path: Path, options: Options) -> list[Problem]:
    """The problem of a definition."""
    where = str(path.resolve())
    definition = read_definition(where, options.scale, options.drawn_on)
    drawn = make_draw(where, options)(OWN_SEEDS)
    name = name_problem(definition.name)
    own = len(definition.workloads) or 1
    reference, names = make_reference(where, replace(options, device=options.drawn_on)), list(definition.inputs)
    changed = find_changed(reference, drawn, names)
    op = make_op(
        name, __name__, where, options, dtype=find_dtype(drawn), leaves=_list_leaves(definition), scratch=changed
    )
    notes = [] if definition.workloads else ["there are no workloads: sizes and integers are gonogo's choice"]
    notes += [tell_unjudged(changed)] if changed else []
    if options.scale != 1:
        notes.append(f"sizes are {options.scale:g} times its own: {definition.tell_shrunk()}")
    return [Problem(
        name, NAME, op,
        f"an element fails where |error| > {TOLERANCE:g} and relative error > {TOLERANCE:g}",
        tuple(range(OWN_SEEDS, OWN_SEEDS + own)), partial(read_solution, definition),
        find_stored(reference, drawn, names), tuple(notes),
        workloads=tuple({key: each[key] for key in ("uuid", "axes", "inputs")} for each in definition.workloads),
    )]  # fmt: skip


def _list_leaves(definition: Definition) -> dict[str, Out]:
    """The dtypes that outputs must have."""
    known = [str(facts["dtype"]) for facts in definition.outputs.values()]
    declared = [Out(dtype) if dtype in INPUT_DTYPES else None for dtype in known]
    if len(declared) == 1:
        return {} if declared[0] is None else {"": declared[0]}
    return {str(at): out for at, out in enumerate(declared) if out is not None}


def make_reference(where: str, options: Options) -> Callable[..., Any]:
    """run() of the definition; what it returns by name comes in the order of the outputs."""
    definition = read_definition(where, options.scale, options.drawn_on)
    run = definition.order(definition.load(options.device).run)

    def reference(*args: Any) -> Any:
        returned = run(*args)
        if isinstance(returned, Mapping):
            returned = tuple(returned[name] for name in definition.outputs)
        outputs = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
        return outputs[0] if len(definition.outputs) == 1 and len(outputs) == 1 else outputs

    if all(name.isidentifier() for name in definition.inputs):
        parameters = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in definition.inputs
        ]
        reference.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return reference


def make_draw(where: str, options: Options) -> Callable[..., Any]:
    """The inputs of a workload: tensors of files as they are, all others by the case's seed."""
    definition = read_definition(where, options.scale, options.drawn_on)

    def draw(seed: int) -> tuple[Any, ...]:
        loads = definition.workloads
        workload = loads[(seed - OWN_SEEDS if seed >= OWN_SEEDS else seed) % len(loads)] if loads else None
        drawn = draw_inputs(definition, workload, options.drawn_on)
        return tuple(vary_nest(drawn, seed) if options.vary else drawn)

    return draw


def make_check(where: str, options: Options) -> Callable[[Call, Mapping[str, Any]], bool]:
    """Shapes, dtypes and finite values; then no element off by more than both tolerances."""
    import torch

    reference = make_reference(where, options)

    def check(call: Call, leaves: Mapping[str, Any]) -> bool:
        expected = reference(*[x.clone() if isinstance(x, torch.Tensor) else x for x in call.args])
        output = rebuild(dict(leaves))
        pairs = zip(_as_tuple(output), _as_tuple(expected), strict=True)
        return all(_passes(torch.as_tensor(one), torch.as_tensor(other)) for one, other in pairs)

    return check


def _as_tuple(nest: Any) -> tuple[Any, ...]:
    return (
        tuple(nest)
        if isinstance(nest, tuple | list)
        else tuple(nest.values())
        if isinstance(nest, dict)
        else (nest,)
    )


def _passes(output: torch.Tensor, expected: torch.Tensor) -> bool:
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return False
    return tolerates(output, expected)


def tolerates(output: torch.Tensor, expected: torch.Tensor, dtype: str = "") -> bool:
    """Finite, and no element off by more than both tolerances."""
    x, y = output.float().to(expected.device), expected.float()
    if not bool(x.isfinite().all()):
        return False
    error = (x - y).abs()
    return not bool(((error > TOLERANCE) & (error / (y.abs() + 1e-8) > TOLERANCE)).any())


def read_solution(definition: Definition, target: str) -> Solution:
    """A solution in JSON, its sources in a folder of its own; or a Python file with run()."""
    path = Path(target)
    text = read_text(path, "solution")
    if path.suffix != ".json":
        need_bound(text, path, ("run",), "solution")
        return Solution(make_kernel_file(path, text, _order_outputs("run", definition)), path.stem)
    try:
        told = json.loads(text)
        spec, sources = told.get("spec", {}), {str(file["path"]): str(file["content"]) for file in told["sources"]}
        entry = str(spec.get("entry_point") or "main.py::run")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no solution: {type(error).__name__} {error}") from None
    if told.get("definition") not in (None, definition.name):
        raise InputError(f"{path} is a solution of {told['definition']}, not of {definition.name}")
    language = spec.get("language", "")
    languages = [str(each).lower() for each in (language if isinstance(language, list) else [language])]
    file, _, function = entry.partition("::")
    if not file.endswith(".py") or not all(each in PYTHON for each in languages):
        raise InputError(
            f"{path} is in {', '.join(languages)}: only sources in Python are run, Triton's among them"
        )
    if file not in sources:
        raise InputError(f"{path}: the entry point {entry!r} is in none of its sources {', '.join(sources)}")
    need_bound(sources[file], path, (function or "run",), "solution of this problem")
    held = _write_sources(sources)
    folder = Path(held.name).resolve()
    hands = bool(spec.get("destination_passing_style", True))
    ordered = _order_outputs(function or "run", definition)
    kernel = KernelFile(
        folder / file, (function or "run") if hands else SOLUTION, sources[file] + ("" if hands else ordered),
        (str((folder / file).parent), str(folder)),
    )  # fmt: skip
    name = str(told.get("name") or path.stem)
    return Solution(kernel, name, hands_outputs=hands, folder=held)


EPILOGUE = """

def _gonogo_solution(*args):
    returned = {function}(*args)
    return tuple(returned[name] for name in {names}) if isinstance(returned, dict) else returned
"""
"""Behind a solution's source: what it returns by name comes in the order of the outputs."""


def _order_outputs(function: str, definition: Definition) -> str:
    return EPILOGUE.format(function=function, names=list(definition.outputs))


def _write_sources(sources: Mapping[str, str]) -> tempfile.TemporaryDirectory[str]:
    """Files of a solution, where it may import them from."""
    for name in sources:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise InputError(f"a source has the path {name!r}, which leads out of its folder")
    held = tempfile.TemporaryDirectory(prefix="gonogo-solution-")
    for name, content in sources.items():
        file = Path(held.name) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return held
