"""A function that writes to tensors it neither made nor was given → which, and the same with others in their place.

A module's buffers, a cache that outlives a call: what is written there is to be tracked, and not to stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from gonogo.instrument.running_error.companion import is_in_place


@contextmanager
def keep_modules(function: Any) -> Iterator[None]:
    """Afterwards the modules that a function is, belongs to or holds have the attributes that they had before."""
    modules = {module: None for held in _find_modules(function, set()) for module in held.modules()}
    before = [(module, dict(module.__dict__), dict(module._buffers)) for module in modules]
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)


def _find_modules(held: Any, seen: set[int]) -> Iterator[Module]:
    """Modules that a function can call: by its closure, what it is bound to, or what it was made of."""
    if id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, Module):
        yield held
    elif isinstance(held, partial):
        for one in (held.func, *held.args, *held.keywords.values()):
            yield from _find_modules(one, seen)
    elif isinstance(held, MethodType):
        yield from _find_modules(held.__self__, seen)
    elif is_dataclass(held) and not isinstance(held, type):
        for declared in fields(held):
            yield from _find_modules(getattr(held, declared.name), seen)
    elif isinstance(held, FunctionType):
        for cell in held.__closure__ or ():
            with suppress(ValueError):  # of a name that has no value yet
                yield from _find_modules(cell.cell_contents, seen)


def find_written(run: Callable[[], Any], given: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """What `run` returns, and tensors from outside that it has written to; these are as they were before."""
    with _Watch(given) as watch:
        made = run()
    made = tree_map(lambda one: one.clone() if isinstance(one, Tensor) else one, made)
    with torch.no_grad():
        for tensor, before in watch.written:
            tensor.copy_(before)
    return made, [tensor for tensor, _ in watch.written]


class _Watch(TorchFunctionMode):
    """Keeps what tensors from outside held before they are first written to."""

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()
        self.written: list[tuple[Tensor, Tensor]] = []
        self._inside = WeakIdKeyDictionary()
        for tensor in given:
            self._inside[tensor] = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function; note what it makes, and what it writes to."""
        target = args[0] if args and is_in_place(getattr(func, "__name__", "")) else (kwargs or {}).get("out")
        if isinstance(target, Tensor) and target not in self._inside:
            self.written.append((target, target.detach().clone()))
            self._inside[target] = True
        made = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor):
                self._inside[leaf] = True
        return made


@contextmanager
def exchange(outside: Sequence[Tensor], instead: Sequence[Tensor]) -> Iterator[Callable[[Any], Any]]:
    """Inside, functions get one tensor for the other; what is given does the same for any nest of them."""
    places = {id(one): other for one, other in zip(outside, instead, strict=True)}

    def swap(nest: Any) -> Any:
        return tree_map(lambda one: places.get(id(one), one), nest) if places else nest

    if not places:
        yield swap
        return
    with _Exchange(swap):
        yield swap


class _Exchange(TorchFunctionMode):
    def __init__(self, swap: Callable[[Any], Any]) -> None:
        super().__init__()
        self._swap = swap

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function on others."""
        return func(*self._swap(args), **self._swap(kwargs or {}))
