"""What a rule is: a name, its parameters, how many readings it needs, and which of them it makes a limit of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import InputError, TooFewCases

RANKS = (10**3, 10**5, 10**8)
"""Numbers of readings by which a rule shows whether it looks at any but the largest."""
LARGE = 1e9
"""A reading beyond every floor: a limit for it that is below it shows a factor below 1."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How the readings of correct kernels become a limit."""

    name: str
    """What `gonogo.limits.rules.rule` finds it by."""
    parameters: Mapping[str, float]
    """All of them, also those left at their defaults; `rate` is the false-positive rate that is promised."""
    needs: int
    """Fewest readings with which the rule keeps its promise."""
    pools: Literal["control", "op", "contract"]
    """What it takes together: readings of one control, of all of an op and contract, or of all of a contract."""
    find_rank: Callable[[int], int]
    """How many readings, `needs` of them or more → which one counts, 0 for the smallest."""
    settle: Callable[[float], float] = float
    """The reading that counts → limit."""

    @property
    def looks_at_largest(self) -> bool:
        """Whether the largest reading and their number say all that a limit, and what it is worth, takes.

        A rank below the largest takes them all, and so does a factor below 1: some are above the limit then, and
        are counted.
        """
        return all(self.find_rank(n) == n - 1 for n in RANKS) and self.settle(LARGE) >= LARGE

    def limit(self, readings: NDArray[np.float64]) -> float:
        """The limit these readings give, in whatever order they come: a finite number ≥ 0."""
        values = np.asarray(readings, dtype=np.float64).ravel()
        refused = values[~(np.isfinite(values) & (values >= 0.0))]
        if refused.size:
            raise InputError(
                f"rule {self.name}: {refused.size:,} of {values.size:,} readings are negative or not "
                f"finite, such as {float(np.sort(refused)[0])}. Leave out cases whose outcome is not ok"
            )
        return self.limit_at(values.size, lambda rank: _pick(values, rank))

    def limit_at(self, count: int, pick: Callable[[int], float]) -> float:
        """The limit of so many readings, of which `pick` finds the one of a rank."""
        if count < self.needs:
            raise TooFewCases(self.name, count, self.needs, rate=self.parameters.get("rate"))
        reading = pick(self.find_rank(count)) + 0.0 if count else 0.0  # minus zero is zero
        limit = self.settle(reading)
        if not math.isfinite(limit):
            raise InputError(f"rule {self.name} gives the limit {limit} for a reading of {reading:g}")
        return limit


def _pick(values: NDArray[np.float64], rank: int) -> float:
    """The value at a rank, without sorting the others."""
    return float(values.max() if rank == values.size - 1 else np.partition(values, rank)[rank])


def check_parameter(rule: str, name: str, value: float, *, above: float, below: float = math.inf) -> float:
    """The value as a float; refuse one that is not strictly between the two."""
    if not above < value < below:
        between = f"above {above:g}" + ("" if below == math.inf else f" and below {below:g}")
        raise InputError(f"rule {rule}: {name} is {value}; it is a finite number {between}")
    return float(value)
