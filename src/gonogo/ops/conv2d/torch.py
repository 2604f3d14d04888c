"""2-D convolution by torch."""

import torch
from torch.nn import functional


def conv2d_torch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The framework's own op: on a GPU cuDNN, which takes Winograd or FFT for some shapes."""
    return functional.conv2d(x, weight, padding=(weight.shape[2] // 2, weight.shape[3] // 2))


def conv2d_torch_unfold(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Windows laid out as columns, then a matrix product in float32."""
    window = weight.shape[2:]
    columns = functional.unfold(x.float(), window, padding=(window[0] // 2, window[1] // 2))
    out = torch.matmul(weight.float().flatten(1), columns)
    return out.view(x.shape[0], -1, *x.shape[2:]).to(x.dtype)
