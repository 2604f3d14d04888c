"""A function that writes to tensors it neither made nor was given → which, and the same with others in their place.

A module's buffers, a cache that outlives a call: what is written there is to be tracked, and not to stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.jit import ScriptModule
from torch.nn import Module, RNNBase
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from gonogo.guest.nests import map_leaves
from gonogo.instrument.running_error.companion import Tracked

NARROWING = frozenset({"half", "bfloat16", "float"})
"""Methods that cast."""


class Outside:
    """Tensors that a run writes to and neither made nor was given, as they were before; known by their storages."""

    def __init__(self, given: Sequence[Tensor] = ()) -> None:
        self._inside: set[int] = set()
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self.take(given)

    @property
    def written(self) -> list[Tensor]:
        """Those tensors; of a view what it is a view of."""
        return [tensor for tensor, _ in self._before.values()]

    def note_made(self, func: Any, nest: Any) -> None:
        """Take what an op has returned for the run's own, unless it may be a view of another's."""
        if not returns_views(func):
            self.take(nest)

    def take(self, nest: Any) -> None:
        """Take tensors for the run's own."""
        for leaf in [nest] if isinstance(nest, Tensor) else tree_leaves(nest):
            if isinstance(leaf, Tensor) and has_storage(leaf):
                self._inside.add(leaf.untyped_storage()._cdata)

    def note_written(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Keep what an op is about to write to, if it is not the run's own and not kept yet."""
        for place, name in find_targets(func):
            for leaf in tree_leaves(kwargs.get(name, args[place] if place < len(args) else None)):
                if isinstance(leaf, Tensor) and has_storage(leaf):
                    storage = leaf.untyped_storage()._cdata
                    if storage not in self._inside and storage not in self._before:
                        whole = leaf if leaf._base is None else leaf._base
                        self._before[storage] = (whole, whole.detach().clone())

    def restore(self) -> None:
        """Undo what was written."""
        with torch.no_grad():
            for tensor, before in self._before.values():
                tensor.copy_(before)


@lru_cache(maxsize=1024)
def find_targets(func: Any) -> tuple[tuple[int, str], ...]:
    """Places and names of the arguments that an op writes to."""
    declared = enumerate(func._schema.arguments)
    return tuple((at, arg.name) for at, arg in declared if arg.alias_info is not None and arg.alias_info.is_write)


@lru_cache(maxsize=1024)
def returns_views(func: Any) -> bool:
    """Whether what an op returns may share memory with what it takes."""
    return any(returned.alias_info is not None for returned in func._schema.returns)


def has_storage(tensor: Tensor) -> bool:
    """Whether a tensor has memory of its own, and is no wrapper around another."""
    wrapper = isinstance(tensor, Tracked) or torch._is_functional_tensor(tensor)
    return not wrapper and tensor.layout == torch.strided


@contextmanager
def keep_modules(function: Any) -> Iterator[None]:
    """Afterwards the modules that a function is, belongs to or holds have the attributes that they had before.

    Lists and dictionaries among them have what they had; what these hold is not looked into.
    """
    modules = {module: None for held in _find_modules(function, set()) for module in held.modules()}
    before = [
        (module, dict(module.__dict__), {id(held): held.copy() for held in _list_containers(module)})
        for module in modules if not isinstance(module, ScriptModule)
    ]  # fmt: skip
    for module in modules:
        if isinstance(module, RNNBase):  # refuses wide inputs in Python, before torch is asked
            module.__dict__["check_input"] = partial(_check_sizes, module)
            module.__dict__["flatten_parameters"] = _keep_apart
    try:
        yield
    finally:
        for module, attributes, contents in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for held in _list_containers(module):
                held.clear()
                (held.extend if isinstance(held, list) else held.update)(contents[id(held)])


def _keep_apart() -> None:
    """For cuDNN weights are moved next to each other in memory: those of a reference have none."""


def _check_sizes(layer: RNNBase, x: Tensor, batch_sizes: Tensor | None) -> None:
    """What a recurrent layer asks of its input, but for the dtype."""
    narrow = SimpleNamespace(dtype=next(layer.parameters()).dtype, dim=x.dim, size=x.size)
    type(layer).check_input(layer, narrow, batch_sizes)  # type: ignore[arg-type]


def _list_containers(module: Module) -> list[Any]:
    return [held for held in module.__dict__.values() if isinstance(held, (list, dict, set))]


def _find_modules(held: Any, seen: set[int]) -> Iterator[Module]:
    """Modules that a function can call: by its closure, what it is bound to, or what it was made of."""
    if id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, Module):
        yield held
    elif isinstance(held, partial):
        for part in (held.func, *held.args, *held.keywords.values()):
            yield from _find_modules(part, seen)
    elif isinstance(held, MethodType):
        yield from _find_modules(held.__self__, seen)
    elif is_dataclass(held) and not isinstance(held, type):
        for declared in fields(held):
            yield from _find_modules(getattr(held, declared.name), seen)
    elif isinstance(held, FunctionType):
        for cell in held.__closure__ or ():
            with suppress(ValueError):  # of a name that has no value yet
                yield from _find_modules(cell.cell_contents, seen)
        for known in map(held.__globals__.get, held.__code__.co_names):
            if isinstance(known, Module) or getattr(known, "__globals__", None) is held.__globals__:
                yield from _find_modules(known, seen)


