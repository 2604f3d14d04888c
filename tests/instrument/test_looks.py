"""Looks taken together → the counts of looks taken one by one; interpreted here, compiled on a GPU."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gonogo.instrument.looks import INTEGERS, Look, count_unlike, launch_looks  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def make_looks(device: str) -> list[Look]:
    """Of every width: equal, with some elements off, against a number, empty, longer than a block, and itself."""
    draw = torch.Generator().manual_seed(4)
    looks = []
    for width, dtype in INTEGERS.items():
        array = torch.randint(-100, 100, (2500,), generator=draw).to(dtype).to(device)
        other = array.clone()
        other[[0, 1023, 1024, 2499]] += 1
        pattern = {1: 0x5A, 2: 0x7FDA, 4: 0x7FC5A5A5, 8: 0x7FF8A5A5A5A5A5A5}[width]
        marked = torch.where(array > 50, pattern, array).to(dtype)
        looks += [
            Look(array, array.clone()),
            Look(array, other),
            Look(marked, pattern),
            Look(array[7:9], other[7:9]),
        ]
        looks += [Look(array[:0], 3), Look(array, array), Look(other[1:], array[1:])]
    values = torch.linspace(-1, 1, 2500).to(device)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        array = values.to(dtype)
        looks += [Look(array, -array), Look(torch.full_like(array, math.nan), torch.full_like(array, math.nan))]
        looks.append(Look(array.clone().requires_grad_(), array))
    return [*looks, Look(looks[0].array > 0, True)]


@pytest.mark.parametrize("device", DEVICES)
def test_together_as_one_by_one(device: str) -> None:
    looks = make_looks(device)
    alone = [int(look.count()) for look in looks]
    assert 0 in alone
    assert sum(alone) > 1000
    assert launch_looks(looks, torch.device(device, 0 if device == "cuda" else None)).tolist() == alone
    assert count_unlike(looks).tolist() == alone
    assert count_unlike([]).tolist() == []


@pytest.mark.parametrize("device", DEVICES)
def test_looks_that_one_program_takes(device: str) -> None:
    """Few elements, as most outputs have: Triton compiles another kernel for one program."""
    looks = [
        Look(look.array[:40], w if isinstance(w := look.wanted, int) else w[:40]) for look in make_looks(device)
    ]
    alone = [int(look.count()) for look in looks]
    assert sum(alone) > 10
    assert launch_looks(looks, torch.device(device, 0 if device == "cuda" else None)).tolist() == alone
