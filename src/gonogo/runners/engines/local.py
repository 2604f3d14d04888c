"""The machine that gonogo is started on, as an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gonogo.errors import InputError
from gonogo.execution.job import Job
from gonogo.runners.device import count_workers, find_device
from gonogo.runners.engines import Order
from gonogo.runners.environment import describe_environment, name_machine
from gonogo.runners.pool import Pool
from gonogo.schema import Record


def open_engine(address: str | None = None) -> Local:
    """Where gonogo is started; it has no address."""
    if address is not None:
        raise InputError(f"address {address}: the local engine is this machine. Use --engine ray for another")
    return Local()


class Local:
    """Runs jobs in processes of this machine."""

    def find_device(self, name: str) -> str:
        """`auto` → cuda where there is a GPU, else cpu; anything else is checked."""
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
    """A pool, started when jobs come: until then a campaign may be refused."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._pool: Pool | None = None

    def describe(self) -> dict[str, Any]:
        """What is known of the machine and its software."""
        return describe_environment(self._order.device)

    def run(self, jobs: Iterator[Job]) -> Iterator[list[Record]]:
        """All records of each case, as cases complete."""
        self._pool = Pool(self._order.workers or count_workers(self._order.device), self._order.allowance)
        return self._pool.run(jobs)

    def close(self) -> None:
        """End all workers."""
        if self._pool is not None:
            self._pool.close()
