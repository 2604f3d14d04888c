"""Rows of terms → what adding them up one by one loses, in one pass over memory where C or Triton can do it."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from gonogo.instrument import path_native
from gonogo.instrument.paths import triton_works

STEPS = 6
"""Steps between one and half of a sum's unit in the last place, that its terms are rounded to in turn."""
PART = 4096
"""Terms that are looked at together: enough to be worth a program of its own on a GPU."""
PIECE = 2**26
"""Elements of a tensor that temporaries are made of at a time, where there is neither C nor Triton."""
BLOCK = 512


def lose_terms(x: Tensor, largest: Tensor, swamp: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """What sums along `dims` lose of terms rounded to a multiple of a step, and of terms lost in the sum.

    The step is one and the same along a sum, from `largest` down to half of it, whichever loses most; a term below
    four times `swamp` loses so much at most. Both are of size 1 along `dims`, as what is given back.
    """
    kept = [dim for dim in range(x.dim()) if dim not in dims]
    rows = x.permute(*kept, *sorted(dims)).reshape(swamp.numel(), -1).contiguous()
    steps = (largest.reshape(-1, 1) * _make_ratios(x.device)).clamp_(min=torch.finfo(x.dtype).tiny)
    sums = _lose_rows(rows, steps, swamp.reshape(-1))
    lean = sums[:, :STEPS].abs().amax(1)
    return lean.reshape(swamp.shape), sums[:, STEPS].reshape(swamp.shape)


@cache
def _make_ratios(device: torch.device) -> Tensor:
    """Of the steps to the largest."""
    return torch.tensor([2 ** (-part / STEPS) for part in range(STEPS)], dtype=torch.float64).to(device)


def _lose_rows(rows: Tensor, steps: Tensor, swamp: Tensor) -> Tensor:
    """Of each row, Σ(nearest multiple of a step − x) for each of its steps, and Σ of what is lost."""
    if rows.is_cuda and triton_works():
        return _lose_by_triton(rows, steps, swamp)
    if rows.device.type == "cpu" and path_native.available():
        parted = path_native.lose_terms(rows.numpy(), steps.numpy(), swamp.contiguous().numpy(), PART)
        return torch.from_numpy(parted).sum(1)
    piece = max(1, PIECE // max(rows.shape[1], 1))
    groups = zip(*(torch.split(x, piece) for x in (rows, steps, swamp)), strict=True)
    return torch.cat([_lose_plainly(*group) for group in groups])


def _lose_by_triton(rows: Tensor, steps: Tensor, swamp: Tensor) -> Tensor:
    from gonogo.instrument.launch_triton import launch, on_device
    from gonogo.instrument.triton_kernels.lose import lose_kernel

    count, length = rows.shape
    parts = -(-length // PART)
    sums = torch.empty(count, parts, STEPS + 1, dtype=rows.dtype, device=rows.device)
    with on_device(rows.device):
        launch(lose_kernel, count * parts, rows, steps, swamp, sums, length, PART, parts, BLOCK=BLOCK)
    return sums.sum(1)


def _lose_plainly(rows: Tensor, steps: Tensor, swamp: Tensor) -> Tensor:
    """The same by torch's own ops."""
    sums = [(rows / step).round_().mul_(step).sub_(rows).sum(1) for step in steps.unsqueeze(2).unbind(1)]
    sizes, low = rows.abs(), swamp.unsqueeze(1)
    sums.append(torch.where(sizes < 4 * low, torch.minimum(sizes, low), 0.0).sum(1))
    return torch.stack(sums, 1)
