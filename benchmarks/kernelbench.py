"""Problems of a KernelBench checkout, at their own sizes → whether each reference has a scale, its time and memory.

A problem is a file with `Model`, `get_init_inputs` and `get_inputs`. One that draws random numbers is run in
evaluation mode: of most that is dropout.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from error_scale import name_machine

from gonogo.errors import NoErrorRule
from gonogo.instrument.running_error.facts import RANDOM_HINT
from gonogo.instrument.running_error.trace import trace_call
from gonogo.schema import Contract

SCALED, BLIND, REFUSED, RANDOM, FAILED = "scaled", "no finite bound", "refused", "random", "does not run"
STATES = (SCALED, BLIND, REFUSED, RANDOM, FAILED)
GIB = 2**30


@dataclass(frozen=True)
class Problem:
    """One reference, what became of it, and what it took."""

    name: str
    state: str
    why: str = ""
    evaluated: bool = False
    seconds: tuple[float, float] = (0.0, 0.0)
    """Of the reference in float64, and of its scale."""
    gib: tuple[float, float] = (0.0, 0.0)
    """Most memory of a GPU that each took, inputs and parameters with it."""

    @property
    def level(self) -> str:
        return self.name.partition("/")[0]


class Late(Exception):
    """Out of time."""


@contextmanager
def limit_time(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Late(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def measure(run: Callable[[], Any], device: str) -> tuple[Any, float, float]:
    """What it returns, seconds and GiB."""
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    made = run()
    if device == "cpu":
        return made, time.perf_counter() - start, 0.0
    torch.cuda.synchronize()
    return made, time.perf_counter() - start, torch.cuda.max_memory_allocated() / GIB


def judge(path: Path, device: str, *, evaluated: bool = False) -> Problem:
    """Run one problem's reference in float64, then with its scale."""
    name = f"{path.parent.name}/{path.stem}"
    torch.manual_seed(0)
    try:
        with torch.device(device), torch.no_grad():
            scope: dict[str, Any] = {"__name__": path.stem}
            exec(compile(path.read_text("utf-8"), str(path), "exec"), scope)
            model = scope["Model"](*scope["get_init_inputs"]()).double().to(device).train(not evaluated)
            inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in scope["get_inputs"]()]
    except Exception as error:  # noqa: BLE001  whatever a problem does
        return Problem(name, FAILED, tell(error))
    try:
        with torch.device(device), torch.no_grad():
            _, seconds, gib = measure(lambda: model(*map(widen, inputs)) is None, device)  # its output is not kept
    except RuntimeError:  # it makes tensors of another dtype on the way, which its scale does not mind
        seconds, gib = 0.0, 0.0
    try:
        traced, scale_seconds, scale_gib = measure(
            lambda: trace_call(model, tuple(inputs), {}, Contract(), loaded=True)[1], device
        )
    except NoErrorRule as error:
        if RANDOM_HINT not in str(error):
            return Problem(name, REFUSED, error.problem)
        return Problem(name, RANDOM, error.problem) if evaluated else judge(path, device, evaluated=True)
    except Exception as error:  # noqa: BLE001  out of memory, or time
        return Problem(name, REFUSED, tell(error))
    shares = [float(leaf.scale.isinf().sum()) / leaf.scale.numel() for leaf in traced if leaf.scale is not None]
    state = SCALED if max(shares, default=0.0) < 0.5 else BLIND
    return Problem(name, state, "", evaluated, (seconds, scale_seconds), (gib, scale_gib))


def tell(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:120]


def widen(x: Any) -> Any:
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def format_page(problems: Sequence[Problem], machine: str) -> str:
    lines = [f"References of KernelBench at their own sizes, on {machine}.", ""]
    lines += [f"| level | problems | {' | '.join(STATES)} |", f"|---|---|{'---|' * len(STATES)}"]
    for level in dict.fromkeys(problem.level for problem in problems):
        counts = Counter(problem.state for problem in problems if problem.level == level)
        lines.append(f"| {level} | {counts.total()} | {' | '.join(str(counts[state]) for state in STATES)} |")
    ran = [problem for problem in problems if problem.seconds[0]]
    ratios = sorted(problem.seconds[1] / problem.seconds[0] for problem in ran)
    lines += ["", f"Time of the scale over that of the reference, median: {ratios[len(ratios) // 2]:.1f}."]
    if any(problem.gib[1] for problem in ran):
        growth = sorted(problem.gib[1] / problem.gib[0] for problem in ran)
        above = sum(ratio > 4 for ratio in growth)
        most = max(ran, key=lambda problem: problem.gib[1])
        lines += [
            f"Memory likewise: {growth[len(growth) // 2]:.1f}, above 4 for {above} of {len(ran)}, at most "
            f"{growth[-1]:.1f}. The most is {most.gib[1]:.0f} GiB, of {most.name}."
        ]
    if others := [problem for problem in problems if problem.state != SCALED]:
        lines += ["", "| problem | state | why |", "|---|---|---|"]
        lines += [f"| {one.name} | {one.state} | {one.why} |" for one in others]
    if evaluated := [problem.name for problem in problems if problem.evaluated]:
        lines += ["", f"In evaluation mode: {', '.join(evaluated)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=Path, help="folder with level1, level2, … of a checkout")
    parser.add_argument("--levels", default="1,2,3")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=int, default=60, help="for each problem")
    parser.add_argument("--markdown", type=Path, help="also write the page to this file")
    chosen = parser.parse_args()
    problems = []
    for level in chosen.levels.split(","):
        paths = (chosen.problems / f"level{level}").glob("*.py")
        for path in sorted(paths, key=lambda path: int(path.stem.partition("_")[0])):
            try:
                with limit_time(chosen.seconds), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    problems.append(judge(path, chosen.device))
            except Late as error:
                problems.append(Problem(f"level{level}/{path.stem}", REFUSED, str(error)))
            print(f"{len(problems)} {problems[-1].name}: {problems[-1].state}", file=sys.stderr, flush=True)
    page = format_page(problems, name_machine(chosen.device))
    print(page)
    if chosen.markdown:
        chosen.markdown.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
