"""Jobs → median milliseconds of each, taken in turn so that a slow spell of the machine hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

WARM_UP_S = 1.0
"""Before the clock counts: caches, compiled kernels and the processor's own clock settle."""
IN_A_ROW = 5
"""Calls of one job before the next has its turn: alternating single calls would time what one job does to the
processor's caches at the cost of the other, most of all where the host only launches and waits."""


def time_side_by_side(jobs: dict[str, Callable[[], object]], repeats: int, cuda: bool) -> dict[str, float]:
    """Median milliseconds of at least `repeats` calls of each job, the GPU's queue drained before and after."""
    seen: dict[str, list[float]] = {name: [] for name in jobs}
    warm = time.perf_counter() + WARM_UP_S
    while any(len(times) < repeats for times in seen.values()):
        for name, job in jobs.items():
            for _ in range(IN_A_ROW):
                if cuda:
                    torch.cuda.synchronize()
                start = time.perf_counter()
                job()
                if cuda:
                    torch.cuda.synchronize()
                if start > warm:
                    seen[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(times) for name, times in seen.items()}
