"""What records decide of a tolerance they were never held against: never wrong, and nearly always something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.audit.evidence import NEEDED, decide_rows
from gonogo.evaluate import filter_columns
from gonogo.evaluate.rows import Rows
from gonogo.evaluate.tally import UNJUDGED
from gonogo.instrument.stats import measure
from gonogo.policies import Policy, load_policies, make_policy, read_policies, read_policy
from gonogo.records import Columns, load_columns
from gonogo.records.columns import LARGEST_RELATIVE
from gonogo.schema import policy_column
from gonogo.verdict.judge import GO, NO_GO

RECORDS = Path(__file__).parent.parent.parent / "records"
OP, DTYPE = "softmax", "float32"
tolerances = st.floats(1e-7, 1.0) | st.sampled_from([0.0, 1e-5, 1e-3, 1e-2])


def make_columns(outputs: list[tuple[np.ndarray, np.ndarray]]) -> Columns:
    """Records of outputs with their references, as a run would hold them."""
    columns = Columns(run=np.zeros(len(outputs), np.int16))
    columns.names, columns.codes = {"outcome": ["ok"]}, {"outcome": np.zeros(len(outputs), np.int8)}
    columns.reduced_length = np.full(len(outputs), 7, np.int32)
    readings: dict[str, list[float]] = {}
    for actual, expected in outputs:
        stats = measure(actual, expected)
        found = {"absolute": stats.max_abs, LARGEST_RELATIVE: stats.max_rel}
        policies = read_policies(actual, expected, op=OP, dtype=DTYPE, reduced_length=7, twin=None)
        found |= {policy_column(name): np.nan if value is None else value for name, value in policies.items()}
        for name, value in found.items():
            readings.setdefault(name, []).append(value)
    with np.errstate(over="ignore"):
        columns.readings = {name: np.array(values, np.float32) for name, values in readings.items()}
    for policy in load_policies():
        values = columns.readings[policy_column(policy.name)]
        columns.exceeds[policy.name] = np.where(np.isnan(values), -1, values > 1).astype(np.int8)
    return columns


def decide(policy: Policy, outputs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    return decide_rows(policy, OP, DTYPE, make_columns(outputs))


@st.composite
def outputs(draw: st.DrawFn) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    made = []
    for _ in range(8):
        expected = rng.choice([0.0, 1.0, -1.0], 12) * 10.0 ** rng.uniform(-6, 3, 12)
        relative, absolute = 10.0 ** rng.uniform(-8, 0, 2)
        error = rng.standard_normal(12) * (relative * np.abs(expected) + absolute * rng.integers(0, 2))
        actual = (expected + error).astype(np.float32)
        actual[rng.random(12) < 0.02] = rng.choice([np.nan, np.inf])
        made.append((actual, expected))
    return made


@settings(deadline=None, max_examples=150)
@given(outputs=outputs(), atol=tolerances, rtol=tolerances, rule=st.sampled_from(["allclose", "either", "share"]))
def test_what_is_decided_is_true(
    outputs: list[tuple[np.ndarray, np.ndarray]], atol: float, rtol: float, rule: str
) -> None:
    numbers = {"atol": atol, "rtol": rtol} | ({"allowed_share": 0.1} if rule == "share" else {})
    policy = Policy("mine", "", rule, {"all": {"all": numbers}})
    for decision, (actual, expected) in zip(decide(policy, outputs), outputs, strict=True):
        reading = read_policy(policy, actual, expected, op=OP, dtype=DTYPE, reduced_length=7, twin=None)
        assert decision in (UNJUDGED, NO_GO if reading > 1 else GO)


@pytest.mark.parametrize(("atol", "rtol"), [(2e-3, 5e-3), (1e-4, 1e-2), (3e-5, 2e-3), (1e-3, 0.0), (0.0, 1e-3)])
def test_nearly_all_records_are_decided(atol: float, rtol: float) -> None:
    columns = load_columns([RECORDS / "h200-1"], wanted=NEEDED)
    decided = total = 0
    for op in ("softmax", "matmul", "rmsnorm"):
        rows = Rows(filter_columns(columns, op=op, dtype="float16"))
        decisions = decide_rows(make_policy("", {"all": atol}, {"all": rtol}), op, "float16", rows.columns)[
            rows.counted
        ]
        decided, total = decided + int((decisions != UNJUDGED).sum()), total + len(decisions)
    assert decided > (0.9 if atol else 0.5) * total > 500


def test_what_readings_cannot_tell_stays_open() -> None:
    """Off by 0.1 where the reference is 100, or 100.5: no reading tells these apart, and one of them passes."""
    policy = Policy("mine", "", "twin_max", {"all": {"all": {"factor": 9.0, "floor": 0.0}}})
    output = (np.float32([100.1, 1.0]), np.array([100.0, 1.0]))
    assert decide(policy, [output])[0] == UNJUDGED, "it takes a twin"
    at_the_edge = make_policy("", {}, {"all": 1.0005e-3})
    assert decide(at_the_edge, [output])[0] == UNJUDGED
    assert decide(make_policy("", {}, {"all": 9e-4}), [output])[0] == NO_GO
    assert decide(make_policy("", {"all": 0.11}, {}), [output])[0] == GO
    assert decide(make_policy("", {"all": 0.09}, {}), [output])[0] == NO_GO
    either, share = (
        Policy("mine", "", rule, {"all": {"all": {"atol": 0.11, "rtol": 1e-9, "allowed_share": 0.1}}})
        for rule in ("either", "share")
    )
    assert decide(either, [output])[0] == decide(share, [output])[0] == GO


def test_an_error_past_float32_is_not_infinite() -> None:
    """A reading of 1e34 in units of 1e-5 does not fit into float32; the error is finite all the same."""
    output = (np.float32([1e34]), np.array([0.0]))
    assert decide(make_policy("", {"all": 1e35}, {}), [output])[0] == GO
    assert decide(make_policy("", {"all": 1e33}, {}), [output])[0] == NO_GO
