"""causal_attention in primitive ops."""

import math

import torch


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """softmax(QKᵀ/√D over keys up to the query's own place)·V."""
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]))
    at = torch.arange(q.shape[0], device=q.device)
    scores = scores.masked_fill(at[None, :] > at[:, None], -math.inf)
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v
