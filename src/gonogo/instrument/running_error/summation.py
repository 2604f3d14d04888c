"""Terms of a sum → how far a correct sum of them may be off, in whatever order it was taken.

A chain rounds every partial sum s_k once, and those roundings are as good as independent: its error deviates by
about 0.42·u_c·√(Σ s_k²), the root mean square of a rounding being 0.42 of its bound. Over random orders Σ s_k² is
n/6·Σx² + n/3·(Σx)² on average. Trees and blocks have fewer partial sums, and smaller ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gonogo.instrument.running_error.companion import Error
from gonogo.instrument.running_error.terms import STEPS, lose_terms

WORST = 3.0
"""Roundings in the worst of many sums: 0.42 times the 4.4 deviations expected among 10^5, and half as much again
for orders that are not random. Chains of 4 to 65,536 terms then read at most 1.1 (test_summation.py)."""

REPEATED = 0.255
"""Roundings of one and the same term added again and again all go one way, by half of their bound on average: such
a chain is off by n/4·u_c·Σ|x| at most (test_summation.py)."""
FEW = 16
"""Terms up to which √n covers that."""

FEW_SUMS = 2**14
"""Sums for which it costs less to do a step for nothing than to wait for a device to say so."""

LONG = 256
"""Terms from which some may be too small beside the sum of the others to count at all, or lean one way."""

LONGEST = 2**16
"""Terms of a chain that float32 still adds up, off by a five-hundredth of each. Kernels have no longer ones: one
thread would be at work alone. Formats of more bits have; of fewer, a kernel of that contract may stand still."""

SHORT = 4
"""Up to so many terms the statistical bound may exceed the sum of all partial sums' bounds; both are taken."""


def bound_orders(chain: float | Tensor, squares: Tensor, total: Tensor) -> Tensor:
    """3·√(n/6·Σx² + n/3·(Σx)²) for chains of n terms, written into `squares`; of chains side by side as of one."""
    squares.mul_(WORST**2 / 6).addcmul_(total, total, value=WORST**2 / 3)
    return squares.sqrt_().mul_(chain**0.5)


def bound_growth(length: Tensor) -> Tensor:
    """max(log2(n + 1), √n), of many lengths at once."""
    return torch.maximum(torch.log2(length + 1), length.sqrt())


def find_longest(unit: float) -> float:
    """Terms of the longest chain that a kernel with such an accumulator has."""
    return max(LONGEST, 1 / (256 * unit))


def find_chains(lengths: Tensor, unit: float) -> Tensor:
    """Terms of the longest chains that such a kernel adds so many terms up by."""
    return lengths.clamp(max=find_longest(unit))


def grow_repeated(bound: Tensor, squares: Tensor, total: Tensor, length: float | Tensor, unit: float) -> Tensor:
    """A bound that covers chains of one term n times over: n·Σx² is (Σx)² there, and more anywhere else."""
    return cover_repeated(bound, find_repeated(squares, total, length), total, length, unit)


def find_repeated(squares: Tensor, total: Tensor, length: float | Tensor) -> Tensor | None:
    """Where all terms of a sum are the same; None where that is nowhere, and a look is worth its wait."""
    repeated = squares <= (total * total).mul_((1 + 1e-9) / length)
    return repeated if repeated.numel() <= FEW_SUMS or bool(repeated.any()) else None


def cover_repeated(
    bound: Tensor, repeated: Tensor | None, total: Tensor, length: float | Tensor, unit: float
) -> Tensor:
    """A bound that covers such chains."""
    if repeated is None:
        return bound
    chain = find_chains(length, unit) if isinstance(length, Tensor) else min(length, find_longest(unit))
    return torch.where(repeated, torch.maximum(bound, total.abs() * chain * REPEATED), bound)


