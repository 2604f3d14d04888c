"""Tensors → all of the memory that they are in: to be copied with its gaps, or filled with other values."""

from __future__ import annotations

import sys

import torch

from .arguments import Call

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element, the integers that hold its bits."""


def take_store(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory that a tensor is in, as integers of its width."""
    count = tensor.untyped_storage().nbytes() // tensor.dtype.itemsize
    return tensor.detach().view(INTEGERS[tensor.dtype.itemsize]).as_strided((count,), (1,), 0)


def copy_whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in a copy of all of its memory."""
    whole = take_store(tensor).clone().view(tensor.dtype)
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def fill_arguments(call: Call, values: Call) -> None:
    """Give arguments the values of others that are laid out alike, in the memory that they have."""
    source = dict(values.tensors)
    for path, x in call.tensors:
        take_store(x).copy_(take_store(source[path]))  # of a tensor that repeats elements, each once


def renew_tensors(call: Call) -> Call:
    """Other tensors of the same memory, all as often written to as each other."""
    return call.map(
        lambda path, x: torch.empty(0, dtype=x.dtype, device=x.device).set_(
            x.untyped_storage(), x.storage_offset(), x.shape, x.stride()
        )
    )


def count_holders(call: Call) -> list[tuple[int, int]]:
    """Of the memory of each argument, how many tensors hold it, and how many of Python's objects."""
    stores = [x.untyped_storage() for _, x in call.tensors]
    return [(torch._C._storage_Use_Count(store._cdata), sys.getrefcount(store)) for store in stores]
