"""An op and a contract → the limit of a lock file, and where it is from; by default the lock in the package.

That one is made from the committed records by `make results`. An op that a lock file has no limit for is held to
its limit for all ops of the contract, and where there is none to the deterministic bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal

from gonogo.errors import InputError
from gonogo.limits import EVERY_OP, Limit
from gonogo.limits.lock import list_devices, read_lock
from gonogo.limits.loose import tell_loose
from gonogo.ops import Op
from gonogo.schema import Contract

NOTHING_CALIBRATED = "the deterministic bound: no limit was ever calibrated for this op and contract"
NOT_IN_LOCK = "the deterministic bound: {} has no limit for this one"
MAKE_POOLED = "gonogo calibrate RUNS --gauge bound --rule pooled"
"""Makes a lock of limits that verdicts can use."""


Origin = Literal["lock", "given", "controls", "one ulp", "lowest"]


@dataclass(frozen=True)
class FoundLimit:
    """What readings are held against, and where it is from."""

    limit: Limit | None
    """None: nothing was calibrated, and the deterministic bound alone decides."""
    origin: Origin = "given"
    """A lock file; a limit at hand; controls run beside the kernel; no op at all; the lowest that a rule makes."""
    lock: Path | None = None
    """The lock file that was named; None for the package's own."""
    devices: str | None = None
    """The machines it was measured on, as the lock file has them."""
    controls: int = 0
    """How many controls it was made from, where these were run beside the kernel."""
    cases: int = 0
    """On how many cases."""

    @property
    def told(self) -> str:
        """Where it is from, in words."""
        return tell_origin(self)

    @property
    def gauge(self) -> str:
        """Which reading of a record it is for."""
        return "deterministic" if self.limit is None else self.limit.gauge

    @property
    def value(self) -> float:
        """The most that may be read; the deterministic bound is 1 in its own gauge."""
        return 1.0 if self.limit is None else self.limit.value


def shipped_lock() -> Path:
    """Path of the lock file inside the package."""
    return Path(str(files("gonogo.limits").joinpath("shipped.lock")))


def choose_limit(
    op: Op, contract: Contract, *, lock: str | Path | None = None, limit: Limit | None = None
) -> FoundLimit:
    """The given limit, else of the lock file the op's own or the contract's, else the deterministic bound."""
    if limit is not None:
        if not isinstance(limit, Limit):
            raise InputError(
                f"limit is {type(limit).__name__}; give a gonogo.limits.Limit, or a lock file by lock="
            )
        if limit.op not in (op.name, EVERY_OP) or limit.contract != contract.describe():
            raise InputError(
                f"limit is for op {limit.op}, contract {limit.contract}; this is op {op.name}, contract "
                f"{contract.describe()}. Name that op and contract, or take another limit"
            )
        return FoundLimit(limit)
    return find_limit(op.name, contract, None if lock is None else Path(lock))


def find_limit(op: str, contract: Contract, lock: Path | None = None) -> FoundLimit:
    """The limit of a lock file; of the package's if none is given."""
    path = lock or shipped_lock()
    limits, provenance = read_lock(path)
    # Sums in no fixed order are within the same scale: their limit is that of the contract without them.
    # Nor does it matter for a limit where results are stored: what that rounds is in the scale.
    simpler = (contract, replace(contract, atomics=False), replace(contract, atomics=False, stored=None))
    contracts = list(dict.fromkeys(each.describe() for each in simpler))
    own = (pick_limit(limits, op, name, str(path)) for name in contracts)
    for limit in (*own, *(pick_universal(limits, name, str(path)) for name in contracts)):
        if limit is not None:
            return FoundLimit(limit, "lock", lock, ", ".join(list_devices(limit, provenance)) or "?")
    return FoundLimit(None, "lock", lock)


def pick_universal(limits: Iterable[Limit], contract: str, lock: str) -> Limit | None:
    """The one limit among a lock file's for all ops of a contract; None: none."""
    for limit in limits:
        if (limit.op, limit.contract, limit.gauge, limit.dtype) == (EVERY_OP, contract, "bound", None):
            return check_limit(limit, lock)
    return None


def pick_limit(
    limits: Iterable[Limit], op: str, contract: str, lock: str, remedy: str = MAKE_POOLED
) -> Limit | None:
    """The one limit among a lock file's that all dtypes and kernels of an op and contract are held to; None: none.

    Refused where there are only others: in another gauge, or each for one control or dtype.
    """
    matching = [limit for limit in limits if (limit.op, limit.contract) == (op, contract)]
    usable = [limit for limit in matching if limit.gauge == "bound"]
    if not matching:
        return None
    if not usable:
        gauges = ", ".join(sorted({limit.gauge for limit in matching}))
        problem = f"in the gauge {gauges}; verdicts need one in bound"
    elif len(usable) > 1 or usable[0].dtype is not None:
        each = " and ".join(name for name in ("kernel", "dtype") if any(getattr(limit, name) for limit in usable))
        problem = f"each for one {each}; verdicts need one for all"
    else:
        return check_limit(usable[0], lock)
    count = f"{len(usable or matching)} limit{'' if len(usable or matching) == 1 else 's'}"
    raise InputError(f"{lock}: {count} for {op}, contract {contract}, {problem}. Make it with: {remedy}")


def check_limit(limit: Limit, lock: str) -> Limit:
    """The limit of a lock file, unless it would let anything pass."""
    if limit.is_vacuous:
        raise InputError(
            f"{lock}: the limit {limit.value:g} for {limit.op}, contract {limit.contract}, lets errors pass that "
            "no rounding explains. Measure it again, on kernels that are correct in every case"
        )
    return limit


def note_loose(limit: Limit) -> str | None:
    """What is to be said of a limit that is not the package's, where it is looser than any rule makes it."""
    limits, _ = read_lock(shipped_lock())
    own = [known for known in limits if (known.op, known.contract) == (limit.op, limit.contract)]
    comparable = [known for known in own if (known.gauge, known.dtype) == (limit.gauge, limit.dtype)]
    return tell_loose(limit, next(iter(comparable), None))


def tell_origin(chosen: FoundLimit) -> str:
    """Where a limit is from: rule, cases and kernels, and the machine; of a universal one, why it is used."""
    limit = chosen.limit
    if limit is None:
        return NOTHING_CALIBRATED if chosen.lock is None else NOT_IN_LOCK.format(chosen.lock)
    if chosen.origin == "one ulp":
        return "one unit in the last place: no op was named"
    if chosen.origin == "lowest":
        return "the lowest that is made"
    if chosen.origin == "controls":
        made_from = f"{_count(limit.cases, 'reading')} of {_count(chosen.controls, 'control')}"
        worth = f"at most {100 * limit.fp_upper95:.2g} % false positives, with 95 % confidence"
        return f"{limit.rule}, {made_from} on {_count(chosen.cases, 'case')}; {worth}"
    note = note_loose(limit) if chosen.lock is not None or chosen.origin == "given" else None
    loose = f"; it is {note}" if note else ""
    where = f" on {chosen.devices}" if chosen.devices else ""
    why = ": this op has no limit of its own" if limit.is_universal else ""
    return f"{limit.rule}, {limit.cases:,} cases of {limit.kernel or 'correct kernels'}{where}{why}{loose}"


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
