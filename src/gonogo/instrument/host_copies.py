"""Tensors of a GPU → the same in host memory, in one wait for the GPU.

Each wait costs more than a small copy, most of all where processes share a GPU: it is another's turn in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def fetch(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Each tensor in host memory, laid out as it is; those that are there already as they are."""
    made = [_begin_copy(x) if x.is_cuda else x for x in tensors]
    for device in {x.device for x in tensors if x.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
    return made


def _begin_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that is complete once the GPU has come so far; into pinned memory, which it reaches by itself."""
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
