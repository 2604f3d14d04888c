"""silu in primitive ops."""

import torch


def reference(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """x·σ(x)."""
    return input * torch.sigmoid(input)
