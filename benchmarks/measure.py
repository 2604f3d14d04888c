"""Time and memory of measure and read → a table of ratios to torch in the same run.

On a machine with a GPU the GPU half is printed, elsewhere the CPU half.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import time_side_by_side

import gonogo

JOB = "one call"
HALF_AND_SINGLE = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def make_pair(n: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(actual, expected rounded, expected in float64): a relative error of about 1e-3."""
    generator = torch.Generator(device).manual_seed(0)
    exact = torch.randn(n, dtype=torch.float64, device=device, generator=generator)
    noise = torch.randn(n, dtype=torch.float32, device=device, generator=generator)
    return (exact * (1 + 1e-3 * noise)).to(dtype), exact.to(dtype), exact


class Table:
    """Rows of work, time, baseline, ratio and what must hold."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str, str]] = []

    def add(self, work: str, time_: str, baseline: str, ratio: str, must: str) -> None:
        self.rows.append((work, time_, baseline, ratio, must))
        print(f"{work:58} {time_:>12} {baseline:>30} {ratio:>8}   {must}", flush=True)

    def markdown(self) -> str:
        head = ["| work | time | baseline | ratio | must hold |", "|---|---:|---:|---:|---|"]
        return "\n".join(head + ["| " + " | ".join(row) + " |" for row in self.rows])


def bench_cpu(table: Table, log2_n: int) -> None:
    n = 2**log2_n
    torch.set_num_threads(2)
    os.environ["GONOGO_NUM_THREADS"] = "2"
    for name, dtype in HALF_AND_SINGLE.items():
        actual, rounded, exact = make_pair(n, dtype, "cpu")
        times = time_side_by_side(
            {
                "same": lambda a=actual, e=rounded: gonogo.measure(a, e, atol=1e-3),
                "same allclose": lambda a=actual, e=rounded: torch.allclose(a, e),
                "float64": lambda a=actual, e=exact: gonogo.measure(a, e, atol=1e-3),
                "float64 allclose": lambda a=actual, e=exact: torch.allclose(a.double(), e),
            },
            repeats=9,
            cuda=False,
        )
        add_ratio(table, f"measure {name}, CPU, 2^{log2_n}, 2 threads", times, "same", "allclose", 0.12)
        add_ratio(
            table,
            f"measure {name} against float64, CPU, 2^{log2_n}",
            times,
            "float64",
            "allclose of doubles",
            0.5,
        )
    small = np.random.default_rng(0).standard_normal(1000)
    times = time_side_by_side(
        {"measure": lambda: gonogo.measure(small.astype(np.float32), small)}, repeats=500, cuda=False
    )
    table.add("measure float32, CPU, 1,000 elements", f"{times['measure'] * 1e3:.0f} µs", "", "", "≤ 100 µs")


def add_ratio(table: Table, work: str, times: dict[str, float], name: str, baseline: str, limit: float) -> None:
    ours, theirs = times[name], times[f"{name} allclose"]
    table.add(work, f"{ours:.2f} ms", f"{theirs:.2f} ms {baseline}", f"{ours / theirs:.3f}", f"≤ {limit}")


MEMORY_PROBE = """
import sys, numpy as np, gonogo
from pathlib import Path

def resident(field):
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field)) / 1024

