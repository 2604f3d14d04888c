"""Two sets of runs → how the readings of controls moved, and whether the limits of the one hold on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gonogo.evaluate.groups import Rows
from gonogo.evaluate.score import Method, calibrate
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
    def sum_up(cls, values: npt.NDArray[np.float32]) -> Readings:
        """Of one reading or more."""
        return cls(len(values), float(np.median(values)), float(values.max()))


def find_drift(before: Rows, after: Rows, method: Method) -> list[Drift]:
    """One per group that both have."""
    limits = {
        (limit.op, limit.contract, limit.kernel or "", limit.dtype or ""): limit
        for limit in calibrate(before, method)
    }
    sides = []
    for rows in (before, after):
        codes, names = rows.group(method.rule, method.gauge)
        readings = rows.columns.readings[method.gauge]
        sides.append({
            name: readings[rows.calibrating & (codes == group)] for group, name in enumerate(names)
        })  # fmt: skip
    drifts = []
    for name, limit in sorted(limits.items()):
        old, new = sides[0][name], sides[1].get(name, np.empty(0, np.float32))
        if new.size:
            above = int((new > limit.value).sum())
            group = tuple(filter(None, name))
            drifts.append(Drift(group, Readings.sum_up(old), Readings.sum_up(new), limit.value, above))
    return drifts


def list_ops(rows: Rows) -> set[str]:
    """Ops that have readings of controls."""
    names = rows.columns.names["op"]
    return {names[code] for code in np.unique(rows.columns.codes["op"][rows.calibrating])}


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
