"""A user's process as it is → one in which subnormal values are kept, for as long as a reference runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def is_flushing() -> bool:
    """Whether torch.set_flush_denormal(True) is in force; torch has no way to ask."""
    smallest = torch.tensor([5e-324], dtype=torch.float64)
    return bool((smallest * 1.0).view(torch.int64) == 0)


@contextmanager
def keep_subnormals() -> Iterator[None]:
    """Switch flushing off inside: a float32 subnormal would be 0 as soon as it is converted to float64."""
    if not is_flushing():
        yield
        return
    # The switch is this thread's own; others were started with it on, so none of them may take part.
    threads = torch.get_num_threads()
    torch.set_flush_denormal(False)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(True)
