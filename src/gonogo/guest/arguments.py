"""Arguments of one call, by place and by name: nests of tensors and plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .nests import list_leaves, map_leaves

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Call:
    """Arguments: nests of tensors and plain values."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: tuple[str, ...]
    """Of `args`, in order."""

    @property
    def by_name(self) -> dict[str, Any]:
        """All arguments, by name."""
        return {**dict(zip(self.names, self.args, strict=True)), **self.kwargs}

    @cached_property
    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Path and tensor of all tensors among the arguments."""
        import torch

        return [(path, leaf) for path, leaf in list_leaves(self.by_name) if isinstance(leaf, torch.Tensor)]

    def map(self, function: Callable[[str, torch.Tensor], Any]) -> Call:
        """A copy of the call with what `function` makes of each path and tensor in the tensor's stead."""
        import torch

        def change(path: str, leaf: Any) -> Any:
            return function(path, leaf) if isinstance(leaf, torch.Tensor) else leaf

        made = map_leaves(change, self.by_name)
        args = tuple(made[name] for name in self.names)
        return Call(args, {name: made[name] for name in self.kwargs}, self.names)
