"""A reference and its arguments as they are → the dtypes of its leaves; and which others a kernel may give."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from gonogo.cases import Call
from gonogo.execution.functions import Function
from gonogo.guest.calling import GRAD
from gonogo.guest.nests import list_leaves
from gonogo.instrument.running_error.trace import Leaf
from gonogo.ops import Op

NARROW = {"int4": "int8", "uint4": "uint8"}
"""Formats that are in the low bits of another."""
WHOLE = ("int8", "uint8", "int16", "int32", "int64")
_DTYPES: dict[Any, dict[str, str]] = {}
"""Dtypes of a reference's leaves, by the reference and the dtypes of its arguments and state: the latest alone."""
PROMOTED = "*"
"""Stands for all floating leaves of which nothing is known."""


def find_dtypes(op: Op, function: Function, call: Call) -> dict[str, str]:
    """By path, what the reference gives when it is called with the arguments as they are.

    Without their values first, which is cheap. One that refuses arguments of several dtypes would give what they
    are promoted to; so would one that goes to float64 by itself, unless float64 is among its arguments.
    """
    leaves = [*list_leaves(call.by_name), *function.state.items()]
    key = (op.reference, tuple((path, x.dtype if isinstance(x, torch.Tensor) else repr(x)) for path, x in leaves))
    try:
        if key in _DTYPES:
            return _DTYPES[key]
    except TypeError:  # a reference that cannot be hashed
        return _ask_dtypes(function, call)
    found = _ask_dtypes(function, call)
    _DTYPES.clear()
    _DTYPES[key] = found
    return found


def _ask_dtypes(function: Function, call: Call) -> dict[str, str]:
    tensors = [*call.tensors, *function.state.items()]
    floating = [x.dtype for _, x in tensors if x.is_floating_point()]
    promoted = torch.float32
    for at, dtype in enumerate(floating):
        wide = dtype if dtype.itemsize > 1 else torch.float32  # torch promotes no two formats of eight bits
        promoted = wide if at == 0 else torch.promote_types(promoted, wide)
    try:
        leaves = _run_plainly(function, call)
    except Exception:  # noqa: BLE001  whatever the code of a user raises
        leaves = {}
    named = {path: _name(x) for path, x in leaves.items()}
    fallback = str(promoted).removeprefix("torch.")
    is_asked_for = any(leaf is torch.float64 for _, leaf in list_leaves(call.by_name))
    if torch.float64 not in floating and not is_asked_for:
        named = {path: fallback if dtype == "float64" else dtype for path, dtype in named.items()}
    return {**named, PROMOTED: fallback, **{f"{GRAD}{path}": _name(x) for path, x in tensors}}


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _run_plainly(function: Function, call: Call) -> dict[str, torch.Tensor]:
    """Leaves of the reference's output on the arguments as they are: without values, if it can be."""

    def run(state: Any, at: Call) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            made = function.forward(state, at.args, dict(at.kwargs))
        return {path: leaf for path, leaf in list_leaves(made) if isinstance(leaf, torch.Tensor)}

    every = [x for _, x in (*call.tensors, *function.state.items())]
    # Without values torch takes matrices of two dtypes for factors of a product, which it does not with them.
    if len({x.dtype for x in every if x.is_floating_point()}) < 2:
        with suppress(Exception):  # it looks at values
            empty = {path: x.to("meta") for path, x in function.state.items()}
            return run(empty, call.map(lambda _, x: x.to("meta")))
    return run(function.state, call.map(lambda _, x: x.clone()))


def find_dtype(leaf: Leaf, dtypes: Mapping[str, str]) -> str:
    """What a leaf must have: as it is known of its path, or of its kind."""
    if leaf.path in dtypes:
        return dtypes[leaf.path]
    return dtypes.get(PROMOTED, "") if leaf.scale is not None else _name(leaf.value)


def accepts(dtype: str, wanted: str, *, is_declared: bool, is_discrete: bool) -> bool:
    """Whether an output may have a dtype: its own; or codes of floating values, where no dtype is declared."""
    if wanted in NARROW:
        return dtype == NARROW[wanted]
    if dtype == wanted:
        return is_discrete or dtype != "bool"
    if is_declared:
        return False
    if is_discrete:
        return "bool" not in (dtype, wanted) and dtype in WHOLE
    return dtype in WHOLE or (dtype.startswith("float8") and not wanted.startswith("float8"))
