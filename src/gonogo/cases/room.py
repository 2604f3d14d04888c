"""A case → the memory that judging it takes at least; refused, before any is taken, where there is not as much."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from gonogo.cases._case import Case
from gonogo.cases.inputs import count_stored, find_input_dtype
from gonogo.errors import CaseTooLarge
from gonogo.formats import FORMATS
from gonogo.ops import Op

DRAWN_BYTES = 16
"""Of an element while it is drawn: 64 random bits, and what they make in float64. Some distributions take 70."""
WIDE_BYTES = 8
"""Of a floating element of an input, as the reference takes it."""
JUDGED_BYTES = 16
"""Of an element of the output: its expected value and its scale."""
ALWAYS_THERE = 2**28
"""Bytes that a machine has which runs torch: for cases of less nobody is asked."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where a container says what it may use."""


def check_room(case: Case, op: Op, device: str, *, allowed: float = math.inf) -> None:
    """Refuse a case that takes more memory than there is, or than a worker is `allowed`, before any is taken."""
    on_host = count_drawn_bytes(case, op) if device == "cuda" else count_bytes(case, op)
    if on_host > allowed:
        raise CaseTooLarge(case.id, on_host, allowed, "worker")
    for needed, where in ((on_host, "cpu"), (count_bytes(case, op) if device == "cuda" else 0, "cuda")):
        available = find_available_bytes(where) if needed > ALWAYS_THERE else None
        if available is not None and needed > available:
            raise CaseTooLarge(case.id, needed, available, where)


@contextmanager
def refuse_without_room(case: Case, op: Op, device: str) -> Iterator[None]:
    """Inside, to run out of memory is a refusal of the case: what a kernel takes is caught where it is called."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        available = find_available_bytes(device)
        raise CaseTooLarge(case.id, count_bytes(case, op), available, device, ran_out=True) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left; torch says so of the host's in words alone."""
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def count_bytes(case: Case, op: Op) -> int:
    """Bytes of the inputs, a copy of them, their float64 values, and the output's; 0 where the op draws itself."""
    if op.draw is not None:
        return 0
    total = math.prod(case.shape_of(op, op.output)) * JUDGED_BYTES
    for position, described in enumerate(op.inputs):
        if described.kind == "constant":
            continue
        shape, dtype = case.shape_of(op, described.axes), find_input_dtype(case, described)
        each = FORMATS[dtype].bits // 8 if dtype in FORMATS else np.dtype(dtype).itemsize
        wide = WIDE_BYTES if dtype in FORMATS and each < WIDE_BYTES else 0
        total += math.prod(shape) * (each + wide)
        total += count_stored(case.layout_of(op, position), shape) * each
    return max(total, count_drawn_bytes(case, op))


def count_drawn_bytes(case: Case, op: Op) -> int:
    """Bytes of the host's memory that drawing the largest input takes."""
    counts = [math.prod(case.shape_of(op, given.axes)) for given in op.inputs if given.kind != "constant"]
    return max(counts, default=0) * DRAWN_BYTES


def find_available_bytes(device: str) -> int | None:
    """Memory of a GPU; else what Linux has available, or any other system at all. None where nobody tells."""
    if device == "cuda":
        from torch.cuda import mem_get_info

        return int(mem_get_info()[1])  # what is not free may be torch's own cache
    free = [size for size in (_read_available(), *map(_read_limit, LIMITS)) if size is not None]
    return min(free, default=None)


def _read_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def _read_limit(path: str) -> int | None:
    try:
        told = Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(told) if told.isdigit() else None
