"""Layer normalisation by torch."""

import torch

EPS = 1e-5
TILE = 256


def layernorm_torch(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The framework's own op."""
    return torch.nn.functional.layer_norm(input, input.shape[-1:], eps=EPS)


def layernorm_mean_of_means(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The means of tiles of 256 are averaged without weights: shows where H > 256 is no multiple of 256."""
    x = input.float()
    means = [
        tile.mean(-1, keepdim=True) for tile in torch.tensor_split(x, list(range(TILE, x.shape[-1], TILE)), dim=-1)
    ]
    centred = x - torch.stack(means).mean(0)
    return (centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)).to(input.dtype)
