"""rope by torch."""

import math

import torch


def rope_torch(x: torch.Tensor) -> torch.Tensor:
    """The framework's cos and sin, all in float32, cast back at the end."""
    rows, _, pairs = x.shape
    row = torch.arange(rows, dtype=torch.float32, device=x.device)[:, None]
    pair = torch.arange(pairs, dtype=torch.float32, device=x.device)
    angle = row * torch.exp(pair * -math.log(10000) / pairs)
    first, second = x.float().unbind(1)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack((first * cos - second * sin, second * cos + first * sin), 1).to(x.dtype)
