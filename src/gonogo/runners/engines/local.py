"""The machine that gonogo is started on, as an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gonogo.errors import InputError
from gonogo.execution.job import Job
from gonogo.runners.device import count_workers, find_device, has_driver
from gonogo.runners.engines import Order
from gonogo.runners.environment import describe_environment, name_machine
from gonogo.runners.fork_server import start_fork_server
from gonogo.runners.pool import Pool
from gonogo.runners.sharing import Sharing, find_sharing, start_sharing
from gonogo.schema import Record


def open_engine(address: str | None = None) -> Local:
    """Where gonogo is started; it has no address."""
    if address is not None:
        raise InputError(f"address {address}: the local engine is this machine. Use --engine ray for another")
    return Local()


class Local:
    """Runs jobs in processes of this machine."""

    def find_device(self, name: str) -> str:
        """`auto` → cuda where there is a GPU, else cpu; anything else is checked.

        To find one this process loads torch; what workers are forked from is to load it at the same time.
        """
        if name in ("auto", "cuda") and has_driver():
            _start_fork_server()
        return find_device(name)

    def list_kinds(self, device: str) -> tuple[str, ...]:
        """The GPU's name, or the processor's."""
        return (name_machine(device),)

    def hire(self, order: Order) -> LocalCrew:
        """Workers of this machine; those on a GPU share the first."""
        return LocalCrew(order)

    def close(self) -> None:
        """There is nothing to let go of."""


class LocalCrew:
    """A pool. What its workers come from is started at once, and loads torch while the plan is counted."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._workers = order.workers or count_workers(order.device)
        self._pool: Pool | None = None
        self._sharing: Sharing | None = None
        _start_fork_server()
        if order.device == "cuda":
            wanted = self._workers > 1 and order.allowance.shares_gpu
            self._sharing = find_sharing() or (start_sharing() if wanted else None)

    def describe(self) -> dict[str, Any]:
        """What is known of the machine and its software; meanwhile workers reach the GPU."""
        self._start()
        facts = describe_environment(self._order.device)
        return facts | {"gpu_shared": self._shares} if self._order.device == "cuda" else facts

    def run(self, jobs: Iterator[Job]) -> Iterator[list[Record]]:
        """All records of each case, as cases complete."""
        return self._start().run(jobs)

    @property
    def _shares(self) -> bool:
        return self._sharing is not None and self._order.allowance.shares_gpu

    def _start(self) -> Pool:
        if self._pool is None:
            if self._sharing is not None and not self._sharing.wait_until_there():
                self._sharing.close()
                self._sharing = None
            self._pool = Pool(self._workers, self._order.allowance, sharing=self._sharing)
        return self._pool

    def close(self) -> None:
        """End all workers."""
        try:
            if self._pool is not None:
                self._pool.close()
        finally:
            if self._sharing is not None:
                self._sharing.close()


def _start_fork_server() -> None:
    with suppress(OSError, EOFError):  # which the pool tells of, when it comes to that
        start_fork_server()
