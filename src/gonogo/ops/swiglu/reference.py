"""swiglu in primitive ops."""

import torch


def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a·σ(a)·b."""
    return a * torch.sigmoid(a) * b
