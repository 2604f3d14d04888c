"""Triton kernel: rows of terms → what their sums lose by rounding, part by part."""

from __future__ import annotations

import triton
import triton.language as tl

SHIFT = tl.constexpr(1.5 * 2**52)
"""Added and taken away again it rounds to whole numbers, ties to even, of what is below 2^51."""


@triton.jit
def lose(x, step):
    """Nearest multiple of the step, less x."""
    quotient = x / step
    whole = tl.where(tl.abs(quotient) < 2.0**51, (quotient + SHIFT) - SHIFT, quotient)
    return whole * step - x


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
        sum0 += lose(x, step0)
        sum1 += lose(x, step1)
        sum2 += lose(x, step2)
        sum3 += lose(x, step3)
        sum4 += lose(x, step4)
        sum5 += lose(x, step5)
        size = tl.abs(x)
        lost += tl.where(size < 4 * low, tl.minimum(size, low), 0.0)
    out = sums_ptr + program.to(tl.int64) * 7
    tl.store(out, tl.sum(sum0))
    tl.store(out + 1, tl.sum(sum1))
    tl.store(out + 2, tl.sum(sum2))
    tl.store(out + 3, tl.sum(sum3))
    tl.store(out + 4, tl.sum(sum4))
    tl.store(out + 5, tl.sum(sum5))
    tl.store(out + 6, tl.sum(lost))
