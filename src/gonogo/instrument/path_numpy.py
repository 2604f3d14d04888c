"""Bits of two arrays → partials, in plain NumPy: always there, and the oracle of the other paths.

Works through an array in chunks so that temporaries stay within a few megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from gonogo.formats import Format
from gonogo.instrument.partials import (
    Bracket,
    Caught,
    Moments,
    Pair,
    Scan,
    Unit,
    WorstError,
    add_moments,
    add_scans,
    add_worst_errors,
    saturate,
    sum_exactly,
)

Floats = npt.NDArray[np.float64]

CHUNK = 2**16


def scan(pair: Pair, atol: float, brackets: Sequence[Bracket]) -> Scan:
    """Partial ErrorStats of a piece."""
    chunks = [slice(i, i + CHUNK) for i in range(0, pair.actual.size, CHUNK)]
    return add_scans([_scan_chunk(pair, chunk, atol, brackets) for chunk in chunks])


@np.errstate(all="ignore")
def _scan_chunk(pair: Pair, chunk: slice, atol: float, brackets: Sequence[Bracket]) -> Scan:
    bits = pair.actual[chunk]
    actual, expected = pair.actual_format.decode(bits), pair.expected_format.decode(pair.expected[chunk])
    difference = absolute_errors(actual, expected)
    counts = expected != 0
    relative = relative_errors(difference[counts], expected[counts])
    max_ulp, sum_ulp = _ulps(pair.actual_format, bits, actual, expected)
    return Scan(
        exceeding=int(np.count_nonzero(difference > atol)),
        max_abs=float(difference.max()),
        sum_abs=_total(difference),
        nonzero=int(np.count_nonzero(counts)),
        max_rel=float(relative.max(initial=0.0)),
        sum_rel=_total(relative),
        max_ulp=max_ulp,
        sum_ulp=sum_ulp,
        caught=tuple(_catch(difference, bracket) for bracket in brackets),
    )


def absolute_errors(actual: Floats, expected: Floats) -> Floats:
    """|actual − expected| with agreement on NaN or infinity at 0 and any other non-finite value at +inf."""
    difference = np.abs(actual - expected)
    agree = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return np.where(agree, 0.0, np.where(np.isfinite(difference), difference, np.inf))


def relative_errors(difference: Floats, expected: Floats) -> Floats:
    """Absolute errors over |expected| ≠ 0; no error is 0 and an infinite one +inf whatever expected is."""
    quotient = difference / np.abs(expected)
    return np.where(difference == 0, 0.0, np.where(np.isinf(difference), np.inf, quotient))


def _total(errors: Floats) -> float | Fraction:
    """Sum; where finite float64 terms overflow it, the exact sum as a fraction."""
    total = float(errors.sum())
    if math.isinf(total) and np.isfinite(errors).all():
        return sum_exactly([float(x) for x in errors])
    return total


def _ulps(
    fmt: Format, bits: npt.NDArray[np.unsignedinteger], actual: Floats, expected: Floats
) -> tuple[int, float]:
    key, expected_key = fmt.key(bits), fmt.round_to_key(expected)
    # int64 keys may lie up to 2^64 apart: subtract the smaller from the larger as unsigned.
    high, low = np.maximum(key, expected_key).view(np.uint64), np.minimum(key, expected_key).view(np.uint64)
    distance = high - low
    beyond = (np.abs(key) > fmt.largest_key) | (np.abs(expected_key) > fmt.largest_key)
    nan = np.isnan(actual) | np.isnan(expected)
    if not fmt.has_infinity:
        nan |= np.abs(expected_key) > fmt.largest_key
    saturated = bool((nan | (beyond & (distance > 0))).any())
    return saturate(int(distance.max()), float(distance.astype(np.float64).sum()), saturated)


def _catch(errors: Floats, bracket: Bracket) -> Caught:
    below_low, below_high = errors < bracket.low, errors < bracket.high
    values = errors[below_high & ~below_low][:: bracket.stride] if bracket.capacity else errors[:0]
    return Caught(int(np.count_nonzero(below_low)), int(np.count_nonzero(below_high)), values)


def read(
    pair: Pair, scale: npt.NDArray[np.unsignedinteger] | None, scale_format: Format | None, unit: Unit
) -> WorstError:
    """Worst error of a piece in a gauge's unit."""
    parts = []
    for start in range(0, pair.actual.size, CHUNK):
        chunk = slice(start, start + CHUNK)
        actual, expected = (
            pair.actual_format.decode(pair.actual[chunk]),
            pair.expected_format.decode(pair.expected[chunk]),
        )
        scales = None if scale is None or scale_format is None else scale_format.decode(scale[chunk])
        errors = gauge_errors(pair.actual_format, actual, expected, scales, unit)
        sizes = np.abs(errors)
        at, finite = int(sizes.argmax()), np.isfinite(sizes)
        bad = None if scales is None else np.flatnonzero(~(scales >= 0))
        parts.append(
            WorstError(
                worst=float(sizes[at]),
                index=start + at,
                signed_sum=sum_exactly(errors[finite].tolist()),
                infinite=int(np.count_nonzero(~finite)),
                bad_scale=None if bad is None or bad.size == 0 else start + int(bad[0]),
            )
        )
    return add_worst_errors(parts)


@np.errstate(all="ignore")
def gauge_errors(fmt: Format, actual: Floats, expected: Floats, scale: Floats | None, unit: Unit) -> Floats:
    """Signed error of every element in gauge units; +inf where no finite error explains it."""
    if unit.from_cell:
        size = fmt.cell_distance(actual, expected)
        error = np.where(actual < expected, -size, size)
    else:
        size = absolute_errors(actual, expected)
        error = np.where((actual < expected) & np.isfinite(size), -size, size)
    width = unit.constant + unit.per_magnitude * np.abs(expected)
    if unit.per_ulp != 0:
        width += unit.per_ulp * fmt.ulp(expected)
    if scale is not None:
        width += unit.per_scale * scale
    # No error reads 0 whatever the unit, an infinite one inf.
    return np.where(size == 0, 0.0, np.where(np.isinf(size), np.inf, error / width))


def read_units(pair: Pair, units: Sequence[Unit]) -> list[float]:
    """What `read` gives as worst in each of several units."""
    return [read(pair, None, None, unit).worst for unit in units]


def measure_moments(values: npt.NDArray[np.unsignedinteger], fmt: Format, factor: float) -> Moments:
    """Largest finite |r|, sum of squares of finite r·factor, and how many are finite."""
    parts = []
    for start in range(0, values.size, CHUNK):
        magnitude = np.abs(fmt.decode(values[start : start + CHUNK]))
        magnitude = magnitude[np.isfinite(magnitude)]
        with np.errstate(over="ignore"):
            squares = float(np.square(magnitude * factor).sum())
        parts.append(Moments(float(magnitude.max(initial=0.0)), squares, magnitude.size))
    return add_moments(parts)
