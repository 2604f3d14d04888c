"""What torch tests its ops with → named functions with samples of arguments, for any dtype and device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

with warnings.catch_warnings():  # of what torch's tests import in turn
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

# Importing torch's tests forbids to set its switches, for the whole process: gonogo sets and restores them.
torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True

UNINITIALISED = ("empty", "new_empty", "resize")
"""Beginnings of the names of ops whose outputs nobody has written to."""

WRITTEN_HERE = "jiterator"
"""Beginning of the names of what is no op of torch's: functions of CUDA code that torch's tests bring along."""


@dataclass(frozen=True)
class Sample:
    """One call: a function of the tensors among its arguments, all else held."""

    function: Callable[..., Any]
    tensors: tuple[Tensor, ...]
    differentiated: tuple[int, ...]
    """Places of the tensors whose gradients torch offers."""

    def describe(self) -> str:
        """Shapes and dtypes."""
        named = (f"{str(x.dtype).removeprefix('torch.')}[{'x'.join(map(str, x.shape))}]" for x in self.tensors)
        return ", ".join(named)


@dataclass(frozen=True)
class Entry:
    """An op, under the name torch's tests have for it."""

    name: str
    info: Any

    @property
    def is_initialised(self) -> bool:
        """Whether its output is a function of its arguments."""
        return not self.name.startswith(UNINITIALISED)

    def draw(self, dtype: str, device: str, most: int, *, gradient: bool) -> Iterator[Sample]:
        """Its first samples; none where it has no such dtype."""
        if getattr(torch, dtype) not in self.info.supported_dtypes(device):
            return
        if gradient and not self.info.supports_autograd:
            return
        torch.manual_seed(0)
        drawn = self.info.sample_inputs(device, getattr(torch, dtype), requires_grad=gradient)
        yield from map(self._take, islice(drawn, most))

    def _take(self, sample: Any) -> Sample:
        leaves, form = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

        def function(*tensors: Tensor) -> Any:
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            first, args, kwargs = tree_unflatten(filled, form)
            return self.info.op(first, *args, **kwargs)

        differentiated = tuple(at for at, place in enumerate(places) if leaves[place].requires_grad)
        return Sample(function, tuple(leaves[place].detach() for place in places), differentiated)


@cache
def list_entries() -> dict[str, Entry]:
    """All ops, by name; variants of one behind a dot."""
    named = ((".".join(filter(None, (info.name, info.variant_test_name))), info) for info in op_db)
    return {name: Entry(name, info) for name, info in named if not name.startswith(WRITTEN_HERE)}
