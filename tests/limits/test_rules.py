"""Rules: one contract for all of them, each against the plainest form of its definition, and what they promise."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.errors import InputError, TooFewCases, UnknownRule
from gonogo.limits import rules
from gonogo.limits.rules import rule, rule_names

NAMES = ("analytic", "conformal", "max-margin", "paper", "pooled", "universal", "wilks")
reading_lists = st.lists(st.floats(0.0, 1e300), min_size=1, max_size=400)


def make_readings(count: int) -> NDArray[np.float64]:
    return np.random.default_rng(11).lognormal(size=count)


def test_rules_are_found_by_file_name() -> None:
    assert rule_names() == NAMES
    for module in pkgutil.iter_modules(rules.__path__):
        if not module.name.startswith("_"):
            assert rule(module.name.replace("_", "-")).name == module.name.replace("_", "-")


@pytest.mark.parametrize("name", ["max_margin", "_rule", "", "paper.rule", "Wilks"])
def test_unknown_rule(name: str) -> None:
    with pytest.raises(UnknownRule) as caught:
        rule(name)
    assert str(caught.value) == f"there is no rule {name!r}; known: {', '.join(NAMES)}"
    assert (caught.value.name, caught.value.known) == (name, NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    made = rule(name)
    assert rule(name, **made.parameters).parameters == made.parameters
    assert all(type(value) is float for value in made.parameters.values())
    for count in {made.needs, made.needs + 1, 2 * made.needs + 7}:
        for readings in (make_readings(count), np.zeros(count)):
            limit = made.limit(readings)
            assert type(limit) is float
            assert math.isfinite(limit)
            assert limit >= 0.0
            assert limit == made.limit(readings) == rule(name).limit(readings.copy())
            for seed in range(3):
                assert made.limit(np.random.default_rng(seed).permutation(readings)) == limit
            assert made.limit(readings[::-1]) == limit
    kept = make_readings(made.needs + 5)
    before = kept.copy()
    made.limit(kept)
    np.testing.assert_array_equal(kept, before)


@pytest.mark.parametrize("name", NAMES)
def test_contract_refuses_too_few(name: str) -> None:
    made = rule(name)
    if made.needs == 0:
        assert made.limit(np.array([])) == 1.0
        return
    with pytest.raises(TooFewCases) as caught:
        made.limit(make_readings(made.needs - 1))
    assert (caught.value.rule, caught.value.have, caught.value.needs) == (name, made.needs - 1, made.needs)
    assert f"needs {made.needs:,} reading" in str(caught.value)
    assert f"has {made.needs - 1:,}." in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1e-300])
def test_contract_refuses_what_is_no_reading(name: str, bad: float) -> None:
    made = rule(name)
    readings = make_readings(made.needs + 3)
    readings[1] = bad
    with pytest.raises(InputError) as caught:
        made.limit(readings)
    assert str(caught.value) == (
        f"rule {name}: 1 of {made.needs + 3:,} readings are negative or not finite, such as {bad}. "
        "Leave out cases whose outcome is not ok"
    )
    readings[1] = -0.0
    assert made.limit(readings) >= 0.0


def test_texts_of_too_few() -> None:
    for name, parameters, have, text in (
        (
            "wilks",
            {"rate": 1e-3},
            40,
            "rule wilks needs 2,995 readings for a false-positive rate of 0.001 and has 40",
        ),
        ("conformal", {}, 98, "rule conformal needs 99 readings for a false-positive rate of 0.01 and has 98"),
        ("paper", {}, 0, "rule paper needs 1 reading and has 0"),
    ):
        with pytest.raises(TooFewCases) as caught:
            rule(name, **parameters).limit(make_readings(have))
        assert str(caught.value) == f"{text}. Run more cases, or choose another rule"


def test_minus_zero_is_zero() -> None:
    assert repr(rule("max-margin").limit(np.array([0.0, -0.0]))) == "0.0"
    assert repr(rule("max-margin").limit(np.array([-0.0, 0.0]))) == "0.0"


@pytest.mark.parametrize("name", ["paper", "max-margin", "pooled"])
def test_a_limit_beyond_all_numbers_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"^rule {name} gives the limit inf for a reading of 1.7e\\+308$"):
        rule(name).limit(np.full(4, 1.7e308))


@pytest.mark.parametrize(
    ("name", "parameters", "text"),
    [
        ("paper", {"percentile": 100.5}, "rule paper: percentile is 100.5; it lies between 0 and 100"),
        ("paper", {"percentile": math.nan}, "rule paper: percentile is nan; it lies between 0 and 100"),
        ("paper", {"factor": 0.0}, "rule paper: factor is 0.0; it is a finite number above 0"),
        ("max-margin", {"factor": math.inf}, "rule max-margin: factor is inf; it is a finite number above 0"),
        ("wilks", {"rate": 0.0}, "rule wilks: rate is 0.0; it is a finite number above 0 and below 1"),
        ("wilks", {"confidence": 1}, "rule wilks: confidence is 1; it is a finite number above 0 and below 1"),
        ("conformal", {"rate": 1.5}, "rule conformal: rate is 1.5; it is a finite number above 0 and below 1"),
        ("pooled", {"floor": -1.0}, "rule pooled: floor is -1.0; it is a finite number above 0"),
        ("pooled", {"margin": math.nan}, "rule pooled: margin is nan; it is a finite number above 0"),
        ("universal", {"floor": 0.0}, "rule universal: floor is 0.0; it is a finite number above 0"),
        ("analytic", {"rate": 0.1}, "rule 'analytic' has no parameter 'rate'. It has: none"),
    ],
)
def test_parameters_refused(name: str, parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        rule(name, **parameters)
    assert str(caught.value) == text


def test_a_parameter_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match=r"^rule 'wilks': "):
        rule("wilks", rate="often")


def test_what_each_takes_together() -> None:
    assert {name for name in NAMES if rule(name).pools == "control"} == {"paper", "max-margin"}
    assert {name for name in NAMES if rule(name).pools == "contract"} == {"universal"}


def test_paper_by_hand() -> None:
    """Of 1 … 11: index round(9.5) = 10, halves to even, so the largest; of 1 … 31: round(28.5) = 28, so 29."""
    made = rule("paper")
    assert made.limit(np.arange(1.0, 12.0)) == 16.5
    assert made.limit(np.arange(1.0, 32.0)) == 43.5
    assert made.limit(np.arange(1.0, 21.0)) == 28.5  # round(18.05) = 18, no interpolation
    assert made.limit(np.array([4.0])) == 6.0
    assert rule("paper", percentile=100, factor=1).limit(np.array([3.0, 7.0, 5.0])) == 7.0
    assert rule("paper", percentile=0, factor=2).limit(np.array([3.0, 7.0, 5.0])) == 6.0


@given(reading_lists, st.sampled_from([50.0, 90.0, 95.0, 99.0, 100.0]), st.floats(0.5, 4.0))
def test_paper_oracle(readings: list[float], percentile: float, factor: float) -> None:
    ordered = sorted(readings)
    expected = ordered[round(percentile / 100 * (len(ordered) - 1))] * factor
    assert rule("paper", percentile=percentile, factor=factor).limit(np.array(readings)) == expected


@given(reading_lists, st.floats(0.5, 4.0))
def test_max_margin_and_pooled_oracle(readings: list[float], factor: float) -> None:
    largest = max(readings) * factor
    assert rule("max-margin", factor=factor).limit(np.array(readings)) == largest
    for name in ("pooled", "universal"):
        assert rule(name, margin=factor, floor=0.25).limit(np.array(readings)) == max(0.25, largest)


def test_pooled_has_a_floor() -> None:
    assert rule("pooled").limit(np.zeros(50)) == 2.0
    assert rule("pooled").limit(np.array([0.5])) == 2.0
    assert rule("pooled").limit(np.array([0.5, 1.5])) == 3.0


@pytest.mark.parametrize("readings", [[], [0.0], [1e30, 2.0]])
def test_analytic_is_one(readings: list[float]) -> None:
    assert rule("analytic").limit(np.array(readings)) == 1.0


@pytest.mark.parametrize(("rate", "needs"), [(1e-2, 299), (1e-3, 2_995), (1e-4, 29_956), (0.05, 59)])
def test_wilks_needs(rate: float, needs: int) -> None:
    assert rule("wilks", rate=rate).needs == needs
    readings = make_readings(needs)
    assert rule("wilks", rate=rate).limit(readings) == readings.max()


@example(0.25, 0.578125)  # log(1 − 0.578125)/log(0.75) is 3, and a little more in floating point
@given(st.integers(1, 60).map(lambda k: k / 64), st.integers(1, 60).map(lambda k: k / 64))
def test_wilks_needs_the_smallest_number(rate: float, confidence: float) -> None:
    """Binary fractions, so that powers are exact; whole quotients of logarithms are among them."""
    kept, left = 1 - Fraction(rate), 1 - Fraction(confidence)
    count = next(n for n in range(1, 10_000) if kept**n <= left)
    assert rule("wilks", rate=rate, confidence=confidence).needs == count


@pytest.mark.parametrize(("rate", "needs"), [(1e-2, 99), (1e-3, 999), (1e-4, 9_999), (0.05, 19), (0.3, 3)])
def test_conformal_needs(rate: float, needs: int) -> None:
    assert rule("conformal", rate=rate).needs == needs


@pytest.mark.parametrize("more", [0, 1, 2, 17])
def test_conformal_oracle(more: int) -> None:
    """Ranks counted in whole numbers: n + 1 times 1 − rate, in thousandths, rounded up."""

    def find_rank(count: int, per_mille: int) -> int:
        thousandths = (count + 1) * (1_000 - per_mille)
        return thousandths // 1_000 + (thousandths % 1_000 > 0)

    for per_mille in range(1, 1_000):
        made = rule("conformal", rate=per_mille / 1_000)
        assert made.needs == next(n for n in range(1, 1_001) if find_rank(n, per_mille) <= n)
        # The second is where (n + 1)(1 − rate) is a whole number.
        for count in (made.needs + more, 1_000 // math.gcd(per_mille, 1_000) * (more + 1) - 1):
            if count >= made.needs:
                assert made.limit(np.arange(1.0, count + 1.0)) == find_rank(count, per_mille)


def estimate(trials: int, happens: Callable[[np.random.Generator], NDArray[np.bool_]]) -> int:
    hits = int(happens(np.random.default_rng(2_024)).sum())
    assert 0 < hits < trials
    return hits


def check_against_binomial(hits: int, trials: int, rate: float) -> None:
    """Within five standard deviations of what the exact probability predicts."""
    assert abs(hits - trials * rate) <= 5 * math.sqrt(trials * rate * (1 - rate))


@pytest.mark.parametrize(("rate", "confidence"), [(0.05, 0.95), (0.1, 0.8)])
def test_wilks_keeps_its_promise_as_often_as_it_says(rate: float, confidence: float) -> None:
    """Readings uniform on (0, 1), so that the false-positive rate of a limit is 1 − limit."""
    made, trials = rule("wilks", rate=rate, confidence=confidence), 20_000

    def is_broken(rng: np.random.Generator) -> NDArray[np.bool_]:
        limits = np.array([made.limit(readings) for readings in rng.random((trials, made.needs))])
        return 1 - limits > rate

    hits = estimate(trials, is_broken)
    check_against_binomial(hits, trials, (1 - rate) ** made.needs)
    assert (1 - rate) ** made.needs <= 1 - confidence < (1 - rate) ** (made.needs - 1)


@pytest.mark.parametrize(("rate", "count"), [(0.05, 19), (0.05, 99), (0.1, 57)])
def test_conformal_keeps_its_promise_on_average(rate: float, count: int) -> None:
    """The next reading is above the k-th of n with probability exactly 1 − k/(n + 1)."""
    made, trials = rule("conformal", rate=rate), 20_000

    def is_above(rng: np.random.Generator) -> NDArray[np.bool_]:
        drawn = rng.lognormal(size=(trials, count + 1))
        return np.array([row[0] > made.limit(row[1:]) for row in drawn])

    rank = made.limit(np.arange(1.0, count + 1.0))
    exact = 1 - rank / (count + 1)
    assert rate - 1 / (count + 1) < exact <= rate + 1e-12
    check_against_binomial(estimate(trials, is_above), trials, exact)
