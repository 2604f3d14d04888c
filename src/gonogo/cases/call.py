"""A case → the call that is made of it: arguments by place and by name, each array with a guard behind it."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gonogo.cases._case import Case
from gonogo.cases.inputs import GUARD, GUARD_BITS, make_inputs
from gonogo.cases.room import check_room, find_available_bytes, is_out_of_memory, refuse_without_room
from gonogo.errors import BadArguments, tell_bytes
from gonogo.formats import FORMATS
from gonogo.guest.arguments import Call
from gonogo.guest.nests import map_leaves
from gonogo.ops import ALONE, Op, get_op

if TYPE_CHECKING:
    import torch

ALIGNED = 64
"""Elements by which a copy's first one is as far off its alignment as the original's."""


def make_call(case: Case, device: str = "cpu", op: Op | None = None) -> Call:
    """The arguments of a case: the same bits wherever this is called. The op is found by its name.

    Refused where there is not as much memory as it takes.
    """
    op = op or get_op(case.op)
    check_room(case, op, device)
    with refuse_without_room(case, op, device):
        return _make_call(case, device, op)


def _make_call(case: Case, device: str, op: Op) -> Call:
    if op.draw is None:
        names = tuple(described.name for described in op.inputs)
        inputs = make_inputs(case, device, op)
        for at, described in enumerate(op.inputs):
            if described.kind == "constant":
                inputs[at] = map_leaves(partial(_take_constant, described.name, device), inputs[at])
        return Call(tuple(inputs), {}, names)
    drawn = draw_arguments(op, case.seed, case.dtype)
    return take_arguments(op, drawn).map(lambda path, tensor: copy_guarded(tensor, device))


def draw_arguments(op: Op, seed: int, dtype: str) -> Any:
    """What a user's generator gives; torch's, NumPy's and Python's own generators begin at the seed, too."""
    assert op.draw is not None
    draw = op.draw.load()
    args, kwargs = find_draw_arguments(draw, seed, dtype)
    from gonogo.guest.flags import outside

    with _seeded(seed), outside():
        try:
            return draw(*args, **kwargs)
        except Exception as error:
            shown = ", ".join([*map(str, args), *(f"{name}={value}" for name, value in kwargs.items())])
            call = f"inputs: {_name(draw)}({shown})"
            if is_out_of_memory(error):
                available = tell_bytes(find_available_bytes("cpu"))
                raise BadArguments(
                    f"{call} ran out of memory: this machine has {available} available. Draw smaller arguments"
                ) from error
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise BadArguments(f"{call} raised {why}") from error


def find_draw_arguments(draw: Callable[..., Any], seed: int, dtype: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Seed and dtype, by name where a generator has these names, else by place, as far as it needs arguments.

    One that takes neither is seeded from outside.
    """
    import torch

    every = {"seed": seed, "dtype": getattr(torch, dtype)}
    try:
        parameters = list(inspect.signature(draw).parameters.values())
    except (TypeError, ValueError):
        return tuple(every.values()), {}
    named = {
        name: value for name, value in every.items()
        if any(taken.name == name and taken.kind is not taken.POSITIONAL_ONLY for taken in parameters)
    }  # fmt: skip
    needed = [taken for taken in parameters if taken.default is taken.empty and taken.name not in named]
    if any(taken.kind is taken.VAR_POSITIONAL for taken in needed) and not named:
        return tuple(every.values()), {}
    placed = [taken for taken in needed if taken.kind in (taken.POSITIONAL_ONLY, taken.POSITIONAL_OR_KEYWORD)]
    rest = [value for name, value in every.items() if name not in named]
    return tuple(rest[: len(placed)]), named


def follows_dtype(draw: Callable[..., Any]) -> bool:
    """Whether a generator takes the dtype of a case."""
    args, kwargs = find_draw_arguments(draw, 0, "float32")
    return "dtype" in kwargs or any(not isinstance(value, int) for value in args)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    import torch

    # Of a GPU that is not in use nothing is asked: to ask would take it into use.
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with ALONE, torch.random.fork_rng(devices=devices):
        state, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002  the one that a user may draw from
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpys)  # noqa: NPY002


