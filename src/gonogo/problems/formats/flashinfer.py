"""FlashInfer-Bench and SOL-ExecBench: a definition in JSON, workloads beside it, a solution in JSON with sources.

Workloads are looked for in the folder of a trace set, workloads/…/NAME.jsonl. Without any, sizes are small, and
integers are drawn by what their names say: offsets ascend, indices point to what there is.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gonogo.errors import BadKernelFile, InputError
from gonogo.guest.arguments import Call
from gonogo.ops import INPUT_DTYPES, Out, evaluate
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
from gonogo.problems.safetensors import read_tensor
from gonogo.problems.source import run_source
from gonogo.problems.values import rebuild, vary_nest
from gonogo.user.kernel_file import KernelFile

if TYPE_CHECKING:
    import torch

NAME = "flashinfer"
KNOWN_BY = "a JSON file with axes, inputs, outputs and a reference"
PYTHON = ("python", "triton", "pytorch", "tilelang", "cute_dsl", "cutedsl", "")
TOLERANCE = 1e-2
SMALL = 5
"""Of an axis that no workload names; sequences and batches are smaller, so that their offsets end there."""
BATCH = 2


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


class Definition:
    """A definition with its workloads, and its reference once it has run."""

    def __init__(self, where: str) -> None:
        self.path = Path(where)
        told = json.loads(read_text(self.path, "definition"))
        self.name = str(told.get("name") or self.path.stem)
        self.axes, self.inputs, self.outputs = told["axes"], told["inputs"], told["outputs"]
        self.reference, self.custom = str(told["reference"]), told.get("custom_inputs_entrypoint")
        self.constraints = [str(each) for each in told.get("constraints") or []]
        for part in ("axes", "inputs", "outputs"):
            if not isinstance(told[part], dict) or not all(isinstance(each, dict) for each in told[part].values()):
                raise InputError(f"{where}: {part} is no mapping of names to what is said of each")
        for name, facts in (self.inputs | self.outputs).items():
            if "dtype" not in facts:
                raise InputError(f"{where}: {name} has no dtype")
        self.workloads = _read_workloads(self.path, self.name)

    def load(self, device: str) -> ModuleType:
        """Its reference as a module, which has run()."""
        import torch

        beside = (str(self.path.parent),)
        known = {"math": math, "torch": torch}
        module = run_source(self.reference, f"{self.path}#reference", device, beside, known)
        if not callable(getattr(module, "run", None)):
            raise BadKernelFile(str(self.path), "has a reference without run()")
        return module

    def size_axes(self, workload: Mapping[str, Any] | None) -> dict[str, int]:
        """The size of every axis: by a workload, or small."""
        told = {} if workload is None else {name: int(size) for name, size in workload.get("axes", {}).items()}
        sizes = {name: int(axis["value"]) for name, axis in self.axes.items() if axis.get("type") == "const"}
        for name, axis in self.axes.items():
            if name not in sizes and axis.get("type") != "expr":
                sizes[name] = told[name] if name in told else self._choose_size(name, sizes)
        for name, axis in self.axes.items():
            if axis.get("type") == "expr":
                sizes[name] = evaluate(str(axis.get("expression") or axis.get("value")), sizes)
        return sizes

    def _choose_size(self, name: str, sizes: Mapping[str, int]) -> int:
        """A small size, one more than a batch where a constraint says so."""
        for constraint in self.constraints:
            if found := re.fullmatch(rf"{name} == (\w+) \+ 1", constraint):
                return sizes.get(found[1], BATCH) + 1
        if name.startswith("len_") or name.endswith("_indptr"):
            return BATCH + 1
        return BATCH if "batch" in name or name in ("num_seqs", "B") else SMALL + ("pages" in name)


@lru_cache(maxsize=16)
def read_definition(where: str) -> Definition:
    """Once for each process."""
    return Definition(where)


def _read_workloads(path: Path, name: str) -> list[dict[str, Any]]:
    """Of a trace set's folder, or of a file of the same name beside the definition."""
    beside = [path.with_suffix(".jsonl"), *path.parent.glob(f"workloads/**/{name}.jsonl")]
    for parent in list(path.resolve().parents)[:4]:
        if (parent / "workloads").is_dir():
            beside += sorted((parent / "workloads").rglob(f"{name}.jsonl"))
            break
    file = next((file for file in beside if file.is_file()), None)
    if file is None:
        return []
    found = []
    for number, line in enumerate(read_text(file, "workloads").splitlines(), 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            told = told.get("workload", told)
            found.append({"axes": told["axes"], "inputs": told["inputs"], "root": str(_find_root(file)),
                          "uuid": str(told.get("uuid", number)), "tolerance": told.get("tolerance")})  # fmt: skip
        except (ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{file} line {number} is no workload: {type(error).__name__} {error}") from None
    return found


def _find_root(file: Path) -> Path:
    """The folder that paths of tensors begin in: that of the trace set."""
    return next((parent.parent for parent in file.resolve().parents if parent.name == "workloads"), file.parent)


def open_problems(path: Path, options: Options) -> list[Problem]:
    """The problem of a definition."""
    where = str(path.resolve())
    definition = read_definition(where)
    drawn = make_draw(where, options)(OWN_SEEDS)
    name = name_problem(definition.name)
    own = len(definition.workloads) or 1
    reference, names = make_reference(where, replace(options, device="cpu")), list(definition.inputs)
    changed = find_changed(reference, drawn, names)
    op = make_op(
        name, __name__, where, options, dtype=find_dtype(drawn), leaves=_list_leaves(definition), scratch=changed
    )
    notes = [] if definition.workloads else ["there are no workloads: sizes and integers are gonogo's choice"]
    notes += [tell_unjudged(changed)] if changed else []
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
    definition = read_definition(where)
    run = definition.load(options.device).run

    taken = list(inspect.signature(run).parameters)
    by_name = all(name in definition.inputs for name in taken)  # it may leave out what only a kernel needs

    def reference(*args: Any) -> Any:
        named = dict(zip(definition.inputs, args, strict=True))
        returned = run(*(named[name] for name in taken)) if by_name else run(*args)
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
    definition = read_definition(where)

    def draw(seed: int) -> tuple[Any, ...]:
        loads = definition.workloads
        workload = loads[(seed - OWN_SEEDS if seed >= OWN_SEEDS else seed) % len(loads)] if loads else None
        drawn = draw_inputs(definition, workload, seed)
        return tuple(vary_nest(drawn, seed) if options.vary else drawn)

    return draw


def draw_inputs(definition: Definition, workload: Mapping[str, Any] | None, seed: int) -> list[Any]:
    """All inputs, in order."""
    sizes = definition.size_axes(workload)
    told = {} if workload is None else dict(workload["inputs"])
    drawn: dict[str, Any] = {}
    if any(facts.get("type") == "custom" for facts in told.values()) or (workload is None and definition.custom):
        module = definition.load("cpu")
        entry = getattr(module, str(definition.custom), None)
        if not callable(entry):
            raise BadKernelFile(str(definition.path), f"has no custom_inputs_entrypoint {definition.custom!r}")
        drawn = dict(entry(sizes, "cpu"))
    for name, facts in definition.inputs.items():
        if name not in drawn:
            drawn[name] = _draw_input(definition, name, facts, told.get(name, {}), sizes, workload)
    return [drawn[name] for name in definition.inputs]


def _draw_input(
    definition: Definition,
    name: str,
    facts: Mapping[str, Any],
    told: Mapping[str, Any],
    sizes: Mapping[str, int],
    workload: Mapping[str, Any] | None,
) -> Any:
    kind, dtype = told.get("type", "random"), str(facts["dtype"])
    if kind == "scalar":
        return told["value"]
    if kind == "safetensors":
        file = Path(str((workload or {})["root"])) / str(told["path"])
        if not file.is_file():
            raise InputError(f"{definition.name}: workload {(workload or {}).get('uuid')} misses {file}")
        return read_tensor(file, str(told["tensor_key"]))
    if facts.get("shape") is None:
        return _choose_scalar(name, dtype)
    shape = [size if isinstance(size, int) else _find_size(str(size), sizes) for size in facts["shape"]]
    return draw_tensor(name, dtype, shape, definition)


def _find_size(axis: str, sizes: Mapping[str, int]) -> int:
    return sizes[axis] if axis in sizes else evaluate(re.sub(r"(?<!/)/(?!/)", "//", axis), sizes)


def _choose_scalar(name: str, dtype: str) -> Any:
    if dtype == "bool":
        return True
    if "int" in dtype:
        return 1
    return 0.125 if "scale" in name else 0.5


def draw_tensor(name: str, dtype: str, shape: Sequence[int], definition: Definition) -> torch.Tensor:
    """Values by dtype and, of integers, by what their name says that they are."""
    import torch

    wanted = getattr(torch, dtype, None)
    if wanted is None:
        raise InputError(f"{definition.path}: {name} is {dtype}, which this torch has not")
    if dtype == "bool":
        return torch.rand(shape) > 0.5
    if not wanted.is_floating_point:
        return _draw_integers(name, dtype, shape).to(wanted)
    if dtype.startswith("float8"):
        return torch.randn(shape).clamp_(-2, 2).to(wanted)
    positive = any(word in name for word in ("scale", "probs", "weight_sf"))
    return (torch.rand(shape) + 0.1 if positive else torch.randn(shape)).to(wanted)


def _draw_integers(name: str, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    import torch

    count = math.prod(shape)
    if any(word in name for word in ("indptr", "cu_seqlens", "offsets", "cu_seq")):
        return torch.tensor([math.ceil(SMALL * at / max(count - 1, 1)) for at in range(count)]).reshape(shape)
    if "last_page" in name:
        return torch.ones(shape, dtype=torch.int64)
    if "lens" in name or "seq_len" in name:
        return torch.full(shape, 3)
    return torch.randint(0, 100 if dtype in ("int8", "uint8") else SMALL, shape)


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
