"""A file or an object → some ranges of its bytes, each laid where it lies there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gonogo.records.places import Place, S3Place

Bytes = npt.NDArray[np.uint8]


class Ranges(Protocol):
    """A file that is open to be read here and there."""

    def fill(self, into: Bytes, ranges: Sequence[tuple[int, int]]) -> None:
        """Read from, and write to, the same places: first byte and end of each."""


class LocalRanges:
    """A file on disk."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def fill(self, into: Bytes, ranges: Sequence[tuple[int, int]]) -> None:
        """Read each range by itself: the system reads ahead."""
        for start, end in ranges:
            done = start
            while done < end:
                count = os.preadv(self._handle, [into[done:end].data], done)
                if not count:
                    raise ValueError("it ends too early")
                done += count


@contextmanager
def open_ranges(path: Place) -> Iterator[Ranges]:
    """Open a file for as long as it is read; an object needs no opening."""
    if isinstance(path, S3Place):
        yield path
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        yield LocalRanges(handle)
    finally:
        os.close(handle)
