"""rope in primitive ops."""

import math

import torch


def reference(x: torch.Tensor) -> torch.Tensor:
    """(x₁·cos θ − x₂·sin θ, x₂·cos θ + x₁·sin θ) with θ = s·10000^(−p/P)."""
    rows, _, pairs = x.shape
    row = torch.arange(rows, dtype=x.dtype, device=x.device)[:, None]
    pair = torch.arange(pairs, dtype=x.dtype, device=x.device)
    angle = row * torch.exp(-math.log(10000) * pair / pairs)
    cos, sin = torch.cos(angle), torch.sin(angle)
    first, second = x[:, 0], x[:, 1]
    return torch.stack((first * cos - second * sin, second * cos + first * sin), 1)
