"""Tensors of a GPU → the same in host memory, in one wait for the GPU.

Each wait costs more than a small copy, most of all where processes share a GPU: it is another's turn in between.
Nothing is pinned: torch ends a process that lets go of pinned memory after a kernel has lost it the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def fetch(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Each tensor in host memory, laid out as it is; those that are there already as they are."""
    far = [at for at, x in enumerate(tensors) if x.is_cuda]
    packed = [at for at in far if tensors[at].is_contiguous()]
    made = list(tensors)
    if len(packed) > 1:
        chosen = [tensors[at] for at in packed]
        for at, copied in zip(packed, unpack(pack(chosen), chosen), strict=True):
            made[at] = copied
    return [x.cpu() if x.is_cuda else x for x in made]


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The bytes of contiguous tensors of one device one behind the other, in host memory: wide elements first."""
    return torch.cat([tensors[at].reshape(-1).view(torch.uint8) for at in _order(tensors)]).cpu()


def unpack(packed: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors as those that were packed, over the packed bytes."""
    made: dict[int, torch.Tensor] = {}
    start = 0
    for at in _order(tensors):
        like = tensors[at]
        made[at] = packed[start : start + like.nbytes].view(like.dtype).view(like.shape)
        start += like.nbytes
    return [made[at] for at in range(len(tensors))]


def _order(tensors: Sequence[torch.Tensor]) -> list[int]:
    """So that each begins at a multiple of its own width."""
    return sorted(range(len(tensors)), key=lambda at: -tensors[at].element_size())
