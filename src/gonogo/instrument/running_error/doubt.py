"""Values close to a threshold → where a correct kernel may decide otherwise than the reference.

A comparison of computed values is a plain boolean tensor. Where its operands are within reach of their errors a
kernel may find the other answer, and everything chosen by it may be the other branch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

NEAR = 32.0
"""How many times u_c·E a computed value may be off; float32 controls of committed records are by 1.8 at most."""


def find_reach(value: Any, extra: Tensor | None, unit: float, largest: float) -> Tensor | float:
    """How far a kernel's value may be from the reference's.

    Nothing is known where its error is infinite, but a value that is infinite or past the range itself stays so.
    """
    if extra is None:
        return 0.0
    if largest == math.inf and extra.numel() and math.isfinite(float(extra.max())):  # as good as always
        return extra * (NEAR * unit)
    beyond = torch.as_tensor(value, device=extra.device).abs() >= largest / 2
    return torch.where(extra.isinf() & beyond, 0.0, extra * (NEAR * unit))


Allows = Callable[[Tensor], Tensor]
"""Positions or integers of a kernel → where they are as good as the reference's."""
COMBINING = frozenset(
    f"aten.{kind}_{name}" for kind in ("logical", "bitwise") for name in ("and", "or", "xor", "not")
)
MOVING = frozenset(
    f"aten.{name}" for name in (
        "view", "_unsafe_view", "unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "select", "slice",
        "clone", "alias",
    )
)  # fmt: skip
"""What a mask goes through on its way to a choice."""
KEEPING = frozenset(("aten._to_copy", "aten.clone", "aten.alias"))
"""What leaves values as they are."""
ELEMENTWISE = COMBINING | frozenset(
    f"aten.{name}" for name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul")
)


class Doubts:
    """Boolean and integer tensors of one run of a reference, and where they may be wrong."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, Tensor]] = {}
        self._deferred: dict[int, tuple[Tensor, Callable[[], Tensor]]] = {}
        self._allowed: dict[int, tuple[Tensor, Allows]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no mask or position is known to be doubtful."""
        return not self._known

    def defer(self, positions: Tensor, look: Callable[[], Tensor]) -> None:
        """Remember how to find out where `positions` may be wrong; most are never used."""
        self._deferred[id(positions)] = (positions, look)

    def allow(self, positions: Tensor, allows: Allows) -> None:
        """Remember what a kernel may have instead, where it may have another."""
        self._allowed[id(positions)] = (positions, allows)

    def find_allowed(self, positions: Tensor) -> Allows | None:
        """Give what tells whether a kernel may have other values; None: nothing is known of them."""
        known = self._allowed.get(id(positions))
        return None if known is None else known[1]

    def note(self, mask: Tensor, places: Tensor) -> None:
        """Remember where `mask` may be wrong; the mask is kept alive, for its id is the key."""
        if bool(places.any()):
            self._known[id(mask)] = (mask, places)

    def find(self, mask: Any) -> Tensor | None:
        """Give the places where `mask` may be wrong, None where it is sure."""
        if (deferred := self._deferred.pop(id(mask), None)) is not None:
            self.note(deferred[0], deferred[1]())
        known = self._known.get(id(mask)) if self._known else None
        return None if known is None else known[1]

    def follow(self, made: Any, func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> None:
        """Pass doubt on to what `func` made of doubtful tensors: joined or moved as they are, else all of it."""
        if (
            not (self._known or self._deferred)
            or not isinstance(made, Tensor)
            or made.is_floating_point()
            or made.is_complex()
        ):
            return
        places = [places for places in map(self.find, args) if places is not None]
        if not places:
            return
        if name in KEEPING and made.dtype != torch.bool and (allows := self.find_allowed(args[0])) is not None:
            self.allow(made, allows)
        if name in KEEPING:
            self.note(made, places[0].to(made.device))
        elif name in ELEMENTWISE:
            self.note(made, torch.stack([one.expand(made.shape) for one in places]).any(0))
        elif name in MOVING:
            self.note(made, func(places[0].expand(args[0].shape), *args[1:], **kwargs))
        else:
            self.note(made, torch.ones_like(made, dtype=torch.bool))
