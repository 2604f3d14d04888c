"""How many threads this process may use: the cores it is given, or GONOGO_NUM_THREADS."""

from __future__ import annotations

import os

from gonogo.errors import InputError


def thread_limit() -> int:
    """Threads gonogo may run at a time."""
    asked = os.environ.get("GONOGO_NUM_THREADS")
    if asked is not None:
        if not asked.isdecimal() or int(asked) < 1:
            raise InputError(f"GONOGO_NUM_THREADS is {asked!r}; it is a whole number of threads, 1 or more")
        return int(asked)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1
