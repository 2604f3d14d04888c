"""An output, its reference and what is known of the op → the reading of every policy.

A reading is the worst error in units of what the policy allows: the policy passes exactly where it is at most 1.
No error reads 0 and, but under `share`, a non-finite disagreement reads +inf whatever is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from gonogo.formats import get_format
from gonogo.instrument.gauges import Gauge, gauge
from gonogo.instrument.readings import read_worst
from gonogo.policies._policy import Numbers, Policy, Twin, load_policies
from gonogo.policies.elementwise import Errors, find_errors, root_mean_square, take_numbers

GAUGES = ("absolute", "magnitude", "ulp")
"""Gauges that are read beside the policies."""


@dataclass(frozen=True, slots=True)
class Unscaled:
    """All readings of an output that need no error scale."""

    absolute: float
    magnitude: float
    ulp: float
    rmse: float
    policies: dict[str, float | None]


def read_unscaled(
    actual: object, expected: object, *, op: str, dtype: str, reduced_length: int, twin: Twin | None
) -> Unscaled:
    """Every gauge without a scale, the root mean square error, and every policy as of `read_policies`."""
    output = _Output(actual, expected, dtype, reduced_length, twin)
    named = _name_numbers(op, dtype)
    output.look_ahead(named, GAUGES)
    absolute, magnitude, ulp = (output.worst[name] for name in GAUGES)
    return Unscaled(
        absolute, magnitude, ulp, output.rmse,
        {policy.name: _read_policy(policy, numbers, output) for policy, numbers in named},
    )  # fmt: skip


def read_policies(
    actual: object, expected: object, *, op: str, dtype: str, reduced_length: int, twin: Twin | None
) -> dict[str, float | None]:
    """Name → reading of every policy; None where it says nothing of the op or dtype, or lacks its twin.

    `expected` is the float64 reference, `reduced_length` the number of terms in the op's sums (1 for none).

    >>> y, r = np.float16([1.0, 2.0]), np.array([1.0, 2.03])
    >>> readings = read_policies(y, r, op="relu", dtype="float16", reduced_length=1, twin=None)
    >>> readings["kernelbench"] <= 1, readings["torch_testing"] <= 1, readings["liger"]
    (True, False, None)
    """
    output = _Output(actual, expected, dtype, reduced_length, twin)
    named = _name_numbers(op, dtype)
    output.look_ahead(named)
    return {policy.name: _read_policy(policy, numbers, output) for policy, numbers in named}


def read_policy(
    policy: Policy, actual: object, expected: object, *, op: str, dtype: str, reduced_length: int, twin: Twin | None
) -> float | None:
    """The reading of one policy, which need not be of the field; None as of `read_policies`."""
    output = _Output(actual, expected, dtype, reduced_length, twin)
    numbers = policy.find_numbers(op, dtype)
    output.look_ahead([(policy, numbers)])
    return _read_policy(policy, numbers, output)


@cache
def _name_numbers(op: str, dtype: str) -> tuple[tuple[Policy, Numbers | None], ...]:
    """Every policy of the field with its numbers for an op and dtype."""
    return tuple((policy, policy.find_numbers(op, dtype)) for policy in load_policies())


@cache
def _open_gauge(name: str) -> Gauge:
    return gauge(name)


@lru_cache(maxsize=1024)
def _open_policy(atol: float, rtol: float) -> Gauge:
    return gauge("policy", atol=atol, rtol=rtol)


Key = tuple[str, float, float]
"""A rule and its two tolerances."""


class _Output:
    """One output with its reference. What policies look at is computed once, and of a GPU fetched together."""

    def __init__(
        self, actual: object, expected: object, dtype: str, reduced_length: int, twin: Twin | None
    ) -> None:
        self.output_roundoff = get_format(dtype).unit_roundoff
        self.reduced_length = reduced_length
        self.twin = twin
        self.worst: dict[Any, float] = {}
        """Of gauges by name, and of pairs of tolerances."""
        self.seen: dict[Key, float] = {}
        """What rules on every element come to: the kindest reading, or how many are off."""
        self._actual, self._expected = actual, expected

    def look_ahead(self, named: Sequence[tuple[Policy, Numbers | None]], gauges: Sequence[str] = ()) -> None:
        """Compute what these policies and gauges will ask for."""
        known = [(policy.rule, numbers) for policy, numbers in named if numbers is not None]
        of_elements = [rule for rule, _ in known if rule != "allclose"]
        if of_elements or gauges:
            self._look_at_elements(known)
        pairs = dict.fromkeys(
            self.find_tolerances(rule, numbers) for rule, numbers in known if rule in ("allclose", "roundoff")
        )
        made = [*map(_open_gauge, gauges), *(_open_policy(*pair) for pair in pairs)]
        worst = read_worst(self._actual, self._expected, made) if made else []
        self.worst = dict(zip([*gauges, *pairs], worst, strict=True))

    @np.errstate(all="ignore")
    def _look_at_elements(self, known: Sequence[tuple[str, Numbers]]) -> None:
        errors = self.errors
        if not errors.count:
            self.largest_error = self.largest_reference = 0.0
            return
        looks: dict[Key, Callable[[Errors, float, float], Any]] = {
            (rule, numbers["atol"], numbers["rtol"]): LOOKS[rule] for rule, numbers in known if rule in LOOKS
        }
        numbers = take_numbers(
            errors,
            [errors.sizes.max(), find_largest(errors), *(look(errors, *key[1:]) for key, look in looks.items())],
        )
        self.largest_error, self.largest_reference, *seen = numbers
        self.seen = dict(zip(looks, seen, strict=True))

    def find_tolerances(self, rule: str, numbers: Numbers) -> tuple[float, float]:
        """Atol and rtol of a rule that has both; of `roundoff` the largest finite |r| comes in."""
        if rule == "roundoff":
            rtol = max(self.output_roundoff, numbers["accumulate_roundoff"] * self.reduced_length)
            return rtol * self.largest_reference, rtol
        atol = numbers.get("atol", 0.0) + numbers.get("atol_per_reduced_element", 0.0) * self.reduced_length
        return atol, numbers.get("rtol", 0.0)

    @cached_property
    def errors(self) -> Errors:
        """Error of every element."""
        return find_errors(self._actual, self._expected)

    @cached_property
    def rmse(self) -> float:
        """Root mean square error."""
        return root_mean_square(self.errors.sizes, self.largest_error)


def _read_policy(policy: Policy, numbers: Numbers | None, output: _Output) -> float | None:
    if numbers is None:
        return None
    match policy.rule:
        case "allclose" | "roundoff":
            return output.worst[output.find_tolerances(policy.rule, numbers)]
        case "either":
            return output.seen.get(("either", numbers["atol"], numbers["rtol"]), 0.0)
        case "share":
            count = output.errors.count
            off = output.seen.get(("share", numbers["atol"], numbers["rtol"]), 0.0)
            return _divide(off / count, numbers["allowed_share"]) if count else 0.0
        case "twin_max" | "twin_rmse":
            return None if output.twin is None else _read_twin(policy.rule, numbers, output, output.twin)


def find_kindest(errors: Errors, atol: float, rtol: float) -> Any:
    """Worst element, each read by the kinder of its absolute and relative error."""
    sizes, xp = errors.sizes, errors.module
    # 0/0 and inf/inf are the only NaNs, and there the size itself is the reading.
    kinder = xp.minimum(sizes / atol, sizes / errors.magnitudes / rtol)
    if errors.finite:
        return np.fmax.reduce(kinder, axis=None, initial=0.0)
    return xp.where((sizes == 0) | xp.isinf(sizes), sizes, kinder).max()


def count_off(errors: Errors, atol: float, rtol: float) -> Any:
    """Elements off by more than atol + rtol·|r|."""
    sizes = errors.sizes
    return ((sizes > atol + rtol * errors.magnitudes) | errors.module.isinf(sizes)).sum()


def find_largest(errors: Errors) -> Any:
    """The largest finite |r|."""
    magnitudes, xp = errors.magnitudes, errors.module
    if errors.finite:
        return magnitudes.max()
    return xp.where(xp.isfinite(magnitudes), magnitudes, 0.0).max()


LOOKS = {"either": find_kindest, "share": count_off}
"""Rules that look at every element in a way of their own; what they make is a number where the arrays are."""


def _read_twin(rule: str, numbers: Numbers, output: _Output, twin: Twin) -> float:
    if rule == "twin_max":
        return _divide(output.largest_error, numbers["factor"] * twin.max_abs + numbers["floor"])
    return _divide(output.rmse, numbers["factor"] * twin.rmse + numbers["tol"] / 10)


def _divide(error: float, allowed: float) -> float:
    """An error in units of what is allowed; any is beyond nothing."""
    if error in (0.0, math.inf):
        return error
    return error / allowed if allowed else math.inf
