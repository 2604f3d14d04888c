"""gonogo.read against exact rational arithmetic: every gauge, every format, on every host path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exact import LAYOUTS, NAN, NEGATIVE, POSITIVE, Layout, Value, absolute_error, to_float
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import HOST_PATHS, NUMPY_DTYPES, align_arrays, as_array, patterns

import gonogo
from gonogo.formats import FORMATS
from gonogo.instrument import readings
from gonogo.instrument.gauges import Size

FLOAT64 = LAYOUTS["float64"]


# The slow truth: one element at a time, in fractions, with one float64 rounding where gonogo documents one.


def unit_roundoff(output: Layout) -> float:
    return 2.0 ** -(output.fraction_bits + 1)


def accumulate_roundoff(output: Layout) -> float:
    return unit_roundoff(output) if output is FLOAT64 else 2.0**-24


def ulp_of(output: Layout, real: Fraction) -> Fraction:
    """Spacing of the format in the binade of a real."""
    top = output.decode(output.top)
    low, high = 1 - output.bias, floor_log2(top)
    exponent = low if real == 0 else min(max(floor_log2(abs(real)), low), high)
    return Fraction(2) ** (exponent - output.fraction_bits)


def floor_log2(real: Fraction) -> int:
    guess = real.numerator.bit_length() - real.denominator.bit_length()
    return guess if Fraction(2) ** guess <= real else guess - 1


def magnitude_at(output: Layout, key: int) -> Fraction:
    """Value of a key ≥ 0; one past the largest is where the binade would go on."""
    if key > output.top:
        return 2 * output.decode(output.top) - output.decode(output.top - 1)
    return output.decode(key)


def cell_distance(output: Layout, pattern: int, expected: Value) -> float:
    """Distance from the reference to the reals that round to the output."""
    actual = output.decode(pattern)
    rounded = output.round_key(expected)
    if actual == NAN or expected == NAN:
        return 0.0 if actual == NAN and rounded == NAN else math.inf
    if expected in (POSITIVE, NEGATIVE):
        return 0.0 if actual == expected else math.inf
    assert isinstance(expected, Fraction)
    key = output.key(pattern)
    if key == rounded:
        return 0.0
    sign = -1 if key < 0 or (key == 0 and expected < 0) else 1
    key, target = abs(key), sign * expected
    beyond = not isinstance(actual, str) and target > abs(actual)
    near, other = magnitude_at(output, key), magnitude_at(output, key + 1 if beyond else key - 1)
    if output is not FLOAT64:
        return to_float(abs(target - (near + other) / 2))
    if key > output.top:
        return math.inf  # its cell begins between float64 values, past the last of them
    # Cell ends lie between float64 values: documented to take two roundings.
    return to_float(abs(target - near)) - to_float(abs(near - other) / 2)


def divide(error: float, width: float) -> float:
    """No error reads 0 whatever the unit, an infinite one inf."""
    if error == 0 or (math.isinf(width) and not math.isinf(error)):
        return 0.0
    if math.isinf(error) or width == 0:
        return math.inf
    return to_float(Fraction(error) / Fraction(width))


def root_mean_square(expected: Sequence[Value]) -> tuple[float, bool]:
    """To 24 bits, ties to even, over finite elements; and whether float64 cannot tell it from a tie."""
    finite = [value for value in expected if isinstance(value, Fraction)]
    square = sum((value * value for value in finite), Fraction(0)) / max(len(finite), 1)
    if square == 0:
        return 0.0, False
    shift = 200 - floor_log2(square) // 2 * 2
    root = Fraction(math.isqrt(int(square * Fraction(2) ** shift)), 1) / Fraction(2) ** (shift // 2)
    in_units = root / Fraction(2) ** (floor_log2(root) - 23)
    from_tie = abs(in_units - math.floor(in_units) - Fraction(1, 2))
    exact_tie = from_tie == 0 and len(finite) == 1
    return to_float(round(in_units) * Fraction(2) ** (floor_log2(root) - 23)), from_tie < 2**-24 and not exact_tie


def widths(
    gauge: str, output: Layout, expected: Sequence[Value], scale: Sequence[float], rms: float
) -> list[float]:
    """Unit of every element; only those of finite references are ever divided by."""
    u = unit_roundoff(output)
    found = []
    for r, s in zip(expected, scale, strict=True):
        if not isinstance(r, Fraction):
            found.append(math.nan if gauge != "bound" else accumulate_roundoff(output) * s)
            continue
        size = abs(float(r))
        found.append(
            {
                "absolute": 1.0,
                "policy": POLICY["atol"] + POLICY["rtol"] * size,
                "ulp": float(ulp_of(output, r)),
                "magnitude": u * rms + u * size,
                "bound": accumulate_roundoff(output) * s,
            }[gauge]
        )
    return found


POLICY = {"atol": 1e-3, "rtol": 1e-2}
GAUGES = ("absolute", "policy", "ulp", "magnitude", "bound")


def exact_reading(
    gauge: str,
    output: Layout,
    actual: Sequence[int],
    expected: Sequence[Value],
    scale: Sequence[float],
    rms: float,
) -> tuple[float, int, Fraction, Fraction, bool]:
    """(worst, index, signed sum, sum of sizes, whether an element is infinite)."""
    if gauge == "bound":
        errors = [cell_distance(output, p, r) for p, r in zip(actual, expected, strict=True)]
    else:
        errors = [absolute_error(output.decode(p), r) for p, r in zip(actual, expected, strict=True)]
    sizes = [divide(e, w) for e, w in zip(errors, widths(gauge, output, expected, scale, rms), strict=True)]
    worst = max(sizes)
    signed, total = Fraction(0), Fraction(0)
    for size, pattern, r in zip(sizes, actual, expected, strict=True):
        if math.isfinite(size) and size:
            below = order(output.decode(pattern)) < order(r)
            signed += Fraction(-size if below else size)
            total += Fraction(size)
    return worst, sizes.index(worst), signed, total, math.inf in sizes


def order(value: Value) -> float | Fraction:
    return {POSITIVE: math.inf, NEGATIVE: -math.inf}[value] if isinstance(value, str) else value


def read_on(path: Any, gauge: gonogo.Gauge, arrays: Sequence[Any], name: str) -> gonogo.Reading:
    aligned = align_arrays(*arrays[: 3 if gauge.needs_scale else 2])
    size = readings._measure_size(aligned, path) if gauge.needs_size else Size(0.0, 0.0)
    unit = gauge.make_unit(FORMATS[name], size)
    return readings._make_reading(gauge.name, aligned, readings._read_pieces(aligned, path, unit))


@st.composite
def read_cases(draw: st.DrawFn) -> tuple[str, list[int], list[int], list[float]]:
    """Output patterns, float64 reference patterns near them or anywhere, and scales.

    Half the cases are tame, all finite and near: one infinite element would hide the bias of the others.
    """
    name = draw(st.sampled_from(sorted(FORMATS)))
    layout = LAYOUTS[name]
    tame = draw(st.booleans())
    n = draw(st.integers(1, 12))
    one = layout.bias << layout.fraction_bits
    middling = st.integers(one - (2 << layout.fraction_bits), one + (2 << layout.fraction_bits))
    either_sign = st.builds(int.__or__, middling, st.sampled_from([0, 1 << (layout.bits - 1)]))
    actual = draw(st.lists(either_sign if tame else patterns(name), min_size=n, max_size=n))
    expected = []
    for pattern in actual:
        value = layout.decode(pattern)
        if isinstance(value, Fraction) and (tame or draw(st.booleans())):
            # Near the output: where cells end, and where the reading is not absurd.
            steps = Fraction(draw(st.integers(-24, 24)), draw(st.sampled_from([1, 3, 8])))
            near = to_float(value + steps * ulp_of(layout, value) / 4)
            expected.append(int(np.float64(near).view(np.uint64)))
        else:
            expected.append(draw(patterns("float64")))
    odd = st.sampled_from([0.0, -0.0, 1.0, 0.5, 3.0, math.inf, 5e-324, 1e300])
    scales = st.floats(0.5, 1e6) if tame else odd | st.floats(0, 1e6)
    return name, actual, expected, draw(st.lists(scales, min_size=n, max_size=n))


@settings(max_examples=400, deadline=None)
@given(case=read_cases(), gauge=st.sampled_from(GAUGES))
def test_against_exact_arithmetic(case: tuple[str, list[int], list[int], list[float]], gauge: str) -> None:
    name, actual, expected_bits, scale = case
    output = LAYOUTS[name]
    expected = [FLOAT64.decode(p) for p in expected_bits]
    rms, undecided = root_mean_square(expected)
    largest = max((abs(r) for r in expected if isinstance(r, Fraction)), default=Fraction(0))
    if gauge == "magnitude" and (undecided or (largest and not 1e-300 < largest < 1e300)):
        return  # the ends of float64 have their own test below
    worst, index, signed, total, infinite = exact_reading(gauge, output, actual, expected, scale, rms)
    if math.isinf(to_float(total)):
        return  # the bias overflows: its own test below
    arrays = as_array(actual, name), as_array(expected_bits, "float64"), np.array(scale)
    chosen = gonogo.gauge(gauge, **(POLICY if gauge == "policy" else {}))
    public = gonogo.read(arrays[0], arrays[1], gauge=chosen, scale=arrays[2])
    for found in (public, *(read_on(path, chosen, arrays, name) for path in HOST_PATHS.values())):
        assert (found.worst, found.index, found.count) == (worst, (index,), len(actual))
        if infinite:
            assert found.bias == math.inf
        else:
            exact_bias = to_float(signed) / math.sqrt(len(actual))
            assert abs(found.bias - exact_bias) <= 1e-12 * to_float(total) + 5e-324


# Facts that need no oracle.


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(sorted(FORMATS)), bits=st.lists(patterns("float64"), min_size=1, max_size=16))
def test_correctly_rounded_reads_nothing(name: str, bits: list[int]) -> None:
    """Whatever the scale, 0 included: S = 0 demands y = round(r) and gets it."""
    output = LAYOUTS[name]
    sign, top = 1 << (output.bits - 1), (1 << output.bits) - 1
    rounded = [output.round_key(FLOAT64.decode(p)) for p in bits]
    actual = as_array([top if key == NAN else abs(key) | (sign if key < 0 else 0) for key in rounded], name)
    assert {output.key(int(p)) for p in actual.view(f"u{output.bits // 8}")} == set(rounded)
    expected = as_array(bits, "float64")
    for scale in (0.0, 1.0, math.inf):
        reading = gonogo.read(actual, expected, gauge="bound", scale=np.full(len(bits), scale))
        assert reading == gonogo.Reading("bound", 0.0, (0,), 0.0, len(bits))


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("name", FORMATS)
def test_one_ulp_off(name: str, up: bool) -> None:
    """A representable r lies half a gap from its neighbour's cell, at every kind of place in the format."""
    output = LAYOUTS[name]
    width, bias = output.fraction_bits, output.bias
    one = bias << width
    keys = {1, 2, (1 << width) - 1, 1 << width, (1 << width) + 1, one - 1, one, one + 1, one + (1 << width)}
    keys |= {output.top - 1, output.top, (output.top >> width) << width, 3 << width}
    for key in sorted(keys):
        moved = key + 1 if up else key - 1
        value, neighbour = magnitude_at(output, key), magnitude_at(output, moved)
        half = to_float(abs(neighbour - value) / 2)
        if name == "float64" and moved < 2 << width and half * 2 < 2.0**-1073:
            half = 2.0**-1074  # half the smallest float64 is none: documented as two roundings
        no_finite = moved > output.top and (output.finite_only or name == "float64")
        for sign in (1, -1):
            mark = 0 if sign > 0 else 1 << (output.bits - 1)
            good = np.array([sign * float(value)])
            actual = as_array([moved | mark], name)
            for scale in (1.0, 2.0**20, 2.0**-9):
                reading = gonogo.read(actual, good, gauge="bound", scale=np.array([scale]))
                expected = math.inf if no_finite else half / accumulate_roundoff(output) / scale
                assert reading.worst == expected, (key, sign, scale)
                # Over a scale small enough even a finite distance reads inf, and then so does the bias.
                away = sign if up else -sign
                assert reading.bias == (math.inf if expected == math.inf else away * expected)
            assert gonogo.read(actual, good, gauge="bound", scale=np.zeros(1)).worst == math.inf


