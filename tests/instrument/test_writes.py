"""References that write in place, at random: the expected value is what torch gives, or there is none."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from gonogo.errors import NoErrorRule  # noqa: E402
from gonogo.instrument.running_error import error_scale  # noqa: E402

PROGRAMS = 300


def write_first(x, y):
    if x.dim():
        x[0] = 0.25


def write_where(x, y):
    if x.dim() and 0 not in x.stride():
        x[x > 0.5] = 0.125


def write_diagonal(x, y):
    if x.dim() == 2:
        x.diagonal().add_(1.0)


STEPS: list[Callable] = [
    lambda x, y: x * 1.3,
    lambda x, y: torch.tanh(x),
    lambda x, y: x.sum(),
    lambda x, y: x.clone(),
    lambda x, y: torch.zeros_like(x),
    lambda x, y: torch.empty(x.shape, dtype=torch.float64).copy_(x),
    lambda x, y: x.view(-1)[1:5] if x.is_contiguous() and x.numel() > 5 else None,
    lambda x, y: x.t() if x.dim() == 2 else None,
    lambda x, y: x[0] if x.dim() else None,
    lambda x, y: x.unsqueeze(0).expand(2, *x.shape),
    lambda x, y: x.mul_(1.1),
    lambda x, y: x.add_(y) if x.shape == y.shape else None,
    lambda x, y: x.copy_(y * 2) if x.shape == y.shape else None,
    lambda x, y: x.clamp_(min=0.0),
    lambda x, y: x.sigmoid_(),
    lambda x, y: x.zero_(),
    write_first,
    write_where,
    write_diagonal,
]
"""What a program is made of: each takes two of the tensors so far, and may give one more."""


def make_program(seed: int) -> Callable:
    drawn = random.Random(seed)
    steps = [(drawn.choice(STEPS), drawn.randrange(100), drawn.randrange(100)) for _ in range(drawn.randint(2, 8))]

    def run(x):
        tensors = [x]
        for step, first, second in steps:
            made = step(tensors[first % len(tensors)], tensors[second % len(tensors)])
            if made is not None:
                tensors.append(made)
        return [tensor * 1.0 for tensor in tensors]

    return run


def test_programs_that_write() -> None:
    judged = 0
    for seed in range(PROGRAMS):
        program = make_program(seed)
        x = torch.rand(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        kept = x.clone()
        try:
            wanted = program(x.clone())
        except RuntimeError:  # torch itself refuses to write to memory that is repeated
            continue
        try:
            made, scales = error_scale(program, [x])
        except NoErrorRule:  # for the same reason
            continue
        assert torch.equal(x, kept), seed
        assert all(map(torch.equal, made, wanted)), seed
        assert all(bool((scale >= 0).all()) for scale in scales), seed
        judged += 1
    assert judged > 0.8 * PROGRAMS
