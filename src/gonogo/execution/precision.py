"""torch's switches → as kernels of ours need them, to keep what they promise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gonogo.guest import flags

FLAGS = {f"torch.{path}": value for path, value in flags.PRECISE.items()}
"""torch's switches that change numerics, as every worker sets them and runs record them."""


def configure_torch() -> None:
    """One thread, and the switches of FLAGS."""
    torch.set_num_threads(1)
    os.environ["GONOGO_NUM_THREADS"] = "1"  # there is a worker per core
    flags.set_precise()


@contextmanager
def keep_precision() -> Iterator[None]:
    """Inside, torch's own kernels keep their contracts, as they do in a worker; afterwards all is as it was."""
    precise = (flags.WORDS | flags.PRECISE).items()
    with flags.keep({path: value for path, value in precise if path in flags.SWITCHES}):
        yield
