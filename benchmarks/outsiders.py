"""Kernels of the second corpus, faulty and correct, given to gonogo.verify with default settings → what it says.

They were written from public bug reports, for the ops of the package, without a look at how cases are drawn.
A first run of them led to kinds of cases that were missing, so they are no longer unseen. A fault
should be no-go, a correct kernel never.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from measure import describe_machine

import gonogo
from gonogo.errors import GonogoError
from gonogo.execution.precision import configure_torch
from gonogo.limits.intervals import clopper_pearson
from gonogo.ops import DTYPES
from gonogo.runners.device import find_device, set_switches
from gonogo.user.planning import DEFAULT_CASES

FOLDER = Path(__file__).with_name("second_corpus")
MODULES = ("rows_torch", "rows_triton", "products_torch", "products_triton")
Place = tuple[str, int]
"""Module and number of an entry: what a process of the pool finds it by."""


@dataclass(frozen=True)
class Finding:
    """What verify said of an entry."""

    kernel: str
    op: str
    faulty: bool
    triton: bool
    does: str
    source: str
    decision: str
    """Go, suspect, no-go; refused where this machine cannot run it; error where verify raised."""
    failed: int = 0
    cases: int = 0
    why: str = ""


def list_entries() -> list[Place]:
    """All entries of the corpus."""
    sys.path.insert(0, str(FOLDER))
    return [(name, at) for name in MODULES for at in range(len(importlib.import_module(name).ENTRIES))]


def verify_entry(place: Place, *, device: str, cases: int, seed: int) -> Finding:
    """One kernel in the dtypes that it is meant for, in a process of the pool."""
    warnings.simplefilter("ignore")  # Triton's interpreter computes by NumPy, and faults overflow
    torch.set_num_threads(1)
    configure_torch()
    set_switches(device)  # before Triton decorates anything
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    entry = importlib.import_module(place[0]).ENTRIES[place[1]]
    facts = (
        entry.kernel.__name__, entry.op, entry.faulty, place[0].endswith("triton"),
        str(entry.kernel.__doc__).partition("\n")[0], entry.source,
    )  # fmt: skip
    dtypes = [dtype for dtype in entry.dtypes if dtype in DTYPES]
    try:
        found = gonogo.verify(
            entry.kernel, entry.op, dtypes=dtypes, cases=cases, seed=seed, device=device, strict=False
        )
    except (GonogoError, RuntimeError) as error:
        refused = "interpreter" in str(error)
        return Finding(*facts, "refused" if refused else "error", why=str(error).partition("\n")[0])
    worst = found.worst_case
    why = "" if worst is None else f"{worst.case}: {worst.verdict.message}".partition("\n")[0]
    return Finding(*facts, found.decision, len(found.failed), len(found.verdicts), why)


def verify_within(
    places: list[Place], work: Callable[[Place], Finding], workers: int, seconds: float | None, *, alone: bool
) -> list[Finding]:
    """Findings in the order of the entries; those that take longer than all may together are left out.

    Each has a process of its own if they are to be `alone`: what one does to a GPU must not count against the next.
    """
    # Spawned, for a process that has touched a GPU cannot be forked.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, max_tasks_per_child=1 if alone else None)
    begun = [pool.submit(work, place) for place in places]
    found: dict[int, Finding] = {}
    try:
        for done in as_completed(begun, timeout=seconds):
            found[begun.index(done)] = finding = done.result()
            print(f"{finding.kernel}: {finding.decision} {finding.why}".rstrip(), file=sys.stderr, flush=True)
    except TimeoutError:
        for process in list(pool._processes.values()):
            process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
    return [found[number] for number in sorted(found)]


def format_report(found: list[Finding]) -> list[str]:
    """How many are caught, by op; every one that is not; every correct one that is not go."""
    lines = ["| op | faults | no-go | correct | no-go |", "|---|---:|---:|---:|---:|"]
    run = [one for one in found if one.decision != "refused"]
    for op in [*sorted({one.op for one in run}), "all"]:
        some = [one for one in run if op in (one.op, "all")]
        faulty, correct = ([one for one in some if one.faulty == kind] for kind in (True, False))
        counts = [len(faulty), _count_no_go(faulty), len(correct), _count_no_go(correct)]
        lines.append(f"| {op} | {' | '.join(map(str, counts))} |")
    faulty = [one for one in run if one.faulty]
    low, high = clopper_pearson(_count_no_go(faulty), len(faulty))
    share = 100 * _count_no_go(faulty) / len(faulty)
    interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %"
    lines += ["", f"No-go of {len(faulty)} faults: {share:.1f} % ({interval})."]
    if len(run) < len(found):
        lines.append(f"{len(found) - len(run)} more kernels cannot be run on this device.")
    missed = [one for one in faulty if one.decision != "no-go"]
    alarms = [one for one in run if not one.faulty and one.decision != "go"]
    lines += ["", "Faults that are not no-go:", "", *(_tell(one) for one in missed)] if missed else []
    lines += ["", "Correct kernels that are not go:", "", *(_tell(one) for one in alarms)] if alarms else []
    lines += ["", "| fault | op | failed | says | from |", "|---|---|---:|---|---|"]
    for one in faulty:
        lines.append(f"| {one.kernel} | {one.op} | {one.failed}/{one.cases} | {one.decision} | {one.source} |")
    return lines


def _count_no_go(some: list[Finding]) -> int:
    return sum(one.decision == "no-go" for one in some)


def _tell(one: Finding) -> str:
    where = f"{one.op}, Triton" if one.triton else one.op
    return f"- {one.kernel} ({where}), {one.decision}: {one.does} {one.why}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help="per kernel and dtype")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=(), help="names of kernels; all by default")
    parser.add_argument("--modules", nargs="*", default=MODULES, help="parts of the corpus; all by default")
    parser.add_argument("--seconds", type=float, help="leave out what is not done by then")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    chosen = parser.parse_args()
    device, started = find_device(chosen.device), time.perf_counter()
    set_switches(device)
    places = [place for place in list_entries() if place[0] in chosen.modules]
    if chosen.only:
        named = {place: importlib.import_module(place[0]).ENTRIES[place[1]].kernel.__name__ for place in places}
        places = [place for place in places if named[place] in chosen.only]
    work = partial(verify_entry, device=device, cases=chosen.cases, seed=chosen.seed)
    found = verify_within(places, work, chosen.workers, chosen.seconds, alone=device != "cpu")
    options = f"--device {device} --cases {chosen.cases} --seed {chosen.seed}"
    options += "" if tuple(chosen.modules) == MODULES else f" --modules {' '.join(chosen.modules)}"
    lines = [
        "# The second corpus: kernels from outside, faulty and correct",
        "",
        f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/outsiders.py {options}`, in {time.perf_counter() - started:.0f} s.",
        "",
        *format_report(found),
        *([f"\n{len(places) - len(found)} kernels were left out for want of time."] * (len(found) < len(places))),
    ]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