def test_cells_at_the_overflow_of_a_format_without_infinity() -> None:
    """448 keeps the tie at 464; what lies beyond rounds to NaN, and NaN is then the right output."""
    past = math.nextafter(464.0, math.inf)
    for path in HOST_PATHS.values():
        for output, r, worst in ((448.0, 464.0, 0.0), (math.nan, 464.0, math.inf), (math.nan, past, 0.0)):
            for sign in (1, -1):
                arrays = (
                    (sign * np.array([output])).astype(NUMPY_DTYPES["float8_e4m3fn"]),
                    np.array([sign * r]),
                    np.ones(1),
                )
                assert read_on(path, gonogo.gauge("bound"), arrays, "float8_e4m3fn").worst == worst
        arrays = np.array([448.0]).astype(NUMPY_DTYPES["float8_e4m3fn"]), np.array([past]), np.ones(1)
        assert read_on(path, gonogo.gauge("bound"), arrays, "float8_e4m3fn").worst == 2.0**-44 / 2.0**-24


def test_units_of_nothing_and_of_everything() -> None:
    """A unit of 0 reads 0 without error and inf with one; S = inf excuses any finite error and no other."""
    exact = gonogo.gauge("policy", atol=0.0, rtol=0.0)
    values = np.array([0.0, 1.0, -2.0, math.inf, math.nan])
    assert gonogo.read(values, values, gauge=exact).worst == 0.0
    assert gonogo.read(np.array([1.0, 5e-324]), np.array([1.0, 0.0]), gauge=exact) == gonogo.Reading(
        exact.name, math.inf, (1,), math.inf, 2
    )
    relative = gonogo.gauge("policy", atol=0.0, rtol=1.0)
    assert gonogo.read(np.array([0.0, 3.0]), np.array([-0.0, 2.0]), gauge=relative).worst == 0.5
    anything = np.full(3, math.inf)
    finite = gonogo.read(np.array([1e308, 0.0, -1.0]), np.zeros(3), gauge="bound", scale=anything)
    assert (finite.worst, finite.bias) == (0.0, 0.0)
    for bad in (math.nan, math.inf):
        reading = gonogo.read(np.array([0.0, bad, 0.0]), np.zeros(3), gauge="bound", scale=anything)
        assert (reading.worst, reading.index, reading.bias) == (math.inf, (1,), math.inf)


