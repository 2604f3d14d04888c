"""Arguments that a problem draws → the same in another dtype, or with other values, as a seed says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gonogo.guest.nests import map_leaves

PIECE = 2**26
"""Elements that are compared at a time: a comparison makes four tensors of the size of its operands."""


def split_both(x: torch.Tensor, y: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pieces of two tensors of one shape, side by side."""
    return zip(torch.split(x.reshape(-1), PIECE), torch.split(y.reshape(-1), PIECE), strict=True)


def cast_nest(nest: Any, dtype: str) -> Any:
    """Floating tensors of a nest in a dtype; integers stay integers."""
    wanted = getattr(torch, dtype)
    return map_leaves(
        lambda path, x: x.to(wanted) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, nest
    )


def copy_nest(nest: Any) -> Any:
    """A nest with copies of its tensors."""
    return map_leaves(lambda path, x: x.clone() if isinstance(x, torch.Tensor) else x, nest)


def vary_nest(nest: Any, seed: int) -> Any:
    """Floating tensors of a nest with other values: what a kernel made for the problem's own may not have seen."""
    kind = KINDS[seed % len(KINDS)]
    return map_leaves(
        lambda path, x: kind(x) if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() else x, nest
    )


def _center(x: torch.Tensor) -> torch.Tensor:
    """Of both signs, about as large as they were."""
    return torch.randn_like(x) * x.abs().double().mean().to(x.dtype)


def _enlarge(x: torch.Tensor) -> torch.Tensor:
    return _center(x) * 16


def _thin_out(x: torch.Tensor) -> torch.Tensor:
    """Mostly zeros."""
    return torch.where(torch.rand_like(x) < 0.9, torch.zeros_like(x), _center(x))


def _repeat(x: torch.Tensor) -> torch.Tensor:
    """Few distinct values: all sums have ties."""
    return (_center(x) * 4).round() / 4


KINDS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (_center, _enlarge, _thin_out, _repeat)


class Filled(TorchFunctionMode):
    """Has memory that nobody has written to hold NaN, so that each draw is the same."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function; fill what it leaves empty."""
        made = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in EMPTY and isinstance(made, torch.Tensor):
            made.fill_(float("nan") if made.is_floating_point() else 0)
        return made


EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided"})


def rebuild(leaves: dict[str, Any]) -> Any:
    """The nest that leaves are of: a tensor, a tuple, or a dict by path."""
    if list(leaves) == [""]:
        return leaves[""]
    if all(path.isdecimal() for path in leaves):
        return tuple(leaves[str(at)] for at in range(len(leaves)))
    return leaves
