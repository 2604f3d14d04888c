"""What is known of torch's ops and of numbers, whatever reference runs: schemas, formulas, hints, exactness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gonogo.formats import FORMATS, get_format
from gonogo.instrument.running_error.companion import PYTHON_HINT, Error, Tracked, is_inexact, total

CORRECTLY_ROUNDED = frozenset(
    {"aten.add", "aten.sub", "aten.rsub", "aten.mul", "aten.div", "aten.reciprocal", "aten.sqrt"}
)

PRODUCTS = frozenset(
    f"aten.{name}" for name in ("mm", "bmm", "addmm", "baddbmm", "linear", "convolution", "mv", "addmv")
)
"""Each element of which adds up many terms: layers of a network."""


@lru_cache(maxsize=1024)
def find_formula(func: Any) -> Callable[..., Any] | None:
    """What torch's own compiler takes an op apart into, backward passes above all; None where it is one step."""
    from torch._decomp import decomposition_table

    formula: Callable[..., Any] | None = decomposition_table.get(func)
    return formula


TO_PYTHON = frozenset({torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default})
OUTSIDE_HINT = "it writes to a tensor from outside of the reference; pass that as an input"
REPEATED_HINT = "it writes to memory that a tensor repeats, as expand makes it; write to a copy: .clone()"
POSITION_HINT = (
    "a position it writes to may be another in a kernel, for computed values are nearly tied; "
    "use torch.where and a comparison, or pass the position as an input"
)
COMPLEX_HINT = "it has none for complex numbers; take them apart by torch.view_as_real"
RANDOM_HINT = "it draws random numbers; draw them before the call and pass them as an input"


def give_hint(func: Any, name: str) -> str | None:
    """Say what to do about an op without a rule, where there is more to say than "use primitive ops"."""
    if func in TO_PYTHON or name in ("aten.equal", "aten.is_nonzero", "aten.allclose"):
        return PYTHON_HINT
    if torch.Tag.nondeterministic_seeded in func.tags:
        return RANDOM_HINT
    return None


@lru_cache(maxsize=1024)
def read_schema(func: Any) -> tuple[str, bool, bool]:
    """Name of a torch op, whether it writes to an argument, whether its result may share memory with one."""
    schema = func._schema
    aliased = any(made.alias_info is not None for made in schema.returns)
    return schema.name.replace("::", "."), schema.is_mutable, aliased


@lru_cache(maxsize=1024)
def find_functional(func: Any) -> Any:
    """The op that returns what an in-place one writes: of the same arguments, whatever its overload is called."""
    packet = getattr(torch.ops.aten, func._schema.name.removeprefix("aten::").removesuffix("_"), None)
    kinds = [str(declared.type) for declared in func._schema.arguments]
    for name in packet.overloads() if packet is not None else ():
        overload = getattr(packet, name)
        if [str(declared.type) for declared in overload._schema.arguments] == kinds:
            return overload
    return None


def find_tensors(args: Iterable[Any]) -> Iterator[Tensor]:
    """Tensors among an op's arguments or results: aten nests them in lists and tuples only, at any place."""
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from find_tensors(arg)


@lru_cache(maxsize=1024)
def constant_ulps(number: float, fmt: str) -> float:
    """Say how far `number` is from its nearest value in `fmt`, relative, in units of its roundoff."""
    held = get_format(fmt)
    nearest = float(held.round(np.asarray(number)))
    if number == 0 or not math.isfinite(number) or not math.isfinite(nearest):
        return 0.0
    return abs(number - nearest) / abs(number) / held.unit_roundoff


def guard_error(value: Tensor, error: Error) -> Error:
    """Take 0·inf as 0 in the error, and no error at all where the value is not finite."""
    whole = total(value, error)
    if whole is None:
        return error
    whole = torch.where(value.isfinite(), whole, 0.0)
    uncast = None if error.uncast is None else guard_error(value, error.uncast)
    guarded = whole.nan_to_num_(nan=0.0, posinf=torch.inf)
    return replace(error, extra=guarded, ulps=0.0, uncast=uncast)


def narrow_format(dtype: torch.dtype) -> str:
    """Name a torch floating dtype as gonogo does."""
    name = str(dtype).removeprefix("torch.")
    return name if name in FORMATS else get_format(name).name


def is_whole(arg: Any) -> bool:
    """Whether an argument is a whole number, or made of whole numbers without an error."""
    if isinstance(arg, Tracked):
        return arg.error.whole or (arg.error.exact and torch.equal(arg.value, arg.value.round()))
    if isinstance(arg, Tensor):
        return not is_inexact(arg) or (not arg.is_complex() and torch.equal(arg, arg.round()))
    return arg is None or isinstance(arg, int) or (isinstance(arg, float) and arg.is_integer())


def name_ops(*short: str) -> list[str]:
    """Put the namespace of torch's own ops before their short names."""
    return [f"aten.{name}" for name in short]


KEEPS_WHOLE = frozenset(
    name_ops(
        "add", "sub", "rsub", "mul", "neg", "abs", "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "where",
        "view", "_unsafe_view", "reshape", "expand", "unsqueeze", "squeeze", "permute", "transpose", "clone",
    )
)  # fmt: skip
"""Ops that make whole numbers of whole numbers."""
RESHAPES = frozenset(name_ops("squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_"))
"""In-place ops that write nothing: another shape of the same memory."""
EXACT_WRITES = frozenset(
    name_ops(
        "copy_", "fill_", "zero_", "masked_fill_", "triu_", "tril_", "index_put_", "index_fill_", "scatter_",
        "index_copy_", "neg_", "abs_", "fill_diagonal_", "masked_scatter_", "resize_", "t_", "transpose_",
        "squeeze_", "unsqueeze_", "_index_put_impl_", "ceil_", "floor_", "round_", "trunc_", "clamp_", "clamp_min_",
        "clamp_max_", "relu_",
    )
)  # fmt: skip
"""In-place ops that round nothing: a reference may build its constant masks with them."""
