"""The one decision: what comes before a reading, and what is suspect."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.records import OUTCOMES
from gonogo.verdict.judge import DECISIONS, decide, judge

numbers = st.floats(0, 1e300) | st.sampled_from([0.0, 1.0, math.inf, math.nan])


@pytest.mark.parametrize("outcome", [outcome for outcome in OUTCOMES if outcome != "ok"])
def test_outcomes_come_before_readings(outcome: str) -> None:
    verdict = judge(outcome, 0.0, 4.0, deterministic=0.0)
    assert (verdict.decision, verdict.reason) == ("no-go", outcome)


@pytest.mark.parametrize(
    ("reading", "limit", "deterministic", "decision"),
    [
        (4.0, 4.0, None, "go"),
        (math.nextafter(4.0, 5.0), 4.0, None, "no-go"),
        (4.2, 4.0, 1.0, "suspect"),
        (4.2, 4.0, 1.01, "no-go"),
        (0.0, 0.0, None, "go"),
        (4.4, 4.0, 1.0, "suspect"),
        (math.nextafter(4.4, 9.0), 4.0, 0.5, "no-go"),
        (math.inf, 4.0, 0.5, "no-go"),
        (None, 4.0, None, "no-go"),
        (1.0, None, None, "no-go"),
        (math.nan, 4.0, None, "no-go"),
    ],
)
def test_readings(reading: float | None, limit: float | None, deterministic: float | None, decision: str) -> None:
    assert judge("ok", reading, limit, deterministic=deterministic).decision == decision


@given(st.lists(st.tuples(st.booleans(), numbers, numbers, numbers), max_size=20))
def test_columns_and_single_records_get_the_same_decision(rows: list[tuple]) -> None:
    sound, reading, limit, deterministic = (np.array([row[i] for row in rows]) for i in range(4))
    together = [DECISIONS[code] for code in decide(sound, reading, limit, deterministic)]
    alone = [judge("ok" if s else "unwritten", r, li, deterministic=d).decision for s, r, li, d in rows]
    assert together == alone


def test_messages() -> None:
    said = judge("ok", 1.5, 2.0, deterministic=0.7, limit_from="pooled, 2,400 cases").message
    assert said == "go: reads 1.5 bound, within the limit 2 (pooled, 2,400 cases)"
    assert judge("timed-out", None, 2.0).message == "no-go: timed-out"
    assert judge("ok", None, 2.0, gauge="ulp").message == "no-go: no reading in the gauge ulp"
