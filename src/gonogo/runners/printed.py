"""What a worker's kernels print → the last of it, kernel by kernel, C's output and that of a GPU among it.

A file stands behind the worker's standard output and error: what a kernel printed before it took the worker down is
there to be read from outside.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import tempfile
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any

KEPT_BYTES = 4096
"""Of what one kernel printed on one case, the last."""
MOST_BYTES = 2**26
"""A file larger than this is emptied, whatever is lost: a kernel that prints for ever must not fill the disk."""


class Handed:
    """An open file, for another process: pickled as it is started, it is open there, too."""

    def __init__(self, file: int) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, (DupFd(self.file),)


def _receive(handed: Any) -> Handed:
    return Handed(handed.detach())


class Transcript:
    """The file that a worker prints to, without a name, seen from the process that started the worker."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as made:
            self._file = os.dup(made.fileno())
        # Appending, so that what is written after the file was emptied begins at its start.
        fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) | os.O_APPEND)

    def hand_over(self) -> Handed:
        """For the worker."""
        return Handed(self._file)

    def empty_if_large(self) -> None:
        """Keep it from filling the disk."""
        if os.fstat(self._file).st_size > MOST_BYTES:
            os.ftruncate(self._file, 0)

    def close(self) -> str:
        """Let it go; what was printed last."""
        if self._file < 0:
            return ""
        last = _read_last(self._file)
        os.close(self._file)
        self._file = -1
        return last


class Printed:
    """The file that a worker prints to, seen from the worker: what each kernel has printed so far."""

    def __init__(self, handed: Handed) -> None:
        self._file = handed.file
        for descriptor in (1, 2):
            os.dup2(self._file, descriptor)
        self.file = self._file
        """What another process may print to as well."""
        self._kernel: str | None = None
        self._by_kernel: dict[str | None, str] = {}

    def begin(self, kernel: str) -> None:
        """From here on it is this kernel that prints."""
        self._collect()
        self._kernel = kernel

    def take(self, kernel: str) -> str:
        """What a kernel has printed; forgotten here, with what nobody asked for."""
        self._collect()
        text = self._by_kernel.get(kernel, "")
        self._by_kernel = {}
        return text

    def _collect(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # whatever a kernel has put in their place
                stream.flush()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)
        text = self._by_kernel.get(self._kernel, "") + _read_last(self._file)
        self._by_kernel[self._kernel] = text[-KEPT_BYTES:]
        os.ftruncate(self._file, 0)


def _read_last(file: int) -> str:
    size = os.fstat(file).st_size
    return os.pread(file, KEPT_BYTES, max(size - KEPT_BYTES, 0)).decode(errors="replace")
