"""Plans: what they refuse, and what they make of a name given twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gonogo.campaign import Plan, resume_campaign
from gonogo.errors import InputError


def test_names_given_twice_count_once() -> None:
    twice = Plan(
        ("relu", "tanh", "relu"), ("float32", "float32"), cases=2,
        distributions=("normal", "normal"), strategies=("default", "default"),
    )  # fmt: skip
    once = Plan(("relu", "tanh"), ("float32",), cases=2, distributions=("normal",), strategies=("default",))
    assert twice == once
    assert list(twice.jobs()) == list(once.jobs())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ops": ()}, "no op: at least 1 is needed"),
        ({"dtypes": ()}, "no dtype: at least 1 is needed; known: float16, bfloat16, float32"),
        ({"distributions": ("integers",)}, "op softmax takes none of the distributions integers: integers is for"),
        ({"distributions": ("flat",)}, "unknown distribution 'flat'; known: uniform, normal"),
        ({"distributions": ()}, "no distribution: at least 1 is needed; known: uniform"),
        ({"strategies": ("strange",)}, "unknown strategy 'strange'; known: default, boundary, regular"),
        ({"strategies": ()}, "no strategy: at least 1 is needed"),
        ({"device": "tpu"}, "unknown device 'tpu'; known: cpu, cuda"),
        ({"cases": 10**6 + 1}, "1000001 cases: a seed has 1,000,000. Use more seeds"),
        ({"seed": 2**64}, "seed 18446744073709551616 is too large; it must be below 18446744073709551616"),
        ({"seed": -1}, "seed -1 is negative"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Plan(**({"ops": ("matmul", "softmax")} | options))
    assert str(caught.value).startswith(message)


def test_largest_seed() -> None:
    plan = Plan(("relu",), ("float32",), cases=10**6, seed=2**63 // 10**6 - 1)
    assert next(plan.jobs()).case.seed + plan.cases - 1 < 2**63


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ([], "describes no run: it holds a JSON list, not an object"),
        ({"schema": 1}, "has no plan: it is not of a campaign"),
        ({"schema": 1, "plan": 3}, "describes no run: plan is a JSON int. Restore it from a copy"),
        ({"schema": 1, "plan": {"cases": 3}}, "this is no plan of a campaign: "),
        ({"schema": 1, "plan": {"ops": ["relu"], "color": 3}}, "this is no plan of a campaign: "),
        ({"schema": 1, "plan": {"ops": ["relu"], "cases": "3"}}, "this is no plan of a campaign: "),
        ({"schema": 1, "plan": {"ops": 7}}, "this is no plan of a campaign: "),
        ({"schema": 1, "plan": {"ops": ["relu"]}}, "the run was planned by design 1 of cases, and this version"),
    ],
)
def test_resume_of_what_is_no_run(description: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(description))
    with pytest.raises(InputError, match=message):
        resume_campaign(tmp_path)
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match="is not readable as JSON"):
        resume_campaign(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_resume_of_a_gpu_run_elsewhere(tmp_path: Path) -> None:
    plan = Plan(("relu",), cases=1, device="cuda")
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "plan": plan.to_dict()}))
    with pytest.raises(InputError, match="device cuda: torch sees no CUDA device on this machine"):
        resume_campaign(tmp_path)
