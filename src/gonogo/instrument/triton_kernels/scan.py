"""Triton kernel: bits of two arrays → partial ErrorStats per program, and what falls into three brackets.

Every program walks the tiles `program, program + programs, …`; the host adds the programs up. Scalars come in a
float64 tensor, because Triton passes Python floats as float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gonogo.instrument.triton_kernels.numbers import (
    F32,
    F64,
    absolute,
    absolute_error,
    decode,
    divide,
    high_word,
    key_of_bits,
    round_to_key,
)


@triton.jit
def ulp_distance(a_key, e_key, width: tl.constexpr):
    """Distance between keys as an unsigned integer."""
    if width <= 16:
        return tl.abs(a_key - e_key).to(tl.uint32, bitcast=True)
    distance = tl.maximum(a_key, e_key) - tl.minimum(a_key, e_key)
    return distance.to(tl.uint64 if width == 64 else tl.uint32, bitcast=True)


@triton.jit
def packed_ulp_distance(a_bits, e_bits):
    """The same of bit patterns of one format of 16 bits, two at a time.

    A sign turns into a mask, by which patterns become unsigned integers in the order of their values; there −0 lies
    one below +0, so that a distance across the signs is one too long. PTX has pairs from compute capability 9.0 on.
    """
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 a, e, larger, smaller, apart;
        prmt.b32 a, $2, 0, 0xBB99;
        or.b32 a, a, 0x80008000;
        xor.b32 a, a, $2;
        prmt.b32 e, $3, 0, 0xBB99;
        or.b32 e, e, 0x80008000;
        xor.b32 e, e, $3;
        max.u16x2 larger, a, e;
        min.u16x2 smaller, a, e;
        sub.u32 larger, larger, smaller;
        xor.b32 apart, $2, $3;
        and.b32 apart, apart, 0x80008000;
        shr.u32 apart, apart, 15;
        sub.u32 larger, larger, apart;
        and.b32 $0, larger, 0xFFFF;
        shr.u32 $1, larger, 16;
        }
        """,
        "=r,=r,r,r",
        [a_bits, e_bits],
        dtype=tl.uint32,
        is_pure=True,
        pack=2,
    )


@triton.jit
def saturates_at(actual, expected, a_key, e_key, overflow: tl.constexpr, has_infinity: tl.constexpr):
    """Whether a distance in ULPs means nothing: a NaN, or an infinity the other side does not share."""
    nan = (actual != actual) | (expected != expected)
    beyond = (a_key >= overflow) | (a_key <= -overflow) | (e_key >= overflow) | (e_key <= -overflow)
    if has_infinity:
        beyond &= a_key != e_key
    return nan | beyond


@triton.jit
def high_word_from_above(error):
    """The least high word that, with an empty low word, is not below an error."""
    return high_word(error) + (error.to(tl.int64, bitcast=True).to(tl.int32) != 0).to(tl.int32)


