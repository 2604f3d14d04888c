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


NARROWING = frozenset({"half", "bfloat16", "float"})
"""Methods that cast."""


def _widen_dtype(arg: Any) -> Any:
    if not isinstance(arg, torch.dtype):
        return arg
    return torch.float64 if arg.is_floating_point else torch.complex128 if arg.is_complex else arg


class _Watch(TorchFunctionMode):
    """Keeps what tensors from outside held before they are first written to, and leaves narrowing casts out.

    A reference may compute in half precision. What it writes must be what it writes to copies of its tensors, where
    casts are left out, too.
    """

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()
        self.written: list[tuple[Tensor, Tensor]] = []
        self._inside = WeakIdKeyDictionary()
        for tensor in given:
            self._inside[tensor] = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function; note what it makes, and what it writes to."""
        name, (args, kwargs) = getattr(func, "__name__", ""), tree_map(_widen_dtype, (args, kwargs or {}))
        func = torch.Tensor.double if name in NARROWING else func
        target = args[0] if args and is_in_place(name) else kwargs.get("out")
        if isinstance(target, Tensor) and target not in self._inside:
            self.written.append((target, target.detach().clone()))
            self._inside[target] = True
        made = func(*args, **kwargs)
        for leaf in tree_leaves(made):
            if isinstance(leaf, Tensor):
                self._inside[leaf] = True
        return made


@contextmanager
def exchange(outside: Sequence[Tensor], instead: Sequence[Tensor]) -> Iterator[Callable[[Any], Any]]:
    """Inside, functions get one tensor for the other; what is given does the same for any nest of them."""
    with _Exchange(outside, instead) as mode:
        yield mode.swap


class _Exchange(TorchFunctionMode):
    """Also writes to `out=` what a function returns without it: not all have a form that functionalize knows."""

    def __init__(self, outside: Sequence[Tensor], instead: Sequence[Tensor]) -> None:
        super().__init__()
        self._places = {id(one): (one, other) for one, other in zip(outside, instead, strict=True)}

    def swap(self, nest: Any) -> Any:
        """The same nest with other tensors in it."""
        if not self._places:
            return nest
        return tree_map(lambda one: self._places.get(id(one), (one, one))[1], nest)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function on others."""
        args, kwargs = self.swap(args), self.swap(kwargs or {})
        out = kwargs.pop("out", None)
        made = func(*args, **kwargs)
        if out is None:
            return made
        for target, one in zip(tree_leaves(out), tree_leaves(made), strict=True):
            if target.shape == one.shape:
                target.copy_(one)
            else:  # torch gives it another size, and it has no values to keep
                self._places[id(target)] = (target, one)
        return self.swap(out)
