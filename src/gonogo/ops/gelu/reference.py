"""gelu in primitive ops."""

import math

import torch


def reference(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """½x(1 + tanh(√(2/π)(x + 0.044715x³)))."""
    inner = math.sqrt(2 / math.pi) * (input + 0.044715 * (input * input * input))
    return 0.5 * input * (1 + torch.tanh(inner))
