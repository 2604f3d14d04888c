"""An output, its reference and a gauge → Reading: the worst element in gauge units, where, and the bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from gonogo.errors import BadScale, DeviceMismatch, ScaleMissing
from gonogo.guest.arithmetic import plain_arithmetic
from gonogo.instrument.gauges import Gauge, Size
from gonogo.instrument.gauges import gauge as get_gauge
from gonogo.instrument.operands import Aligned, Bits, Operand, align, as_operand
from gonogo.instrument.partials import Moments, Pair, Unit, WorstError, add_moments, add_worst_errors
from gonogo.instrument.paths import Path, pick_path
from gonogo.schema import Reading


def read(actual: object, expected: object, *, gauge: str | Gauge, scale: object = None) -> Reading:
    """Read `actual` against `expected` in a gauge, named or made by `gonogo.gauge(name, …)`.

    >>> import numpy as np
    >>> r = np.array([1.0, 1.0 + 2.0**-9])
    >>> read(np.float16([1.0, 1.0]), r, gauge="ulp").worst
    2.0
    """
    chosen = gauge if isinstance(gauge, Gauge) else get_gauge(gauge)
    if chosen.needs_scale and scale is None:
        raise ScaleMissing(chosen.name)
    operands = [as_operand(actual, "actual"), as_operand(expected, "expected")]
    if scale is not None:  # a wrong one is refused even by a gauge that does not look at it
        given = as_operand(scale, "scale")
        _check_scale_shape(given, operands[1])
        operands += [given] if chosen.needs_scale else []
    aligned = align(operands)
    if aligned.count == 0:
        return Reading(chosen.name, 0.0, None, 0.0, 0)
    with plain_arithmetic():
        aligned, path = pick_path(aligned)
        size = _measure_size(aligned, path) if chosen.needs_size else Size(0.0, 0.0)
        unit = chosen.make_unit(operands[0].format, size)
        return _make_reading(chosen.name, aligned, _read_pieces(aligned, path, unit))


def read_worst(actual: object, expected: object, gauges: Sequence[Gauge]) -> list[float]:
    """What `read` gives as worst in each of several gauges that need no scale: operands are looked at once.

    One pass reads all of them, but for NumPy's path.
    """
    operands = [as_operand(actual, "actual"), as_operand(expected, "expected")]
    aligned = align(operands)
    if aligned.count == 0:
        return [0.0] * len(gauges)
    with plain_arithmetic():
        aligned, path = pick_path(aligned)
        needs_size = any(gauge.needs_size for gauge in gauges)
        size = _measure_size(aligned, path) if needs_size else Size(0.0, 0.0)
        units = [gauge.make_unit(operands[0].format, size) for gauge in gauges]
        worst = [_read_units(aligned, path, bits, units) for _, bits in aligned.pieces()]
        return [max(of_unit) for of_unit in zip(*worst, strict=True)]


def _read_units(aligned: Aligned, path: Path, bits: Sequence[Bits], units: Sequence[Unit]) -> list[float]:
    actual, expected = aligned.operands
    return path.read_units(Pair(bits[0], actual.format, bits[1], expected.format), units)


def _check_scale_shape(scale: Operand, expected: Operand) -> None:
    if scale.shape != expected.shape:
        raise BadScale(f"has shape {scale.shape}, expected has {expected.shape}", shape=scale.shape)
    if scale.device != expected.device:
        raise DeviceMismatch({expected.role: expected.device, scale.role: scale.device})


def _read_pieces(aligned: Aligned, path: Path, unit: Unit) -> WorstError:
    actual, expected = aligned.operands[:2]
    scale_format = aligned.operands[2].format if len(aligned.operands) > 2 else None
    parts = []
    for start, bits in aligned.pieces():
        pair = Pair(bits[0], actual.format, bits[1], expected.format)
        part = path.read(pair, bits[2] if scale_format else None, scale_format, unit)
        bad = None if part.bad_scale is None else start + part.bad_scale
        parts.append(WorstError(part.worst, start + part.index, part.signed_sum, part.infinite, bad))
    return add_worst_errors(parts)


def _make_reading(name: str, aligned: Aligned, worst: WorstError) -> Reading:
    if worst.bad_scale is not None:
        index = aligned.locate(worst.bad_scale)
        raise BadScale(f"is negative or NaN at {index}", index=index)
    bias = math.inf if worst.infinite else _divide(worst.signed_sum, math.sqrt(aligned.count))
    return Reading(name, worst.worst, aligned.locate(worst.index), bias, aligned.count)


def _measure_size(aligned: Aligned, path: Path) -> Size:
    """Size of the reference; squares are rescaled where they would leave float64's range."""
    moments = _measure_moments(aligned, path, 1.0)
    if moments.largest == 0.0:
        return Size(0.0, 0.0)
    exponent = math.frexp(moments.largest)[1]
    factor = 1.0
    if abs(exponent) > 400:
        factor = math.ldexp(1.0, min(-exponent, 1000))  # 2^1000 lifts even the smallest subnormal
        moments = _measure_moments(aligned, path, factor)
    rms = math.sqrt(moments.squares / moments.finite) / factor
    return Size(_round_to_bits(rms, 24), moments.largest)


def _measure_moments(aligned: Aligned, path: Path, factor: float) -> Moments:
    fmt = aligned.operands[1].format
    return add_moments([path.measure_moments(bits[1], fmt, factor) for _, bits in aligned.pieces()])


def _round_to_bits(x: float, bits: int) -> float:
    """`x` to so many significant bits: paths sum in different orders and differ in the last few."""
    fraction, exponent = math.frexp(x)
    try:
        return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)
    except OverflowError:  # rounds up past the largest float64
        return x


def _divide(total: float | Fraction, by: float) -> float:
    """Total / by; infinite only where the quotient is."""
    try:
        return float(Fraction(total) / Fraction(by)) if isinstance(total, Fraction) else total / by
    except OverflowError:
        return math.inf if total > 0 else -math.inf