@pytest.mark.parametrize("n", [1, 1000, 300_001])
@pytest.mark.parametrize("shift", [2.0**-30, -(2.0**-30)])
def test_bias_sees_a_constant_shift(shift: float, n: int) -> None:
    """Mean signed error × √n, positive where the output is too large, beneath far wider noise."""
    expected = np.arange(n) % 7 + 1.0
    noise = np.where(np.arange(n) % 2, 2.0**-20, -(2.0**-20))
    noise[n // 2 * 2 :] = 0.0  # so that it sums to 0 exactly
    reading = gonogo.read(expected + shift + noise, expected, gauge="absolute")
    assert math.isclose(reading.bias, shift * math.sqrt(n), rel_tol=1e-9)
    quarter = gonogo.gauge("policy", atol=2.0**-32, rtol=0.0)
    units = gonogo.read(expected + shift, expected, gauge=quarter)
    assert math.isclose(units.bias, math.copysign(4 * math.sqrt(n), shift), rel_tol=1e-12)
    assert units.worst == 4.0
    infinite = expected + shift
    infinite[-1] = -math.inf
    assert gonogo.read(infinite, expected, gauge="absolute").bias == math.inf


@pytest.mark.parametrize("gauge", GAUGES)
def test_empty_and_ties(gauge: str) -> None:
    chosen = gonogo.gauge(gauge, **(POLICY if gauge == "policy" else {}))
    empty = np.empty((3, 0))
    assert gonogo.read(empty, empty, gauge=chosen, scale=empty) == gonogo.Reading(chosen.name, 0.0, None, 0.0, 0)
    # Equal worst elements on both sides of the seams between blocks, chunks and threads.
    for n, places in ((40, (7, 8, 31)), (2**20 + 9, (2**16 + 1, 2**18, 2**19 + 3, 2**20 + 8))):
        expected = np.ones(n)
        actual = expected.astype(np.float32)
        actual[list(places)] = [1.5 if k % 2 else 0.5 for k in range(len(places))]
        for repeat in range(len(places)):
            # Not from the cell: that of 0.5 ends nearer to 1 than that of 1.5 does.
            level = actual if gauge != "bound" else np.where(actual == 0.5, np.float32(1.5), actual)
            reading = gonogo.read(level, expected, gauge=chosen, scale=expected)
            assert reading.index == (places[repeat],)
            actual[places[repeat]] = 1.0


@pytest.mark.parametrize("exponent", [0, 996, -996, 508, -508, 512, 1000, -1010])
def test_rms_over_the_range_of_float64(exponent: int) -> None:
    """Squares that would overflow or vanish: rms to 24 bits all the same, and the reading exact."""
    unit = math.ldexp(1.0, exponent)
    values = np.random.default_rng(1).standard_normal(1000)
    values[3] = math.nan
    expected = np.append(values, [math.inf, -math.inf, 0.0]) * unit
    actual = expected.copy()
    actual[17] *= 1.25
    actual[-1] = unit
    patterns_of = [int(p) for p in actual.view(np.uint64)]
    reals = [FLOAT64.decode(int(p)) for p in expected.view(np.uint64)]
    rms, undecided = root_mean_square(reals)
    assert not undecided
    worst, index, *_ = exact_reading("magnitude", FLOAT64, patterns_of, reals, [0.0] * len(reals), rms)
    chosen = gonogo.gauge("magnitude")
    for path in HOST_PATHS.values():
        found = read_on(path, chosen, (actual, expected), "float64")
        assert (found.worst, found.index) == (worst, (index,))
    assert worst > 2.0**50


def test_magnitude_of_a_reference_without_size() -> None:
    """All zero, or nothing finite: the unit is 0 and any error infinite."""
    for expected in (np.zeros(3), np.full(3, math.inf), np.full(3, math.nan)):
        assert gonogo.read(expected, expected, gauge="magnitude").worst == 0.0
        assert gonogo.read(np.ones(3), expected, gauge="magnitude").worst == math.inf


@pytest.mark.parametrize(
    "largest",
    [
        5e-324,
        1e-310,
        2.0**-1024,
        2.0**-1022,
        1e308,
        1.7976931348623157e308,
    ],
)
def test_magnitude_at_the_ends_of_float64(largest: float) -> None:
    expected = np.array([largest, 0.0, -largest])
    rms, _ = root_mean_square([FLOAT64.decode(int(p)) for p in expected.view(np.uint64)])
    assert rms > 0
    reading = gonogo.read(np.array([largest, largest, -largest]), expected, gauge="magnitude")
    assert reading.index == (1,)
    assert reading.worst == divide(largest, 2.0**-53 * rms)
    assert gonogo.read(np.array([largest]), np.array([largest]), gauge="magnitude").worst == 0.0


def test_moments_that_overflow_only_in_sum() -> None:
    """Each piece's squares fit a float64, all together they do not."""
    expected = np.full((2, 2**18), 2.2e151)
    actual = np.repeat(expected, 2, axis=1)[:, ::2]  # with gaps, so it is read in pieces of 2^18
    actual[1, 5] *= 2
    reading = gonogo.read(actual, expected, gauge="magnitude")
    assert reading.index == (1, 5)
    assert math.isclose(reading.worst, 2.0**52, rel_tol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("path", HOST_PATHS)
def test_bias_whose_sum_overflows(path: str) -> None:
    """Finite errors, finite mean: inf is kept for infinite errors, and NaN for nothing."""
    chosen = gonogo.gauge("absolute")
    big = np.full(4, 1.5e308)
    found = read_on(HOST_PATHS[path], chosen, (big, np.zeros(4)), "float64")
    assert (found.worst, found.index) == (1.5e308, (0,))
    assert not math.isnan(found.bias)
    mixed = np.concatenate([np.full(2**17, 1.5e308), np.full(2**17, -1.5e308)])
    assert read_on(HOST_PATHS[path], chosen, (mixed, np.zeros(mixed.size)), "float64").bias == 0.0
