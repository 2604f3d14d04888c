"""selection.py: exact order statistics from any data, however bad the sample and small the memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.instrument import selection
from gonogo.instrument.path_numpy import _catch
from gonogo.instrument.selection import find_ranks, interpolate, stratified_positions

errors = st.lists(
    st.sampled_from([0.0, 0.25, 1.0, 1.5, 5e-324, 1e308, math.inf]) | st.floats(0, 4),
    min_size=1,
    max_size=300,
)


@settings(max_examples=500, deadline=None)
@given(
    values=errors,
    bad_sample=errors,
    capacity=st.integers(1, 40),
    weight=st.sampled_from([1, 7]),
    data=st.data(),
)
def test_exact_whatever_the_sample(
    values: list[float], bad_sample: list[float], capacity: int, weight: int, data: st.DataObject
) -> None:
    array, ordered = np.array(values), np.sort(values)
    count = len(values)
    groups = []
    for _ in range(data.draw(st.integers(1, 3))):
        rank = data.draw(st.integers(0, count - 1))
        groups.append((rank, min(rank + 1, count - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "KEEP_ALL", data.draw(st.sampled_from([0, 2**16])))
        passes = 0

        def run_pass(brackets):
            nonlocal passes
            passes += 1
            assert passes < 100, "the search does not end"
            return [_catch(array, bracket) for bracket in brackets]

        found = find_ranks(
            groups, count, run_pass, lambda: np.sort(bad_sample), capacity=capacity, sample_weight=weight
        )
    assert found == {rank: ordered[rank] for group in groups for rank in group}


def test_good_sample_needs_one_pass() -> None:
    array = np.random.default_rng(0).exponential(size=2**18)
    sample = np.sort(array[stratified_positions(array.size, 2**14)])
    passes = []

    def run_pass(brackets):
        passes.append(brackets)
        return [_catch(array, bracket) for bracket in brackets]

    find_ranks([(1000, 1001), (2**17, 2**17 + 1), (2**18 - 10, 2**18 - 9)], array.size, run_pass, lambda: sample)
    assert len(passes) == 1
    assert sum(len(_catch(array, b).values) for b in passes[0]) < array.size / 10


def test_positions_are_stratified() -> None:
    positions = stratified_positions(10_007, 1000)
    assert ((positions * 1000) // 10_007 - np.arange(1000)).min() >= -1
    assert np.all(np.diff(positions) >= 0)
    assert positions.max() < 10_007
    assert len(set(positions % 16)) == 16, "no aliasing with power-of-two rows"


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=50), st.floats(0, 100))
def test_interpolation_is_numpys(values: list[float], percent: float) -> None:
    ordered = np.sort(values)
    place = (len(values) - 1) * (percent / 100)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    assert interpolate(float(ordered[low]), float(ordered[high]), place - low) == np.percentile(values, percent)


def test_interpolation_at_infinity() -> None:
    assert interpolate(math.inf, math.inf, 0.3) == math.inf
    assert interpolate(1.0, math.inf, 0.3) == math.inf
    assert interpolate(1.0, math.inf, 0.0) == 1.0
