"""Bit patterns → exact rational results, one element at a time: the slow truth the tests compare with.

Written from the definitions of the formats and of ErrorStats, sharing no code with gonogo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

NAN, POSITIVE, NEGATIVE = "nan", "+inf", "-inf"
Value = Fraction | str


@dataclass(frozen=True)
class Layout:
    """Field widths of a binary format."""

    name: str
    exponent_bits: int
    fraction_bits: int
    finite_only: bool = False

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return 2 ** (self.exponent_bits - 1) - 1

    def decode(self, pattern: int) -> Value:
        sign = -1 if pattern >> (self.bits - 1) else 1
        exponent = (pattern >> self.fraction_bits) & (2**self.exponent_bits - 1)
        fraction = pattern & (2**self.fraction_bits - 1)
        if exponent == 2**self.exponent_bits - 1:
            if self.finite_only:
                if fraction == 2**self.fraction_bits - 1:
                    return NAN
            elif fraction:
                return NAN
            else:
                return POSITIVE if sign > 0 else NEGATIVE
        if exponent == 0:
            return sign * Fraction(fraction) * Fraction(2) ** (1 - self.bias - self.fraction_bits)
        significand = 2**self.fraction_bits + fraction
        return sign * Fraction(significand) * Fraction(2) ** (exponent - self.bias - self.fraction_bits)

    @cached_property
    def top(self) -> int:
        """Pattern of the largest finite value."""
        infinity = (2**self.exponent_bits - 1) << self.fraction_bits
        return 2 ** (self.bits - 1) - 2 if self.finite_only else infinity - 1

    def round_key(self, value: Value) -> int | str:
        """Signed key of the nearest value, ties to the even pattern; NAN where there is none."""
        if value == NAN:
            return NAN
        if value in (POSITIVE, NEGATIVE):
            key: int | str = NAN if self.finite_only else self.top + 1
        else:
            assert isinstance(value, Fraction)
            key = self._round_magnitude(abs(value))
        negative = value == NEGATIVE or (isinstance(value, Fraction) and value < 0)
        return -key if negative and isinstance(key, int) else key

    def _round_magnitude(self, magnitude: Fraction) -> int | str:
        low, high = 0, self.top
        while low < high:  # largest key whose value is <= magnitude
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.decode(middle) <= magnitude else (low, middle - 1)
        below = self.decode(low)
        assert isinstance(below, Fraction)
        if low == self.top:
            before = self.decode(low - 1)
            assert isinstance(before, Fraction)
            above = below + (below - before)
        else:
            next_value = self.decode(low + 1)
            assert isinstance(next_value, Fraction)
            above = next_value
        up = magnitude - below > above - magnitude or (magnitude - below == above - magnitude and low % 2)
        key = low + 1 if up else low
        return NAN if key > self.top and self.finite_only else min(key, self.top + 1)

    def key(self, pattern: int) -> int | str:
        """Signed key of a pattern; NAN for a NaN."""
        if self.decode(pattern) == NAN:
            return NAN
        magnitude = pattern & (2 ** (self.bits - 1) - 1)
        return -magnitude if pattern >> (self.bits - 1) else magnitude


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("float16", 5, 10),
        Layout("bfloat16", 8, 7),
        Layout("float32", 8, 23),
        Layout("float64", 11, 52),
        Layout("float8_e4m3fn", 4, 3, finite_only=True),
        Layout("float8_e5m2", 5, 2),
    )
}


def to_float(value: Fraction) -> float:
    """Nearest float64, ties to even, overflow to infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def absolute_error(actual: Value, expected: Value) -> float:
    if isinstance(actual, Fraction) and isinstance(expected, Fraction):
        return to_float(abs(actual - expected))
    return 0.0 if actual == expected else math.inf


def relative_error(error: float, expected: Value) -> float | None:
    """None where the element is skipped."""
    if expected == 0:
        return None
    if error == 0 or math.isinf(error) or not isinstance(expected, Fraction):
        return error
    return to_float(Fraction(error) / abs(expected))


def percentile(errors: Sequence[float], percent: int) -> float:
    """numpy's default, with infinity between infinities."""
    ordered = sorted(errors)
    place = (len(ordered) - 1) * (percent / 100)
    low, high = ordered[math.floor(place)], ordered[min(math.floor(place) + 1, len(ordered) - 1)]
    t = place - math.floor(place)
    if t == 0 or low == high:
        return low
    if math.isinf(high):
        return math.inf
    return low + (high - low) * t if t < 0.5 else high - (high - low) * (1 - t)


def mean(values: Sequence[float | int]) -> float:
    if not values:
        return 0.0
    if any(isinstance(v, float) and math.isinf(v) for v in values):
        return math.inf
    return to_float(sum((Fraction(v) for v in values), Fraction(0)) / len(values))


def ulp_distance(output: Layout, pattern: int, expected: Value) -> int | None:
    """None where it saturates."""
    actual_key, expected_key = output.key(pattern), output.round_key(expected)
    if NAN in (actual_key, expected_key):
        return None
    assert isinstance(actual_key, int)
    assert isinstance(expected_key, int)
    infinite = abs(actual_key) > output.top or abs(expected_key) > output.top
    if infinite and actual_key != expected_key:
        return None
    return abs(actual_key - expected_key)


def error_stats(
    output: Layout, actual: Sequence[int], reference: Layout, expected: Sequence[int], atol: float | None
) -> dict[str, float]:
    """The eleven fields, from bit patterns."""
    pairs = [(output.decode(a), reference.decode(e)) for a, e in zip(actual, expected, strict=True)]
    errors = [absolute_error(a, e) for a, e in pairs]
    relatives = [relative_error(d, e) for d, (_, e) in zip(errors, pairs, strict=True)]
    counted = [r for r in relatives if r is not None]
    ulps = [ulp_distance(output, p, e) for p, (_, e) in zip(actual, pairs, strict=True)]
    saturated = any(u is None for u in ulps)
    known = [u for u in ulps if u is not None]
    empty = not errors
    return {
        "count": len(errors),
        "num_exceeding": 0 if atol is None else sum(d > atol for d in errors),
        "max_abs": max(errors, default=0.0),
        "mean_abs": mean(errors),
        "p50_abs": 0.0 if empty else percentile(errors, 50),
        "p90_abs": 0.0 if empty else percentile(errors, 90),
        "p99_abs": 0.0 if empty else percentile(errors, 99),
        "max_rel": max(counted, default=0.0),
        "mean_rel": mean(counted),
        "max_ulp": 2**64 - 1 if saturated else max(known, default=0),
        "mean_ulp": math.inf if saturated else mean(known),
    }
