"""Group normalisation by torch."""

import torch

EPS = 1e-5


def groupnorm_torch(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The framework's own op, without nn.functional's refusal of one value per group."""
    batch, groups, channels, length = input.shape
    flat = input.reshape(batch, groups * channels, length)
    out = torch.group_norm(flat, groups, weight.reshape(-1), bias.reshape(-1), eps=EPS)
    return out.view(input.shape)


def groupnorm_unbiased(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Squares are divided by C·L - 1: shows where C·L > 1, least in large groups."""
    x = input.float()
    centred = x - x.mean((-2, -1), keepdim=True)
    divisor = max(x.shape[-2] * x.shape[-1] - 1, 1)
    variance = centred.square().sum((-2, -1), keepdim=True) / divisor
    normalised = centred * torch.rsqrt(variance + EPS)
    return (normalised * weight.float().unsqueeze(-1) + bias.float().unsqueeze(-1)).to(input.dtype)
