"""What the row kernels share: the inputs at which their faults show (CPU tensors), and short ways to an entry."""

from __future__ import annotations

from collections.abc import Callable

import torch
from entry import Entry
from torch import Tensor

ALL = ("float16", "bfloat16", "float32")
HALVES = ("float16", "bfloat16")
BROAD = ("bfloat16", "float32")
WIDE = ("float16", "float32")
F16 = ("float16",)
F32 = ("float32",)


def normal(*shape: int, scale: float = 1.0, shift: float = 0.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same normal numbers at every call."""
    generator = torch.Generator().manual_seed(20260)
    return (torch.randn(shape, generator=generator) * scale + shift).to(dtype)


def line(low: float, high: float, count: int = 64, dtype: torch.dtype = torch.float32) -> tuple[Tensor]:
    """A (1, 1, count) row that walks from low to high."""
    return (torch.linspace(low, high, count).view(1, 1, count).to(dtype),)


def labelled(*shape: int, scale: float = 1.0, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    """Logits (N, V) and targets that visit the vocabulary."""
    rows, vocabulary = shape
    return normal(rows, vocabulary, scale=scale, shift=shift), torch.arange(rows) * 7 % vocabulary


def weighted(*shape: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """x, residual and weight of add_rmsnorm, all different."""
    return normal(*shape, scale=scale), normal(*shape, scale=scale).flip(-1) * 0.5, normal(shape[-1], shift=1.0)


def grouped(*shape: int, scale: float = 1.0, shift: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Input, weight and bias of groupnorm."""
    _, groups, channels, _ = shape
    return (
        normal(*shape, scale=scale, shift=shift),
        normal(groups, channels, shift=1.0),
        normal(groups, channels),
    )


def fault(
    op: str,
    kernel: Callable[..., Tensor],
    source: str,
    witness: Callable[[], tuple[Tensor, ...]],
    dtypes: tuple[str, ...] = ALL,
) -> Entry:
    """A faulty entry."""
    return Entry(op, kernel, source, faulty=True, witness=witness, dtypes=dtypes)


def correct(
    op: str,
    kernel: Callable[..., Tensor],
    source: str,
    dtypes: tuple[str, ...] = ALL,
) -> Entry:
    """A correct entry."""
    return Entry(op, kernel, source, faulty=False, dtypes=dtypes)
