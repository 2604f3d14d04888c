"""An engine's name → where the jobs of campaigns run. One file per engine, found by its name.

An engine file has one function, `open_engine(address) -> Engine`; adding an engine touches no other file.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from gonogo.errors import UnknownWord
from gonogo.execution.job import Job
from gonogo.runners.pool import Allowance
from gonogo.schema import Record

__all__ = ["Crew", "Engine", "Order", "engine_names", "open_engine"]


@dataclass(frozen=True, slots=True)
class Order:
    """What a campaign asks of an engine."""

    device: str
    allowance: Allowance
    workers: int | None = None
    """Processes in all; None leaves it to the engine."""
    ops_folders: tuple[str, ...] = ()
    kind: str | None = None
    """The only kind of device to use; None where there is but one."""


class Crew(Protocol):
    """Workers on devices of one kind, for one campaign."""

    def describe(self) -> dict[str, Any]:
        """The environment that all records are from, as run.json has it; waits for the first worker."""

    def run(self, jobs: Iterator[Job]) -> Iterator[list[Record]]:
        """All records of each case, as cases complete; an empty list where nothing has come for a moment."""

    def close(self) -> None:
        """End all workers."""


class Engine(Protocol):
    """Machines, of one kind or several."""

    def find_device(self, name: str) -> str:
        """`auto` → cuda where there is a GPU, else cpu; anything else is checked."""

    def list_kinds(self, device: str) -> tuple[str, ...]:
        """Names of the kinds of devices that there are now."""

    def hire(self, order: Order) -> Crew:
        """Workers, as they are being started; campaigns may have them at the same time."""

    def close(self) -> None:
        """Let go of the machines."""


@cache
def engine_names() -> tuple[str, ...]:
    """Names of all engines, sorted."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in modules if not name.startswith("_")))


def open_engine(name: str, address: str | None = None) -> Engine:
    """The engine called `name`; `address` says where it is, where an engine can be elsewhere."""
    if name not in engine_names():
        raise UnknownWord("engine", name, engine_names())
    engine: Engine = import_module(f"{__name__}.{name}").open_engine(address)
    return engine
