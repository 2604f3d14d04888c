"""What is computed together, kept or put off → the same records, to the bit, as one thing after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

import gonogo
from gonogo.cases import ON_CPU, USUAL, open_design, parse_case
from gonogo.cases.plan import Design
from gonogo.cases.shapes import STRATEGIES
from gonogo.execution import execute, measurement, outcome, reference
from gonogo.execution.job import Job, order_kernels
from gonogo.instrument.looks import Look
from gonogo.instrument.running_error import trace
from gonogo.ops import get_op
from gonogo.policies import Unscaled, load_policies, read_policy, rmse

CASES = (
    "softmax:f16:1x5x130:c:heavy:1", "softmax:f32:2x3x64:t:nan_injected:2", "matmul:bf16:33x17x40:c:normal:3",
    "layernorm:f16:1x3x257:s:offset:4", "cross_entropy:f32:9x33:c:exponent:5",
)  # fmt: skip


def read_one_by_one(actual: Any, expected: Any, **known: Any) -> Unscaled:
    """All that needs no scale, each by a pass of its own."""
    gauges = [gonogo.read(actual, expected, gauge=name).worst for name in ("absolute", "magnitude", "ulp")]
    policies = {policy.name: read_policy(policy, actual, expected, **known) for policy in load_policies()}
    return Unscaled(*gauges, rmse(actual, expected), policies)


def count_one_by_one(
    looks: Sequence[Look], leaves: dict[str, torch.Tensor]
) -> tuple[list[int], dict[str, torch.Tensor]]:
    """Each number looked at by itself, and no leaf brought anywhere."""
    return [int(look.count()) for look in looks], {}


def run_cases(device: str) -> list[dict[str, Any]]:
    rows = []
    for number, text in enumerate(CASES):
        case = parse_case(text)
        op = get_op(case.op)
        usable = order_kernels(op, case.dtype, case.axis_sizes(op))
        kernels = [k for k in usable if device == "cuda" or k.framework != "triton"]  # interpreted they take long
        for record in execute.run_job(
            Job(number, case, "default", op, tuple(kernels), device), lambda kernel: None
        ):
            rows.append(asdict(replace(record, time_us=None)))
    return rows


def run_plainly(device: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    real: Callable[..., Any] = trace.trace_call
    with monkeypatch.context() as patched:
        patched.setattr(measurement, "read_unscaled", read_one_by_one)
        patched.setattr(outcome, "_count_different", count_one_by_one)
        patched.setattr(reference, "trace_call", lambda *args, near, **options: real(*args, **options))
        return run_cases(device)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_records_are_those_of_the_plain_order(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = run_cases(device)
    assert {row["outcome"] for row in together} >= {"ok"}
    assert len(together) > 2 * len(CASES)
    assert any(row["policies"] and row["signal"] for row in together)
    assert list(map(repr, together)) == list(map(repr, run_plainly(device, monkeypatch)))


def test_a_design_that_is_kept_gives_the_cases_of_a_fresh_one() -> None:
    op = get_op("softmax")
    chosen = {"distributions": USUAL, "strategies": STRATEGIES, "limit": ON_CPU}
    kept = open_design(op, "float16", 3, **chosen)
    first = [kept.get(number) for number in range(9)]
    again = open_design(op, "float16", 3, **chosen)
    assert again is kept
    fresh = Design(op, "float16", 3, kept.distributions, kept.strategies, ON_CPU)
    assert [fresh.get(number) for number in range(14)] == first + [again.get(number) for number in range(9, 14)]
    assert open_design(op, "float16", 4, **chosen) is not kept
