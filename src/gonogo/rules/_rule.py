"""What a rule is: a name, its parameters, how many readings it needs, and how it finds a limit in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import InputError, TooFewCases


@dataclass(frozen=True, slots=True)
class Rule:
    """How the readings of correct kernels become a limit."""

    name: str
    """As `gonogo.rules.rule` knows it."""
    parameters: Mapping[str, float]
    """All of them, also those left at their defaults; `rate` is the false-positive rate that is promised."""
    needs: int
    """Fewest readings with which the rule keeps its promise."""
    pooled: bool
    """Whether it takes the readings of all controls of a group together, rather than of one control at a time."""
    find_limit: Callable[[NDArray[np.float64]], float]
    """Ascending readings, `needs` of them or more → limit."""

    def limit(self, readings: NDArray[np.float64]) -> float:
        """The limit these readings give, in whatever order they come: a finite number ≥ 0."""
        ordered = np.sort(np.asarray(readings, dtype=np.float64).ravel()) + 0.0  # minus zero is zero
        refused = ~(np.isfinite(ordered) & (ordered >= 0.0))
        if refused.any():
            raise InputError(
                f"rule {self.name}: {int(refused.sum()):,} of {ordered.size:,} readings are negative or not "
                f"finite, such as {float(ordered[refused][0])}. Leave out cases whose outcome is not ok"
            )
        if ordered.size < self.needs:
            raise TooFewCases(self.name, ordered.size, self.needs, rate=self.parameters.get("rate"))
        limit = float(self.find_limit(ordered))
        if not math.isfinite(limit):
            raise InputError(f"rule {self.name} gives the limit {limit} for a largest reading of {ordered[-1]:g}")
        return limit


def check_parameter(rule: str, name: str, value: float, *, above: float, below: float = math.inf) -> float:
    """The value as a float; refuse one that is not strictly between the two."""
    if not above < value < below:
        between = f"above {above:g}" + ("" if below == math.inf else f" and below {below:g}")
        raise InputError(f"rule {rule}: {name} is {value}; it is a finite number {between}")
    return float(value)
