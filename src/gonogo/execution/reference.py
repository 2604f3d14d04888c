"""An op, a call and a contract → what each leaf of a kernel's output is held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gonogo.cases import Call
from gonogo.errors import BadArguments, BadReference
from gonogo.execution.functions import GRAD, Function, open_reference
from gonogo.formats import FORMATS, get_format
from gonogo.instrument.running_error.rules import RULES
from gonogo.instrument.running_error.trace import Leaf, trace_call
from gonogo.nests import list_leaves
from gonogo.ops import Index, Op, Out
from gonogo.schema import Contract

ON_HOST = 2**16
"""Outputs up to this size are measured in host memory: a dozen readings cost less there than their launches."""
LOOKED_AT = 4096
"""Elements, evenly spaced, by which it is decided whether a scale says anything of most of an output."""


@dataclass(frozen=True)
class Reference:
    """What one leaf of a case's outputs is held against, for kernels of one contract."""

    expected: torch.Tensor
    """In float64; integers and truth values as they are."""
    scale: torch.Tensor
    """S; nothing but zeros for what has none."""
    contract: Contract
    make_sequential_scale: Callable[[], torch.Tensor]
    from_finite: bool = False
    """Whether all inputs are finite; looked at where the expected output is NaN everywhere."""
    path: str = ""
    """Of the leaf; "" where the output is one tensor."""
    dtype: str = ""
    """What it must have, unless it may be codes of a narrower format, too."""
    is_declared: bool = True
    """Whether it must have just that dtype."""
    doubt: torch.Tensor | None = None
    """Where an integer or truth value may be another."""
    allows: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Tells which others, where that is known."""
    index: Index | None = None
    """How it is judged, where it is made of indices."""

    @property
    def is_discrete(self) -> bool:
        """Whether it is made of integers or truth values, which have no error but are equal or not."""
        return not self.expected.is_floating_point()

    @property
    def is_doubtful(self) -> bool:
        """Whether all of its integers may be others, and nobody knows which: then no output is wrong."""
        return self.doubt is not None and self.allows is None and bool(self.doubt.all())

    @property
    def unit_roundoff(self) -> float:
        """u_c."""
        return get_format(self.contract.accumulate).unit_roundoff

    @cached_property
    def sequential_scale(self) -> torch.Tensor:
        """The scale with every sum taken for one long chain; the same tensor where that changes nothing."""
        return self.make_sequential_scale()

    @cached_property
    def is_undefined(self) -> bool:
        """Whether it is NaN everywhere: an output that agrees has shown nothing."""
        return self.expected.numel() > 0 and bool(self.expected.isnan().all())

    @cached_property
    def unjudged(self) -> torch.Tensor | None:
        """Where there is a value and an infinite scale: a correct kernel may return anything there.

        The accumulate format may overflow on the way, or a function is too steep for any first-order bound.
        """
        places = self.scale.isinf() & self.expected.isfinite()
        return places if bool(places.any()) else None

    @cached_property
    def blind_from(self) -> float | None:
        """The limit above which an output of zeros would pass on more than half of what the scale speaks of."""
        return self._find_blind_from(self.scale)

    @cached_property
    def deterministic_blind_from(self) -> float | None:
        """The same with every sum taken for one long chain."""
        return self._find_blind_from(self.sequential_scale)

    def _find_blind_from(self, scale: torch.Tensor) -> float | None:
        """The upper median of |expected| / (u_c·S) over elements that are judged and not 0; None where none is.

        More than half of the elements have limit·u_c·S > |expected| exactly where the limit is above this one, so
        that one number serves whatever limit a record will be held against. What is below the accumulate format's
        normal range counts as 0: a kernel may flush it, and the scale says no more. Of a large output LOOKED_AT
        elements stand for all.
        """
        every = slice(None, None, max(1, scale.numel() // LOOKED_AT))
        sizes, allowed = self.expected.reshape(-1)[every].abs(), self.unit_roundoff * scale.reshape(-1)[every]
        normal = get_format(self.contract.accumulate).smallest_normal
        spoken_of = (sizes >= normal) & sizes.isfinite() & allowed.isfinite()
        ratios = (sizes / allowed)[spoken_of].cpu().numpy()
        middle = ratios.size // 2
        return float(np.partition(ratios, middle)[middle]) if ratios.size else None

    def take_judged(self, output: torch.Tensor) -> torch.Tensor:
        """The output beside the expected one, with the expected value where nothing is judged, not even a NaN."""
        output = output.to(self.expected.device)
        return (
            output if self.unjudged is None else torch.where(self.unjudged, self.expected.to(output.dtype), output)
        )


def make_references(op: Op, call: Call, contract: Contract, name: str) -> tuple[Reference, ...]:
    """Run the float64 reference with its error scale carried along: a Reference for each leaf of its output.

    `name` is what the cotangents of gradients are drawn by.
    """
    function = open_reference(op, call, name)
    dtypes = _find_dtypes(op, function, call) if op.is_nest else {}
    declared_dtypes = {path: out.dtype for path, out in op.leaves.items() if out.dtype is not None}
    function = function.with_dtypes({**dtypes, **declared_dtypes})
    output, leaves, summed = _trace(function, call, contract)
    if not op.is_nest:
        _check_output(output)
    if not leaves:
        raise BadReference("returns nothing; return what a kernel gives, what it writes in place included")
    declared = _place_declared(op, [leaf.path for leaf in leaves], [path for path, _ in call.tensors])
    for leaf in leaves:
        if leaf.scale is not None and declared.get(leaf.path, Out()).dtype == "bool":
            raise BadArguments(
                f"outputs: {leaf.path or 'the output'} is declared bool, and floating in the reference"
            )
    from_finite = _are_finite(call, leaves)
    longest: dict[str, torch.Tensor] = {}

    def find_longest(path: str, scale: torch.Tensor) -> torch.Tensor:
        if not summed or contract.summation == "sequential":
            return scale
        if not longest:
            _, again, _ = _trace(function, call, replace(contract, summation="sequential"))
            longest.update({leaf.path: _forgive(leaf.scale) for leaf in again if leaf.scale is not None})
        return longest[path].to(scale.device)

    return tuple(
        _settle(op, leaf, contract, dtypes, from_finite, find_longest, declared.get(leaf.path, Out()))
        for leaf in leaves
    )


def _place_declared(op: Op, paths: list[str], arguments: list[str]) -> dict[str, Out]:
    """What is declared, by the paths of leaves: by place is as good as by name."""
    declared = dict(op.leaves)
    if declared and not declared.keys() <= set(paths) and all(path.isdecimal() for path in declared):
        ordered = [path for path in paths if not path.startswith(GRAD)]
        declared = {ordered[int(at)] if int(at) < len(ordered) else at: out for at, out in declared.items()}
    for path, out in declared.items():
        if path not in paths:
            known = ", ".join(repr(path) for path in paths) if paths != [""] else "one tensor"
            raise BadArguments(f"outputs: {path!r} is no leaf of what the reference gives, which is {known}")
        if out.index is not None and out.index.of not in (*paths, *arguments):
            known = ", ".join(arguments)
            raise BadArguments(
                f"outputs: Index(of={out.index.of!r}) names no leaf and none of the arguments {known}"
            )
    return declared


def _settle(
    op: Op,
    leaf: Leaf,
    contract: Contract,
    dtypes: Mapping[str, str],
    from_finite: bool,
    find_longest: Callable[[str, torch.Tensor], torch.Tensor],
    declared: Out,
) -> Reference:
    where = "cpu" if leaf.value.numel() <= ON_HOST else leaf.value.device
    scale = torch.zeros((), dtype=torch.float64) if leaf.scale is None else _forgive(leaf.scale).to(where)
    return Reference(
        leaf.value.to(where),
        scale,
        contract,
        (lambda: scale) if leaf.scale is None else lambda: find_longest(leaf.path, scale),
        from_finite,
        leaf.path,
        declared.dtype or _find_dtype(leaf, dtypes),
        is_declared=not op.is_nest or declared.dtype is not None,
        doubt=None if leaf.doubt is None else leaf.doubt.to(where),
        allows=leaf.allows,
        index=declared.index,
    )


def _find_dtype(leaf: Leaf, dtypes: Mapping[str, str]) -> str:
    """What a leaf must have: as it is known of its path, or of its kind."""
    if leaf.path in dtypes:
        return dtypes[leaf.path]
    return dtypes.get(PROMOTED, "") if leaf.scale is not None else _name(leaf.value)


def make_reference(op: Op, call: Call, contract: Contract, shape: tuple[int, ...], dtype: str) -> Reference:
    """The same for an op whose output is one tensor, which must have `shape`."""
    (reference,) = make_references(op, call, contract, "")
    if tuple(reference.expected.shape) != shape:
        raise BadReference(f"returns shape {tuple(reference.expected.shape)}; the op's output has {shape} here")
    return replace(reference, dtype=dtype)


def _check_output(output: Any) -> None:
    """Refuse what an op with axes has none of."""
    if not isinstance(output, torch.Tensor):
        raise BadReference(f"returns {type(output).__name__}; an op has one output, a tensor")
    if not output.is_floating_point():
        raise BadReference(f"returned a {output.dtype} tensor; S is defined for floating outputs only")


def _trace(function: Function, call: Call, contract: Contract) -> tuple[Any, list[Leaf], bool]:
    output, leaves, summed = trace_call(function.run, (function.state, call.args, dict(call.kwargs)), {}, contract)
    return output, [_take_number(leaf) for leaf in leaves if not isinstance(leaf.value, str | None)], summed


def find_narrow_casts(op: Op, call: Call) -> tuple[str, ...]:
    """Formats narrower than float64 that the reference of an op casts to on its way: not the output at its end."""
    casts: list[tuple[Any, str]] = []

    def watch(context: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        dtype = kwargs.get("dtype")
        if dtype is not None and dtype.is_floating_point and dtype.itemsize < 8:
            casts.append((context, str(dtype).removeprefix("torch.")))
        return RULES["aten._to_copy"](context, func, args, kwargs)

    function = open_reference(op, call, "")
    arguments = (function.state, call.args, dict(call.kwargs))
    _, leaves, _ = trace_call(function.forward, arguments, {}, Contract(), {"aten._to_copy": watch})
    last = [name for context, name in casts if context is casts[-1][0]]  # of the run that the leaves are from
    return () if len(last) == sum(leaf.is_cast for leaf in leaves) else tuple(sorted(set(last)))


def _take_number(leaf: Leaf) -> Leaf:
    """A leaf of the output as a tensor."""
    if isinstance(leaf.value, torch.Tensor):
        return leaf
    if not isinstance(leaf.value, bool | int | float):
        raise BadReference(
            f"returns {type(leaf.value).__name__} at {leaf.path or 'the top'}; give tensors and numbers in any nest"
        )
    value = torch.as_tensor(leaf.value, dtype=torch.float64 if isinstance(leaf.value, float) else None)
    return replace(leaf, value=value, scale=torch.zeros_like(value) if isinstance(leaf.value, float) else None)


def _forgive(scale: torch.Tensor) -> torch.Tensor:
    """Where the reference is not finite no scale is defined: agreement there is an outcome of its own."""
    return scale.nan_to_num(nan=math.inf, posinf=math.inf)


def _are_finite(call: Call, leaves: list[Leaf]) -> bool:
    """Whether all inputs are finite; looked at only where it matters."""
    floating = [leaf.value for leaf in leaves if leaf.scale is not None]
    undefined = any(value.numel() > 0 and bool(value.isnan().all()) for value in floating)
    return undefined and all(bool(x.isfinite().all()) for _, x in call.tensors if x.is_floating_point())


_DTYPES: dict[Any, dict[str, str]] = {}
"""Dtypes of a reference's leaves, by the reference and the dtypes of its arguments and state: the latest alone."""
PROMOTED = "*"
"""Stands for all floating leaves of which nothing is known."""


def _find_dtypes(op: Op, function: Function, call: Call) -> dict[str, str]:
    """By path, what the reference gives when it is called with the arguments as they are.

    Without their values first, which is cheap. One that refuses arguments of several dtypes would give what they
    are promoted to; so would one that goes to float64 by itself.
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
    if torch.float64 not in floating:
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


def accepts(reference: Reference, dtype: str) -> bool:
    """Whether an output may have a dtype: its own; or codes of floating values, where no dtype is declared."""
    if reference.dtype in NARROW:
        return dtype == NARROW[reference.dtype]
    if dtype == reference.dtype:
        return reference.is_discrete or dtype != "bool"
    if reference.is_declared:
        return False
    if reference.is_discrete:
        return "bool" not in (dtype, reference.dtype) and dtype in WHOLE
    return dtype in WHOLE or (dtype.startswith("float8") and not reference.dtype.startswith("float8"))


NARROW = {"int4": "int8", "uint4": "uint8"}
"""Formats that are in the low bits of another."""
WHOLE = ("int8", "uint8", "int16", "int32", "int64")
FLOATING = tuple(FORMATS)
