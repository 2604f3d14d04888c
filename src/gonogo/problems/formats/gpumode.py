"""GPU MODE: a folder with task.yml and reference.py (generate_input, ref_kernel); a solution has custom_kernel.

Inputs are drawn on the CPU, so that a case has the same bits everywhere. `data`, the one argument, may hold buffers
that a kernel is to fill: what it returns is judged, whatever it writes there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from gonogo.errors import BackendMissing, BadKernelFile, InputError
from gonogo.guest.arguments import Call
from gonogo.guest.nests import list_leaves, map_leaves
from gonogo.ops import InFile
from gonogo.problems.problem import (
    OWN_SEEDS,
    Options,
    Problem,
    Solution,
    find_dtype,
    find_stored,
    make_kernel_file,
    make_op,
    name_problem,
    need_bound,
    read_text,
    tell_unjudged,
)
from gonogo.problems.source import run_source
from gonogo.problems.values import Filled, rebuild, vary_nest
from gonogo.user.target import split_target

NAME = "gpumode"
KNOWN_BY = "a folder with task.yml and reference.py"
TASK = "task.yml"
TAKES_REFERENCE = True
"""Its references may call a vendor's library: --reference gives a twin in plain torch."""


def detect(path: Path) -> bool:
    """By the files of a folder."""
    return path.is_dir() and (path / TASK).is_file() and (path / "reference.py").is_file()


def list_problems(path: Path) -> list[Path]:
    """Of a checkout, all folders with a task."""
    return sorted(file.parent for file in path.rglob(TASK) if detect(file.parent))


@dataclass(frozen=True)
class Task:
    """What task.yml says."""

    tests: Sequence[Mapping[str, Any]]
    """Keyword arguments of generate_input."""
    folders: tuple[str, ...]
    """Where its files lie."""


@lru_cache(maxsize=8)
def read_task(where: str) -> Task:
    """Tests and files; refused where there is none."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise BackendMissing("PyYAML", "a problem with task.yml", extra="benchmarks") from None
    try:
        told = yaml.safe_load(read_text(Path(where), "task"))
    except yaml.YAMLError as error:
        raise InputError(f"{where} is no YAML: {str(error).partition(chr(10))[0]}") from None
    tests = told.get("tests") if isinstance(told, dict) else None
    if not isinstance(tests, list) or not tests or not all(isinstance(test, dict) for test in tests):
        raise InputError(f"{where} has no tests, a list of arguments of generate_input")
    folder = Path(where).resolve().parent
    files = told.get("files") or []
    sources = [str(file.get("source", "")) for file in files if isinstance(file, dict)]
    beside = [str((folder / source).resolve().parent) for source in sources if source.endswith(".py")]
    return Task(tests, tuple(dict.fromkeys([str(folder), *beside])))


@lru_cache(maxsize=4)
def _open(where: str, device: str) -> ModuleType:
    file = Path(where).with_name("reference.py")
    module = run_source(read_text(file, "reference"), str(file), device, read_task(where).folders)
    for name in ("generate_input", "ref_kernel"):
        if not callable(getattr(module, name, None)):
            raise BadKernelFile(str(file), f"has no {name}")
    return module


def open_problems(path: Path, options: Options) -> list[Problem]:
    """The problem of a folder, with its tests for its own cases."""
    where = str((path / TASK).resolve())
    task = read_task(where)
    reference = make_reference(where, options)
    taken = next(iter(inspect.signature(reference).parameters), "data")
    drawn = make_draw(where, options)(OWN_SEEDS)
    name, count = name_problem(path.resolve().name), len(task.tests)
    stored = find_stored(make_reference(where, replace(options, device="cpu")), drawn, (taken,))
    return [Problem(
        name, NAME, make_op(name, __name__, where, options, dtype=find_dtype(drawn), scratch=(taken,)),
        f"its check_implementation, on {count} tests", tuple(range(OWN_SEEDS, OWN_SEEDS + count)),
        partial(read_solution, where), stored,
        notes=("inputs are drawn on the CPU", tell_unjudged((taken,))),
    )]  # fmt: skip


def make_reference(where: str, options: Options) -> Callable[..., Any]:
    """ref_kernel, or the twin that is named for it."""
    if options.reference is not None:
        path, name = split_target(options.reference)
        return InFile(str(path.resolve()), name or "ref_kernel").load()
    reference: Callable[..., Any] = _open(where, options.device).ref_kernel
    return reference


def make_draw(where: str, options: Options) -> Callable[..., Any]:
    """generate_input, by the arguments of a test: with its own seed, or with that of a fresh case."""
    generate, tests = _open(where, "cpu").generate_input, read_task(where).tests
    has_seed = "seed" in inspect.signature(generate).parameters

    def draw(seed: int) -> tuple[Any, ...]:
        arguments = dict(tests[(seed - OWN_SEEDS if seed >= OWN_SEEDS else seed) % len(tests)])
        if seed < OWN_SEEDS and has_seed:
            arguments["seed"] = seed % 2**31
        with Filled():
            drawn = generate(**arguments)
        return (vary_nest(drawn, seed) if options.vary else drawn,)

    return draw


def make_check(where: str, options: Options) -> Callable[[Call, Mapping[str, Any]], bool]:
    """The benchmark's own function, of inputs and output."""
    import torch

    module = _open(where, options.device)

    def check(call: Call, leaves: Mapping[str, Any]) -> bool:
        own = getattr(module, "check_implementation", None)
        if own is None:
            return True
        copied = map_leaves(lambda path, x: x.clone() if isinstance(x, torch.Tensor) else x, call.args[0])
        device = next((x.device for _, x in list_leaves(copied) if isinstance(x, torch.Tensor)), "cpu")
        output = {path: x.to(device) if isinstance(x, torch.Tensor) else x for path, x in leaves.items()}
        told = own(copied, rebuild(output))
        return bool(told[0]) if isinstance(told, tuple) else not told

    return check


def read_solution(where: str, target: str) -> Solution:
    """custom_kernel of a file, which may import what lies beside the task."""
    path, name = split_target(target)
    text = read_text(path, "solution")
    found = need_bound(text, path, (name or "custom_kernel",), "solution of this problem")
    kernel = make_kernel_file(path, text, function=found, folders=read_task(where).folders)
    return Solution(kernel, path.stem)
