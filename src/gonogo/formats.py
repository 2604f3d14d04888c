"""Floating-point formats: bits ↔ values, ordered keys, ULPs and rounding cells, all exact.

Values travel as float64, which holds every value of every format here. A *key* is the ordered integer of a
value: consecutive values have consecutive keys, +0 and −0 share key 0. Rounding is to nearest, ties to even,
with gradual underflow and overflow to infinity (to NaN where the format has no infinity).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.errors import InputError, UnknownFormat

Array = npt.NDArray[Any]

_EXPONENT_SHIFT = 52
_EXPONENT_BIAS = 1023
_MAGNITUDE_64 = np.int64(2**63 - 1)


@dataclass(frozen=True)
class Cell:
    """The reals that round to one value: from `low` to `high`, the ends included where `closed`."""

    low: Fraction | float
    high: Fraction | float
    closed: bool

    def __contains__(self, real: Fraction | float) -> bool:
        return self.low < real < self.high or (self.closed and real in (self.low, self.high))

    def distance(self, real: Fraction) -> Fraction:
        """How far `real` lies outside the cell, exactly; 0 inside."""
        if real < self.low:
            return Fraction(self.low) - real
        if real > self.high:
            return real - Fraction(self.high)
        return Fraction(0)


@dataclass(frozen=True)
class Format:
    """A binary floating-point format with `precision` significant bits and gradual underflow.

    >>> FLOAT16.unit_roundoff == 2.0**-11, FLOAT16.largest
    (True, 65504.0)
    >>> FLOAT8_E4M3FN.cell(448.0).high
    Fraction(464, 1)
    """

    name: str
    bits: int
    precision: int
    min_exponent: int
    """Exponent of the smallest normal value."""
    largest: float
    has_infinity: bool = True

    @property
    def unit_roundoff(self) -> float:
        """u: half the distance from 1 to the next value."""
        return math.ldexp(1.0, -self.precision)

    @property
    def smallest_normal(self) -> float:
        """Smallest positive value with a full significand."""
        return math.ldexp(1.0, self.min_exponent)

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive value."""
        return math.ldexp(1.0, self.min_exponent - self.precision + 1)

    @cached_property
    def max_exponent(self) -> int:
        """Exponent of the largest finite value."""
        return math.frexp(self.largest)[1] - 1

    @cached_property
    def largest_key(self) -> int:
        """Key of the largest finite value; the next key is infinity, or NaN where there is none."""
        return int(self.round_to_key(np.array(self.largest)))

    @cached_property
    def overflow_threshold(self) -> Fraction:
        """Where rounding to nearest leaves the finite values: `largest` plus half its ULP."""
        return Fraction(self.largest) + Fraction(2) ** (self.max_exponent - self.precision)

    @cached_property
    def overflow_start(self) -> float:
        """`overflow_threshold` as a float64: exact but for float64's own, which is +inf."""
        return math.inf if self.bits == 64 else float(self.overflow_threshold)

    @property
    def _bit_dtype(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.bits // 8}")

    @np.errstate(invalid="ignore", over="ignore")  # NaN and infinities are data here
    def decode(self, bits: Array) -> Array:
        """Bit patterns → float64 values, exactly."""
        bits = np.asarray(bits, self._bit_dtype)
        if self.bits == 64:
            return bits.view(np.float64)
        if self.bits == 8:
            return _decode_table(self)[bits]
        if self.name == "bfloat16":
            bits = bits.astype(np.uint32) << 16
        return bits.view(np.float16 if self.name == "float16" else np.float32).astype(np.float64)

    def key(self, bits: Array) -> Array:
        """Bit patterns → ordered int64 keys; ±0 is 0. A NaN's key lies beyond infinity's."""
        bits = np.asarray(bits, self._bit_dtype)
        if self.bits == 64:
            signed = bits.view(np.int64)
            magnitude = signed & _MAGNITUDE_64
        else:
            signed = bits.astype(np.int64) << (64 - self.bits)
            magnitude = bits.astype(np.int64) & (2 ** (self.bits - 1) - 1)
        return np.where(signed < 0, -magnitude, magnitude)

    @np.errstate(invalid="ignore", over="ignore")  # NaN and infinities are data here
    def round_to_key(self, values: Array) -> Array:
        """float64 values → key of the nearest value of the format, ties to even. NaN has no key: ignore it."""
        values = np.asarray(values, np.float64)
        if self.bits == 64:
            return self.key(values.view(np.uint64))
        # Twice the largest value rounds like anything above it; clamping keeps 2^52·quantum finite.
        magnitude = np.minimum(np.abs(values), 2 * self.largest)
        exponent = np.maximum(_exponent(magnitude), self.min_exponent)
        # Adding 2^52 quanta makes the hardware round to a whole number of quanta, ties to even; that number
        # then stands in the low bits of the sum.
        anchor = _power_of_two(exponent - self.precision + 1 + _EXPONENT_SHIFT)
        quanta = (magnitude + anchor).view(np.int64) - anchor.view(np.int64)
        key = ((exponent - self.min_exponent) << (self.precision - 1)) + quanta
        key = np.minimum(key, self.overflow_key)
        signed: Array = np.where(np.signbit(values), -key, key)
        return signed

    @cached_property
    def overflow_key(self) -> int:
        """Key that rounding beyond the finite values yields: infinity, or NaN where there is none."""
        # e4m3fn ends in ...110 (448) and NaN; the others end in all-ones exponent with significand 0.
        if not self.has_infinity:
            return int(2 ** (self.bits - 1) - 1)
        return (self.max_exponent - self.min_exponent + 2) << (self.precision - 1)

    def from_key(self, key: Array) -> Array:
        """Ordered keys → float64 values."""
        key = np.asarray(key, np.int64)
        sign = np.where(key < 0, np.int64(-(2**63)), np.int64(0))
        bits = np.abs(key) | (sign >> (64 - self.bits) if self.bits < 64 else sign)
        return self.decode((bits & (2**self.bits - 1) if self.bits < 64 else bits).astype(self._bit_dtype))

    def round(self, values: Array) -> Array:
        """float64 values → nearest values of the format, as float64, ties to even; keeps NaN and −0."""
        values = np.asarray(values, np.float64)
        return np.where(np.isnan(values), values, np.copysign(self.from_key(self.round_to_key(values)), values))

    def ulp(self, values: Array) -> Array:
        """Unit in the last place at real `values`: the spacing of the format in their binade."""
        exponent = _exponent(np.abs(np.asarray(values, np.float64)))
        exponent = np.clip(exponent, self.min_exponent, self.max_exponent)
        spacing: Array = np.ldexp(1.0, exponent - self.precision + 1)
        return spacing

    def cell(self, value: float) -> Cell:
        """The reals that round to `value`, exactly; both zeros share one cell."""
        if math.isnan(value) or float(self.round(np.array(value))) != value:
            raise InputError(f"{value!r} is not a value of {self.name}: it has no rounding cell")
        key = abs(int(self.round_to_key(np.array(value))))
        low: Fraction | float = -self._midpoint_above(0) if key == 0 else self._midpoint_above(key - 1)
        high: Fraction | float = math.inf if math.isinf(value) else self._midpoint_above(key)
        if value < 0:
            low, high = -high, -low
        return Cell(low, high, closed=key % 2 == 0)

    def _midpoint_above(self, key: int) -> Fraction:
        if key == self.largest_key:
            return self.overflow_threshold
        below, above = self.from_key(np.array([key, key + 1]))
        return (Fraction(float(below)) + Fraction(float(above))) / 2

    @np.errstate(invalid="ignore", over="ignore")  # NaN and infinities are data here
    def cell_distance(self, actual: Array, expected: Array) -> Array:
        """Distance from float64 `expected` to the rounding cell of each `actual`: the error before rounding.

        0 where `actual` is `expected` correctly rounded. Where both are NaN, or both the same infinity, 0;
        where only one is NaN, or only `expected` is infinite, +inf. One float64 rounding at most, except that
        a float64 `actual` has cell ends between float64 values and takes two.
        """
        magnitude = np.abs(actual)
        # Mirrored so that actual >= 0; both zeros share one cell, so there only |expected| counts.
        target = np.where(actual == 0, np.abs(expected), np.where(np.signbit(actual), -expected, expected))
        half = 0.5 * self.ulp(actual)
        power_of_two = (magnitude.view(np.int64) & (2**_EXPONENT_SHIFT - 1)) == 0
        half_below = np.where(power_of_two & (magnitude > self.smallest_normal), 0.5 * half, half)
        if self.bits == 64:
            beyond, short = (target - magnitude) - half, (magnitude - target) - half_below
        else:
            beyond, short = target - (magnitude + half), (magnitude - half_below) - target
        outside = np.where(np.isinf(actual), self.overflow_start - target, np.maximum(beyond, short))
        distance = np.where(outside > 0, outside, 0.0)
        rounds_to_nan = np.isnan(expected)
        if not self.has_infinity:
            rounds_to_nan |= np.abs(expected) > self.overflow_start
        neither_nan = ~(np.isnan(actual) | np.isnan(expected))
        return np.where(neither_nan, distance, np.where(np.isnan(actual) & rounds_to_nan, 0.0, np.inf))


def _exponent(magnitude: Array) -> Array:
    """floor(log2) of non-negative float64; at most −1023 for zero and float64 subnormals."""
    exponent: Array = (magnitude.view(np.int64) >> _EXPONENT_SHIFT) - _EXPONENT_BIAS
    return exponent


def _power_of_two(exponent: Array) -> Array:
    bits = np.asarray((exponent + _EXPONENT_BIAS) << _EXPONENT_SHIFT)
    power: Array = bits.view(np.float64)
    return power


_DECODE_TABLES: dict[str, Array] = {}


def _decode_table(fmt: Format) -> Array:
    """All 256 values of an 8-bit format by bit pattern, built once from its definition."""
    if fmt.name not in _DECODE_TABLES:
        magnitude = np.arange(128, dtype=np.int64)
        significand_bits = fmt.precision - 1
        exponent = magnitude >> significand_bits
        significand = (magnitude & (2**significand_bits - 1)) + np.where(exponent > 0, 2**significand_bits, 0)
        values = np.ldexp(
            significand.astype(np.float64), np.maximum(exponent, 1) - 1 + fmt.min_exponent - significand_bits
        )
        if fmt.has_infinity:
            top = fmt.overflow_key
            values[top], values[top + 1 :] = np.inf, np.nan
        else:
            values[127] = np.nan
        _DECODE_TABLES[fmt.name] = np.concatenate([values, -values])
    return _DECODE_TABLES[fmt.name]


FLOAT16 = Format("float16", bits=16, precision=11, min_exponent=-14, largest=65504.0)
BFLOAT16 = Format("bfloat16", bits=16, precision=8, min_exponent=-126, largest=(2 - 2.0**-7) * 2.0**127)
FLOAT32 = Format("float32", bits=32, precision=24, min_exponent=-126, largest=(2 - 2.0**-23) * 2.0**127)
FLOAT64 = Format("float64", bits=64, precision=53, min_exponent=-1022, largest=(2 - 2.0**-52) * 2.0**1023)
FLOAT8_E4M3FN = Format("float8_e4m3fn", bits=8, precision=4, min_exponent=-6, largest=448.0, has_infinity=False)
FLOAT8_E5M2 = Format("float8_e5m2", bits=8, precision=3, min_exponent=-14, largest=57344.0)

FORMATS: dict[str, Format] = {
    fmt.name: fmt for fmt in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64, FLOAT8_E4M3FN, FLOAT8_E5M2)
}


def get_format(name: str, *, role: str | None = None) -> Format:
    """The format called `name`; UnknownFormat lists the known ones."""
    try:
        return FORMATS[name]
    except (KeyError, TypeError):  # a list, say, has no hash
        raise UnknownFormat(name, tuple(FORMATS), role=role) from None
