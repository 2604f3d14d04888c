"""2-D convolution in primitive ops."""

import torch


def reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Sums over channels and window of x·weight, zeros around x."""
    return torch.nn.functional.conv2d(x, weight, padding=(weight.shape[2] // 2, weight.shape[3] // 2))