def bound_chains(
    x: Tensor, total: Tensor, length: int, unit: float, dims: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """How far a chain is off for terms that all lean one way, and for terms that are lost in it, in units of u_c.

    Late in a chain the sum moves in steps that are large beside the low bits of its terms: every term is rounded to
    a multiple of the step, and terms that are equal, or all close below a multiple, are off to the same side. A
    kernel may scale its terms as it likes, so steps of all kinds are tried. Terms of all kinds average out.

    A term below half a unit in the last place of the sum so far changes nothing: where most terms are that small
    beside a few large ones, their errors all go one way and do not average out.
    """
    # Past so many terms a kernel has partial sums, each of its share: one chain would stand still.
    step = unit * min(1.0, find_longest(unit) / length)
    # Where terms cancel, the sum was as large as any of them on the way.
    sizes = torch.maximum(total.abs() * step, torch.linalg.vector_norm(x, math.inf, dims, keepdim=True) * unit)
    lean, lost = lose_terms(x, sizes, total.abs() * step, dims)
    return lean.div_(unit), lost.div_(unit)


def list_constants(length: int, unit: float) -> tuple[float, ...]:
    """What a kernel that looks at sums of `length` terms goes by."""
    chain = min(length, find_longest(unit))
    ratios = (2 ** (-part / STEPS) for part in range(STEPS))
    tiny = torch.finfo(torch.float64).tiny
    weights = (math.sqrt(chain), WORST**2 / 6, WORST**2 / 3, (1 + 1e-9) / length, tiny)
    return (unit, unit * chain / length, chain * REPEATED, *weights, *ratios)


def is_mixed(growth: float | Tensor, length: float | Tensor, absolute: Tensor, total: Tensor) -> bool:
    """Whether the statistical bound is anywhere below g·Σ|x|: by its second term never where all signs agree."""
    return bool((total.abs() * (length / 3) ** 0.5 * WORST < growth * absolute).any())


def limit_whole(bound: Tensor, absolute: Tensor, length: float | Tensor, unit: float) -> Tensor:
    """Bound sums of whole numbers: below 2^p every partial sum is exact, and log2(n + 1) is generous."""
    few = torch.log2(torch.as_tensor(length, dtype=torch.float64, device=bound.device) + 1) * absolute
    return torch.where(absolute < 1 / unit, torch.minimum(bound, few), bound)


def are_whole(x: Tensor, error: Error) -> bool:
    """Whether all terms are whole numbers in a kernel, too: inputs, or one correctly rounded op away from them."""
    if error.extra is not None or error.ulps > 1 or not x.numel():
        return False
    corner = x[tuple(slice(0, 4) for _ in x.shape)]  # tells for almost all data, at no cost
    return all(torch.equal(part, part.round()) for part in (corner, x))


def bound_product(
    apply: Callable[[Tensor, Tensor], Tensor],
    value: Tensor,
    operands: tuple[tuple[Tensor, Error], tuple[Tensor, Error]],
    length: int,
    unit: float,
) -> Tensor:
    """Bound the sums of a bilinear op over `length` terms: usually by one more product, of squares."""
    (a, err_a), (b, err_b) = operands
    chain = min(length, find_longest(unit))
    growth = max(math.log2(length + 1), math.sqrt(chain))
    whole = are_whole(a, err_a) and are_whole(b, err_b)
    one_sign = length == 1 or (a.numel() and b.numel() and bool(a.min() >= 0) and bool(b.min() >= 0))
    squares = apply(a * a, b * b) if length > FEW or not one_sign else None
    repeated = None if squares is None else find_repeated(squares, value, length)
    if one_sign or squares is None:
        absolute, bound = value.abs(), value.abs().mul_(growth)
    else:
        bound = bound_orders(chain, squares, value)
        if length <= SHORT or whole:
            absolute = apply(a.abs(), b.abs())
            bound = torch.minimum(bound, absolute * growth)
    bound = cover_repeated(bound, repeated, value, length, unit)
    return limit_whole(bound, absolute, length, unit) if whole else bound
