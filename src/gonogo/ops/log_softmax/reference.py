"""log_softmax in primitive ops."""

import torch


def reference(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """(x − max) − log Σ exp(x − max)."""
    shifted = input - input.amax(-1, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(-1, keepdim=True))
