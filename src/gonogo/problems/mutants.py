"""A reference as torch runs it → small faults of it: an op dropped, an epsilon changed, a dtype narrowed, a tail.

A mutant is a place among the ops that one run calls, and what is done there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

DROPPED, EPSILON, NARROWED, TAIL = "op dropped", "epsilon changed", "dtype narrowed", "tail left out"
KINDS = (DROPPED, EPSILON, NARROWED, TAIL)
PER_KIND = 3
MOST_EPSILON = 1e-2
MOVES = (
    "view", "clone", "detach", "_to_copy", "expand", "permute", "transpose", "t", "slice", "select", "unsqueeze",
    "squeeze", "contiguous", "copy_", "alias", "cat", "stack", "zeros", "full", "split", "unbind", "empty", "ones",
    "_unsafe_view", "reshape", "arange", "fill_", "zero_",
)  # fmt: skip
SUMS = (
    "mm", "bmm", "addmm", "baddbmm", "convolution", "sum", "mean", "_softmax", "native_layer_norm", "cumsum",
    "linalg_vector_norm", "_log_softmax", "native_group_norm", "native_batch_norm", "cudnn_batch_norm", "var",
    "max", "amax", "min", "logsumexp", "prod", "std", "norm", "avg_pool2d", "max_pool2d_with_indices",
    "argmax", "argmin",
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """What is done, at which op of a run."""

    kind: str
    place: int
    op: str

    def apply(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with this fault."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad(), _Mutating(self):
                return function(*args, **kwargs)

        return run

    def __str__(self) -> str:
        return f"{self.kind} at {self.op}"


def list_mutants(function: Callable[..., Any], args: Sequence[Any], kwargs: Any = None) -> list[Mutant]:
    """Mutants of a function on its arguments: of each kind a few, spread over the run."""
    with torch.no_grad(), _Listing() as listing:
        function(*args, **(kwargs or {}))
    found = []
    for kind in KINDS:
        places = [(place, name) for place, name, kinds in listing.seen if kind in kinds]
        step = max(1, len(places) // PER_KIND)
        found += [Mutant(kind, place, name) for place, name in places[::step][:PER_KIND]]
    return found


class _Listing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which faults each op could have."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[int, str, tuple[str, ...]]] = []
        self.place = -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op, and look at it."""
        self.place += 1
        made = func(*args, **(kwargs or {}))
        name = _name(func)
        if name not in MOVES:
            self.seen.append((self.place, name, tuple(_list_kinds(name, args, made))))
        return made


class _Mutating(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Does something else at one op."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mutant, self.place = mutant, -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op, or its mutant."""
        self.place += 1
        kwargs = kwargs or {}
        if self.place != self.mutant.place:
            return func(*args, **kwargs)
        kind = self.mutant.kind
        if kind == DROPPED:
            made = func(*args, **kwargs)
            return _find_like(args, made).clone()
        if kind == EPSILON:
            return func(*tree_map(lambda x: x * 100 if _is_epsilon(x) else x, args), **kwargs)
        if kind == NARROWED:
            return func(*tree_map(_narrow, args), **kwargs)
        first, *rest = args
        return func(_cut(first), *rest, **kwargs)


def _name(func: Any) -> str:
    return str(func._schema.name).split("::")[-1]


def _list_kinds(name: str, args: Any, made: Any) -> list[str]:
    kinds = []
    floating = isinstance(made, torch.Tensor) and made.is_floating_point()
    if floating and not name.endswith("_") and _find_like(args, made) is not None:
        kinds.append(DROPPED)
    if any(map(_is_epsilon, args)):
        kinds.append(EPSILON)
    if any(isinstance(x, torch.Tensor) and x.dtype == torch.float32 and x.dim() for x in args):
        kinds.append(NARROWED)
    first = args[0] if args else None
    if name in SUMS and isinstance(first, torch.Tensor) and first.is_floating_point() and first.dim():
        kinds.append(TAIL)
    return kinds


def _is_epsilon(x: Any) -> bool:
    return isinstance(x, float) and 0 < x <= MOST_EPSILON


def _find_like(args: Any, made: Any) -> Any:
    """An argument of the same form as the result."""
    return next(
        (x for x in args if isinstance(x, torch.Tensor) and x.shape == made.shape and x.dtype == made.dtype), None
    )


def _narrow(x: Any) -> Any:
    is_single = isinstance(x, torch.Tensor) and x.dtype == torch.float32
    return x.bfloat16().to(torch.float32) if is_single else x


def _cut(x: torch.Tensor) -> torch.Tensor:
    """Without its last column: what a mask that is one too short leaves out."""
    cut = x.clone()
    cut[..., -1] = 0
    return cut
