"""What the native path does apart from others: spans in registers, narrow differences, sorting by slices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from exact import LAYOUTS, error_stats
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import HOST_PATHS, align_arrays, as_array, patterns
from test_stats import assert_same

from gonogo.formats import FORMATS
from gonogo.instrument import path_native, path_numpy
from gonogo.instrument.partials import EMPTY_BRACKET, Bracket, Pair
from gonogo.instrument.selection import shrink_to_float32
from gonogo.instrument.stats import _measure_aligned

pytestmark = pytest.mark.skipif(not path_native.available(), reason="built without a C compiler")
NATIVE_PATHS = {name: path for name, path in HOST_PATHS.items() if name != "numpy"}
FUSED = ("float16", "bfloat16", "float32")


@st.composite
def spans(draw: st.DrawFn) -> tuple[str, list[int], list[int]]:
    """Two arrays of one format, longer than a step: neighbours, with few or no others among them."""
    name = draw(st.sampled_from(FUSED))
    top = LAYOUTS[name].top
    sign = 1 << (LAYOUTS[name].bits - 1)
    size = draw(st.integers(33, 100))
    magnitudes = draw(st.lists(st.integers(0, top), min_size=size, max_size=size))
    actual, expected = [], []
    for magnitude, shift, side in zip(
        magnitudes,
        draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size)),
        draw(st.lists(st.sampled_from([0, sign]), min_size=size, max_size=size)),
        strict=True,
    ):
        actual.append(magnitude | side)
        near = magnitude + shift
        expected.append(min(near, top) | side if near >= 0 else -near | (sign - side))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, size - 1))
        actual[at], expected[at] = draw(patterns(name)), draw(patterns(name))
    return name, actual, expected


@settings(max_examples=150, deadline=None)
@given(case=spans(), atol=st.sampled_from([0.0, 1e-3, 1.0, math.inf, math.nan]))
def test_spans_against_exact_arithmetic(case: tuple[str, list[int], list[int]], atol: float) -> None:
    name, actual, expected = case
    exact = error_stats(LAYOUTS[name], actual, LAYOUTS[name], expected, None if math.isnan(atol) else atol)
    aligned = align_arrays(as_array(actual, name), as_array(expected, name))
    for path in NATIVE_PATHS.values():
        assert_same(_measure_aligned(aligned, path, atol), exact)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_differences_that_float32_would_round(name: str) -> None:
    """Whole spans of one pair each, of all distances between exponents at which 24 digits start not to suffice."""
    layout = LAYOUTS[name]
    one, sign = layout.bias << layout.fraction_bits, 1 << (layout.bits - 1)
    ones = (1 << layout.fraction_bits) - 1
    small = [
        0,
        1,
        2,
        ones,
        *(one - (k << layout.fraction_bits) + f for k in range(9, 19) for f in (0, 1, ones) if k < layout.bias),
    ]
    for actual in (one, one + 1, one + ones):
        for magnitude in small:
            for expected in (magnitude, magnitude | sign):
                aligned = align_arrays(as_array([actual] * 32, name), as_array([expected] * 32, name))
                values = [float(operand.format.decode(operand.bits)[0]) for operand in aligned.operands]
                for path in NATIVE_PATHS.values():
                    stats = _measure_aligned(aligned, path, math.nan)
                    assert stats.max_abs == stats.p50_abs == abs(values[0] - values[1])


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(FUSED), near=st.booleans(), seed=st.integers(0, 2**32), data=st.data())
def test_brackets_count_and_keep_what_the_oracle_does(
    name: str, near: bool, seed: int, data: st.DataObject
) -> None:
    """Ends on errors, beside them and at the nearest float32, which need not be one; brackets that overlap."""
    rng = np.random.default_rng(seed)
    fmt, top = FORMATS[name], LAYOUTS[name].top
    bits = rng.integers(top // 3, top // 2, 2500)
    other = bits + rng.integers(-40, 40, bits.size) if near else rng.permutation(bits)
    pair = Pair(bits.astype(f"u{fmt.bits // 8}"), fmt, other.astype(f"u{fmt.bits // 8}"), fmt)
    errors = np.unique(path_numpy.absolute_errors(fmt.decode(pair.actual), fmt.decode(pair.expected)))

    all_float32 = data.draw(st.booleans())

    def draw_end() -> float:
        end = float(data.draw(st.sampled_from(errors[:: 1 + errors.size // 100].tolist())))
        around = [end, math.nextafter(end, 0), math.nextafter(end, math.inf), float(np.float32(end))]
        return around[-1] if all_float32 else data.draw(st.sampled_from(around))

    def draw_bracket() -> Bracket:
        low, high = sorted([draw_end(), draw_end()])
        return Bracket(low, high, 1, data.draw(st.sampled_from([0, 2500])))

    brackets = [draw_bracket(), draw_bracket(), data.draw(st.sampled_from([EMPTY_BRACKET, Bracket(0.0, math.inf)]))]
    atol = draw_end()
    oracle = path_numpy.scan(pair, atol, brackets)
    for path in NATIVE_PATHS.values():
        scan = path.scan(pair, atol, brackets)
        assert scan.exceeding == oracle.exceeding
        for found, wanted in zip(scan.caught, oracle.caught, strict=True):
            assert (found.below_low, found.below_high) == (wanted.below_low, wanted.below_high)
            np.testing.assert_array_equal(np.sort(found.values), np.sort(wanted.values))


def test_shares_keep_all_that_they_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_NUM_THREADS", "3")
    monkeypatch.setattr(path_native, "THREAD_SHARE", 100)
    errors = np.random.default_rng(3).random(1000)
    pair = Pair(errors.view(np.uint64), FORMATS["float64"], np.zeros(1000, np.uint64), FORMATS["float64"])
    brackets = [Bracket(0.0, 0.9, 1, 1000), Bracket(0.2, 0.3, 1, 200), Bracket(0.5, 0.6)]
    everything, tenth, counted = path_native.scan(pair, 0.0, brackets).caught
    np.testing.assert_array_equal(everything.values, errors[errors < 0.9])
    np.testing.assert_array_equal(tenth.values, errors[(errors >= 0.2) & (errors < 0.3)])
    assert (counted.values.size, counted.below_high) == (0, np.count_nonzero(errors < 0.6))


def make_errors(kind: str, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    rng = np.random.default_rng(size)
    if kind == "tied":
        return rng.choice([0.0, 5e-324, 1.0, math.nextafter(1.0, 2.0), 1e300, math.inf], size)
    if kind == "narrow":  # all but one value in one slice of the first round
        return np.where(np.arange(size) == size // 2, 1e10, 1 + rng.random(size) * 2.0**-30)
    return np.abs(rng.standard_normal(size)) * 10.0 ** rng.integers(-300, 300, size)


@pytest.mark.parametrize("size", [1, 2, 24, 25, 4095, 100_000])
@pytest.mark.parametrize("kind", ["tied", "narrow", "wide"])
def test_errors_are_sorted_and_selected(kind: str, size: int) -> None:
    errors = make_errors(kind, size)
    ordered = np.sort(errors)
    np.testing.assert_array_equal(path_native.sort_errors(errors), ordered)
    ranks = [size - 1, *np.random.default_rng(0).integers(0, size, 5).tolist(), 0]
    assert path_native.select_errors(errors, ranks) == ordered[ranks].tolist()


@given(st.floats(0, 1e300), st.floats(0, 1e300) | st.just(math.inf))
def test_brackets_shrink_to_float32(low: float, high: float) -> None:
    least, most = (np.float32(end) for end in shrink_to_float32(low, high))
    with np.errstate(over="ignore"):
        below, above = np.nextafter(least, np.float32(-math.inf)), np.nextafter(most, np.float32(math.inf))
    assert float(below) < low <= float(least)
    assert float(most) <= high
    assert most == above or float(above) > high