def run_wide(run: Callable[[], Any], given: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """What `run` returns with casts to narrower formats left out, and the tensors from outside that it writes to.

    A reference may compute in half precision, and fill buffers of torch's default dtype. What it writes must be
    what it writes to copies of its tensors, where casts are left out, too. All tensors are as before afterwards.
    """
    outside, default = Outside(given), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Watch(outside), _Widen():
            returned = run()
        return copy_tensors(returned), outside.written
    finally:
        torch.set_default_dtype(default)
        outside.restore()


def copy_tensors(nest: Any) -> Any:
    """A nest with copies of its tensors."""
    return map_leaves(lambda path, leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, nest)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, outside: Outside) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._outside = outside

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op; keep what it writes to."""
        if func._schema.is_mutable:
            self._outside.note_written(func, args, kwargs or {})
        returned = func(*args, **(kwargs or {}))
        self._outside.note_made(func, returned)
        return returned


class _Widen(TorchFunctionMode):
    """Casts to float64 where a cast to a narrower format is asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function with other dtypes."""
        name = getattr(func, "__name__", "")
        if name == "view":  # bits seen as another dtype are not cast
            return func(*args, **(kwargs or {}))
        args, kwargs = tree_map(_widen_dtype, (args, kwargs or {}))
        if name in NARROWING:
            return torch.Tensor.double(args[0])
        if name in ("to", "type_as"):  # a tensor says to what
            args = (args[0], *(widen_tensor(arg) for arg in args[1:]))
        return func(*args, **kwargs)


def _widen_dtype(arg: Any) -> Any:
    if not isinstance(arg, torch.dtype):
        return arg
    return torch.float64 if arg.is_floating_point else torch.complex128 if arg.is_complex else arg


def widen_tensor(arg: Any) -> Any:
    """A floating tensor in float64, anything else as it is."""
    return arg.to(torch.float64) if isinstance(arg, Tensor) and arg.is_floating_point() else arg


@contextmanager
def exchange(outside: Sequence[Tensor], instead: Sequence[Tensor]) -> Iterator[Callable[[Any], Any]]:
    """Inside, functions get one tensor for the other; what is given does the same for what comes out of them."""
    with _Exchange(outside, instead) as mode:
        yield lambda nest: map_leaves(lambda path, leaf: mode.swap(leaf), nest)


class _Exchange(TorchFunctionMode):
    """Also writes to `out=` what a function returns without it: not all have a form that functionalize knows."""

    def __init__(self, outside: Sequence[Tensor], instead: Sequence[Tensor]) -> None:
        super().__init__()
        self._places = {id(tensor): (tensor, other) for tensor, other in zip(outside, instead, strict=True)}

    def swap(self, leaf: Any) -> Any:
        """The other of a tensor."""
        return self._places.get(id(leaf), (leaf, leaf))[1]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function on others."""
        args, kwargs = tree_map(self.swap, (args, kwargs or {})) if self._places else (args, dict(kwargs or {}))
        out = kwargs.pop("out", None)
        returned = func(*args, **kwargs)
        if out is None:
            return returned
        for target, leaf in zip(tree_leaves(out), tree_leaves(returned), strict=True):
            if target.shape == leaf.shape:
                target.copy_(leaf)
            else:  # torch gives it another size, and it has no values to keep
                self._places[id(target)] = (target, leaf)
        return tree_map(self.swap, out)
