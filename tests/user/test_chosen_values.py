"""Distributions and strategies that a user names: those that an op takes are drawn, and none at all is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gonogo
from gonogo.cases import DISTRIBUTIONS, ON_CPU, choose_distributions, plan_cases
from gonogo.errors import InputError, UnknownWord
from gonogo.ops import find_ops, get_op, op_names
from gonogo.user.isolated import check_file
from gonogo.user.kernel_file import KernelFile
from gonogo.user.planning import Choice

RELU = (
    "uniform, normal, heavy, cancel, offset, spike, nan_injected, adversarial, zeros, ties, tiny, huge, exponent, "
)
REFUSALS = {
    ("integers",): "integers is for sums of products only",
    ("masked",): "masked is for ops that say what becomes of -inf",
    ("nan",): "nan is for ops that say what becomes of NaN",
    ("integers", "nan"): "integers is for sums of products only, nan is for ops that say what becomes of NaN",
}


def own(name: str = "own_relu") -> Any:
    return gonogo.Op(name, reference=torch.relu, inputs={"x": "rows cols"}, output="rows cols",
                     sizes={"rows": (1, 7), "cols": (8,)})  # fmt: skip


@pytest.mark.parametrize("words", REFUSALS)
def test_what_no_case_can_be_drawn_from_is_refused_alike_everywhere(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("def relu(x):\n    return x.relu()\n")
    asked = {
        "relu": [
            lambda: gonogo.verify(torch.relu, "relu", distributions=words),
            lambda: check_file(KernelFile(file, "relu", file.read_text()), "relu", distributions=words),
            lambda: Choice(get_op("relu"), distributions=words),
            lambda: plan_cases(get_op("relu"), "float32", 1, 0, distributions=words, limit=ON_CPU),
        ],
        "own_relu": [lambda: gonogo.verify(torch.relu, own(), distributions=words)],
    }  # fmt: skip
    for name, calls in asked.items():
        message = (
            f"op {name} takes none of the distributions {', '.join(words)}: {REFUSALS[words]}. It takes {RELU}"
        )
        for call in calls:
            with pytest.raises(InputError) as caught:
                call()
            assert str(caught.value).startswith(message)


def test_of_several_distributions_those_are_drawn_that_apply() -> None:
    found = gonogo.verify(torch.relu, "relu", cases=3, distributions=("integers", "ties", "masked"), device="cpu")
    assert {case.record.distribution for case in found.verdicts} == {"ties"}


def test_every_op_and_distribution_gives_cases_or_a_refusal() -> None:
    for op in find_ops(op_names()):
        for word in DISTRIBUTIONS:
            try:
                planned = plan_cases(op, "float32", 2, 0, distributions=(word,), limit=ON_CPU)
            except InputError as error:
                assert f"op {op.name} takes none of the distributions {word}: {word} is for" in str(error)  # noqa: PT017
            else:
                assert [case.distribution for case, _ in planned] == [word, word]
                assert choose_distributions(op, word) == [word]


@pytest.mark.parametrize("given", ["integers", ("uniform",)])
def test_an_op_that_draws_its_own_arguments_takes_no_distribution(given: Any) -> None:
    drawn = {"reference": torch.relu, "inputs": lambda seed, dtype: (torch.randn(4, 5).to(dtype),)}
    assert not gonogo.verify(torch.relu, cases=2, device="cpu", **drawn).failed
    with pytest.raises(InputError, match=r"draws its own arguments, so the distributions given, \w+, would"):
        gonogo.verify(torch.relu, cases=2, distributions=given, **drawn)


def test_strategies_are_checked_where_cases_are_planned() -> None:
    for strategies, message in {("strange",): "unknown strategy 'strange'", (): "no strategy: at least 1"}.items():
        with pytest.raises(InputError, match=message):
            plan_cases(
                get_op("relu"), "float32", 1, 0, distributions="uniform", strategies=strategies, limit=ON_CPU
            )
    with pytest.raises(UnknownWord, match="unknown distribution 'flat'"):
        plan_cases(get_op("relu"), "float32", 1, 0, distributions=("flat",), limit=ON_CPU)
