"""What one pass over a pair of arrays yields; partials of pieces add up to those of the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from gonogo.formats import Format
from gonogo.schema import ULP_SATURATED


class Bracket(NamedTuple):
    """Errors in [low, high) are counted; every `stride`-th of them is kept, up to `capacity`."""

    low: float
    high: float
    stride: int = 1
    capacity: int = 0


EMPTY_BRACKET = Bracket(math.inf, math.inf)
N_BRACKETS = 3
"""Brackets a pass can serve: one per percentile."""


@dataclass(frozen=True, slots=True)
class Caught:
    """What one bracket caught."""

    below_low: int
    below_high: int
    values: Any
    """What was kept, unsorted: an array, or a DeviceValues where it stays on a GPU."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Partial ErrorStats of one piece. Sums are exact to a few units in the last place."""

    exceeding: int
    max_abs: float
    sum_abs: float | Fraction
    nonzero: int
    """Elements with expected ≠ 0, over which relative errors are taken."""
    max_rel: float
    sum_rel: float | Fraction
    max_ulp: int
    sum_ulp: float
    caught: tuple[Caught, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """One contiguous piece: bits of actual and expected with their formats."""

    actual: Any
    actual_format: Format
    expected: Any
    expected_format: Format


def is_short(actual: Format, expected: Format) -> bool:
    """Whether both are one format of up to 16 bits, so that errors are full of ties."""
    return actual is expected and actual.bits <= 16


def sum_exactly(terms: Sequence[float | Fraction]) -> float | Fraction:
    """Sum without rounding in between; a Fraction only where a float64 would overflow."""
    try:
        if Fraction not in map(type, terms):
            return math.fsum(terms)
    except (OverflowError, ValueError):  # finite terms with an infinite sum; infinities of both signs
        pass
    odd = [x for x in terms if isinstance(x, float) and not math.isfinite(x)]
    return sum(odd) if odd else sum((Fraction(x) for x in terms), Fraction(0))


def add_scans(scans: Sequence[Scan]) -> Scan:
    """Partials of pieces → partials of the whole."""
    if len(scans) == 1:
        return scans[0]
    return Scan(
        exceeding=sum(s.exceeding for s in scans),
        max_abs=max(s.max_abs for s in scans),
        sum_abs=sum_exactly([s.sum_abs for s in scans]),
        nonzero=sum(s.nonzero for s in scans),
        max_rel=max(s.max_rel for s in scans),
        sum_rel=sum_exactly([s.sum_rel for s in scans]),
        max_ulp=max(s.max_ulp for s in scans),
        sum_ulp=math.fsum(s.sum_ulp for s in scans),
        caught=tuple(
            Caught(
                sum(c.below_low for c in column),
                sum(c.below_high for c in column),
                np.concatenate([c.values for c in column]),
            )
            for column in zip(*(s.caught for s in scans), strict=True)
        ),
    )


def sum_overflowed(total: float | Fraction, largest: float) -> bool:
    """Whether a sum is infinite though none of its terms is."""
    return total == math.inf and largest < math.inf


def mean_of(total: float | Fraction, count: int) -> float:
    """Mean from an exact sum; 0 over nothing."""
    return 0.0 if count == 0 else float(total / count)


def saturate(max_ulp: int, sum_ulp: float, saturated: bool) -> tuple[int, float]:
    """ULP results with the saturation of NaN and disagreeing infinities put in."""
    return (ULP_SATURATED, math.inf) if saturated else (max_ulp, sum_ulp)


class Unit(NamedTuple):
    """A gauge's unit for element i: constant + per_magnitude·|r_i| + per_ulp·ulp(r_i) + per_scale·S_i.

    Every tolerance in the field is of this form, so one fused pass per path serves all gauges.
    """

    constant: float = 0.0
    per_magnitude: float = 0.0
    per_ulp: float = 0.0
    per_scale: float = 0.0
    from_cell: bool = False
    """Whether the error is counted from the rounding cell of the output rather than from its value."""


@dataclass(frozen=True, slots=True)
class WorstError:
    """Partial reading of one piece."""

    worst: float
    index: int
    signed_sum: float | Fraction
    infinite: int
    """Elements whose error is infinite; they are not in signed_sum."""
    bad_scale: int | None = None
    """First element whose scale is negative or NaN: the reading is then void."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Partial size of a reference over its finite elements."""

    largest: float
    squares: float
    finite: int


def add_worst_errors(parts: Sequence[WorstError]) -> WorstError:
    """Readings of pieces in flat order → reading of the whole; the first of equals is the worst."""
    worst = max(parts, key=lambda part: part.worst)
    return WorstError(
        worst.worst,
        worst.index,
        sum_exactly([part.signed_sum for part in parts]),
        sum(part.infinite for part in parts),
        next((part.bad_scale for part in parts if part.bad_scale is not None), None),
    )


def add_moments(parts: Sequence[Moments]) -> Moments:
    """Moments of pieces → moments of the whole."""
    return Moments(
        max(part.largest for part in parts),
        sum(part.squares for part in parts),  # may be inf, where fsum would raise
        sum(part.finite for part in parts),
    )
