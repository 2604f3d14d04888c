"""Jobs → the next one for a worker: from a plan, or from what another process has sent for each worker."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Protocol

from gonogo.execution.job import Job

READ_AHEAD = 1024
"""Jobs looked at to find one that suits a worker."""


class Queue(Protocol):
    """What a pool has its jobs from."""

    def take(self, worker: int) -> Job | None:
        """A job for a worker; None where there is none now."""

    def put(self, job: Job) -> None:
        """Hand back what is left of a job."""

    def can_spare(self, workers: int) -> bool:
        """Whether so many workers may each have a job before they are done with another."""

    @property
    def is_ended(self) -> bool:
        """Whether none is left, and none will come but what is handed back."""


class JobQueue:
    """Jobs, handed out so that a worker meets kernels it has loaded: loading one costs more than running it.

    Some jobs are read ahead and sorted by op and dtype. A worker takes from what it has begun, then begins
    something, and at last helps out where most is left.
    """

    def __init__(self, jobs: Iterator[Job]) -> None:
        self._jobs = jobs
        self._waiting: dict[tuple[str, str], deque[Job]] = {}
        self._begun_by: dict[tuple[str, str], Hashable] = {}
        self._count = 0

    def take(self, worker: Hashable) -> Job | None:
        """A job for a worker; None when none is left."""
        if self.is_ended:
            return None
        groups = [group for group, jobs in self._waiting.items() if jobs]
        own = [group for group in groups if self._begun_by.get(group) == worker]
        fresh = [group for group in groups if group not in self._begun_by]
        chosen = max(own or fresh or groups, key=lambda group: len(self._waiting[group]))
        self._begun_by.setdefault(chosen, worker)
        self._count -= 1
        return self._waiting[chosen].popleft()

    def put(self, job: Job) -> None:
        """Hand in a job, or back what is left of one."""
        self._waiting.setdefault((job.case.op, job.case.dtype), deque()).append(job)
        self._count += 1

    def can_spare(self, workers: int) -> bool:
        """While there is one for each to have, and one more for each that is free before another is done."""
        return self._count > 2 * workers

    def forget(self, worker: Hashable) -> None:
        """Let others begin what a worker has begun that is gone, and all that it had loaded with it."""
        self._begun_by = {group: other for group, other in self._begun_by.items() if other != worker}

    @property
    def is_ended(self) -> bool:
        """Whether none is left."""
        for job in islice(self._jobs, max(READ_AHEAD - self._count, 0)):
            self.put(job)
        return not self._count


class SentJobs:
    """Jobs that another process has chosen a worker for, some ahead; a worker without any helps out another.

    Filled by one thread and emptied by another.
    """

    def __init__(self, workers: int) -> None:
        self._waiting: list[deque[Job]] = [deque() for _ in range(workers)]
        self._begun: deque[Job] = deque()
        self._lock = threading.Lock()
        self.is_ended = False

    def send(self, worker: int, job: Job) -> None:
        """Add a job for a worker."""
        with self._lock:
            self._waiting[worker].append(job)

    def take(self, worker: int) -> Job | None:
        """What is left of a job, the worker's next one, or another's; None where none waits."""
        with self._lock:
            jobs = self._begun or self._waiting[worker] or max(self._waiting, key=len)
            return jobs.popleft() if jobs else None

    def put(self, job: Job) -> None:
        """Hand back what is left of a job."""
        with self._lock:
            self._begun.append(job)

    def can_spare(self, workers: int) -> bool:
        """No: jobs have come ahead already, and those in a worker's pipe could not be released for other nodes."""
        return False

    def release(self, most: int) -> list[Job]:
        """Take back jobs that none has begun, so many at most, for others to run: those that would come last."""
        released: list[Job] = []
        with self._lock:
            while len(released) < most and any(self._waiting):
                released.append(max(self._waiting, key=len).pop())
        return released
