"""formats.py against exact rational arithmetic: every 8- and 16-bit pattern, the wider ones by Hypothesis."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from exact import LAYOUTS, NAN, NEGATIVE, POSITIVE, to_float
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.errors import InputError, UnknownFormat
from gonogo.formats import FORMATS, Format, get_format

NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
WIDE = ["float32", "float64"]


@cache
def exact_values(name: str) -> list[Fraction | str]:
    """Of every pattern in turn."""
    layout = LAYOUTS[name]
    return [layout.decode(pattern) for pattern in range(2**layout.bits)]


def as_float(value: Fraction | str) -> float:
    return (
        {NAN: math.nan, POSITIVE: math.inf, NEGATIVE: -math.inf}[value]
        if isinstance(value, str)
        else to_float(value)
    )


def all_patterns(fmt: Format) -> np.ndarray:
    return np.arange(2**fmt.bits, dtype=f"u{fmt.bits // 8}")


def wide_patterns(bits: int) -> st.SearchStrategy[int]:
    """Any pattern, and the ends of every binade and field more often than chance would."""
    fraction = 23 if bits == 32 else 52
    near = st.builds(
        lambda exponent, offset, sign: (((exponent << fraction) + offset) % 2 ** (bits - 1)) | sign << (bits - 1),
        st.integers(0, 2 ** (bits - 1 - fraction) - 1),
        st.integers(-2, 2),
        st.booleans(),
    )
    return st.integers(0, 2**bits - 1) | near


@pytest.mark.parametrize("name", FORMATS)
def test_constants(name: str) -> None:
    fmt, layout = FORMATS[name], LAYOUTS[name]
    smallest, largest = layout.decode(1), layout.decode(layout.top)
    normal = layout.decode(1 << layout.fraction_bits)
    one_up = layout.decode((layout.bias << layout.fraction_bits) + 1)
    assert isinstance(one_up, Fraction)
    assert Fraction(fmt.unit_roundoff) == (one_up - 1) / 2
    assert (Fraction(fmt.smallest_subnormal), Fraction(fmt.smallest_normal), Fraction(fmt.largest)) == (
        smallest,
        normal,
        largest,
    )
    assert fmt.largest_key == layout.top
    assert fmt.precision == layout.fraction_bits + 1
    assert fmt.bits == layout.bits


@pytest.mark.parametrize("name", NARROW)
def test_every_pattern_decodes_and_orders(name: str) -> None:
    fmt = FORMATS[name]
    patterns = all_patterns(fmt)
    np.testing.assert_array_equal(fmt.decode(patterns), [as_float(v) for v in exact_values(name)])
    negative = patterns >> (fmt.bits - 1) == 1
    np.testing.assert_array_equal(np.signbit(fmt.decode(patterns))[negative], True)
    number = ~np.isnan(fmt.decode(patterns))
    keys = fmt.key(patterns)[number]
    order = np.argsort(fmt.decode(patterns)[number], kind="stable")
    steps = np.diff(keys[order])
    assert set(steps[1:-1]) <= {0, 1}, "consecutive values have consecutive keys"
    assert np.count_nonzero(steps == 0) == 1, "only the two zeros share a key"
    np.testing.assert_array_equal(fmt.from_key(keys), fmt.decode(patterns)[number])


def exact_edges(name: str) -> tuple[list[Fraction], list[Fraction]]:
    """Finite values from 0 up, and the edges of their cells: one below each, and the last one's upper."""
    values = exact_values(name)[: LAYOUTS[name].top + 1]
    assert all(isinstance(value, Fraction) for value in values)
    beyond = 2 * values[-1] - values[-2]
    neighbours = [-values[1], *values, beyond]
    return values, [(below + above) / 2 for below, above in pairwise(neighbours)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if FORMATS[name].bits == 16 else name for name in NARROW]
)
def test_every_pattern_ulp_and_cell(name: str) -> None:
    fmt = FORMATS[name]
    values, edges = exact_edges(name)
    exact = [float(value) for value in values]
    gaps = [above - value for value, above in pairwise([*values, 2 * values[-1] - values[-2]])]
    assert [Fraction(ulp) for ulp in fmt.ulp(np.array(exact)).tolist()] == gaps
    for pattern, value in enumerate(exact):
        cell, mirrored = fmt.cell(value), fmt.cell(-value)
        assert (cell.low, cell.high) == (edges[pattern], edges[pattern + 1])
        assert (mirrored.low, mirrored.high) == (-cell.high, -cell.low)
        assert cell.closed == mirrored.closed == (pattern % 2 == 0)
    if fmt.has_infinity:
        assert fmt.cell(math.inf).low == fmt.overflow_threshold
        assert fmt.cell(math.inf).high == math.inf
        assert fmt.cell(-math.inf).low == -math.inf


