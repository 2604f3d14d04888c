"""Euclidean normalisation in primitive ops."""

import torch

EPS = 1e-12


def reference(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Input over the root of its sum of squares."""
    return input / torch.sqrt((input * input).sum(-1, keepdim=True) + EPS)