n = 2 ** int(sys.argv[1])
actual = np.random.default_rng(0).standard_normal(n, np.float32)
expected = actual * np.float32(1.001)
scale = np.broadcast_to(np.float32(1), n)
gonogo.measure(actual[:2**18], expected[:2**18])
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
before = resident("VmRSS")
gonogo.measure(actual, expected)
wide = (n // 2, 2)  # read in pieces
gonogo.measure(np.broadcast_to(actual[: n // 2, None], wide), np.broadcast_to(expected[: n // 2, None], wide))
gonogo.read(actual, expected, gauge="magnitude")
gonogo.read(actual, expected, gauge="bound", scale=scale)
print(resident("VmHWM") - before)
"""


def bench_cpu_memory(table: Table) -> None:
    for log2_n in (24, 28):
        grown = subprocess.run(
            [sys.executable, "-c", MEMORY_PROBE, str(log2_n)], check=True, capture_output=True, text=True
        )
        table.add(
            f"extra memory of measure and read, CPU, 2^{log2_n}",
            f"{float(grown.stdout):.0f} MB",
            "",
            "",
            "≤ 64 MB",
        )


def bench_gpu(table: Table, log2_n: int) -> None:
    n = 2**log2_n
    for name, dtype in HALF_AND_SINGLE.items():
        actual, rounded, exact = make_pair(n, dtype, "cuda")
        times = time_side_by_side(
            {
                "same": lambda a=actual, e=rounded: gonogo.measure(a, e, atol=1e-3),
                "same allclose": lambda a=actual, e=rounded: torch.allclose(a, e),
                "float64": lambda a=actual, e=exact: gonogo.measure(a, e, atol=1e-3),
                "float64 allclose": lambda a=actual, e=exact: torch.allclose(a.double(), e),
            },
            repeats=31,
            cuda=True,
        )
        add_ratio(table, f"measure {name}, GPU, 2^{log2_n}", times, "same", "allclose", 0.27)
        again = time_side_by_side(
            {"same": lambda a=actual, e=rounded: gonogo.measure(a, e, atol=1e-3)}, repeats=31, cuda=True
        )
        # The host's part is larger where it has waited for something else: caches and clock are cold.
        alone, ratio = f"{again['same']:.2f} ms", f"{again['same'] / times['same allclose']:.3f}"
        table.add(f"measure {name}, GPU, 2^{log2_n}, nothing in between", alone, "the same", ratio, "")
        add_ratio(
            table,
            f"measure {name} against float64, GPU, 2^{log2_n}",
            times,
            "float64",
            "allclose of doubles",
            0.40,
        )
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        gonogo.measure(actual, exact)
        gonogo.measure(actual.view(-1, 1024)[:, ::2], exact.view(-1, 1024)[:, ::2])
        grown = (torch.cuda.max_memory_allocated() - before) / 2**20
        table.add(f"extra memory of measure {name}, GPU, 2^{log2_n}", f"{grown:.0f} MB", "", "", "≤ 64 MB")


def bench_gpu_bound(table: Table, log2_n: int) -> None:
    n = 2**log2_n
    for name, dtype in HALF_AND_SINGLE.items():
        actual, _, exact = make_pair(n, dtype, "cuda")
        scale = exact.abs() * 4
        size = n * (actual.element_size() + 16)
        # A copy moves every byte twice: half as many bytes copied take as long as these take to read.
        source = torch.empty(size // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        times = time_side_by_side(
            {
                "read": lambda a=actual, e=exact, s=scale: gonogo.read(a, e, gauge="bound", scale=s),
                "copy": lambda t=target, s=source: t.copy_(s),
            },
            repeats=25,
            cuda=True,
        )
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        gonogo.read(actual, exact, gauge="bound", scale=scale)
        grown = (torch.cuda.max_memory_allocated() - before) / 2**20
        table.add(
            f"read bound {name}, GPU, 2^{log2_n} (+{grown:.1f} MB)", f"{times['read']:.3f} ms",
            f"{times['copy']:.3f} ms for the reads", f"{times['read'] / times['copy']:.2f}", "≤ 2",
        )  # fmt: skip


def profile_gpu(table: Table, log2_n: int) -> None:
    """What of a measurement the GPU works, and how many kernels a small one launches.

    Comes last: once a profiler was on, every launch of the process is slower.
    """
    for name, dtype in HALF_AND_SINGLE.items():
        actual, rounded, _ = make_pair(2**log2_n, dtype, "cuda")
        gonogo.measure(actual, rounded)
        busy = sum(microseconds for _, microseconds in _trace(lambda a=actual, e=rounded: gonogo.measure(a, e)))
        table.add(f"measure {name}, GPU, 2^{log2_n}: GPU busy", f"{busy / 1e3:.2f} ms", "", "", "")
    actual, _, exact = make_pair(1000, torch.float16, "cuda")
    gonogo.measure(actual, exact)
    launches = len(_trace(lambda: gonogo.measure(actual, exact)))
    table.add("measure float16, GPU, 1,000 elements", f"{launches} launches", "", "", "≤ 3 launches")


def _trace(job: Callable[[], object]) -> list[tuple[str, float]]:
    """Kernels a job launches, each with its microseconds."""
    kernels = [(e.name, e.self_device_time_total) for e in _list_events(job, on_host=False)]
    return [kernel for kernel in kernels if not kernel[0].startswith(("Memcpy", "Memset"))]


def _list_events(job: Callable[[], object], *, on_host: bool) -> list[Any]:
    """What a GPU does for a job, in order; first, if wanted, the job itself as the host has it."""
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CUDA, *([ProfilerActivity.CPU] if on_host else [])]
    with profile(activities=activities, acc_events=True) as trace:
        with record_function(JOB):
            job()
        torch.cuda.synchronize()
    on_gpu = [e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CUDA and e.name != JOB]
    whole = [e for e in trace.events() if e.device_type == torch.autograd.DeviceType.CPU and e.name == JOB]
    return whole + sorted(on_gpu, key=lambda e: e.time_range.start)


def print_timeline(log2_n: int) -> None:
    """Where the time of one call goes: when kernels begin, how long the GPU was idle before, how long they take."""
    for name, dtype in HALF_AND_SINGLE.items():
        actual, rounded, _ = make_pair(2**log2_n, dtype, "cuda")
        for _ in range(3):
            gonogo.measure(actual, rounded, atol=1e-3)
        whole, *kernels = _list_events(lambda a=actual, e=rounded: gonogo.measure(a, e, atol=1e-3), on_host=True)
        began, ends = whole.time_range.start, whole.time_range.start
        print(f"\n{name}, 2^{log2_n}, µs under the profiler: begins at, idle before, takes")
        for e in kernels:
            start = e.time_range.start
            print(f"{start - began:9.1f} {start - ends:8.1f} {e.time_range.end - start:8.1f}  {e.name[:80]}")
            ends = e.time_range.end
        print(f"{whole.time_range.end - began:9.1f} {whole.time_range.end - ends:8.1f}           back in Python")


def describe_machine() -> str:
    """Processor or GPU and the versions that matter."""
    versions = f"torch {torch.__version__}, NumPy {np.__version__}, Python {platform.python_version()}"
    if torch.cuda.is_available():
        import triton

        return f"an {torch.cuda.get_device_name()}, {versions}, triton {triton.__version__}"
    from gonogo.instrument import path_native

    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())  # fmt: skip
    native = "/".join(path_native.instruction_sets()) or "absent"
    return f"{model}, {os.cpu_count()} cores, {versions}, native path {native}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument(
        "--timeline", action="store_true", help="instead, what a GPU does in one call, step by step"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the script itself")
    options = parser.parse_args()
    machine = describe_machine()
    print(machine)
    table = Table()
    if options.timeline:
        print_timeline(22 if options.quick else 28)
        return
    if torch.cuda.is_available():
        bench_gpu(table, 22 if options.quick else 28)
        bench_gpu_bound(table, 22 if options.quick else 26)
        profile_gpu(table, 22 if options.quick else 28)
    else:
        bench_cpu(table, 20 if options.quick else 24)
        if not options.quick:
            bench_cpu_memory(table)
    if options.markdown:
        options.markdown.write_text(
            f"# measure and read\n\nMachine: {machine}.\nMade by: `python benchmarks/measure.py`.\n\n"
            f"{table.markdown()}\n"
        )


if __name__ == "__main__":
    main()
