"""What a user's generator draws, and a kernel's signature → refused, where they do not go together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gonogo.cases import draw_arguments, take_arguments
from gonogo.errors import InputError, suggest
from gonogo.guest.nests import list_leaves
from gonogo.ops import Made, Op
from gonogo.user.kernels import name_function

if TYPE_CHECKING:
    import torch

    from gonogo.cases import Call


_CHECKED: set[Any] = set()
"""Generators of problems, which many solutions share."""


def check_nest(what: str, value: Any) -> None:
    """Refuse a nest that has no end."""
    try:
        for _ in list_leaves(value):
            pass
    except RecursionError:
        raise InputError(f"{what}: nested too deep, or a nest that holds itself") from None


def check_arguments(kernel: Callable[..., Any], op: Op, seed: int, dtype: str) -> None:
    """Refuse what cannot be run, before anything is; of an op by axes all is known already."""
    if op.draw is not None:
        check_draw(op, seed, dtype)
        check_kernel(kernel, op, seed, dtype)


def check_draw(op: Op, seed: int, dtype: str) -> None:
    """Refuse a generator that draws other arguments when it is asked again for the same."""
    if op.draw is None or op.is_given or op.draw in _CHECKED:
        return
    first, again = (take_arguments(op, draw_arguments(op, seed, dtype)).tensors for _ in range(2))
    different = [path for path, _ in first] != [path for path, _ in again]
    for (path, x), (_, y) in zip(first, again, strict=False):
        if different or x.shape != y.shape or x.dtype != y.dtype or not _are_same(x, y):
            raise InputError(
                f"inputs: {name_function(op.draw.load())} draws other values of {path} when it is asked again for "
                f"seed {seed}: draw all of them from the seed, so that a case can be replayed"
            )
    if isinstance(op.draw, Made):
        _CHECKED.add(op.draw)


def _are_same(x: torch.Tensor, y: torch.Tensor) -> bool:
    import torch

    first, second = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (x, y))
    return torch.equal(first, second)


def check_kernel(kernel: Callable[..., Any], op: Op, seed: int, dtype: str) -> None:
    """Refuse a kernel that does not take the arguments, where its signature tells."""
    if op.draw is None:
        return
    call = take_arguments(op, draw_arguments(op, seed, dtype))
    _check_names("mutates", op.mutates, call)
    reference: Any = op.load_reference()
    parameters = dict(reference.named_parameters()) if hasattr(reference, "named_parameters") else {}
    _check_names("grads", op.grads if isinstance(op.grads, tuple) else (), call, list(parameters))
    try:
        signature = inspect.signature(getattr(kernel, "forward", kernel))
    except (TypeError, ValueError):
        return
    handed = (None,) if op.out == "last" else ()
    named = {op.out: None} if op.out not in ("", "last") else {}
    takes_any = any(taken.kind is taken.VAR_KEYWORD for taken in signature.parameters.values())
    if named and op.out not in signature.parameters and not takes_any:
        near = suggest(op.out, ["last", *signature.parameters])
        raise InputError(
            f"outputs={op.out!r} is no dtype, and kernel {name_function(kernel)} has no argument of that name{near}"
            '. Of outputs that are handed over behind the arguments say outputs="last"'
        )
    try:
        signature.bind_partial(*call.args, *handed, **call.kwargs, **named)
        if op.out != "last":
            signature.bind(*call.args, **call.kwargs, **named)
    except TypeError as error:
        raise InputError(f"kernel {name_function(kernel)} does not take the inputs: {error}") from None


def _check_names(what: str, names: Sequence[str], call: Call, parameters: Sequence[str] = ()) -> None:
    known = list(call.by_name)
    for name in names:
        if name.partition(".")[0] not in known and name not in parameters:
            near = suggest(name, known) or f"; they are {', '.join(known)}"
            raise InputError(f"{what}: {name!r} is none of the arguments{near}")
