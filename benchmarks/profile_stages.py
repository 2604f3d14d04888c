"""Records of a campaign, and cases of `verify` → where their time goes, stage by stage.

Every stage is timed where the host is in it, without the stages inside: what a GPU still works on counts where the
host waits for it. In one process, so that no two share the GPU, and in as many as a campaign has; kernels are
compiled and loaded before.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from measure import describe_machine

import gonogo
from gonogo.campaign.plan import Plan
from gonogo.execution import bench, execute, measurement
from gonogo.execution.job import Job
from gonogo.execution.kept import Kept
from gonogo.execution.precision import configure_torch
from gonogo.guest import flags
from gonogo.ops import get_op, op_names
from gonogo.runners import in_process
from gonogo.runners.device import find_device, set_switches

STAGES: dict[str, list[tuple[Any, str]]] = {
    "draw inputs": [(bench, "make_call"), (in_process, "make_call")],
    "copy inputs": [(bench, "copy_call"), (Kept, "copy_laid")],
    "reference and scale": [(bench, "make_reference"), (bench, "make_references")],
    "load and open the kernel": [(execute, "load_function"), (execute, "open_kernel")],
    "kernel, called twice": [(execute, "call_twice")],
    "checks: guards, repeats, inputs": [(execute, "find_fault"), (execute, "settle_leaves")],
    "readings for a verdict": [(execute, "read_leaves")],
    "v_abft": [(execute, "measure_output")],
    "ErrorStats": [(measurement, "measure")],
    "policies, other gauges": [(measurement, "read_unscaled")],
    "against its control, and twin": [(execute, "_compare"), (execute, "_measure_twin")],
    "switches of torch": [(flags, "capture"), (flags, "put")],
    "row of the record": [(execute, "describe")],
}


STACKS = threading.local()
"""Of each thread: seconds that stages inside took, for every stage that is entered."""


class Clock:
    """Seconds of each stage, of the main thread and of all others apart."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.aside: dict[str, float] = {}

    def watch(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted for the stage but for what stages inside take."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            stack = STACKS.__dict__.setdefault("stack", [])
            main = threading.current_thread() is threading.main_thread()
            into = self.seconds if main else self.aside
            stack.append(0.0)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                elapsed = time.perf_counter() - started
                into[stage] = into.get(stage, 0.0) + elapsed - stack.pop()
                if stack:
                    stack[-1] += elapsed

        return timed


@contextmanager
def clocked() -> Iterator[Clock]:
    """Inside, every function of STAGES is timed."""
    clock, patches = Clock(), []
    for stage, places in STAGES.items():
        for owner, name in places:
            if hasattr(owner, name):
                patches.append(patch.object(owner, name, clock.watch(stage, getattr(owner, name))))
    for one in patches:
        one.start()
    try:
        yield clock
    finally:
        for one in patches:
            one.stop()


def choose_jobs(device: str, count: int) -> list[Job]:
    """Jobs of the whole corpus, evenly spaced over a campaign as `benchmarks/campaign.py` runs it."""
    plan = Plan(op_names(), cases=170 if device == "cuda" else 12, device=device, faulty_every=4)
    jobs = list(plan.jobs())
    return [jobs[at * len(jobs) // count] for at in range(count)]


def run_jobs(jobs: list[Job]) -> int:
    """Run them; how many records came."""
    return sum(len(list(execute.run_job(job, lambda kernel: None))) for job in jobs)


def tell_stages(clock: Clock, total_s: float, count: int, what: str) -> list[str]:
    """Rows of a table, largest first."""
    rows = sorted(clock.seconds.items(), key=lambda row: -row[1])
    rows.append(("all else", total_s - sum(clock.seconds.values())))
    lines = [f"| stage | µs per {what} | share |", "|---|---:|---:|"]
    lines += [f"| {stage} | {s / count * 1e6:,.0f} | {s / total_s:.1%} |" for stage, s in rows]
    lines.append(f"| **all** | **{total_s / count * 1e6:,.0f}** | |")
    lines += [f"| in threads beside: {stage} | {s / count * 1e6:,.0f} | |" for stage, s in clock.aside.items()]
    return lines


def time_jobs(device: str, count: int, number: int, processes: int, together: Any) -> tuple[Clock, float, int]:
    """Stages, seconds and records of one process; it begins elsewhere than the others, and with them."""
    set_switches(device)
    configure_torch()
    if processes > 1:
        torch.set_num_threads(1)
    jobs = choose_jobs(device, count)
    at = number * count // processes
    jobs = jobs[at:] + jobs[:at]
    run_jobs(jobs)
    together.wait(600)
    with clocked() as clock:
        started = time.perf_counter()
        records = run_jobs(jobs)
        total = time.perf_counter() - started
    together.wait(600)
    return clock, total, records


def profile_campaign(device: str, count: int, processes: int) -> list[str]:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        together = manager.Barrier(processes)
        given = [(device, count, number, processes, together) for number in range(processes)]
        with context.Pool(processes) as pool:
            done = pool.starmap(time_jobs, given, chunksize=1)
    clock = Clock()
    for one, _, _ in done:
        for stage, seconds in one.seconds.items():
            clock.seconds[stage] = clock.seconds.get(stage, 0.0) + seconds
    records, total = sum(n for _, _, n in done), sum(s for _, s, _ in done)
    rate = sum(n / s for _, s, n in done)
    by = "one process" if processes == 1 else f"{processes} processes at once"
    head = f"{records:,} records of {count:,} cases over {len(op_names())} ops by {by}: {rate:.0f} a second"
    return [f"## A record of a campaign, {by}\n\n{head}.\n", *tell_stages(clock, total, records, "record")]


def profile_verify(device: str, cases: int) -> list[str]:
    kernel = get_op("softmax").load_kernel("softmax_triton") if device == "cuda" else lambda x: torch.softmax(x, -1)
    name = "softmax_triton" if device == "cuda" else "torch.softmax"
    gonogo.verify(kernel, "softmax", cases=cases, device=device, strict=False)
    lines: list[str] = []
    for what in ("of a first kernel", "of a second kernel, for which it is kept"):
        with clocked() as clock:
            started = time.perf_counter()
            verification = gonogo.verify(kernel, "softmax", cases=cases, seed=1, device=device, strict=False)
            total = time.perf_counter() - started
        count = len(verification.verdicts)
        head = f"`gonogo.verify` of {name}, {count:,} cases: {count / total:.0f} a second"
        lines += [f"## A case of verify, {what}\n\n{head}.\n", *tell_stages(clock, total, count, "case"), ""]
    return lines[:-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--jobs", type=int, default=500, help="cases of the campaign")
    parser.add_argument("--cases", type=int, default=300, help="per dtype, of verify")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 15], help="of the campaign, at once")
    chosen = parser.parse_args()
    device = find_device(chosen.device)
    set_switches(device)
    lines = [
        "# Where the time of a record and of a case goes", "", f"Machine: {describe_machine()}.",
        f"Made by: `python benchmarks/profile_stages.py --jobs {chosen.jobs} --cases {chosen.cases} "
        f"--processes {' '.join(map(str, chosen.processes))}`.",
        "", *profile_verify(device, chosen.cases),
    ]  # fmt: skip
    for processes in chosen.processes:
        lines += ["", *profile_campaign(device, chosen.jobs, processes)]
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
