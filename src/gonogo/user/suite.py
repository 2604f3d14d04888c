"""What the tests of a project use ↔ its `gonogo.lock`: limits looked up, measured on request, merged and written.

Any number of processes may each know a part; the order in which parts are merged changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gonogo._version import __version__
from gonogo.errors import InputError
from gonogo.limits import Limit
from gonogo.limits.changes import count_changes, diff_limits, order_by_kind, tell_change
from gonogo.limits.lock import Provenance, list_devices, note_devices, read_lock, write_lock
from gonogo.limits.shipped import pick_limit, pick_universal
from gonogo.ops import Op
from gonogo.schema import Contract
from gonogo.user.calibration import measure_limit
from gonogo.words import find_op

Key = tuple[str, str]
"""Name of an op, and a contract in a word."""


@dataclass
class Suite:
    """Limits of one run of a project's tests."""

    path: Path
    name: str
    """Of the lock file, as messages have it."""
    option: str
    """How pytest is told of the lock file, with a space before it; nothing where it is told by the project."""
    update: Literal["all", "new"] | None
    """Which limits to measure."""
    cases: int
    seed: int
    known: Sequence[Limit] | None = None
    """Limits of the lock file, once it was read."""
    provenance: Provenance = field(default_factory=dict)
    """Of the lock file."""
    used: set[Key] = field(default_factory=set)
    fresh: dict[Key, Limit] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    """By run, what a fresh limit was measured on."""

    def give_limit(
        self, op: str | Op, contract: Contract, controls: Sequence[Callable[..., Any]], device: str
    ) -> Limit:
        """The limit of the lock file, or a fresh one where it is to be updated."""
        key = (find_op(op).name, contract.describe())
        self.used.add(key)
        missing = f"no limit for {key[0]}, contract {key[1]}, in {self.name}"
        remedy = f"Measure it: pytest --gonogo-update-new{self.option}"
        if self.known is None:
            if not self.update and not self.path.exists():
                shipped = "use the package's: --gonogo-limits shipped"
                raise InputError(f"{missing}, which does not exist. {remedy}, or {shipped}")
            self.known, self.provenance = self._read()
        if self.update != "all":
            again = f"pytest --gonogo-update{self.option}"
            known = pick_limit(self.known, *key, self.name, again)
            if known is not None:
                return known
            if self.update is None:
                raise InputError(f"{missing}. {remedy}")
        if key not in self.fresh or controls:  # another test may have given others
            limit, machine = measure_limit(
                op, contract, controls=controls, cases=self.cases, seed=self.seed, device=device
            )
            self._add(limit)
            self.machines |= dict.fromkeys(limit.runs, machine)
        return self.fresh[key]

    def find_limit(self, op: Op, contract: Contract) -> Limit | None:
        """The limit of the lock file for an op that need not have one of its own; None: none."""
        if self.known is None and self.path.exists():
            self.known, self.provenance = self._read()
        key = (op.name, contract.describe())
        known = pick_limit(self.known or (), *key, self.name)
        if known is not None:
            self.used.add(key)
        return known or pick_universal(self.known or (), key[1], self.name)

    def list_devices(self, limit: Limit) -> tuple[str, ...]:
        """The machines that a limit of this run is from."""
        if self.is_fresh(limit):
            return tuple(sorted({self.machines[run] for run in limit.runs}))
        return list_devices(limit, self.provenance)

    def is_fresh(self, limit: Limit) -> bool:
        """Whether a limit was measured in this run."""
        return self.fresh.get((limit.op, limit.contract)) is limit

    def forget(self, keys: Iterable[Key]) -> None:
        """Do not write limits that were measured for tests which judged nothing: theirs may be of a GPU."""
        for key in keys:
            del self.fresh[key]

    def to_dict(self) -> dict[str, Any]:
        """What another process must know, in plain types."""
        fresh = [asdict(limit) for limit in self.fresh.values()]
        return {"used": sorted(self.used), "fresh": fresh, "machines": dict(self.machines)}

    def merge(self, other: Mapping[str, Any]) -> None:
        """Take in what another process knows."""
        self.used |= {(op, contract) for op, contract in other["used"]}
        self.machines |= other["machines"]
        for fields in other["fresh"]:
            self._add(Limit(**fields | {"runs": tuple(fields["runs"])}))

    def write(self) -> list[str]:
        """Fresh limits into the lock file, among those it has; what that changed, in lines."""
        old, provenance = self._read()
        # One limit per op and contract, whatever an earlier one was made from.
        kept = [limit for limit in old if limit.gauge != "bound" or (limit.op, limit.contract) not in self.fresh]
        limits = [*kept, *self.fresh.values()]
        facts = note_devices(limits, provenance | {"gonogo": __version__}, self.machines)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_lock(self.path, limits, facts)
        before = {key: limit for key, limit in _index(old).items() if key in self.fresh}
        changes = diff_limits(_anonymous(before), _anonymous(self.fresh))
        lines = [f"{_count(self.fresh, 'limit')} written to {self.name}: {count_changes(changes, self.fresh)}"]
        for change in order_by_kind(changes):
            lines.append(f"{tell_change(change)} ({self.fresh[change.op, change.contract].kernel})")
        return lines

    def find_unused(self) -> list[str]:
        """Limits of the lock file that no test used, in lines."""
        if not self.path.exists():
            return []
        unused = sorted(_index(self._read()[0]).keys() - self.used)
        head = f"{_count(unused, 'unused limit')} in {self.name}; delete the entries no test needs:"
        return [head, *(f"  {op}, contract {contract}" for op, contract in unused)] if unused else []

    def _read(self) -> tuple[list[Limit], Provenance]:
        if self.update and not self.path.exists():
            return [], {}
        # A suite's limits come from its tests, not from runs.
        remedy = f"delete it and run: pytest --gonogo-update{self.option}"
        return read_lock(self.path, name=self.name, remedy=remedy)

    def _add(self, limit: Limit) -> None:
        """Of two for the same, keep the looser: both were made from what is held to be correct."""
        key = (limit.op, limit.contract)
        both = (limit, self.fresh.get(key, limit))
        self.fresh[key] = max(both, key=lambda limit: (limit.value, limit.cases, limit.kernel or "", limit.runs))


def _index(limits: Sequence[Limit]) -> dict[Key, Limit]:
    """Those that tests could have used."""
    usable = [limit for limit in limits if limit.gauge == "bound" and limit.dtype is None]
    return {(limit.op, limit.contract): limit for limit in usable if not limit.is_universal}


def _anonymous(limits: Mapping[Key, Limit]) -> list[Limit]:
    """Without what they were made from, so that old and new can be compared."""
    return [Limit(*key, None, None, "bound", limit.rule, value=limit.value) for key, limit in limits.items()]


def _count(things: Any, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
