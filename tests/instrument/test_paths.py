"""All paths on the same large data: counts, maxima, percentiles and ULPs to the bit, means to 1e-12."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patterns import HOST_PATHS, NUMPY_DTYPES, align_arrays, on_device, triton_path
from test_stats import MEANS

import gonogo
from gonogo.formats import FORMATS
from gonogo.instrument import path_numpy, readings
from gonogo.instrument.gauges import Size
from gonogo.instrument.partials import EMPTY_BRACKET, Bracket, Pair, Unit
from gonogo.instrument.stats import _measure_aligned, _scan_pieces

N = 2**17 + 3  # past the size up to which everything is kept, and no multiple of a block
Floats = np.ndarray


def smooth(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    r = rng.standard_normal(n)
    return r * (1 + 1e-3 * rng.standard_normal(n)), r


def tied(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    r = rng.integers(-4, 5, n).astype(float)
    return r + rng.choice([0.0, 0.5, 2.0], n, p=[0.495, 0.405, 0.1]), r


def equal(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    r = rng.standard_normal(n).astype(np.float16).astype(float)
    return r, r


def rare(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """All the error in one short stretch, where a sample hardly looks."""
    r = np.ones(n)
    a = r.copy()
    a[n // 2 : n // 2 + n // 80] += np.linspace(0.1, 1, n // 80)
    return a, r


def special(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    a, r = smooth(rng, n)
    odd = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-8, -1e-8, 1e5, -1e6]
    r = np.where(rng.random(n) < 0.3, rng.choice(odd, n), r)
    return np.where(rng.random(n) < 0.5, np.where(rng.random(n) < 0.3, rng.choice(odd, n), a), r), r


def mostly_infinite(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    a, r = smooth(rng, n)
    return np.where(rng.random(n) < 0.6, math.inf, a), r


def tiny(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Errors so small that a bracket's width has no reciprocal; they show against a float64 reference only."""
    return np.zeros(n), (rng.integers(1, 2**20, n) << 32).view(np.float64)


