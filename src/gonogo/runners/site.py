"""Jobs that another machine sends → finished cases, which it fetches: a pool that works while nobody asks.

A site knows nothing of how it is reached. One call is enough: it brings jobs, and takes away what has finished.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.errors import GonogoError, InputError
from gonogo.execution.job import Job
from gonogo.runners.environment import describe_environment
from gonogo.runners.job_queue import SentJobs
from gonogo.runners.pool import Allowance, Pool, PoolInterrupted
from gonogo.runners.sharing import find_sharing
from gonogo.schema import Record

WAIT_S = 0.5
"""How long a call waits for something to finish: then whoever asks may have other jobs, or want some back."""


@dataclass(frozen=True, slots=True)
class Posting:
    """What a site is to be."""

    name: str
    """Of its node, for messages."""
    device: str
    workers: int
    allowance: Allowance
    switches: Mapping[str, str | None]
    """Environment variables that change numerics, as the campaign has them."""
    ops_folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What has become of jobs since the last one."""

    finished: tuple[list[Record], ...] = ()
    """The records of each case that is complete."""
    released: tuple[Job, ...] = ()
    """Jobs that were not begun, given back as asked."""
    error: GonogoError | None = None
    """Why the site has stopped, and the campaign must."""


class Site:
    """A pool on one machine, served by a thread of its own."""

    def __init__(self, posting: Posting) -> None:
        self._posting = posting
        self._queue = SentJobs(posting.workers)
        self._finished: list[list[Record]] = []
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._pool: Pool | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> dict[str, Any] | GonogoError:
        """Start workers; the environment that they run in, or why they cannot."""
        try:
            self._check_folders()
            self._set_switches()
            _hide_main_module()
            sharing = find_sharing() if self._posting.device == "cuda" else None
            self._pool = Pool(self._posting.workers, self._posting.allowance, sharing=sharing)
            environment = describe_environment(self._posting.device)  # loads torch, while the fork server does
        except GonogoError as error:
            return error
        if self._posting.device == "cuda":
            environment["gpu_shared"] = sharing is not None and self._posting.allowance.shares_gpu
        self._thread.start()
        return environment

    def _check_folders(self) -> None:
        for folder in self._posting.ops_folders:
            if not Path(folder).is_dir():
                raise InputError(
                    f"node {self._posting.name} has no folder {folder}, where ops are to be imported from: it must "
                    "be at the same path on every node, as on a shared file system"
                )

    def _set_switches(self) -> None:
        for name, value in self._posting.switches.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def exchange(self, jobs: Sequence[tuple[int, Job]], release: int = 0) -> Reply:
        """Take (worker, job) pairs, give back so many that are not begun, and tell what has finished."""
        for worker, job in jobs:
            self._queue.send(worker, job)
        released = tuple(self._queue.release(release)) if release else ()
        with self._changed:
            if not released:
                self._changed.wait_for(lambda: self._finished or self._error is not None, WAIT_S)
            finished, self._finished = tuple(self._finished), []
            if self._error is not None and not isinstance(self._error, GonogoError):
                raise self._error
            return Reply(finished, released, self._error)

    def _serve(self) -> None:
        assert self._pool is not None
        try:
            for records in self._pool.serve(self._queue):
                with self._changed:
                    self._finished.append(records)
                    self._changed.notify()
        except PoolInterrupted:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody asks
            with self._changed:
                self._error = error
                self._changed.notify()

    def close(self) -> None:
        """End all workers."""
        if self._pool is None:
            return
        self._pool.interrupted.set()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.close()


def _hide_main_module() -> None:
    """Keep workers from importing the program of this process, whose it is: they would load all of it."""
    vars(sys.modules["__main__"]).pop("__file__", None)
