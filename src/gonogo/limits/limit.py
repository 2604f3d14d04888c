"""Readings of controls → limits, one per group of records, each with what it is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gonogo.formats import get_format
from gonogo.limits.intervals import upper_bound
from gonogo.limits.rules import Rule

GAUGES = ("absolute", "magnitude", "ulp", "bound", "deterministic")
"""Gauges that records hold readings in; the last is `bound` with every sum taken for one long chain."""
DTYPE_FREE = ("bound", "deterministic")
"""Gauges that leave output rounding out, so that readings of all dtypes of a contract belong together."""
EVERY_OP = "*"
"""Stands for the op in a universal limit: made from all ops of a contract, for those without one of their own."""
VACUOUS = 0.1
"""Share of its scale that an error may not reach: an output of zeros is off by about that, where S is large."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A number that a correct kernel's reading stays below, and where it is from."""

    op: str
    """EVERY_OP in a universal limit."""
    contract: str
    kernel: str | None
    """What it was made from, a control or, for EVERY_OP, how many ops; None for all controls of the contract."""
    dtype: str | None
    """None for all."""
    gauge: str
    rule: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Of the rule."""
    value: float = 0.0
    cases: int = 0
    """Readings it was made from."""
    exceeding: int = 0
    """How many of its readings are above it."""
    fp_upper95: float = 1.0
    """False-positive rate on cases like these, at most, with 95 % confidence."""
    runs: tuple[str, ...] = ()
    worst: float | None = None
    """The largest of its readings; None in lock files from before it was kept."""

    @property
    def is_universal(self) -> bool:
        """Whether it is for any op of its contract."""
        return self.op == EVERY_OP

    @property
    def is_vacuous(self) -> bool:
        """Whether it lets errors pass that are no rounding: some control was wrong on some case."""
        if self.gauge not in DTYPE_FREE:
            return False
        accumulate = self.contract.partition("+")[0]
        return self.value * get_format(accumulate).unit_roundoff > VACUOUS


class GroupOfReadings(Protocol):
    """Readings of one group, however they are kept."""

    @property
    def count(self) -> int:
        """How many."""

    @property
    def largest(self) -> float:
        """0 where there is none."""

    def pick(self, rank: int) -> float:
        """The one of a rank, 0 for the smallest."""

    def count_above(self, value: float) -> int:
        """How many are larger."""


@dataclass(frozen=True)
class ReadingsAtHand:
    """Readings of one group, in memory."""

    values: npt.NDArray[np.float64]

    @property
    def count(self) -> int:
        """How many."""
        return len(self.values)

    @property
    def largest(self) -> float:
        """0 where there is none."""
        return float(self.values.max(initial=0.0))

    def pick(self, rank: int) -> float:
        """The one of a rank, 0 for the smallest."""
        return float(np.partition(self.values, rank)[rank])

    def count_above(self, value: float) -> int:
        """How many are larger."""
        return int((self.values > value).sum())


def make_limit(
    rule: Rule, gauge: str, readings: GroupOfReadings | npt.NDArray[np.float64], *,
    op: str, contract: str, kernel: str | None = None, dtype: str | None = None, runs: Sequence[str] = (),
) -> Limit:  # fmt: skip
    """Apply a rule to the readings of one group."""
    if isinstance(readings, np.ndarray):
        value, readings = rule.limit(readings), ReadingsAtHand(readings)
    else:
        value = rule.limit_at(readings.count, readings.pick)
    count, exceeding = readings.count, readings.count_above(value)
    return Limit(
        op, contract, kernel, dtype, gauge, rule.name, dict(rule.parameters), value, count, exceeding,
        upper_bound(exceeding, count), tuple(runs), readings.largest if count else None,
    )  # fmt: skip