@triton.jit
def count_before(word, bound, SM: tl.constexpr):
    """1 where word < bound, else 0, of two high words: their difference, clamped, which Hopper does in one step.

    In assembly, as LLVM makes comparisons and choices of it.
    """
    if SM == 0:
        return (word < bound).to(tl.int32)
    return tl.inline_asm_elementwise(
        """
        {
        .reg .s32 difference;
        sub.s32 difference, $2, $1;
        min.s32 difference, difference, 1;
        max.s32 $0, difference, 0;
        }
        """,
        "=r,r,r",
        [word, bound],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def count_before_in_float32(word, bound, SM: tl.constexpr):
    """The same as a float32, by a unit with less to do; for errors between formats of up to 16 bits.

    Patterns of float32 are in the order of their values, and those of such words are 0 or between 2^-17 and 2^18.
    Two that differ do so by 2^24 or more when multiplied by 2^64, and saturate.
    """
    if SM == 0:
        return (word < bound).to(tl.float32)
    return tl.inline_asm_elementwise(
        "fma.rn.sat.f32 $0, $1, 0fDF800000, $2;",  # −2^64
        "=f,f,f",
        [word.to(tl.float32, bitcast=True), bound.to(tl.float32, bitcast=True) * 2.0**64],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def is_below(error, bound, COARSE: tl.constexpr):
    """1 where error < bound, else 0, for error ≥ 0; by the high word alone where the bound's low word is 0."""
    if COARSE:  # both words are positive: the sign of the difference tells, without a comparison
        return ((high_word(error) - high_word(bound)).to(tl.uint32, bitcast=True) >> 31).to(tl.int32)
    difference = error.to(tl.int64, bitcast=True) - bound.to(tl.int64, bitcast=True)
    return (difference.to(tl.uint64, bitcast=True) >> 63).to(tl.int32)


@triton.jit
def larger_of(x, y):
    """The larger of two values that are no NaN."""
    return tl.where(x > y, x, y)


@triton.jit
def is_less(x, y, CAREFUL: tl.constexpr):
    """1 where x < y, else 0, for x, y ≥ 0 that are finite or, CAREFUL, not: for infinities have no difference."""
    if CAREFUL:
        return (x < y).to(tl.int32)
    # The sign of the difference, which adds up in one instruction; a predicate takes two.
    return (high_word(x - y).to(tl.uint32, bitcast=True) >> 31).to(tl.int32)


@triton.jit
def is_inside(error, low, high, COARSE: tl.constexpr):
    """Whether low ≤ error < high; for nothing where high = low."""
    if COARSE:
        offset = (high_word(error) - high_word(low)).to(tl.uint32, bitcast=True)
        return offset < (high_word(high) - high_word(low)).to(tl.uint32, bitcast=True)
    return (error >= low) & (error < high)


@triton.jit
def keep_inside(inside, error, seen_at, values_at, stride, room, INTERPRETED: tl.constexpr):
    """Append the errors that are `inside` to this program's values.

    Triton would move the tile into another layout for the atomic and again for the store, through shared memory
    and four barriers; two instructions do it in place, and most warps jump over them. The interpreter knows no
    assembly.
    """
    if INTERPRETED:
        ordinal = tl.atomic_add(seen_at, 1, mask=inside, sem="relaxed")
        kept = inside & (ordinal % stride == 0) & (ordinal // stride < room)
        tl.store(values_at + ordinal // stride, error, mask=kept)
    else:
        tl.inline_asm_elementwise(
            """
            {
            .reg .pred in, all, fits, first;
            .reg .u32 ordinal, slot, back;
            .reg .u64 address;
            setp.ne.u32 in, $1, 0;
            mov.u32 ordinal, 0;
            @!in bra DONE;
            atom.global.relaxed.cta.add.u32 ordinal, [$3], 1;
            mov.u32 slot, ordinal;
            setp.eq.u32 first, ordinal, ordinal;
            setp.eq.u32 all, $5, 1;
            @all bra EVERY;
            div.u32 slot, ordinal, $5;
            mul.lo.u32 back, slot, $5;
            setp.eq.u32 first, back, ordinal;
            EVERY:
            setp.lt.and.u32 fits, slot, $6, first;
            mad.wide.u32 address, slot, 8, $4;
            @fits st.global.b64 [address], $2;
            DONE:
            mov.u32 $0, ordinal;
            }
            """,
            "=r,r,l,l,l,r,r",
            [inside.to(tl.int32), error.to(tl.int64, bitcast=True), seen_at, values_at, stride, room],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


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
    TIED: tl.constexpr,  # whether brackets are of one value each: these count as upper ends, inclusively
    KEEP: tl.constexpr,
    HAS_ATOL: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    UNROLL: tl.constexpr,  # tiles in one round of the loop
    SM: tl.constexpr,  # compute capability × 10; 0 in Triton's interpreter, which knows no assembly
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
    LOWS: tl.constexpr = tl.float32 if TIED else tl.int32  # either is exact for what a thread sees
    below_low0 = tl.zeros([LANES], LOWS)
    below_low1 = tl.zeros([LANES], LOWS)
    below_low2 = tl.zeros([LANES], LOWS)
    below_high0 = tl.zeros([LANES], tl.int32)
    below_high1 = tl.zeros([LANES], tl.int32)
    below_high2 = tl.zeros([LANES], tl.int32)
    lanes = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    BOUNDED: tl.constexpr = KIND_A != F64 and KIND_E != F64 and SM > 0
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
        zero = expected == 0
        if CAREFUL:
            # An infinite error is infinite relative to anything, and agreement is no error.
            plain = (high_word(error) < 0x7FF00000) & (error != 0) & ~zero
            relative = divide(tl.where(plain, error, 1.0), tl.where(plain, absolute(expected), 1.0), BITS)
            relative = tl.where(plain, relative, tl.where(zero, 0.0, error))
        elif BOUNDED:
            relative = divide(error, expected, BITS)
        else:  # zeros would send the division down its slow path
            plain = (error != 0) & ~zero
            relative = divide(tl.where(plain, error, 1.0), tl.where(plain, absolute(expected), 1.0), BITS)
            relative = tl.where(plain, relative, 0.0)
        sum_abs += tl.sum(error, axis=1)
        max_abs = larger_of(max_abs, tl.reduce(error, 1, larger_of))
        sum_rel += tl.sum(relative, axis=1)
        max_rel = larger_of(max_rel, tl.reduce(relative, 1, larger_of))
        zeros += tl.sum(zero.to(tl.int32), axis=1)
        if HAS_ATOL:
            exceeding += tl.sum(is_less(atol, error, CAREFUL), axis=1)
        if KIND_A == KIND_E and WIDTH == 16 and SM >= 90 and not CAREFUL:
            ulp = packed_ulp_distance(a_bits, e_bits)
        else:
            a_key = key_of_bits(a_bits, WIDTH)
            if KIND_A == KIND_E:
                e_key = key_of_bits(e_bits, WIDTH)
            elif WIDTH == 64:
                e_key = key_of_bits(expected.to(tl.int64, bitcast=True), WIDTH)
            else:
                e_key = round_to_key(expected, largest, PRECISION, MIN_EXPONENT, OVERFLOW).to(tl.int32)
            ulp = ulp_distance(a_key, e_key, WIDTH)
        if CAREFUL:
            odd = saturates_at(actual, expected, a_key, e_key, OVERFLOW, HAS_INFINITY)
            saturated |= tl.max(odd.to(tl.int32), axis=1)
        elif KIND_A != KIND_E:  # a finite reference may round to infinity
            saturated |= tl.max((tl.abs(e_key) >= OVERFLOW).to(tl.int32), axis=1)
        if WIDTH == 64:
            sum_ulp += tl.sum(ulp.to(tl.float64), axis=1)
        elif WIDTH == 32:
            sum_ulp += tl.sum(ulp.to(tl.int64), axis=1)
        else:  # VECTOR distances of 16 bits fit
            sum_ulp += tl.sum(ulp.to(tl.int32), axis=1).to(tl.int64)
        max_ulp = tl.maximum(max_ulp, tl.max(ulp, axis=1))
        if TIED:
            word = high_word(error)
            below_low0 += tl.sum(count_before_in_float32(word, high_word(low0), SM), axis=1)
            below_low1 += tl.sum(count_before_in_float32(word, high_word(low1), SM), axis=1)
            below_low2 += tl.sum(count_before_in_float32(word, high_word(low2), SM), axis=1)
            word = high_word_from_above(error)
            below_high0 += tl.sum(count_before(word, high_word(low0) + 1, SM), axis=1)
            below_high1 += tl.sum(count_before(word, high_word(low1) + 1, SM), axis=1)
            below_high2 += tl.sum(count_before(word, high_word(low2) + 1, SM), axis=1)
        else:
            below_low0 += tl.sum(is_below(error, low0, COARSE), axis=1)
            below_low1 += tl.sum(is_below(error, low1, COARSE), axis=1)
            below_low2 += tl.sum(is_below(error, low2, COARSE), axis=1)
        if COUNT_HIGH and not TIED:
            below_high0 += tl.sum(is_less(error, high0, CAREFUL), axis=1)
            below_high1 += tl.sum(is_less(error, high1, CAREFUL), axis=1)
            below_high2 += tl.sum(is_less(error, high2, CAREFUL), axis=1)
        if KEEP:
            inside = is_inside(error, low0, keep0, COARSE)
            inside |= is_inside(error, low1, keep1, COARSE)
            inside |= is_inside(error, low2, keep2, COARSE)
            keep_inside(inside & valid, error, seen_at, values_at, stride, room, SM == 0)
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
