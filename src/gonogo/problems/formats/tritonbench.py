"""TritonBench-T: a file of a function, a line of #, and tests that call it; solutions are files of the same form.

Its own check compares what two tests print, which is nothing: whatever runs passes.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from gonogo.cases.call import name_arguments
from gonogo.errors import BadKernelFile, InputError
from gonogo.guest.arguments import Call
from gonogo.problems.problem import (
    OWN_SEEDS,
    Options,
    Problem,
    Solution,
    find_changed,
    find_dtype,
    find_stored,
    list_bound,
    make_kernel_file,
    make_op,
    name_problem,
    need_bound,
    read_text,
    tell_unjudged,
)
from gonogo.problems.source import compile_source, run_source
from gonogo.problems.values import Filled, cast_nest, copy_nest, vary_nest
from gonogo.user.target import split_target

NAME = "tritonbench"
KNOWN_BY = "a file with a line of 40 # or more between a function and its tests"
LINE = re.compile(r"^#{40,}\s*$", re.MULTILINE)
MOST_CALLS = 12


def split_text(text: str) -> tuple[str, str] | None:
    """What stands above the line and below it; None where there is none."""
    parts = LINE.split(text, maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def detect(path: Path) -> bool:
    """By the line of #, with a function above it and a test below."""
    if path.suffix != ".py" or not path.is_file():
        return False
    try:
        parts = split_text(read_text(path, "problem"))
        return parts is not None and bool(list_bound(parts[0], path)) and bool(parts[1].strip())
    except InputError:
        return False


def list_problems(path: Path) -> list[Path]:
    """Of a checkout, the torch part."""
    folder = next(iter(sorted(path.rglob("TritonBench_T_v1"))), path)
    return sorted(file for file in folder.rglob("*.py") if detect(file))


Recorded = tuple[str, tuple[Any, ...], dict[str, Any]]


class Opened:
    """A problem's function, and the calls that its tests make of it."""

    def __init__(self, where: str, device: str) -> None:
        parts = split_text(read_text(Path(where), "problem"))
        assert parts is not None
        self.where, self.device, self.tests = where, device, parts[1]
        self.module = run_source(parts[0], where, device)
        own = {
            name: value for name, value in vars(self.module).items()
            if isinstance(value, FunctionType) and value.__module__ == self.module.__name__
        }  # fmt: skip
        if not own:
            raise BadKernelFile(where, "has no function above its line of #")
        self.functions = own
        self.drops = "dropout(" in parts[0]
        calls = self.record()
        counts = Counter(name for name, _, _ in calls)
        stem = Path(where).stem
        self.name = stem if stem in counts else counts.most_common(1)[0][0]
        self.count = min(counts[self.name], MOST_CALLS)

    @property
    def function(self) -> Callable[..., Any]:
        """What the tests call most."""
        return self.functions[self.name]

    def record(self) -> list[Recorded]:
        """Run the tests, and note what they call; those that do not run end it."""
        calls: list[Recorded] = []

        def watch(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                given = copy_nest((args, kwargs))  # it may write to them
                returned = function(*args, **kwargs)
                calls.append((name, *given))  # not those that it refuses, as some tests want it to
                return returned

            return run

        scope = ModuleType(self.module.__name__)
        vars(scope).update(vars(self.module) | {name: watch(name, f) for name, f in self.functions.items()})
        problem = ""
        try:
            _run_tests(self.tests, self.where, self.device, scope)
        except Exception as error:  # noqa: BLE001  calls before it are calls
            problem = f"{type(error).__name__}: {error}".partition("\n")[0]
        if not calls:
            raise BadKernelFile(self.where, f"has tests that call nothing of it{': ' if problem else ''}{problem}")
        return calls

    def _settle(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Arguments by which the function draws no random numbers, where it can be asked to."""
        names = name_arguments(self.function, args, kwargs)
        if self.drops and "training" in inspect.signature(self.function).parameters:
            if "training" in names:
                args = tuple(False if name == "training" else x for name, x in zip(names, args, strict=True))
            else:
                kwargs = {**kwargs, "training": False}
        return Call(args, kwargs, names)

    def list_calls(self) -> list[Call]:
        """Each call of the function as the tests have it: a solution need not know other names than theirs."""
        made = [(args, kwargs) for name, args, kwargs in self.record() if name == self.name]
        return [self._settle(args, kwargs) for args, kwargs in made[: self.count]]


def _run_tests(tests: str, where: str, device: str, scope: ModuleType) -> None:
    """Run tests where the names above them are known; some import these by the name of their file."""
    stem, code = Path(where).stem, compile_source(tests, where, device)
    before = sys.modules.get(stem)
    sys.modules[stem] = scope
    try:
        with contextlib.redirect_stdout(io.StringIO()), Filled():
            exec(code, vars(scope))
    finally:
        sys.modules.pop(stem)
        if before is not None:
            sys.modules[stem] = before


@lru_cache(maxsize=4)
def _open(where: str, device: str) -> Opened:
    return Opened(where, device)


def open_problems(path: Path, options: Options) -> list[Problem]:
    """The problem of a file; its tests' calls are its own cases."""
    where = str(path.resolve())
    opened = _open(where, "cpu")
    drawn = make_draw(where, options)(OWN_SEEDS)
    name, prints = name_problem(path.stem), "print(" in opened.tests
    calls = opened.list_calls()
    changed = tuple(dict.fromkeys(path for call in calls for path in find_changed(opened.function, call, [])))
    notes = ["without dropout, which draws random numbers: training is False"] if opened.drops else []
    notes += [tell_unjudged(changed)] if changed else []
    op = make_op(name, __name__, where, options, dtype=find_dtype(drawn), scratch=changed)
    return [Problem(
        name, NAME, replace(op, own_check=None) if prints else op,
        "equal standard output" + (", which is not compared here" if prints else ", of tests that print nothing"),
        tuple(range(OWN_SEEDS, OWN_SEEDS + opened.count)), partial(read_solution, opened.name),
        find_stored(opened.function, calls[0], ()), tuple(notes),
    )]  # fmt: skip


def make_reference(where: str, options: Options) -> Callable[..., Any]:
    """The function above the line."""
    return _open(where, options.device).function


def make_draw(where: str, options: Options) -> Callable[..., Any]:
    """One of the calls that the tests make, with their values drawn by the case's seed."""
    opened = _open(where, "cpu")

    def draw(seed: int) -> Any:
        calls = opened.list_calls()
        drawn = calls[seed % len(calls)]
        drawn = drawn if options.dtype is None else cast_nest(drawn, options.dtype)
        return vary_nest(drawn, seed) if options.vary else drawn

    return draw


def make_check(where: str, options: Options) -> Callable[[Call, Mapping[str, Any]], bool]:
    """Whatever has run passes."""
    return lambda call, leaves: True


def read_solution(function: str, target: str) -> Solution:
    """The function of the same name, above the line if there is one."""
    path, name = split_target(target)
    text = read_text(path, "solution")
    above = (split_text(text) or (text,))[0]
    found = need_bound(above, path, (name or function,), "solution of this problem")
    return Solution(make_kernel_file(path, above, function=found), path.stem)
