"""Leaves of an output beside their references → what they read, and what is wrong with their numbers.

A floating leaf is read in the gauge `bound`. An integer one that stands for floating values has rounding cells like
any format: q is all from q − ½ to q + ½, and at the ends of its range all beyond. Integers of an integer reference
must be equal, but where that may be another itself; indices must point at the same value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from gonogo.errors import BadArguments
from gonogo.execution.dtypes import NARROW
from gonogo.execution.leaves import Pair, as_tensor
from gonogo.execution.measurement import find_non_finite, read_bounds, settle_outcome
from gonogo.execution.reference import Reference
from gonogo.formats import FORMATS, get_format
from gonogo.ops import Index
from gonogo.schema import LeafReading, Measured, Outcome

RANGES = {
    "int4": (-8, 7), "uint4": (0, 15), "int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1),
}  # fmt: skip
EMPTY = "the output has no elements"
IN_DOUBT = "every element may be another, for computed values are nearly tied"
NEAR = 8.0
"""Units of u_c·S that two values may be apart and an index still point at either."""


@dataclass(frozen=True)
class Judged:
    """A leaf of an output that can be measured."""

    pair: Pair
    output: torch.Tensor
    pointed: torch.Tensor | None = None
    """Of a leaf of indices: where they point at another value than the reference's, or nowhere."""

    @property
    def reference(self) -> Reference:
        """What it is held against."""
        return self.pair.reference

    @cached_property
    def dtype(self) -> str:
        """The format its elements are read in."""
        named = str(self.output.dtype).removeprefix("torch.")
        declared = self.reference.dtype
        return declared if NARROW.get(declared) == named else named

    @property
    def is_blind(self) -> bool:
        """Whether codes of 0 would pass for most of what is not 0: then they say nothing."""
        sizes = self.reference.expected.abs()
        spoken_of = sizes[sizes > 0]
        return spoken_of.numel() > 0 and 2 * int((spoken_of <= 0.5).sum()) > spoken_of.numel()

    def find_unequal(self) -> torch.Tensor:
        """Where a leaf of integers or truth values is another than the reference's, beyond doubt."""
        if self.pointed is not None:
            return self.pointed
        reference = self.reference
        output = self.output.to(reference.expected.device)
        unequal = output != reference.expected
        return unequal & ~_find_excused(self.output, reference)

    def find_distance(self) -> torch.Tensor:
        """How far the reference lies outside the rounding cell of every code."""
        low, high = RANGES[self.dtype]
        codes = self.output.to(self.reference.expected.device).double()
        expected = self.reference.expected
        below = torch.where(codes <= low, 0.0, codes - 0.5 - expected)
        above = torch.where(codes >= high, 0.0, expected - codes - 0.5)
        return torch.maximum(below, above).clamp(min=0).nan_to_num(nan=math.inf)

    def take_saturated(self) -> Judged:
        """Of a format of eight bits: what is past its largest value stands for that, where the output does."""
        if not self.dtype.startswith("float8"):
            return self
        reference, largest = self.reference, get_format(self.dtype).largest
        output = self.output.to(reference.expected.device).double()
        ends = (reference.expected.abs() > largest) & (output == reference.expected.sign() * largest)
        if not bool(ends.any()):
            return self
        clipped = replace(reference, expected=torch.where(ends, output, reference.expected))
        return replace(self, pair=replace(self.pair, reference=clipped))

    def read(self, settled: float) -> Measured:
        """What it reads, for a verdict."""
        reference = self.reference
        if reference.is_discrete:
            unequal = self.find_unequal()
            return _read_ratio(torch.where(unequal, math.inf, 0.0))
        if self.dtype in FORMATS:
            judged = self.take_saturated()
            return read_bounds(judged.output, judged.reference, settled)
        distance = self.find_distance()
        measured = _read_ratio(_divide(distance, reference.unit_roundoff * reference.scale))
        longest = _read_ratio(_divide(distance, reference.unit_roundoff * reference.sequential_scale))
        blind = 0.0 if self.is_blind else None
        return replace(measured, deterministic=longest.bound, blind_from=blind, deterministic_blind_from=blind)

    def settle(self) -> Outcome:
        """What is wrong with its numbers, but for how large they are."""
        if not self.output.numel():
            return Outcome("refused", EMPTY)
        if self.reference.is_doubtful:
            return Outcome("refused", IN_DOUBT)
        if self.reference.is_discrete:
            count = int(self.find_unequal().sum())
            points = "point elsewhere than" if self.pointed is not None else "are not"
            return (
                Outcome("unequal", f"{count} of {self.output.numel()} elements {points} the reference's")
                if (count)
                else Outcome("ok")
            )
        if self.dtype not in FORMATS:
            return Outcome("ok")
        judged = self.take_saturated()
        return settle_outcome(judged.output, judged.reference, self.dtype)

    def find_readings(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Of every element, flat and in host memory: its bound reading, and whether it is wrong without one."""
        reference = self.reference
        if reference.is_discrete:
            unequal = self.find_unequal().reshape(-1).cpu()
            return torch.where(unequal, math.inf, 0.0), unequal
        judged = self.take_saturated()
        reference = judged.reference
        if self.dtype in FORMATS:
            actual = self.output.double().cpu().numpy()
            far = torch.from_numpy(get_format(self.dtype).cell_distance(actual, reference.expected.cpu().numpy()))
            mismatched = find_non_finite(self.output, reference, self.dtype).cpu()
        else:
            far = self.find_distance().cpu()
            mismatched = torch.zeros_like(far, dtype=torch.bool)
        readings = _divide(far, reference.unit_roundoff * reference.scale.cpu())
        return readings.reshape(-1), mismatched.reshape(-1)


def _divide(error: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    return torch.where(error == 0, 0.0, error / size).nan_to_num(nan=math.inf, posinf=math.inf)


def _read_ratio(ratios: torch.Tensor) -> Measured:
    """The largest, and where it stands."""
    if not ratios.numel():
        return Measured(bound=0.0, bias=0.0, deterministic=0.0)
    at = int(ratios.reshape(-1).argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(at), ratios.shape)] if ratios.dim() else []
    worst = float(ratios.reshape(-1)[at])
    return Measured(bound=worst, bound_at=",".join(map(str, index)) or None, bias=0.0, deterministic=worst)


def read_leaves(leaves: Sequence[Judged], settled: float = -math.inf) -> Measured:
    """The readings of the worst leaf, by its path where there are several."""
    read = [leaf.read(settled) for leaf in leaves]
    if not read:
        return Measured(bound=0.0, bias=0.0, deterministic=0.0)
    worst = max(range(len(read)), key=lambda at: (read[at].bound or 0.0, -at))
    described = tuple(_describe(leaf, measured) for leaf, measured in zip(leaves, read, strict=True))
    if len(leaves) == 1:
        return replace(read[0], leaves=described)
    longest = [measured.deterministic for measured in read if measured.deterministic is not None]
    return replace(
        read[worst], leaf=leaves[worst].pair.shown, leaves=described, deterministic=max(longest, default=None),
        blind_from=_find_clearest(leaves, [measured.blind_from for measured in read]),
        deterministic_blind_from=_find_clearest(leaves, [measured.deterministic_blind_from for measured in read]),
    )  # fmt: skip


def _describe(leaf: Judged, measured: Measured) -> LeafReading:
    codes = None if leaf.reference.is_discrete or leaf.dtype in FORMATS else leaf.dtype
    blind_from = None if _is_certain(leaf) else measured.blind_from
    return LeafReading(leaf.pair.shown, measured.bound or 0.0, blind_from, codes, leaf.reference.is_sampled)


def _find_clearest(leaves: Sequence[Judged], limits: Sequence[float | None]) -> float | None:
    """The limit from which on no leaf says anything; None where one always does."""
    if any(_is_certain(leaf) for leaf in leaves):
        return None
    return max((limit for limit in limits if limit is not None), default=None)


def _is_certain(leaf: Judged) -> bool:
    """Whether a leaf says something whatever the limit: it is equal or not, or codes that tell values apart."""
    return leaf.reference.is_discrete or (leaf.dtype not in FORMATS and not leaf.is_blind)


def settle_leaves(leaves: Sequence[Judged]) -> Outcome:
    """The first leaf's outcome that is wrong; refused only where no leaf can be judged."""
    outcomes = [(leaf, leaf.settle()) for leaf in leaves]
    if len(leaves) == 1:
        return outcomes[0][1]
    for leaf, outcome in outcomes:
        if outcome.word not in ("ok", "refused"):
            return leaf.pair.tell(outcome.word, outcome.detail or "")
    refused = [(leaf, outcome) for leaf, outcome in outcomes if outcome.word == "refused"]
    if len(refused) == len(leaves):
        return refused[0][1]
    why = [f"leaf {leaf.pair.shown}: {outcome.detail}" for leaf, outcome in refused]
    why += [f"leaf {leaf.pair.shown}: {outcome.unjudged}" for leaf, outcome in outcomes if outcome.unjudged]
    return Outcome("ok", why[0], unjudged=why[0]) if why else Outcome("ok")


def judge_leaves(
    pairs: Sequence[Pair], outputs: Mapping[str, Any], arguments: Mapping[str, torch.Tensor]
) -> list[Judged]:
    """Every leaf as it is judged; `arguments` are what indices may point into, besides leaves."""
    expected = {pair.reference.path: pair.reference for pair in pairs}
    judged = []
    for pair in pairs:
        output = as_tensor(outputs[pair.path]).detach()
        pointed = None
        if pair.reference.index is not None:
            pointed = _find_astray(output, pair.reference, pair.reference.index, arguments, expected)
        judged.append(Judged(pair, output, pointed))
    return judged


def _find_astray(
    output: torch.Tensor,
    reference: Reference,
    index: Index,
    arguments: Mapping[str, torch.Tensor],
    expected: Mapping[str, Reference],
) -> torch.Tensor:
    """Where indices point at another value than the reference's, out of range, or where another one points."""
    where = reference.expected.device
    if index.of in arguments:
        values = arguments[index.of].to(where)
        reach = torch.zeros((), dtype=torch.float64, device=where)
    else:
        leaf = expected[index.of]
        values, reach = leaf.expected.to(where), NEAR * leaf.unit_roundoff * leaf.scale.to(where)
    ours, theirs = output.to(where).long(), reference.expected.long()
    _check_index(index, values, ours)
    size = values.shape[index.dim] if values.dim() else 1
    inside = (ours >= 0) & (ours < size) & (theirs >= 0) & (theirs < size)
    first, second = (_point(values, at.clamp(0, size - 1), index.dim) for at in (ours, theirs))
    spread = reach.expand(values.shape)
    allowed = sum(_point(spread, at.clamp(0, size - 1), index.dim) for at in (ours, theirs))
    same = (first == second) | ((first.double() - second.double()).abs() <= allowed)
    if first.is_floating_point():
        same |= first.isnan() & second.isnan()
    astray = (ours != theirs) & ~(inside & same)  # a reference's own word for none, as −1, is as good as any
    astray &= ~_find_excused(output, reference)
    return astray | _find_repeated(ours, index.dim) if index.unique and ours.dim() else astray


def _find_excused(output: torch.Tensor, reference: Reference) -> torch.Tensor:
    """Where a discrete leaf may be another than the reference's, for computed values are nearly tied."""
    if reference.doubt is None:
        return torch.zeros_like(reference.expected, dtype=torch.bool)
    if reference.allows is None:
        return reference.doubt
    return reference.doubt & reference.allows(output).to(reference.doubt.device)


def _check_index(index: Index, values: torch.Tensor, indices: torch.Tensor) -> None:
    """Refuse indices that cannot point along the dimension that is declared."""
    ranks, dim = (values.dim(), indices.dim()), index.dim
    if ranks[0] == 1 and dim in (0, -1):
        return
    if not -ranks[0] <= dim < ranks[0] or ranks[0] - ranks[1] not in (0, 1):
        problem = f"indices of {ranks[1]} dimensions do not count along one of {ranks[0]}"
        raise BadArguments(f"outputs: Index(of={index.of!r}, dim={dim}): {problem}")


def _find_repeated(indices: torch.Tensor, dim: int) -> torch.Tensor:
    """Where an index has come before, along a dimension."""
    ordered, order = indices.sort(dim=dim, stable=True)
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    later = ordered.shape[dim] - 1
    if later > 0:
        equal = ordered.narrow(dim, 1, later) == ordered.narrow(dim, 0, later)
        repeated.narrow(dim, 1, later).copy_(equal)
    return torch.zeros_like(repeated).scatter(dim, order, repeated)


def _point(values: torch.Tensor, at: torch.Tensor, dim: int) -> torch.Tensor:
    """The values that indices point at."""
    if values.dim() == 1:
        return values[at]
    if at.dim() == values.dim():
        return torch.take_along_dim(values, at, dim)
    return torch.take_along_dim(values, at.unsqueeze(dim), dim).squeeze(dim)
