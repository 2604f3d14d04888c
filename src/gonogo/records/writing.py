"""Files written whole or not at all, and folders that one process writes to at a time."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from gonogo.errors import InputError
from gonogo.records.places import Place, S3Place

LOCK = ".lock"
"""The file of a run directory that whoever writes to it has locked. It is empty, and stays behind."""
PARTIAL = ".partial"


def write_atomically(path: Path, content: bytes) -> None:
    """Either the old file or the new one, never half of it, and nothing beside it."""
    # A name that nobody can guess: two writers never share it, and no link can be laid there beforehand.
    partial = path.with_name(f".{secrets.token_hex(8)}{PARTIAL}")
    try:
        with partial.open("xb") as file:
            with suppress(FileNotFoundError):
                partial.chmod(stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            sync_file(file)
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_file(file: IO[bytes]) -> None:
    """Have what was written outlast a power cut."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the name of a new file outlast a power cut; not every system lets a folder be synced."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def lock_folder(folder: Place, *, wait: bool = False) -> Iterator[None]:
    """Be the only one to write to a run directory, made here if need be; refuse, or wait, where another does.

    The operating system keeps the lock: a process that is killed leaves none behind. A store has no locks and needs
    none, for what its writers do is conditional.
    """
    if isinstance(folder, S3Place):
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    try:
        _lock(handle, folder, wait=wait)
        for left in folder.glob(f".*{PARTIAL}"):  # by a writer that was killed
            left.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path, *, wait: bool) -> None:
    try:
        import fcntl  # here, for a kernel can be judged where there is no such thing

        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"{folder} is being written to by another process: wait until it ends, or choose another directory"
        ) from None
    except (ImportError, OSError):
        raise InputError(f"{folder} cannot be written to: there are no file locks here. Choose another") from None
