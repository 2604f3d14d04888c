"""Inputs at which the faults of the product ops show: shapes and layouts go in, CPU tensors come out."""

from __future__ import annotations

from collections.abc import Callable

import torch

Witness = Callable[[], tuple[torch.Tensor, ...]]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Standard normal numbers, the same on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def bytes_of(*shape: int, seed: int = 0) -> torch.Tensor:
    """int8 numbers from -128 to 127, both ends among them."""
    w = torch.randint(-128, 128, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)
    w.view(-1)[0], w.view(-1)[-1] = -128, 127
    return w


def pitched(x: torch.Tensor, gap: int = 3) -> torch.Tensor:
    """The same numbers in rows that lie `gap` elements further apart."""
    return torch.nn.functional.pad(x, (0, gap), value=7)[..., : x.shape[-1]]


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The same numbers, the last two axes swapped in memory."""
    return x.transpose(-2, -1).contiguous().transpose(-2, -1)


def rising_keys(m: int, n: int, d: int) -> tuple[torch.Tensor, ...]:
    """Attention inputs in which every later key scores higher, so that the running maximum keeps changing."""
    q = normal(m, d).abs() + 0.5
    k = torch.linspace(0.1, 1.5, n)[:, None] * torch.ones(n, d)
    return q, k, normal(n, d, seed=2)


def cancelling() -> tuple[torch.Tensor, ...]:
    """Slices of K that are large and cancel."""
    a = normal(8, 512, dtype=torch.float16)
    b = normal(512, 8, seed=1, dtype=torch.float16)
    a[:, 0], b[0] = 200, 100
    a[:, 300], b[300] = 200, -100
    return a, b


def product(m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> Witness:
    """A plain matrix product of these sizes."""
    return lambda: (normal(m, k, dtype=dtype), normal(k, n, seed=1, dtype=dtype))


def batched(z: int, m: int, n: int, k: int) -> Witness:
    """A plain batched product of these sizes."""
    return lambda: (normal(z, m, k), normal(z, k, n, seed=1))


def biased(m: int, n: int, k: int, size: float = 1.0) -> Witness:
    """A matrix product with a bias."""
    return lambda: (normal(m, k) * size, normal(k, n, seed=1), normal(n, seed=2))


def weighted(m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> Witness:
    """A product with int8 weights and scales of both signs."""
    return lambda: (normal(m, k, dtype=dtype), bytes_of(k, n), normal(n, seed=2, dtype=dtype) / 16)


def image(n: int, c: int, y: int, x: int, o: int, r: int, t: int, dtype: torch.dtype = torch.float32) -> Witness:
    """An image and a window."""
    return lambda: (normal(n, c, y, x, dtype=dtype), normal(o, c, r, t, seed=1, dtype=dtype))


def attended(m: int, n: int, d: int, size: float = 1.0) -> Witness:
    """Queries, keys and values; `size` scales the queries."""
    return lambda: (normal(m, d) * size, normal(n, d, seed=1), normal(n, d, seed=2))


def repelled(m: int, n: int, d: int, by: float) -> Witness:
    """Queries and keys whose every score is near -`by`."""
    return lambda: (
        torch.full((m, d), (by / d**0.5) ** 0.5) * (1 + normal(m, d) / 1e4),
        torch.full((n, d), -((by / d**0.5) ** 0.5)) * (1 + normal(n, d, seed=1) / 1e4),
        normal(n, d, seed=2),
    )


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Witness:
    """One tensor of this shape."""
    return lambda: (normal(*shape, dtype=dtype),)
