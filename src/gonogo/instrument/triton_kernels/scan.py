"""Triton kernel: bits of two arrays → partial ErrorStats per program, and what falls into three brackets.

Every program walks the tiles `program, program + programs, …`; the host adds the programs up. Scalars come in a
float64 tensor, because Triton passes Python floats as float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gonogo.instrument.triton_kernels.brackets import count_high, count_low, is_inside, is_less, keep_inside
from gonogo.instrument.triton_kernels.numbers import (
    F32,
    F64,
    absolute,
    absolute_error,
    decode,
    divide_by_short,
    high_word,
)
from gonogo.instrument.triton_kernels.ulps import find_ulps


@triton.jit
def larger_of(x, y):
    """The larger of two values that are no NaN."""
    return tl.where(x > y, x, y)


@triton.jit
def relative_error(error, expected, CAREFUL: tl.constexpr, BITS: tl.constexpr):
    """Error / |expected|, or 0 where `expected` is 0; and beside it whether `expected` is 0, as 1 or 0.

    BITS is the precision of `expected` if both sides are of formats narrower than float64 and this is compiled,
    else 0.
    """
    if BITS > 0 and not CAREFUL:
        relative, zero = divide_by_short(error, expected, BITS)
    else:  # zeros would send the division down its slow path
        plain = (error != 0) & (expected != 0)
        if CAREFUL:
            plain &= high_word(error) < 0x7FF00000
        relative = tl.where(plain, error, 1.0) / tl.where(plain, absolute(expected), 1.0)
        # An infinite error is infinite relative to anything but 0, and agreement is no error.
        relative = tl.where(plain, relative, tl.where(expected == 0, 0.0, error) if CAREFUL else 0.0)
        zero = (expected == 0).to(tl.int32)
    return relative, zero


@triton.jit
def scan_kernel(
    a_ptr,
    e_ptr,
    count,
    scalars_ptr,  # float64: atol, largest; low and high of three brackets; up to where each keeps
    out_ptr,  # int64: from rows_at on [16, programs]; the last row, zeroed, how many errors fell inside
    rows_at,
    values_ptr,  # float64 [programs, room], filled with +inf
    stride,
    room,
    KIND_A: tl.constexpr,
    KIND_E: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
    MIN_EXPONENT: tl.constexpr,
    OVERFLOW: tl.constexpr,
    HAS_INFINITY: tl.constexpr,
    CAREFUL: tl.constexpr,  # whether NaN and infinities are looked for; without, they only show in sum_abs
    COARSE: tl.constexpr,  # whether every lower end, and every end up to which is kept, has an empty low word
    COUNT_HIGH: tl.constexpr,  # whether to count what lies below the upper ends too
    TIED: tl.constexpr,  # whether upper counts are of errors up to the lower ends
    KEEP: tl.constexpr,
    HAS_ATOL: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    UNROLL: tl.constexpr,  # tiles in one round of the loop
    CAPABILITY: tl.constexpr,  # compute capability × 10; 0 in Triton's interpreter, which knows no assembly
):
    """Partial ErrorStats per program, and what falls into three brackets. Padding counts as 0 against 0."""
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    atol, largest = tl.load(scalars_ptr), tl.load(scalars_ptr + 1)
    low0, high0 = tl.load(scalars_ptr + 2), tl.load(scalars_ptr + 3)
    low1, high1 = tl.load(scalars_ptr + 4), tl.load(scalars_ptr + 5)
    low2, high2 = tl.load(scalars_ptr + 6), tl.load(scalars_ptr + 7)
    keep0, keep1, keep2 = tl.load(scalars_ptr + 8), tl.load(scalars_ptr + 9), tl.load(scalars_ptr + 10)
    # A thread holds a row of the tile: it reduces its VECTOR elements first and keeps one set of sums.
    LANES: tl.constexpr = BLOCK // VECTOR
    sum_abs = tl.zeros([LANES], tl.float64)
    sum_rel = tl.zeros([LANES], tl.float64)
    max_abs = tl.zeros([LANES], tl.float64)
    max_rel = tl.zeros([LANES], tl.float64)
    exceeding = tl.zeros([LANES], tl.int32)
    zeros = tl.zeros([LANES], tl.int32)
    sum_ulp = tl.zeros([LANES], tl.float64 if WIDTH == 64 else tl.int64)
    max_ulp = tl.zeros([LANES], tl.uint64 if WIDTH == 64 else tl.uint32)
    saturated = tl.zeros([LANES], tl.int32)
    # What counting by high words alone, and in float32, relies on.
    tl.static_assert(not TIED or (WIDTH <= 16 and KIND_A == KIND_E and COARSE and COUNT_HIGH and not CAREFUL))
    LOWS: tl.constexpr = tl.float32 if TIED else tl.int32  # exact for 2^24 elements of a thread, 2^31 of a program
    below_low0 = tl.zeros([LANES], LOWS)
    below_low1 = tl.zeros([LANES], LOWS)
    below_low2 = tl.zeros([LANES], LOWS)
    below_high0 = tl.zeros([LANES], tl.int32)
    below_high1 = tl.zeros([LANES], tl.int32)
    below_high2 = tl.zeros([LANES], tl.int32)
    lanes = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    BOUNDED: tl.constexpr = KIND_A != F64 and KIND_E != F64 and CAPABILITY > 0
    # Of the reference, by which errors are divided; one of a format of eight bits has fewer still.
    BITS: tl.constexpr = 0 if not BOUNDED else 24 if KIND_E == F32 else 11
    out_ptr += rows_at + pid
    seen_at = out_ptr + 15 * programs + tl.zeros([LANES, VECTOR], tl.int32)
    values_at = values_ptr + pid.to(tl.int64) * room + tl.zeros([LANES, VECTOR], tl.int32)
    step = programs.to(tl.int64) * BLOCK
    for start in tl.range(pid.to(tl.int64) * BLOCK, count, step, loop_unroll_factor=UNROLL):
        at = start + lanes
        valid = at < count
        a_bits = tl.load(a_ptr + at, mask=valid, other=0)
        e_bits = tl.load(e_ptr + at, mask=valid, other=0)
        actual, expected = decode(a_bits, KIND_A), decode(e_bits, KIND_E)
        error = absolute_error(actual, expected) if CAREFUL else absolute(actual - expected)
        relative, zero = relative_error(error, expected, CAREFUL, BITS)
        sum_abs += tl.sum(error, axis=1)
        max_abs = larger_of(max_abs, tl.reduce(error, 1, larger_of))
        sum_rel += tl.sum(relative, axis=1)
        max_rel = larger_of(max_rel, tl.reduce(relative, 1, larger_of))
        zeros += tl.sum(zero, axis=1)
        if HAS_ATOL:
            exceeding += tl.sum(is_less(atol, error, CAREFUL), axis=1)
        ulp, odd = find_ulps(
            a_bits, e_bits, actual, expected, largest,
            KIND_A, KIND_E, WIDTH, PRECISION, MIN_EXPONENT, OVERFLOW, HAS_INFINITY, CAREFUL, CAPABILITY,
        )  # fmt: skip
        saturated |= tl.max(odd, axis=1)
        if WIDTH == 64:
            sum_ulp += tl.sum(ulp.to(tl.float64), axis=1)
        elif WIDTH == 32:
            sum_ulp += tl.sum(ulp.to(tl.int64), axis=1)
        else:  # VECTOR distances of 16 bits fit
            sum_ulp += tl.sum(ulp.to(tl.int32), axis=1).to(tl.int64)
        max_ulp = tl.maximum(max_ulp, tl.max(ulp, axis=1))
        below_low0 += tl.sum(count_low(error, low0, COARSE, TIED, CAPABILITY), axis=1)
        below_low1 += tl.sum(count_low(error, low1, COARSE, TIED, CAPABILITY), axis=1)
        below_low2 += tl.sum(count_low(error, low2, COARSE, TIED, CAPABILITY), axis=1)
        if COUNT_HIGH:
            below_high0 += tl.sum(count_high(error, low0, high0, CAREFUL, TIED, CAPABILITY), axis=1)
            below_high1 += tl.sum(count_high(error, low1, high1, CAREFUL, TIED, CAPABILITY), axis=1)
            below_high2 += tl.sum(count_high(error, low2, high2, CAREFUL, TIED, CAPABILITY), axis=1)
        if KEEP:
            inside = is_inside(error, low0, keep0, COARSE)
            inside |= is_inside(error, low1, keep1, COARSE)
            inside |= is_inside(error, low2, keep2, COARSE)
            keep_inside(inside & valid, error, seen_at, values_at, stride, room, CAPABILITY)
    tl.store(out_ptr, tl.sum(exceeding.to(tl.int64)))  # rows as path_triton reads them
    tl.store(out_ptr + programs, tl.max(max_abs).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 2 * programs, tl.sum(sum_abs).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 3 * programs, tl.sum(zeros.to(tl.int64)))
    tl.store(out_ptr + 4 * programs, tl.max(max_rel).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 5 * programs, tl.sum(sum_rel).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 6 * programs, tl.max(max_ulp).to(tl.uint64).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 7 * programs, tl.sum(sum_ulp.to(tl.float64)).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 8 * programs, tl.max(saturated).to(tl.int64))
    tl.store(out_ptr + 9 * programs, tl.sum(below_low0.to(tl.int64)))
    tl.store(out_ptr + 10 * programs, tl.sum(below_low1.to(tl.int64)))
    tl.store(out_ptr + 11 * programs, tl.sum(below_low2.to(tl.int64)))
    tl.store(out_ptr + 12 * programs, tl.sum(below_high0.to(tl.int64)))
    tl.store(out_ptr + 13 * programs, tl.sum(below_high1.to(tl.int64)))
    tl.store(out_ptr + 14 * programs, tl.sum(below_high2.to(tl.int64)))
