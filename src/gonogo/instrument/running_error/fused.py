"""What rules make of large tensors on a GPU in several passes over memory → the same by one Triton kernel.

Each function gives None where its kernel does not fit, and the rule goes on by torch's own ops.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gonogo.instrument.paths import triton_works

FEWEST = 2**16
"""Elements of a tensor that is worth a kernel."""
ROWS, LONGEST_ROW = 64, 2**18
"""Rows that keep a GPU busy, one to a program, and how long each may be."""
PART, BLOCK = 4096, 1024


class Looks(NamedTuple):
    """What was seen of sums, each of the shape of the sums."""

    absolute: Tensor
    """Σ|x|."""
    bound: Tensor
    """What a sum rounds in any order, units of u_c."""
    lean: Tensor
    """What it rounds where terms lean one way."""
    lost: Tensor
    """What it loses of terms too small for it."""


def fits(x: Tensor) -> bool:
    """Whether a tensor is a kernel's to read."""
    return x.is_cuda and x.dtype == torch.float64 and x.is_contiguous() and x.numel() >= FEWEST and triton_works()


def count_rows(x: Tensor, dims: Collection[int]) -> int | None:
    """Rows of a tensor of which the last dimensions, and no others, are `dims`."""
    if not dims or sorted(dims) != list(range(x.dim() - len(dims), x.dim())):
        return None
    return math.prod(x.shape[: x.dim() - len(dims)])


def look_at_sums(x: Tensor, totals: Tensor, dims: Collection[int], constants: tuple[float, ...]) -> Looks | None:
    """What `summation` tells of sums of x along `dims` that are `totals`."""
    rows = count_rows(x, dims) if fits(x) else None
    if rows is None or rows < ROWS or x.numel() > rows * LONGEST_ROW:
        return None
    from gonogo.instrument.triton_kernels.lose import bound_kernel

    looks = x.new_empty(rows, len(Looks._fields))
    _launch(bound_kernel, rows, x, totals.contiguous(), _store(x.device, constants), looks, x.numel() // rows)
    return Looks(*(look.reshape(totals.shape) for look in looks.unbind(1)))


def add_total(value: Tensor, extra: Tensor, ulps: float) -> Tensor | None:
    """Extra + ulps·|value|."""
    if not fits(value) or not fits(extra) or value.shape != extra.shape:
        return None
    from gonogo.instrument.triton_kernels.errors import total_kernel

    made = torch.empty_like(value)
    _launch(
        total_kernel, -(-value.numel() // BLOCK), value, extra, made, _store(value.device, (ulps,)), value.numel()
    )
    return made


def share_errors(
    terms: Tensor, extra: Tensor | None, ulps: float, share: Tensor, rows: tuple[Tensor, ...], dims: Collection[int]
) -> Tensor | None:
    """`origins.share_error` of terms with such errors; `rows` are |1/Σ|, own, carried and common, one to a row."""
    count = count_rows(terms, dims) if fits(terms) and fits(share) else None
    if count is None or extra is None or not fits(extra) or extra.shape != terms.shape:
        return None
    from gonogo.instrument.triton_kernels.errors import share_kernel

    made, length = torch.empty_like(terms), terms.numel() // count
    parts = -(-length // PART)
    beside = torch.stack([one.reshape(-1).expand(count) for one in rows], 1)
    stored = _store(terms.device, (ulps,))
    _launch(share_kernel, count * parts, terms, extra, share, beside, stored, made, length, PART, parts)
    return made


def _launch(kernel: Any, programs: int, *args: Any) -> None:
    from gonogo.instrument.launch_triton import launch, on_device

    with on_device(args[0].device):
        launch(kernel, programs, *args, BLOCK=BLOCK)


@lru_cache(maxsize=1024)
def _store(device: torch.device, constants: tuple[float, ...]) -> Tensor:
    """Numbers where a kernel finds them: Triton would round those that it is called with to float32."""
    return torch.tensor(constants, dtype=torch.float64, device=device)
