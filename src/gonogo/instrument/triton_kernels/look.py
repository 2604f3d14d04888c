"""Triton kernel: arrays by their addresses → how many elements of each are not what they must be."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def count_unlike(first, second, pattern, count, start, step, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Elements of an array that differ from another's, or from a pattern where there is no other."""
    compares = second != first
    first, second = first.to(tl.pointer_type(KIND)), second.to(tl.pointer_type(KIND))
    unlike = tl.zeros([BLOCK], tl.int32)
    for begin in range(start, count, step):
        at = begin + tl.arange(0, BLOCK)
        inside = at < count
        found = tl.load(first + at, mask=inside, other=0)
        wanted = tl.load(second + at, mask=inside & compares, other=0)
        wanted = tl.where(compares, wanted, pattern.to(KIND))
        unlike += (inside & (found != wanted)).to(tl.int32)
    return tl.sum(unlike.to(tl.int64))


@triton.jit
def look_kernel(table_ptr, rows, programs, BLOCK: tl.constexpr):
    """A count for each array, 0 before; behind these five words to each.

    Its address, that of another or its own, a pattern, elements, bytes of an element.
    """
    row = tl.program_id(0) // programs
    count_ptr = table_ptr + row
    table_ptr += rows + 5 * row
    first, second, pattern = tl.load(table_ptr), tl.load(table_ptr + 1), tl.load(table_ptr + 2)
    count, width = tl.load(table_ptr + 3), tl.load(table_ptr + 4)
    start = (tl.program_id(0) % programs).to(tl.int64) * BLOCK
    step = tl.full([], BLOCK, tl.int64) * programs  # one program is a constant to Triton, which has no .to
    if start < count:
        if width == 1:
            unlike = count_unlike(first, second, pattern, count, start, step, tl.int8, BLOCK)
        elif width == 2:
            unlike = count_unlike(first, second, pattern, count, start, step, tl.int16, BLOCK)
        elif width == 4:
            unlike = count_unlike(first, second, pattern, count, start, step, tl.int32, BLOCK)
        else:
            unlike = count_unlike(first, second, pattern, count, start, step, tl.int64, BLOCK)
        tl.atomic_add(count_ptr, unlike)
