"""Matrix product, bias and gelu (tanh form) in primitive ops."""

import math

import torch


def reference(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """z/2·(1 + tanh(√(2/π)·(z + 0.044715·z³))) of z = a·b + bias."""
    z = a @ b + bias
    return 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)))
