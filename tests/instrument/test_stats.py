"""gonogo.measure against exact rational arithmetic, on every path."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact import LAYOUTS, error_stats
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import HOST_PATHS, NUMPY_DTYPES, align_arrays, as_array, on_device, patterns, triton_path

import gonogo
from gonogo.errors import BadTolerance
from gonogo.formats import FORMATS
from gonogo.instrument import stats as stats_module

MEANS = ("mean_abs", "mean_rel", "mean_ulp")


def assert_same(found: gonogo.ErrorStats, expected: dict[str, float]) -> None:
    """Every field to the bit, the means to 1e-12."""
    for field, value in expected.items():
        got = getattr(found, field)
        if field in MEANS and math.isfinite(value):
            # A mean of subnormals has fewer than 12 digits: half the smallest float64 is all one can ask.
            assert abs(got - value) <= max(1e-12 * abs(value), 2.0**-1074), field
        else:
            assert got == value, field
        assert type(got) is type(value), field
    assert list(found.to_dict()) == list(expected)


@st.composite
def measured_pairs(draw: st.DrawFn) -> tuple[str, list[int], str, list[int], float | None]:
    output = draw(st.sampled_from(sorted(FORMATS)))
    reference = draw(st.sampled_from(["float64", "float64", output, *sorted(FORMATS)]))
    actual = draw(st.lists(patterns(output), max_size=24))
    expected = draw(st.lists(patterns(reference), min_size=len(actual), max_size=len(actual)))
    if reference == output:  # agreement is common in life and rare by chance
        keep = draw(st.lists(st.booleans(), min_size=len(actual), max_size=len(actual)))
        expected = [a if same else e for a, e, same in zip(actual, expected, keep, strict=True)]
    atol = draw(st.none() | st.sampled_from([0.0, 1e-3, 1.0, math.inf]))
    return output, actual, reference, expected, atol


@settings(max_examples=400, deadline=None)
@given(case=measured_pairs())
def test_against_exact_arithmetic(case: tuple[str, list[int], str, list[int], float | None]) -> None:
    output, actual, reference, expected, atol = case
    exact = error_stats(LAYOUTS[output], actual, LAYOUTS[reference], expected, atol)
    arrays = as_array(actual, output), as_array(expected, reference)
    assert_same(gonogo.measure(*arrays, atol=atol), exact)
    if not actual:
        return
    tolerance = math.nan if atol is None else atol
    for path in HOST_PATHS.values():
        assert_same(stats_module._measure_aligned(align_arrays(*arrays), path, tolerance), exact)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(case=measured_pairs())
def test_triton_against_exact_arithmetic(case: tuple[str, list[int], str, list[int], float | None]) -> None:
    output, actual, reference, expected, atol = case
    if not actual:
        return
    exact = error_stats(LAYOUTS[output], actual, LAYOUTS[reference], expected, atol)
    aligned = on_device(align_arrays(as_array(actual, output), as_array(expected, reference)))
    with triton_path() as path:
        assert_same(stats_module._measure_aligned(aligned, path, math.nan if atol is None else atol), exact)


@pytest.mark.parametrize("name", FORMATS)
def test_zero_dimensional_and_empty(name: str) -> None:
    one = np.ones((), NUMPY_DTYPES[name])
    assert gonogo.measure(one, one).count == 1
    empty = np.empty((0, 3), NUMPY_DTYPES[name])
    assert set(gonogo.measure(empty, empty, atol=1.0).to_dict().values()) == {0}


def test_overflowing_sum_of_finite_errors() -> None:
    """Errors near the top of float64: the sum overflows, the mean must not."""
    actual, expected = np.full(1000, 1.5e308), np.zeros(1000)
    for path in HOST_PATHS.values():
        found = stats_module._measure_aligned(align_arrays(actual, expected), path, 0.0)
        assert found.mean_abs == 1.5e308
    with triton_path() as path:
        found = stats_module._measure_aligned(on_device(align_arrays(actual, expected)), path, 0.0)
        assert found.mean_abs == 1.5e308


def test_flushed_subnormals_do_not_matter() -> None:
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush subnormals")
    try:
        stats = gonogo.measure(torch.full((64,), 2.0**-24, dtype=torch.float16), np.zeros(64))
        assert stats.max_abs == 2.0**-24
        assert gonogo.measure(np.full(64, 5e-324), np.zeros(64)).max_abs == 5e-324
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("atol", [-1.0, math.nan])
def test_bad_tolerance(atol: float) -> None:
    with pytest.raises(BadTolerance, match=rf"^atol is {atol}; a tolerance is a number >= 0$"):
        gonogo.measure(np.ones(2), np.ones(2), atol=atol)
