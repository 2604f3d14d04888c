"""Two sets of runs → how the readings of controls moved, and whether the limits of the one hold on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gonogo.evaluate.readings import Gathered, SortedGroup, gather
from gonogo.evaluate.score import Method, make_limits
from gonogo.records import Source
from gonogo.table import Share, Table


@dataclass(frozen=True)
class Drift:
    """Readings of one group of controls, before and after."""

    group: tuple[str, ...]
    """Op and contract; kernel and dtype where the rule tells them apart."""
    before: Readings
    after: Readings
    limit: float
    """Made from the readings before."""
    above: int
    """Of the readings after, how many are above it."""

    @property
    def holds(self) -> bool:
        """Whether the limit from before would still do."""
        return self.above == 0


@dataclass(frozen=True)
class Readings:
    """What controls read, in three numbers."""

    cases: int
    median: float
    largest: float

    @classmethod
    def sum_up(cls, values: npt.NDArray[np.float64]) -> Readings:
        """Of one reading or more."""
        return cls(len(values), float(np.median(values)), float(values.max()))


def find_drift(before: Gathered, after: Gathered, method: Method) -> list[Drift]:
    """One per group that both have."""
    limits = {
        (limit.op, limit.contract, limit.kernel or "", limit.dtype or ""): limit
        for limit in make_limits(before, method, ())
    }
    old, new = (_list_groups(side, method) for side in (before, after))
    drifts = []
    for name, limit in sorted(limits.items()):
        was, now = (_take(side, method, groups.get(name)) for side, groups in ((before, old), (after, new)))
        if now.size:
            above = int((now > limit.value).sum())
            group = tuple(filter(None, name))
            drifts.append(Drift(group, Readings.sum_up(was), Readings.sum_up(now), limit.value, above))
    return drifts


def gather_for_drift(source: Source, method: Method) -> Gathered:
    """All readings of the controls of some runs: a median takes them all."""
    return gather(source, {method.kind: True})


def _take(side: Gathered, method: Method, cells: npt.NDArray[np.int64] | None) -> npt.NDArray[np.float64]:
    group = side.readings[method.kind].group(np.empty(0, np.int64) if cells is None else cells)
    assert isinstance(group, SortedGroup)
    return group.take(side.everywhere)


def _list_groups(side: Gathered, method: Method) -> dict[tuple[str, ...], npt.NDArray[np.int64]]:
    """Cells of each group."""
    groups, names = side.cells.group(method.rule, method.gauge)
    return {name: np.flatnonzero(groups == group) for group, name in enumerate(names)}


def list_ops(side: Gathered, method: Method) -> set[str]:
    """Ops that have readings of controls."""
    measured = np.flatnonzero(side.readings[method.kind].counts.sum(1))
    return {side.cells.name("op", int(cell)) for cell in measured}


def make_drift_table(drifts: Sequence[Drift], gauge: str) -> Table:
    """One line per group."""
    lines = [
        (
            " ".join(drift.group), drift.before.cases, drift.after.cases, drift.before.median, drift.after.median,
            drift.before.largest, drift.after.largest, drift.limit, Share(drift.above, drift.after.cases, 2),
            "holds" if drift.holds else "does not hold",
        )
        for drift in drifts
    ]  # fmt: skip
    columns = (
        "group", "cases before", "cases after", "median before", "median after", "largest before", "largest after",
        "limit before", "after above it", "verdict",
    )  # fmt: skip
    essential = ("group", "largest before", "largest after", "limit before", "verdict")
    return Table(f"Drift of {gauge} readings", columns, lines, essential=essential)
