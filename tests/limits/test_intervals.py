"""Intervals: against mpmath's integrals, in closed form, and what must hold of any exact interval."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import mpmath as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.errors import InputError
from gonogo.limits.intervals import clopper_pearson, upper_bound

COUNTS = [
    (1, 2), (2, 3), (7, 20), (15, 31), (16, 33), (99, 100), (40, 3_000), (2_999, 3_000), (5_000, 10_000),
    (1, 10**8), (2, 10**8), (16, 10**8), (123_456, 10**8), (5 * 10**7, 10**8), (10**8 - 1, 10**8),
]  # fmt: skip
MORE_CONFIDENCES = [
    (hits, trials, confidence)
    for hits, trials in [(1, 3), (40, 3_000), (1_000, 10**8)]
    for confidence in (0.05, 0.5, 0.999, 1 - 1e-12)
]


def find_tail(hits: int, trials: int, rate: mp.mpf) -> mp.mpf:
    """P(X ≥ hits): the regularised incomplete beta function as the integral it is defined by."""
    a, b = mp.mpf(hits), mp.mpf(trials - hits + 1)
    width = mp.sqrt(a * b / (a + b + 1)) / (a + b)
    logs = mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b)

    def density(x: mp.mpf) -> mp.mpf:
        return mp.exp(logs + (a - 1) * mp.log(x) + (b - 1) * mp.log1p(-x)) if 0 < x < 1 else mp.mpf(0)

    # From the rate towards the nearer end, no further than the density reaches.
    below = rate <= a / (a + b)
    end = max(mp.mpf(0), rate - 40 * width) if below else min(mp.mpf(1), rate + 40 * width)
    points = [rate + (end - rate) * mp.mpf(step) / 8 for step in range(9)]
    area = abs(mp.quad(density, points, method="gauss-legendre"))
    return area if below else 1 - area


@pytest.mark.parametrize(
    ("hits", "trials", "confidence"), [*((*count, 0.95) for count in COUNTS), *MORE_CONFIDENCES]
)
def test_against_the_integral(hits: int, trials: int, confidence: float) -> None:
    """The tail crosses what the confidence leaves over within 1e-10 of the limit, on the right side of it."""
    low, high = clopper_pearson(hits, trials, confidence)
    bound = upper_bound(hits, trials, confidence)
    with mp.workdps(30):
        beyond = 1 - mp.mpf(confidence)
        crossings: list[tuple[float, int, mp.mpf]] = [
            (low, hits, beyond / 2),
            (high, hits + 1, 1 - beyond / 2),
            (bound, hits + 1, 1 - beyond),
        ]
        for limit, count, tail in crossings:
            below, above = mp.mpf(limit) * (1 - mp.mpf("1e-10")), mp.mpf(limit) * (1 + mp.mpf("1e-10"))
            assert find_tail(count, trials, below) < tail
            assert above >= 1 or find_tail(count, trials, above) > tail


def test_the_oracle_against_a_sum() -> None:
    with mp.workdps(30):
        rate = mp.mpf("0.3")
        exact = sum(mp.binomial(20, k) * rate**k * (1 - rate) ** (20 - k) for k in range(7, 21))
        assert abs(find_tail(7, 20, rate) / exact - 1) < mp.mpf("1e-20")


@pytest.mark.parametrize("trials", [1, 2, 59, 299, 2_995, 29_956, 10**8])
def test_none_and_all(trials: int) -> None:
    with mp.workdps(30):
        alpha = 1 - mp.mpf(0.95)
        none = 1 - alpha ** (mp.mpf(1) / trials)
        none_of_two_sides = 1 - (alpha / 2) ** (mp.mpf(1) / trials)
    assert upper_bound(0, trials) == pytest.approx(float(none), rel=1e-14)
    assert clopper_pearson(0, trials) == (0.0, pytest.approx(float(none_of_two_sides), rel=1e-14))
    assert clopper_pearson(trials, trials) == (pytest.approx(0.025 ** (1 / trials), rel=1e-14), 1.0)
    assert upper_bound(trials, trials) == 1.0


def test_no_trials_prove_nothing() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    assert upper_bound(0, 0) == upper_bound(0, 0, 0.01) == 1.0


counts = st.integers(0, 10**4).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials)))
confidences = st.floats(1e-3, 1 - 1e-9)


@given(counts, confidences)
def test_what_holds_of_every_interval(count: tuple[int, int], confidence: float) -> None:
    hits, trials = count
    low, high = clopper_pearson(hits, trials, confidence)
    seen = hits / trials if trials else 0.0
    assert 0.0 <= low <= seen <= high <= 1.0
    assert (low == 0.0) == (hits == 0)
    assert (high == 1.0) == (hits == trials)
    mirrored = clopper_pearson(trials - hits, trials, confidence)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), rel=1e-9, abs=1e-12)
    one_sided = upper_bound(hits, trials, confidence)
    assert one_sided <= high
    assert clopper_pearson(hits, trials, 1 - (1 - confidence) / 8)[1] >= high
    assert upper_bound(hits, trials + 1, confidence) <= one_sided * (1 + 1e-12)
    assert upper_bound(min(hits + 1, trials), trials, confidence) >= one_sided * (1 - 1e-12)


@pytest.mark.parametrize(("trials", "rate"), [(30, 0.1), (50, 0.5), (200, 0.01)])
def test_coverage_is_at_least_the_confidence(trials: int, rate: float) -> None:
    """Summed over every number of hits there can be, not sampled."""

    def cover(holds: Callable[[int], bool]) -> float:
        return math.fsum(
            math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(trials + 1) if holds(k)
        )

    def holds_between(hits: int) -> bool:
        low, high = clopper_pearson(hits, trials, 0.9)
        return low <= rate <= high

    assert 0.9 <= cover(holds_between) < 1.0
    assert 0.9 <= cover(lambda hits: rate <= upper_bound(hits, trials, 0.9)) < 1.0


@pytest.mark.parametrize(
    ("hits", "trials", "confidence", "text"),
    [
        (4, 3, 0.95, "4 hits of 3 trials; hits lie between 0 and the number of trials"),
        (-1, 3_000, 0.95, "-1 hits of 3,000 trials; hits lie between 0 and the number of trials"),
        (1, 3, 0.0, "confidence is 0.0; it lies between 0 and 1"),
        (1, 3, 1.0, "confidence is 1.0; it lies between 0 and 1"),
        (1, 3, math.nan, "confidence is nan; it lies between 0 and 1"),
    ],
)
def test_refusals(hits: int, trials: int, confidence: float, text: str) -> None:
    for call in (clopper_pearson, upper_bound):
        with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
            call(hits, trials, confidence)
