"""RMS normalisation by torch."""

import torch

EPS = 1e-5


def rmsnorm_torch(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The framework's own op."""
    return torch.nn.functional.rms_norm(input, input.shape[-1:], eps=EPS)


def rmsnorm_half_squares(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Squares are rounded to bfloat16 before they are summed: shows where that is inexact, least in long rows."""
    x = input.float()
    squares = x.square().bfloat16().float()
    return (x * torch.rsqrt(squares.mean(-1, keepdim=True) + EPS)).to(input.dtype)