def near_ties(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Errors of 128, where the median is, and of next to it; float64's upper half of the next above is the same."""
    return np.full(n, 128.0), rng.choice([2.0**-16, 0.0, -(2.0**-16), -128.0], n, p=[0.3, 0.15, 0.3, 0.25])


SHAPES_OF_ERROR: list[Callable[[np.random.Generator, int], tuple[Floats, Floats]]] = [
    smooth, tied, equal, rare, special, mostly_infinite, tiny,
]  # fmt: skip


def make_pair(make: Callable, name: str, same: bool, n: int = N) -> tuple[Floats, Floats]:
    with np.errstate(all="ignore"):
        actual, expected = make(np.random.default_rng(7), n)
        return actual.astype(NUMPY_DTYPES[name]), expected.astype(NUMPY_DTYPES[name]) if same else expected


def assert_paths_agree(oracle: gonogo.ErrorStats, found: gonogo.ErrorStats) -> None:
    for field, value in oracle.to_dict().items():
        got = getattr(found, field)
        if field in MEANS and math.isfinite(value):
            assert abs(got - value) <= 1e-12 * abs(value), field
        else:
            assert got == value, field


@pytest.mark.parametrize("make", SHAPES_OF_ERROR, ids=lambda make: make.__name__)
@pytest.mark.parametrize("same", [True, False], ids=["same", "float64"])
@pytest.mark.parametrize("name", FORMATS)
def test_stats(name: str, same: bool, make: Callable) -> None:
    actual, expected = make_pair(make, name, same)
    aligned = align_arrays(actual, expected)
    oracle = _measure_aligned(aligned, path_numpy, 1e-3)
    with np.errstate(all="ignore"):
        errors = path_numpy.absolute_errors(actual.astype(float), expected.astype(float))
        ordered = np.sort(errors)
    if math.isfinite(ordered[-1]):
        assert (oracle.p50_abs, oracle.p90_abs, oracle.p99_abs) == tuple(np.percentile(errors, [50, 90, 99]))
    for path in HOST_PATHS.values():
        assert_paths_agree(oracle, _measure_aligned(aligned, path, 1e-3))


@pytest.mark.slow
@pytest.mark.parametrize("make", SHAPES_OF_ERROR, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("name", "same"), [("float16", True), ("bfloat16", False), ("float8_e4m3fn", False)])
def test_triton_stats(name: str, same: bool, make: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted here, compiled on a GPU; every format is covered by the exact tests and by the gpu ones."""
    assert_triton_agrees(*make_pair(make, name, same), monkeypatch)


@pytest.mark.slow
def test_triton_tells_a_tie_from_what_is_next_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_triton_agrees(*make_pair(near_ties, "float16", same=True), monkeypatch)


def assert_triton_agrees(actual: Floats, expected: Floats, monkeypatch: pytest.MonkeyPatch) -> None:
    aligned = align_arrays(actual, expected)
    with triton_path(block=2**14) as path:
        from gonogo.instrument import first_pass_triton, select_triton

        monkeypatch.setattr(select_triton, "SAMPLE", 2**13)
        monkeypatch.setattr(first_pass_triton, "ROW", 2**9)
        monkeypatch.setattr(first_pass_triton, "FEW_ROWS", 2**4)
        monkeypatch.setattr(first_pass_triton, "TIED_ROW", 2**8)
        monkeypatch.setattr(first_pass_triton, "TIED_ROWS", 2**5)
        monkeypatch.setattr(select_triton, "THINNING", 4)
        assert_paths_agree(
            _measure_aligned(aligned, path_numpy, 1e-3), _measure_aligned(on_device(aligned), path, 1e-3)
        )


@pytest.mark.parametrize(
    ("stored", "without_room", "settles"),
    [((0.5, 0.5), (0.5, 0.5), True), ((0.5, 0.25), (0.5, 0.5), False), ((0.5, 0.5), (0.25, 0.5), False),
     ((0.5, 0.5), (0.25, 0.25), False), ((0.0, 0.0), (0.0, 0.5), False), ((0.0, 0.0), (0.0, 0.0), True)],
)  # fmt: skip
def test_a_bin_is_one_value_only_if_all_of_it_is(
    stored: tuple[float, ...], without_room: tuple[float, ...], settles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more values than come along those that do, and the extremes of the others."""
    pytest.importorskip("torch")
    from gonogo.instrument import first_pass_triton, path_triton
    from gonogo.instrument import launched_triton as at

    monkeypatch.setattr(first_pass_triton, "READY", 2)
    fetched = np.zeros(at.VALUES_AT + 6, np.int64)
    least, largest = (np.float64(x).view(np.int64) for x in (min(without_room), max(without_room)))
    fetched[at.SEEN_AT] = 4
    fetched[at.EXTREMES_AT : at.EXTREMES_AT + 2] = largest, path_triton.NO_INDEX - least
    fetched[at.VALUES_AT : at.VALUES_AT + 2] = np.array(stored).view(np.int64)
    unused: Any = None
    launched = at.Launched(
        fetched, fetched[: at.VALUES_AT].tolist(), [], unused, unused, unused, 1, count_high=False, tied=False
    )
    ready = first_pass_triton._take_ready(launched, 0)
    assert (ready is not None) == settles
    assert ready is None or (len(ready[1]), *ready[1][:2]) == (4, *stored)


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False])
def test_more_values_in_a_bin_than_come_along(alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six errors in a thousand are the median: all of its bin, which settles it, or others lie beside them."""
    from gonogo.instrument import first_pass_triton

    rng = np.random.default_rng(3)
    below, above = (0.4, 0.6) if alone else (0.5, 0.5)
    first, equal = N * 497 // 1000, N * 6 // 1000
    rest = rng.uniform(above, 1.0, N - first - equal)
    errors = np.concatenate([rng.uniform(0.1, below, first), np.full(equal, 0.5), rest])
    monkeypatch.setattr(first_pass_triton, "READY", 128)
    ready, take = [], first_pass_triton._take_ready

    def note(launched: Any, k: int) -> Any:
        ready.append((launched.words[first_pass_triton.SEEN_AT + k], take(launched, k)))
        return ready[-1][1]

    monkeypatch.setattr(first_pass_triton, "_take_ready", note)
    assert_triton_agrees(np.zeros(N, NUMPY_DTYPES["bfloat16"]), rng.permutation(errors), monkeypatch)
    count, values = ready[0]
    assert count > 128
    assert (values is not None) == alone


@pytest.mark.parametrize("gauge", ["absolute", "magnitude", "ulp", "bound", "policy"])
@pytest.mark.parametrize("make", SHAPES_OF_ERROR, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", FORMATS)
def test_readings(name: str, make: Callable, gauge: str) -> None:
    actual, expected = make_pair(make, name, same=False, n=5000)
    scale = np.abs(np.nan_to_num(expected, posinf=1, neginf=1)) * np.random.default_rng(0).choice(
        [0, 1, 3], expected.shape
    )
    chosen = gonogo.gauge(gauge, **({"atol": 1e-3, "rtol": 1e-2} if gauge == "policy" else {}))
    aligned = align_arrays(actual, expected, *([scale] if chosen.needs_scale else []))

    def read(aligned: object, path: object) -> gonogo.Reading:
        size = readings._measure_size(aligned, path) if chosen.needs_size else Size(0.0, 0.0)
        unit = chosen.make_unit(FORMATS[name], size)
        return readings._make_reading(chosen.name, aligned, readings._read_pieces(aligned, path, unit))

    oracle = read(aligned, path_numpy)
    found = [read(aligned, path) for path in HOST_PATHS.values()]
    with triton_path(block=2**13) as path:
        found.append(read(on_device(aligned), path))
    for reading in found:
        assert (reading.worst, reading.index, reading.count) == (oracle.worst, oracle.index, oracle.count)
        # The signed sum cancels: its rounding is relative to the sum of magnitudes, of which worst is a part.
        if math.isfinite(oracle.bias):
            assert abs(reading.bias - oracle.bias) <= 1e-12 * oracle.worst * math.sqrt(oracle.count)
        else:
            assert reading.bias == oracle.bias


def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    actual, expected = make_pair(smooth, "float32", same=False, n=2**21 + 5)
    scale = np.abs(expected)
    results = []
    for threads in ("1", "3"):
        monkeypatch.setenv("GONOGO_NUM_THREADS", threads)
        results.append(
            (gonogo.measure(actual, expected), gonogo.read(actual, expected, gauge="bound", scale=scale))
        )
    assert_paths_agree(results[0][0], results[1][0])
    assert results[0][1].worst == results[1][1].worst
    assert results[0][1].index == results[1][1].index


def test_bad_scale_in_a_later_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_NUM_THREADS", "2")
    ones, scale = np.ones(2**20 + 9), np.ones(2**20 + 9)
    scale[2**20 - 5] = -1.0
    with pytest.raises(gonogo.errors.BadScale, match=re.escape(f"is negative or NaN at ({2**20 - 5},)")):
        gonogo.read(ones, ones, gauge="bound", scale=scale)


@pytest.mark.parametrize(("bracket", "complete"), [
    (Bracket(0.1, 0.1 * (1 + 2**-30), 1, 10_000), True),  # ends that differ from many errors in the low word only
    (Bracket(0.1, 0.2, 1, 8), False),  # more inside than a program has room for
])  # fmt: skip
def test_triton_brackets(bracket: Bracket, complete: bool) -> None:
    """Counts are right whatever the ends and however little is kept."""
    errors = 0.1 * (1 + np.arange(-3000, 3000) * 2.0**-40)
    aligned = align_arrays(errors, np.zeros_like(errors))
    brackets = [bracket, EMPTY_BRACKET, EMPTY_BRACKET]
    oracle = _scan_pieces(aligned, path_numpy, 0.0, brackets).caught[0]
    with triton_path() as path:
        found = _scan_pieces(on_device(aligned), path, 0.0, brackets).caught[0]
        assert (found.below_low, found.below_high) == (oracle.below_low, oracle.below_high)
        kept = np.sort(np.asarray(found.values))
    assert (kept.size == found.below_high - found.below_low) == complete
    assert np.isin(kept, errors).all()
    if complete:
        np.testing.assert_array_equal(kept, np.sort(oracle.values))


TOLERANCES = ((1e-3, 1e-2), (0.0, 0.1), (0.0, 0.0), (5e-324, 0.0), (1e-310, 1e-300), (1e300, 1e300))
"""Among them some whose products leave float64's normal range."""


@pytest.mark.parametrize("make", SHAPES_OF_ERROR, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["float16", "float32", "float8_e4m3fn", "float64"])
def test_units_read_together_are_those_read_alone(name: str, make: Callable) -> None:
    actual, expected = make_pair(make, name, same=False, n=5000)
    aligned = align_arrays(actual, expected)
    policies = [gonogo.gauge("policy", atol=atol, rtol=rtol) for atol, rtol in TOLERANCES]
    units = [
        chosen.make_unit(FORMATS[name], readings._measure_size(aligned, path_numpy))
        for chosen in (*policies, *map(gonogo.gauge, ("absolute", "magnitude", "ulp")))
    ]
    alone = [readings._read_pieces(aligned, path_numpy, unit).worst for unit in units]
    pair = Pair(*aligned.flat()[:1], FORMATS[name], *aligned.flat()[1:], FORMATS["float64"])
    assert {path: HOST_PATHS[path].read_units(pair, units) for path in HOST_PATHS} == dict.fromkeys(
        HOST_PATHS, alone
    )
    if name == "float64":
        return  # whose subnormals the interpreter divides otherwise
    with triton_path(block=2**13) as path:
        bits = on_device(aligned).flat()
        pair = Pair(bits[0], FORMATS[name], bits[1], FORMATS["float64"])
        assert path.read_units(pair, units) == alone


FINITE = st.floats(0, 1e308) | st.floats(0, 1e-300) | st.sampled_from([0.0, 5e-324, 2.0**-960, 1.0])


@given(
    st.lists(st.tuples(*[FINITE | st.just(math.inf)] * 2), min_size=1, max_size=12),
    st.lists(st.tuples(FINITE, FINITE, st.sampled_from([0.0, 1.0])).map(lambda three: Unit(*three)), min_size=1),
)
def test_units_read_together_by_the_chip(values: list[tuple[float, float]], units: list[Unit]) -> None:
    """Errors and units of any size, subnormal ones too: a division is left out only where it changes nothing."""
    actual, expected = (np.ascontiguousarray(column).view(np.uint64) for column in np.array(values).T)
    pair = Pair(actual, FORMATS["float64"], expected, FORMATS["float64"])
    for path in HOST_PATHS.values():
        assert path.read_units(pair, units) == [path.read(pair, None, None, unit).worst for unit in units]
