"""An op, a call and a contract → what each leaf of a kernel's output is held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gonogo.cases import Call
from gonogo.errors import BadArguments, BadReference
from gonogo.execution.dtypes import accepts, find_dtype, find_dtypes
from gonogo.execution.functions import Function, open_reference
from gonogo.formats import get_format
from gonogo.guest.calling import GRAD
from gonogo.instrument.running_error.rules import RULES
from gonogo.instrument.running_error.trace import Leaf, trace_call
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
    is_sampled: bool = False
    """Whether the scale is from runs with roundings drawn at random, for no bound is finite."""

    @property
    def is_discrete(self) -> bool:
        """Whether it is made of integers or truth values, which have no error but are equal or not."""
        return not self.expected.is_floating_point()

    def accepts(self, dtype: str) -> bool:
        """Whether an output may have a dtype."""
        return accepts(dtype, self.dtype, is_declared=self.is_declared, is_discrete=self.is_discrete)

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

    def is_below(self, threshold: float) -> bool:
        """Whether all of it is finite, and its size below a threshold."""
        return self._largest < threshold

    @cached_property
    def _largest(self) -> float:
        sizes = self.expected.abs()
        largest = float(sizes.max()) if sizes.numel() else 0.0
        return math.inf if math.isnan(largest) else largest

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
        """The same with every sum taken for one long chain; 0 where that bounds nothing, and the scale does."""
        longest = self._find_blind_from(self.sequential_scale)
        return 0.0 if longest is None and self.blind_from is not None else longest

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
    dtypes = find_dtypes(op, function, call) if op.is_nest else {}
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
    longest: dict[str, torch.Tensor] = {}

    def find_longest(path: str, scale: torch.Tensor) -> torch.Tensor:
        if not summed or contract.summation == "sequential":
            return scale
        if not longest:
            _, again, _ = _trace(function, call, replace(contract, summation="sequential"))
            longest.update(
                {leaf.path: _forgive(_choose_scale(leaf, dtypes)) for leaf in again if leaf.scale is not None}
            )
        return longest[path].to(scale.device)

    references = tuple(
        _settle(op, leaf, contract, dtypes, find_longest, declared.get(leaf.path, Out())) for leaf in leaves
    )
    from_finite = any(not x.is_discrete and x.is_undefined for x in references) and _are_finite(call)
    return tuple(replace(x, from_finite=True) for x in references) if from_finite else references


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
    find_longest: Callable[[str, torch.Tensor], torch.Tensor],
    declared: Out,
) -> Reference:
    where, path = "cpu" if leaf.value.numel() <= ON_HOST else leaf.value.device, leaf.path
    none = torch.zeros((), dtype=torch.float64)
    scale = none if leaf.scale is None else _forgive(_choose_scale(leaf, dtypes)).to(where)
    return Reference(
        leaf.value.to(where),
        scale,
        contract,
        # It outlives the leaf, which may be gigabytes.
        (lambda: scale) if leaf.scale is None else lambda: find_longest(path, scale),
        path=leaf.path,
        dtype=declared.dtype or find_dtype(leaf, dtypes),
        is_declared=not op.is_nest or declared.dtype is not None,
        doubt=None if leaf.doubt is None else leaf.doubt.to(where),
        allows=leaf.allows,
        index=declared.index,
        is_sampled=leaf.is_sampled,
    )


def _choose_scale(leaf: Leaf, dtypes: Mapping[str, str]) -> torch.Tensor:
    """The scale of a leaf: without a rounding to its own dtype, which its cells have, where it was written to."""
    assert leaf.scale is not None
    if leaf.in_format is not None and leaf.in_format[0] == find_dtype(leaf, dtypes):
        return leaf.in_format[1]
    return leaf.scale


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
    arguments = (function.state, call.args, dict(call.kwargs))
    output, leaves, summed = trace_call(function.run, arguments, {}, contract, near=ON_HOST)
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


def _are_finite(call: Call) -> bool:
    """Whether all inputs are finite."""
    return all(bool(x.isfinite().all()) for _, x in call.tensors if x.is_floating_point())
