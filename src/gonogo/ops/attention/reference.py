"""attention in primitive ops."""

import math

import torch


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """softmax(QKᵀ/√D)·V."""
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]))
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v