def take_arguments(op: Op, given: Any) -> Call:
    """What was drawn or given as a call: a tuple or list by place, a mapping by name, a Call both, a tensor."""
    import torch

    reference = op.load_reference()
    args: tuple[Any, ...]
    args, kwargs = (), {}
    if isinstance(given, Call):
        args, kwargs = given.args, dict(given.kwargs)
    elif isinstance(given, Mapping):
        kwargs = {str(name): value for name, value in given.items()}
    elif isinstance(given, (tuple, list)):
        args = tuple(given)
    elif isinstance(given, torch.Tensor) or hasattr(given, "__array__"):
        args = (given,)
    else:
        raise BadArguments(
            f"inputs: {type(given).__name__} is no set of arguments; give a tuple of them, or a mapping by name"
        )
    if not args and not kwargs:
        raise BadArguments("inputs: no arguments at all; give a tuple of them, or a mapping by name")
    names = name_arguments(reference, args, kwargs)
    call = Call(args, kwargs, names)
    made = map_leaves(_take_array, call.by_name)
    return replace(call, args=tuple(made[name] for name in names), kwargs={name: made[name] for name in kwargs})


def _take_constant(name: str, device: str, path: str, leaf: Any) -> Any:
    """A leaf of what is handed over as it is: a tensor as a copy on the device."""
    import torch

    taken = _take_array(f"{name}.{path}" if path else name, leaf)
    return copy_guarded(taken, device) if isinstance(taken, torch.Tensor) else taken


def _take_array(path: str, leaf: Any) -> Any:
    """An array as a tensor, which must be a plain one; anything else as it is."""
    import torch

    if isinstance(leaf, torch.Tensor):
        check_tensor(path, leaf)
        return leaf.detach().resolve_neg()  # a view that torch negates lazily has other bits than its values
    if isinstance(leaf, np.ndarray) or (hasattr(leaf, "__array__") and not isinstance(leaf, np.generic)):
        try:
            array = np.array(leaf)
        except Exception as error:  # whatever stands behind __array__
            raise BadArguments(f"argument {path} cannot be read, {type(error).__name__}: {error}") from error
        try:
            return torch.from_numpy(array)
        except (TypeError, ValueError):
            raise BadArguments(f"argument {path} is an array of {array.dtype}. Give a torch tensor") from None
    return leaf.item() if isinstance(leaf, np.generic) else leaf


def name_arguments(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The names that a function has for its arguments; their places, where it does not tell."""
    positions = tuple(str(position) for position in range(len(args)))
    target = getattr(function, "forward", function)
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return positions
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise BadArguments(f"inputs: the reference {_name(function)} does not take them: {error}") from None
    named = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    names = [
        parameter.name for parameter in named if parameter.name in bound.arguments and parameter.name not in kwargs
    ][: len(args)]
    return (*names, *positions[len(names) :])


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def copy_guarded(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy with the same strides and alignment, and a guard behind it."""
    import torch

    tensor = tensor.detach()
    if tensor.numel() == 0 or tensor.dtype.itemsize not in (1, 2, 4):
        return tensor.to(device, copy=True)
    offset = tensor.storage_offset() % ALIGNED
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.dtype.itemsize]
    stored = torch.empty(offset + span + GUARD, dtype=integers, device=tensor.device)
    stored[:offset] = GUARD_BITS[tensor.dtype.itemsize]
    stored[offset + span :] = GUARD_BITS[tensor.dtype.itemsize]
    every = tensor.as_strided((span,), (1,), tensor.storage_offset())
    stored[offset : offset + span] = every.view(integers)
    return stored.to(device).view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), offset)


def check_tensor(path: str, tensor: torch.Tensor) -> None:
    """Refuse what is no plain array of a format that is known."""
    import torch

    problem = ""
    if tensor.is_nested:
        problem = "a nested tensor"
    elif tensor.layout is not torch.strided:
        problem = f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    elif tensor.is_complex():
        problem = f"of dtype {str(tensor.dtype).removeprefix('torch.')}: complex numbers have no error scale here"
    elif tensor.is_quantized:
        problem = "a quantized tensor"
    elif type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        problem = f"a {type(tensor).__name__}, a subclass of torch.Tensor"
    elif tensor.device.type == "meta":
        problem = "a tensor on device meta, without values"
    elif tensor.is_floating_point() and str(tensor.dtype).removeprefix("torch.") not in FORMATS:
        problem = f"of dtype {str(tensor.dtype).removeprefix('torch.')}, which is none of {', '.join(FORMATS)}"
    if problem:
        raise BadArguments(f"argument {path} is {problem}. Give a plain tensor")