@pytest.mark.parametrize("name", NARROW)
def test_rounding_at_every_midpoint(name: str) -> None:
    """At, just below and just above the midpoint of every pair of neighbours, overflow included."""
    fmt, layout = FORMATS[name], LAYOUTS[name]
    values = fmt.decode(np.arange(layout.top + 1, dtype=all_patterns(fmt).dtype))
    middles = np.append((values[:-1] + values[1:]) / 2, fmt.overflow_start)  # exact in float64
    lower = np.arange(layout.top + 1)
    beyond = np.minimum(lower + 1, fmt.overflow_key)
    even = np.where(lower % 2 == 0, lower, beyond)
    for points, keys in (
        (middles, even),
        (np.nextafter(middles, 0), lower),
        (np.nextafter(middles, math.inf), beyond),
        (values, lower),
    ):
        np.testing.assert_array_equal(fmt.round_to_key(points), keys)
        np.testing.assert_array_equal(fmt.round_to_key(-points), -keys)
    sample = middles[:: max(1, len(middles) // 500)]
    for point, key in zip(sample, fmt.round_to_key(sample), strict=True):
        exact = layout.round_key(Fraction(float(point)))
        assert key == (fmt.overflow_key if exact == NAN else exact)


@pytest.mark.parametrize("name", NARROW)
def test_rounding_agrees_with_casts(name: str) -> None:
    """NumPy's and ml_dtypes' casts from float32, where one rounding is all they do."""
    fmt = FORMATS[name]
    dtype = np.dtype(name if name == "float16" else getattr(ml_dtypes, name))
    random = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    random = random[~np.isnan(random)]
    with np.errstate(all="ignore"):
        cast = random.astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(fmt.round(random.astype(np.float64)), cast)


POINT = 200
"""Bits behind the point of the whole numbers below: enough for a float64 beside the smallest cell's end."""
FAR = 2.0**200
"""Above any reference: the end of infinity's cell."""


def to_whole(real: Fraction | float) -> int:
    """A real in units of 2^-POINT: as exact as a Fraction, and much quicker."""
    numerator, denominator = real.as_integer_ratio()
    whole, rest = divmod(numerator << POINT, denominator)
    assert rest == 0
    return whole


@pytest.mark.parametrize("name", NARROW)
def test_cell_distance_of_every_pattern(name: str) -> None:
    """References at the value, at both cell ends, one float64 beyond them, and far away."""
    fmt = FORMATS[name]
    positive, edges = exact_edges(name)
    ends = [to_whole(edge) for edge in edges]
    cells = [*pairwise(ends)]
    values = [float(value) for value in positive]
    if fmt.has_infinity:
        cells.append((ends[-1], to_whole(FAR)))
        values.append(math.inf)
    cells += [(-high, -low) for low, high in cells]
    values = np.array([*values, *(-value for value in values)])
    low, high = (np.ldexp([float(end) for end in side], -POINT) for side in zip(*cells, strict=True))
    low[low == -FAR], high[high == FAR] = -math.inf, math.inf
    for reference in (
        values, low, high, np.nextafter(low, -math.inf), np.nextafter(high, math.inf), -values, values * 3 + 1
    ):  # fmt: skip
        finite = np.flatnonzero(np.isfinite(reference))
        exact = [
            max(cells[place][0] - real, real - cells[place][1], 0)
            for place, real in zip(finite, map(to_whole, reference[finite].tolist()), strict=True)
        ]
        expected = np.ldexp([*map(float, exact)], -POINT)  # float() rounds to nearest, ties to even
        np.testing.assert_array_equal(fmt.cell_distance(values[finite], reference[finite]), expected)


@pytest.mark.parametrize("name", WIDE)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_wide_patterns(name: str, data: st.DataObject) -> None:
    fmt, layout = FORMATS[name], LAYOUTS[name]
    pattern = data.draw(wide_patterns(fmt.bits))
    bits = np.array([pattern], dtype=f"u{fmt.bits // 8}")
    exact = layout.decode(pattern)
    np.testing.assert_array_equal(fmt.decode(bits), [as_float(exact)])
    if exact == NAN:
        return
    assert int(fmt.key(bits)[0]) == layout.key(pattern)
    key = abs(int(fmt.key(bits)[0]))
    if isinstance(exact, Fraction):
        value, above = abs(exact), layout.decode(min(key + 1, layout.top))
        below = layout.decode(key - 1) if key else -layout.decode(1)
        gap = above - value if key < layout.top else value - below
        assert Fraction(float(fmt.ulp(np.float64(float(exact))))) == gap
        cell = fmt.cell(float(value))
        assert (cell.low, cell.high, cell.closed) == ((below + value) / 2, value + gap / 2, key % 2 == 0)


@settings(max_examples=500, deadline=None)
@given(pattern=wide_patterns(64))
def test_float64_rounds_to_every_format(pattern: int) -> None:
    exact = LAYOUTS["float64"].decode(pattern)
    value = np.array([pattern], np.uint64).view(np.float64)
    if exact == NAN:
        return
    for name, fmt in FORMATS.items():
        key = LAYOUTS[name].round_key(exact)
        assert int(fmt.round_to_key(value)[0]) in ({key} if key != NAN else {fmt.overflow_key, -fmt.overflow_key})


@settings(max_examples=300, deadline=None)
@given(pattern=wide_patterns(32), reference=st.floats(allow_nan=False, allow_infinity=False), near=st.booleans())
def test_float32_cell_distance(pattern: int, reference: float, near: bool) -> None:
    fmt = FORMATS["float32"]
    value = float(fmt.decode(np.array([pattern], np.uint32))[0])
    if math.isnan(value):
        return
    cell = fmt.cell(value)
    if near and math.isfinite(value):
        reference = value + (reference % 4 - 2) * float(fmt.ulp(np.float64(value)))
    expected = to_float(cell.distance(Fraction(reference)))
    assert float(fmt.cell_distance(np.array([value]), np.array([reference]))[0]) == expected


def test_cell_distance_of_non_finite() -> None:
    nan, inf = math.nan, math.inf
    fp16, e4m3 = FORMATS["float16"], FORMATS["float8_e4m3fn"]
    actual = np.array([nan, nan, 1.0, 1.0, inf, inf, inf, -inf, 65504.0])
    expected = np.array([nan, 1.0, nan, inf, inf, -inf, 65519.0, inf, 65520.0])
    np.testing.assert_array_equal(fp16.cell_distance(actual, expected), [0, inf, inf, inf, 0, inf, 1.0, inf, 0])
    # Without infinities, overflow rounds to NaN: NaN is right beyond 464, and only there.
    np.testing.assert_array_equal(
        e4m3.cell_distance(np.array([nan, nan, 448.0]), np.array([465.0, 464.0, 500.0])), [0, inf, 36.0]
    )


def test_not_a_value_has_no_cell() -> None:
    with pytest.raises(InputError, match=r"0\.1 is not a value of float16: it has no rounding cell"):
        FORMATS["float16"].cell(0.1)


def test_unknown_format() -> None:
    with pytest.raises(UnknownFormat, match="unknown floating-point format 'float4'; known: float16, bfloat16, "):
        get_format("float4")
