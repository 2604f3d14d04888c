"""A large tensor → slices that are worked on one after another, so that what is made on the way stays small.

On a CPU a slice stays in the cache, and its memory is used again; on a GPU it is what temporaries may take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from torch import Tensor

HOST_PIECE, DEVICE_PIECE = 2**18, 2**26
"""Elements of a slice."""

Cut = Callable[[Tensor], Tensor]
"""A tensor → the slice of it that stands beside the slice at hand; all of it where it is the same for every one."""


def find_axis(x: Tensor, dims: Collection[int]) -> int | None:
    """The longest axis that is not among `dims`, counted from the end; None where there is none to cut."""
    free = [dim for dim in range(x.dim()) if dim not in dims and x.shape[dim] > 1]
    return max(free, key=lambda dim: x.shape[dim]) - x.dim() if free else None


def map_pieces(function: Callable[[Cut], Tensor], x: Tensor, dims: Collection[int] = ()) -> Tensor:
    """What `function` makes of slices of x and of all that is cut along with it; `dims` are not cut.

    What is made has an axis for each of x's; that which is cut has its length, any other any.
    """
    piece = HOST_PIECE if x.device.type == "cpu" else DEVICE_PIECE
    axis = find_axis(x, dims)
    if axis is None or x.numel() <= piece:
        return function(lambda tensor: tensor)
    size = x.shape[axis]
    step = max(1, piece * size // x.numel())
    made: Tensor | None = None
    for start in range(0, size, step):
        stop = min(start + step, size)
        part = function(partial(cut_slice, axis=axis, size=size, start=start, stop=stop))
        if made is None:
            made = part.new_empty([size if dim - x.dim() == axis else n for dim, n in enumerate(part.shape)])
        made.narrow(axis, start, stop - start).copy_(part)
    assert made is not None
    return made


def cut_slice(tensor: Tensor, *, axis: int, size: int, start: int, stop: int) -> Tensor:
    """From `start` to `stop` along an axis of `size`; a tensor without that axis, or of size 1 there, as it is."""
    has_axis = tensor.dim() >= -axis and tensor.shape[axis] == size
    return tensor.narrow(axis, start, stop - start) if has_axis else tensor
