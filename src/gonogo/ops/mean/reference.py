"""Mean in primitive ops."""

import torch


def reference(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Sum over the last axis by its length."""
    return input.sum(-1) / input.shape[-1]
