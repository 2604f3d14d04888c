"""tanh in primitive ops."""

import torch


def reference(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """(1 − exp(−2|x|))/(1 + exp(−2|x|)) with the sign of x: its scale allows what an exp form loses near 0."""
    e = torch.exp(-2 * input.abs())
    size = (1 - e) / (1 + e)
    return torch.where(input < 0, -size, size)
