"""Triton kernels: rows of terms → what their sums lose by rounding, part by part or row by row."""

from __future__ import annotations

import triton
import triton.language as tl

SHIFT = tl.constexpr(1.5 * 2**52)
"""Added and taken away again it rounds to whole numbers, ties to even, of what is below 2^51."""


@triton.jit
def lose(x, step, inverse):
    """Nearest multiple of the step, less x; a division would take most of the time."""
    quotient = x * inverse
    whole = tl.where(tl.abs(quotient) < 2.0**51, (quotient + SHIFT) - SHIFT, quotient)
    return whole * step - x


@triton.jit
def lose_swamped(x, low):
    """What a term is off by at most that is lost in a sum."""
    size = tl.abs(x)
    return tl.where(size < 4 * low, tl.minimum(size, low), 0.0)


@triton.jit
def lose_kernel(
    x_ptr,
    steps_ptr,  # six to a row
    swamp_ptr,
    sums_ptr,  # seven to a part
    length,
    part,
    parts,
    BLOCK: tl.constexpr,
):
    """One part of one row: Σ(nearest multiple − x) for six steps, and what Σ loses of terms below `swamp`."""
    program = tl.program_id(0)
    row = (program // parts).to(tl.int64)
    begin = (program % parts).to(tl.int64) * part
    end = tl.minimum(begin + part, length)
    at_steps = steps_ptr + row * 6
    step0, step1, step2 = tl.load(at_steps), tl.load(at_steps + 1), tl.load(at_steps + 2)
    step3, step4, step5 = tl.load(at_steps + 3), tl.load(at_steps + 4), tl.load(at_steps + 5)
    low = tl.load(swamp_ptr + row)
    sum0 = tl.zeros([BLOCK], tl.float64)
    sum1, sum2, sum3, sum4, sum5, lost = sum0, sum0, sum0, sum0, sum0, sum0
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * length + at, mask=at < end, other=0.0)
        sum0 += lose(x, step0, 1 / step0)
        sum1 += lose(x, step1, 1 / step1)
        sum2 += lose(x, step2, 1 / step2)
        sum3 += lose(x, step3, 1 / step3)
        sum4 += lose(x, step4, 1 / step4)
        sum5 += lose(x, step5, 1 / step5)
        lost += lose_swamped(x, low)
    out = sums_ptr + program.to(tl.int64) * 7
    tl.store(out, tl.sum(sum0))
    tl.store(out + 1, tl.sum(sum1))
    tl.store(out + 2, tl.sum(sum2))
    tl.store(out + 3, tl.sum(sum3))
    tl.store(out + 4, tl.sum(sum4))
    tl.store(out + 5, tl.sum(sum5))
    tl.store(out + 6, tl.sum(lost))


@triton.jit
def bound_kernel(
    x_ptr,
    totals_ptr,  # Σx of each row
    constants_ptr,  # as `list_constants` has them
    looks_ptr,  # four to a row
    length,
    BLOCK: tl.constexpr,
):
    """One row: Σ|x|, what its sum rounds in any order, what it rounds where terms lean one way, what is lost."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = x_ptr + row * length
    total = tl.load(totals_ptr + row)
    unit, step, repeats = tl.load(constants_ptr), tl.load(constants_ptr + 1), tl.load(constants_ptr + 2)
    growth, of_squares, of_total = (
        tl.load(constants_ptr + 3),
        tl.load(constants_ptr + 4),
        tl.load(constants_ptr + 5),
    )
    same_square, tiny, ratios_ptr = tl.load(constants_ptr + 6), tl.load(constants_ptr + 7), constants_ptr + 8
    sizes = tl.zeros([BLOCK], tl.float64)
    squares, tops = sizes, sizes
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + at, mask=at < length, other=0.0)
        sizes += tl.abs(x)
        squares += x * x
        tops = tl.maximum(tops, tl.abs(x), propagate_nan=tl.PropagateNan.ALL)
    absolute, square, top = tl.sum(sizes), tl.sum(squares), tl.max(tops)
    deviation = tl.sqrt(of_squares * square + of_total * (total * total))
    bound = growth * tl.minimum(absolute, deviation, propagate_nan=tl.PropagateNan.ALL)
    same = square <= total * total * same_square
    bound = tl.where(same, tl.maximum(bound, tl.abs(total) * repeats), bound)
    low = tl.abs(total) * step
    largest = tl.maximum(low, top * unit)
    step0 = tl.maximum(largest * tl.load(ratios_ptr + 0), tiny)
    step1 = tl.maximum(largest * tl.load(ratios_ptr + 1), tiny)
    step2 = tl.maximum(largest * tl.load(ratios_ptr + 2), tiny)
    step3 = tl.maximum(largest * tl.load(ratios_ptr + 3), tiny)
    step4 = tl.maximum(largest * tl.load(ratios_ptr + 4), tiny)
    step5 = tl.maximum(largest * tl.load(ratios_ptr + 5), tiny)
    sum0 = tl.zeros([BLOCK], tl.float64)
    sum1, sum2, sum3, sum4, sum5, lost = sum0, sum0, sum0, sum0, sum0, sum0
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + at, mask=at < length, other=0.0)
        sum0 += lose(x, step0, 1 / step0)
        sum1 += lose(x, step1, 1 / step1)
        sum2 += lose(x, step2, 1 / step2)
        sum3 += lose(x, step3, 1 / step3)
        sum4 += lose(x, step4, 1 / step4)
        sum5 += lose(x, step5, 1 / step5)
        lost += lose_swamped(x, low)
    lean = tl.maximum(tl.maximum(tl.abs(tl.sum(sum0)), tl.abs(tl.sum(sum1))), tl.abs(tl.sum(sum2)))
    lean = tl.maximum(lean, tl.maximum(tl.abs(tl.sum(sum3)), tl.abs(tl.sum(sum4))))
    lean = tl.maximum(lean, tl.abs(tl.sum(sum5)))
    out = looks_ptr + row * 4
    tl.store(out, absolute)
    tl.store(out + 1, bound)
    tl.store(out + 2, lean / unit)
    tl.store(out + 3, tl.sum(lost) / unit)
