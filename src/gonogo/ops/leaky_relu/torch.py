"""leaky_relu by torch."""

import torch


def leaky_relu_torch(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The framework's own op."""
    return torch.nn.functional.leaky_relu(input, 0.01)
