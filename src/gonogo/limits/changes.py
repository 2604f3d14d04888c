"""Limits of two locks → what became of each, and one list of both."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gonogo.errors import UnknownRule
from gonogo.limits import EVERY_OP, Limit
from gonogo.limits.rules import rule

Kind = Literal["new", "tightened", "loosened", "fewer", "gone"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Key = tuple[str, str, str | None, str | None, str]
"""What a limit is for: op, contract, kernel, dtype, gauge."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one limit between two locks."""

    op: str
    contract: str
    kernel: str | None
    dtype: str | None
    gauge: str
    before: float | None
    """None where the limit is new."""
    after: float | None
    """None where it is gone."""
    before_cases: int | None = None
    """Readings that it was made from."""
    after_cases: int | None = None

    @property
    def kind(self) -> Kind:
        """The change in a word."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        if self.after == self.before:
            return "fewer"  # the same value, from fewer cases: it is worth less
        return "tightened" if self.after < self.before else "loosened"


def diff_limits(old: Sequence[Limit], new: Sequence[Limit]) -> list[Change]:
    """Limits whose value differs, or that are from fewer cases, in the order of a lock."""
    before = {key_of(limit): limit for limit in old}
    after = {key_of(limit): limit for limit in new}
    for named, pooled in (before, after), (after, before):
        _name_pooled(named, pooled)
    changes = [
        Change(*key, *_find_values(before.get(key), after.get(key)))
        for key in sorted(before.keys() | after.keys(), key=order_of)
    ]
    return [change for change in changes if change.before != change.after or _has_fewer(change)]


def _find_values(
    before: Limit | None, after: Limit | None
) -> tuple[float | None, float | None, int | None, int | None]:
    """Value before and after, and the cases that each is from."""
    return (
        before.value if before else None, after.value if after else None,
        before.cases if before else None, after.cases if after else None,
    )  # fmt: skip


def _has_fewer(change: Change) -> bool:
    if change.before_cases is None or change.after_cases is None:
        return False
    return change.after_cases < change.before_cases


def count_changes(changes: Sequence[Change], limits: Collection[object]) -> str:
    """How many of each kind, and how many of `limits` are what they were: "2 new, 1 loosened, 4 unchanged"."""
    counts: dict[str, int] = {kind: sum(change.kind == kind for change in changes) for kind in KINDS}
    counts["unchanged"] = len(limits) - sum(change.after is not None for change in changes)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def tell_change(change: Change) -> str:
    """A change in a line, for people."""
    numbers = " → ".join(f"{value:.4g}" for value in (change.before, change.after) if value is not None)
    op = "all ops" if change.op == EVERY_OP else change.op
    parts = [op, f"contract {change.contract}", change.kernel, change.dtype]
    fewer = f", from {change.before_cases:,} → {change.after_cases:,} cases" if _has_fewer(change) else ""
    return f"  {change.kind:<10} {', '.join(part for part in parts if part)}: {numbers}{fewer}"


def order_by_kind(changes: Sequence[Change]) -> list[Change]:
    """In the order of KINDS."""
    return sorted(changes, key=lambda change: KINDS.index(change.kind))


def _name_pooled(named: Mapping[Key, Limit], pooled: dict[Key, Limit]) -> None:
    """Give limits that name no kernel the one of their only counterpart: pytest names it, calibrate does not."""
    for key in [key for key in pooled if key[2] is None and key not in named]:
        others = [other for other in named if other[:2] == key[:2] and other[3:] == key[3:]]
        if len(others) == 1 and others[0] not in pooled:
            pooled[others[0]] = pooled.pop(key)


@dataclass(frozen=True)
class LockMerge:
    """The limits of a lock and fresh ones, in one list."""

    limits: list[Limit]
    taken: list[Limit]
    """Of the fresh ones, all but universal limits from fewer ops than the lock's, which says more."""
    kept: list[Limit]
    """Of the lock, that nothing fresh stands for."""
    clashing: list[Limit]
    """Of the lock, for all kernels where a fresh one is for one, or the other way round: verdicts need one."""


def merge_limits(old: Sequence[Limit], fresh: Sequence[Limit]) -> LockMerge:
    """The limits of a lock with fresh ones in their place."""
    taken = [limit for limit in fresh if not limit.is_universal or _covers(limit, fresh, old)]
    replaced = {_find_subject(limit) for limit in taken}
    others = [limit for limit in old if _find_subject(limit) not in replaced]
    kinds: dict[tuple[str, str, str], set[tuple[bool, bool]]] = {}
    for limit in taken:
        kinds.setdefault((limit.op, limit.contract, limit.gauge), set()).add(_find_kind(limit))
    clashing = [
        limit for limit in others
        if _find_kind(limit) not in kinds.get((limit.op, limit.contract, limit.gauge), {_find_kind(limit)})
    ]  # fmt: skip
    kept = [limit for limit in others if limit not in clashing]
    return LockMerge([*kept, *taken], taken, kept, clashing)


def _covers(universal: Limit, fresh: Sequence[Limit], old: Sequence[Limit]) -> bool:
    """Whether a fresh universal limit is from all the ops that the lock's own says something of."""
    standing = [limit for limit in old if limit.is_universal and _find_subject(limit) == _find_subject(universal)]
    if not standing:
        return True
    theirs, ours = (
        {limit.op for limit in limits if (limit.contract, limit.gauge) == (universal.contract, universal.gauge)}
        for limits in (old, fresh)
    )
    return theirs <= ours and _count_ops(universal) >= _count_ops(standing[0])


def _find_kind(limit: Limit) -> tuple[bool, bool]:
    """Whether a limit is for one dtype, and whether for one kernel."""
    return limit.dtype is not None, _find_subject(limit)[2] is not None


def _find_subject(limit: Limit) -> Key:
    """What a limit is for; a pooled one is for all kernels, also where it names those it was measured on."""
    op, contract, kernel, dtype, gauge = key_of(limit)
    try:
        pools = rule(limit.rule).pools != "control"
    except UnknownRule:
        pools = False
    return op, contract, None if pools else kernel, dtype, gauge


def _count_ops(limit: Limit) -> int:
    """From how many ops a universal limit was made, as its `kernel` has it: "28 ops"."""
    count = re.match(r"\d+", limit.kernel or "")
    return int(count[0]) if count else 0


def key_of(limit: Limit) -> Key:
    """What a limit is for."""
    # A universal limit from one op more is the same limit, changed.
    kernel = None if limit.is_universal else limit.kernel
    return limit.op, limit.contract, kernel, limit.dtype, limit.gauge


def order_of(key: Key) -> tuple[Any, ...]:
    """Its place in a lock."""
    op, contract, kernel, dtype, gauge = key
    return op, contract, kernel or "", dtype or "", gauge, kernel is not None, dtype is not None
