"""What a value was made of → errors that cancel further on: a sum's terms, a maximum's row, a shift of a whole row.

An origin rides on an Error and is dropped by every op that does not pass it on. Values are known by identity: the
tensor that was summed is the tensor that is divided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """The value is the sum of all `terms` along `dims`, or 1 over that."""

    terms: Tensor
    dims: frozenset[int]
    carried: Tensor | None
    """The part of the sum's error that its terms brought along; None: zero."""
    own: Tensor
    """The part that was made in adding up."""
    inverse: bool = False
    ulps: float = 0.0
    """Relative error of taking the inverse."""


@dataclass(frozen=True, slots=True, eq=False)
class Top:
    """The value is the largest of `terms` along `dims`."""

    terms: Tensor
    dims: frozenset[int]


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """All elements along `dims` are off by one and the same amount, besides their own errors."""

    common: Tensor
    """The part of the error they share, along `dims` of size 1."""
    dims: frozenset[int]
    relative: bool = False
    """Whether `common` is a fraction of the value: the shift was an exponent's."""
    reach: Reach | None = None
    """Of values that are powers: their exponents, where these are too far off for first order."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """Exponents to the base e, and how far each may be off, what they share left out."""

    exponents: Tensor
    apart: Tensor
    unit: float
    """u_c, in which errors are counted."""


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """The value is a sum of `count` terms written with + and −: a kernel may add them in any order."""

    count: int
    carried: Tensor | None
    """Σ E(term); None: zero."""
    sizes: Tensor | float
    """Σ |term|."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """The value is a sum or difference of two operands; no pass over memory is spent until a third one joins."""

    first: tuple[Any, Any]
    """Value and Error, as of the other."""
    second: tuple[Any, Any]


Origin = Total | Top | Shift | Addition | Pair


def move_origin(origin: Origin | None, op: Callable[[Tensor], Tensor]) -> Origin | None:
    """Keep the origin of a value to which dimensions of size 1 were added."""
    if isinstance(origin, Total):
        carried = None if origin.carried is None else op(origin.carried)
        return replace(origin, carried=carried, own=op(origin.own))
    return origin if isinstance(origin, Top) else None


def cut_total(total: Total, cut: Callable[[Tensor], Tensor]) -> Total:
    """The part of a sum's errors that belongs to a slice of its terms."""
    carried = None if total.carried is None else cut(total.carried)
    return replace(total, carried=carried, own=cut(total.own))


def cut_shift(shift: Shift | None, cut: Callable[[Tensor], Tensor]) -> Shift | None:
    """The part of a shift that belongs to a slice."""
    if shift is None:
        return None
    reach = shift.reach
    if reach is not None:
        reach = replace(reach, exponents=cut(reach.exponents), apart=cut(reach.apart))
    return replace(shift, common=cut(shift.common), reach=reach)


def is_along(whole: Tensor, reduced: Tensor, dims: frozenset[int]) -> bool:
    """Whether `reduced` stands beside the elements of `whole` that it was made of, and not across them."""
    kept = [1 if position in dims else size for position, size in enumerate(whole.shape)]
    return [1] * (whole.dim() - reduced.dim()) + list(reduced.shape) == kept


def share_error(
    whole: Tensor, error: Tensor, share: Tensor, total: Total, shift: Shift | None, weight: Tensor
) -> Tensor:
    """Error of p = e/Σe, the quotient's rounding apart: |1 − p_i|·w_i + |p_i|·(Σ_{j≠i} w_j + own), w = E(e)/|Σe|.

    Numerator and denominator err together: ∂p_i/∂e_j is (δ_ij − p_i)/Σe. An amount by which all exponents of a row
    are off cancels altogether. `error` is all of e's, and written to; `weight` is |1/Σe|.
    """
    if shift is not None and shift.reach is not None:
        own = total.own * weight + total.ulps
        return own * share.abs() + spread_shares(share, shift.reach, tuple(shift.dims))
    _, own, carried, common = list_rows(total, shift, weight)
    if shift is not None:
        error.sub_(whole.abs() * common).clamp_(min=0.0)
    part = error.mul_(weight)
    if share.numel() and is_ordinary(share, carried):
        # Shares of one whole: the same, w + p·(Σw + own − 2w), in fewer passes.
        return torch.sub(carried + own, part, alpha=2).mul_(share).add_(part).clamp_(min=0.0)
    others = torch.maximum((carried + own) - part, own)
    # All of an infinite error may be another's.
    others.nan_to_num_(nan=torch.inf, posinf=torch.inf)
    others.mul_(share.abs())
    return part.mul_((1 - share).abs_()).add_(others)


def list_rows(total: Total, shift: Shift | None, weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each sum |1/Σe|, what adding up made of it, what its terms carried and what they share, relative to it."""
    own = total.own * weight + total.ulps
    carried = torch.zeros_like(own) if total.carried is None else total.carried * weight
    if shift is None:
        return weight, own, carried, torch.zeros_like(own)
    return weight, own, (carried - shift.common).clamp_(min=0.0), shift.common


def is_ordinary(share: Tensor, carried: Tensor) -> bool:
    """Whether all shares are positive and all errors finite, by one wait for the device."""
    lowest, highest = torch.stack([share.min(), carried.max()]).tolist()
    return lowest >= 0 and math.isfinite(highest)


def spread_shares(share: Tensor, reach: Reach, dims: tuple[int, ...]) -> Tensor:
    """Error of p = e^x/Σe^x for exponents that are far off: p is largest where x_i is high and all others are low.

    Between scores that are closer than their errors either may have all the weight, though one's power vanished.
    """
    high, low = reach.exponents + reach.apart, reach.exponents - reach.apart
    most = torch.sigmoid(high - sum_others(low, dims)).nan_to_num_(nan=1.0)
    least = torch.sigmoid(low - sum_others(high, dims)).nan_to_num_(nan=0.0)
    spread = torch.maximum(most - share, share - least).clamp_(min=0.0).div_(reach.unit)
    return torch.where(reach.apart.amax(dims, keepdim=True).isinf(), torch.inf, spread)


def sum_others(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The log of Σ_{j≠i} e^(x_j); beside an element of most of the sum the others are added up by themselves."""
    whole = torch.logsumexp(x, dims, keepdim=True)
    leads = x - whole > -0.5
    rest = torch.logsumexp(torch.where(leads, -torch.inf, x), dims, keepdim=True)
    return torch.where(leads, rest, torch.log1p(-torch.exp(x - whole)) + whole)
