"""A process of the user's → guests that it has kernels of its own run by."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gonogo.execution.remote import Guests
from gonogo.runners.pool import Allowance
from gonogo.runners.stem import find_stem


@contextmanager
def open_guests(device: str, allowance: Allowance | None = None) -> Iterator[Guests]:
    """Guests that print where this process does, and see its files: the kernel is the user's. Gone afterwards."""
    allowed = allowance or Allowance()
    client, printed = find_stem().open_client(), os.dup(1)
    guests = Guests(client, device, allowed.timeout_s, allowed.memory_bytes, printed, ())
    try:
        yield guests
    finally:
        guests.close()
        client.close()
        os.close(printed)
