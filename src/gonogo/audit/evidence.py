"""Readings that records hold → whether an output passes a tolerance that it was never held against.

A record has no |expected|, so it does not decide |e| ≤ atol + rtol·|r| by itself. But a reading v in the unit of
another tolerance says that |e| ≤ v·(a + b·|r|) at every element, and that some element reaches it. So the output
passes where v·a ≤ atol and v·b ≤ rtol, or where a mean of two such points is within both, and fails where v·a and
v·b are at least that much. What lies between the readings is not decided, and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from gonogo.evaluate.score import ALWAYS_SEEN
from gonogo.evaluate.tally import UNJUDGED, Decisions
from gonogo.policies import Numbers, Policy, load_policies
from gonogo.records import Columns
from gonogo.records.columns import LARGEST_RELATIVE
from gonogo.schema import policy_column
from gonogo.verdict.judge import GO, NO_GO

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

STORED = 2.0**-22
"""Readings are stored in float32; what is nearer to a limit than that is not decided by them."""
LARGEST = float(np.finfo(np.float32).max)
BY_ELEMENT = ("allclose", "either")
"""Rules whose readings are evidence: what they allow an element depends on nothing but its reference."""
NEEDED = {
    "absolute", "deterministic", "v_abft", "signal", "bits_equal", "exceeds", "reduced_length", LARGEST_RELATIVE,
    *(policy_column(policy.name) for policy in load_policies() if policy.rule in BY_ELEMENT),
}  # fmt: skip
"""What to load of the records."""


@dataclass(frozen=True)
class Point:
    """No element is off by more than `up_to`, and one by at least `reached`, each (atol, rtol) row by row."""

    up_to: tuple[Floats, Floats] | None
    reached: tuple[Floats, Floats] | None


def decide_rows(policy: Policy, op: str, dtype: str, columns: Columns) -> Decisions:
    """GO, NO_GO or UNJUDGED for each row, all of one op and dtype; outcomes that any harness notices are NO_GO."""
    numbers = policy.find_numbers(op, dtype)
    decisions = np.full(len(columns), np.int8(UNJUDGED))
    same = [known.name for known in load_policies() if _is_same(known, policy, op, dtype)]
    if same:
        exceeds = columns.exceeds[same[0]]
        decisions = np.where(exceeds < 0, np.int8(UNJUDGED), exceeds * np.int8(NO_GO))
    elif numbers is not None and policy.rule in (*BY_ELEMENT, "share"):
        points = list(_list_points(columns, op, dtype, policy.rule))
        allowed = _find_allowed(numbers, columns.reduced_length)
        decisions[_passes(points, allowed, mixed=policy.rule != "either")] = GO
        if policy.rule != "share":  # some of its elements may be off by any amount
            decisions[_fails(points, allowed)] = NO_GO
    decisions[columns.equals("outcome", *ALWAYS_SEEN)] = NO_GO
    return decisions.astype(np.int8)


def _is_same(known: Policy, policy: Policy, op: str, dtype: str) -> bool:
    numbers = policy.find_numbers(op, dtype)
    return (
        numbers is not None and known.rule == policy.rule and _fill(known.find_numbers(op, dtype)) == _fill(numbers)
    )


def _fill(numbers: Numbers | None) -> Numbers | None:
    """With what is left out of an allclose rule, which is 0."""
    return None if numbers is None else {"atol": 0.0, "rtol": 0.0, "atol_per_reduced_element": 0.0, **numbers}


def _find_allowed(numbers: Numbers, reduced_length: npt.NDArray[np.int32]) -> tuple[Floats, Floats]:
    filled = _fill(numbers) or {}
    atol = filled["atol"] + filled["atol_per_reduced_element"] * reduced_length.astype(np.float64)
    return atol, np.full_like(atol, filled["rtol"])


def _list_points(columns: Columns, op: str, dtype: str, rule: str) -> Iterator[Point]:
    """What every reading says of the largest error, for a tolerance of this rule."""
    largest, relative = (columns.readings[name].astype(np.float64) for name in ("absolute", LARGEST_RELATIVE))
    nothing = np.zeros_like(largest)
    yield Point((largest * (1 + STORED), nothing), (largest * (1 - STORED), nothing))
    # Elements whose reference is 0 have no relative error, so it bounds nothing. Past float32 it is at least that.
    relative = np.minimum(relative, LARGEST)
    yield Point(None, (nothing, relative * (1 - STORED)))
    for known in load_policies():
        numbers = known.find_numbers(op, dtype)
        if numbers is None or known.rule not in BY_ELEMENT:
            continue
        readings = columns.readings[policy_column(known.name)].astype(np.float64)
        # Past float32 a reading of a finite error is stored as infinite, and is at least the largest there.
        at_least = np.where(np.isfinite(largest), np.minimum(readings, LARGEST), readings)
        atol, rtol = _find_allowed(numbers, columns.reduced_length)
        # max(a, b·|r|) lies between half of a + b·|r| and all of it.
        most = 2.0 if (known.rule, rule) == ("allclose", "either") else 1.0
        least = 0.5 if known.rule == "either" and rule != "either" else 1.0
        upper, lower = readings * (1 + STORED) * most, at_least * (1 - STORED) * least
        with np.errstate(invalid="ignore"):
            yield Point((upper * atol, upper * rtol), (lower * atol, lower * rtol))


def _passes(points: Sequence[Point], allowed: tuple[Floats, Floats], *, mixed: bool) -> Mask:
    """Rows of which some point, or where they may be `mixed` some mean of two, lies within both numbers.

    A mean of two bounds is a bound of a + b·|r|; of max(a, b·|r|) it is none.
    """
    bounds = [point.up_to for point in points if point.up_to is not None]
    atol, rtol = allowed
    within = np.zeros(len(atol), bool)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for x, y in bounds:
            within |= (x <= atol) & (y <= rtol)
        for (near_x, near_y), (far_x, far_y) in permutations(bounds, 2) if mixed else ():
            share_needed = (far_x - atol) / (far_x - near_x)  # of the first, to come within atol
            share_allowed = (rtol - far_y) / (near_y - far_y)  # to stay within rtol
            crossing = (near_x <= atol) & (near_y > rtol) & (far_x > atol) & (far_y <= rtol)
            within |= crossing & (share_needed <= share_allowed)
    return within


def _fails(points: Sequence[Point], allowed: tuple[Floats, Floats]) -> Mask:
    """Rows of which some element is off by more than both numbers allow together."""
    atol, rtol = allowed
    beyond = np.zeros(len(atol), bool)
    for point in points:
        if point.reached is not None:
            x, y = point.reached
            with np.errstate(invalid="ignore"):
                # An infinite error is beyond every tolerance, also one that was multiplied by 0.
                beyond |= ((x >= atol) & (y >= rtol) & ((x > 0) | (y > 0))) | np.isinf(x) | np.isinf(y)
    return beyond
