"""Triton functions: errors and ends of brackets → what lies below an end, as ones to add up, and what is kept."""

from __future__ import annotations

import triton
import triton.language as tl

from gonogo.instrument.triton_kernels.numbers import high_word


@triton.jit
def count_low(error, low, COARSE: tl.constexpr, TIED: tl.constexpr, CAPABILITY: tl.constexpr):
    """1 where an error is below a bracket, else 0; in float32 where brackets are TIED, meant for a value each."""
    word = high_word(error)
    return count_before_in_float32(word, high_word(low), CAPABILITY) if TIED else is_below(error, low, COARSE)


@triton.jit
def count_high(error, low, high, CAREFUL: tl.constexpr, TIED: tl.constexpr, CAPABILITY: tl.constexpr):
    """1 where an error is below the upper end of a bracket, else 0; where TIED, where it is up to the lower one."""
    return (
        count_before(high_word_from_above(error), high_word(low) + 1, CAPABILITY)
        if TIED
        else is_less(error, high, CAREFUL)
    )


@triton.jit
def high_word_from_above(error):
    """The least high word that, with an empty low word, is not below an error."""
    return high_word(error) + (error.to(tl.int64, bitcast=True).to(tl.int32) != 0).to(tl.int32)


@triton.jit
def count_before(word, bound, CAPABILITY: tl.constexpr):
    """1 where a high word is below another, else 0: their difference, clamped, which Hopper does in one step.

    In assembly, as LLVM makes comparisons and choices of it.
    """
    if CAPABILITY == 0:
        ones = (word < bound).to(tl.int32)
    else:
        ones = tl.inline_asm_elementwise(
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
    return ones


@triton.jit
def count_before_in_float32(word, bound, CAPABILITY: tl.constexpr):
    """1 where one high word is below another, else 0, by the float32 unit, which has less to do.

    Of errors between formats of up to 16 bits: 0, or 2^-133 to 2^129. Patterns of float32 are in the order of their
    values, and those of such words are 0 or between 2^-17 and 2^18. Two that differ do so by 2^25 or more when
    multiplied by 2^64, and saturate.
    """
    if CAPABILITY == 0:
        ones = (word < bound).to(tl.float32)
    else:
        ones = tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, 0fDF800000, $2;",  # −2^64
            "=f,f,f",
            [word.to(tl.float32, bitcast=True), bound.to(tl.float32, bitcast=True) * 2.0**64],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return ones


@triton.jit
def is_below(error, bound, COARSE: tl.constexpr):
    """1 where error < bound, else 0, for error ≥ 0; by the high word alone where the bound's low word is 0.

    Where COARSE the difference of words is is_inside's, too, so that it is taken once.
    """
    if COARSE:  # both words are positive: the sign of the difference tells, without a comparison
        return ((high_word(error) - high_word(bound)).to(tl.uint32, bitcast=True) >> 31).to(tl.int32)
    difference = error.to(tl.int64, bitcast=True) - bound.to(tl.int64, bitcast=True)
    return (difference.to(tl.uint64, bitcast=True) >> 63).to(tl.int32)


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
def keep_inside(inside, error, seen_at, values_at, stride, room, CAPABILITY: tl.constexpr):
    """Append the errors that are `inside` to this program's values.

    Triton would move the tile into another layout for the atomic and again for the store, through shared memory
    and four barriers; two instructions do it in place, and most warps jump over them. The interpreter knows no
    assembly.
    """
    if CAPABILITY == 0:
        ordinal = tl.atomic_add(seen_at, 1, mask=inside, sem="relaxed")
        kept = inside & (ordinal % stride == 0) & (ordinal // stride < room)
        tl.store(values_at + ordinal // stride, error, mask=kept)
    else:
        tl.inline_asm_elementwise(
            """
            {
            .reg .pred in, thinned, fits, first;
            .reg .u32 ordinal, slot, back;
            .reg .u64 address;
            setp.ne.u32 in, $1, 0;
            mov.u32 ordinal, 0;
            @!in bra DONE;
            atom.global.relaxed.cta.add.u32 ordinal, [$3], 1;
            mov.u32 slot, ordinal;
            mov.u32 back, ordinal;
            setp.ne.u32 thinned, $5, 1;
            @thinned div.u32 slot, ordinal, $5;
            @thinned mul.lo.u32 back, slot, $5;
            setp.eq.u32 first, back, ordinal;
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
