"""Triton functions: bits of two arrays → how many ULPs lie between them."""

from __future__ import annotations

import triton
import triton.language as tl

from gonogo.instrument.triton_kernels.numbers import key_of_bits, round_to_key


@triton.jit
def find_ulps(
    a_bits, e_bits, actual, expected, largest,
    KIND_A: tl.constexpr, KIND_E: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    MIN_EXPONENT: tl.constexpr, OVERFLOW: tl.constexpr, HAS_INFINITY: tl.constexpr, CAREFUL: tl.constexpr,
    CAPABILITY: tl.constexpr,
):  # fmt: skip
    """Distances in the format of `actual`, and 1 where one means nothing, else 0."""
    if KIND_A == KIND_E and WIDTH == 16 and CAPABILITY >= 90 and not CAREFUL:
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
        odd = saturates_at(actual, expected, a_key, e_key, OVERFLOW, HAS_INFINITY).to(tl.int32)
    elif KIND_A != KIND_E:  # a finite reference may round to infinity
        odd = (tl.abs(e_key) >= OVERFLOW).to(tl.int32)
    else:
        odd = tl.zeros(ulp.shape, tl.int32)
    return ulp, odd


@triton.jit
def ulp_distance(a_key, e_key, width: tl.constexpr):
    """Distance between keys as an unsigned integer."""
    if width <= 16:
        return tl.abs(a_key - e_key).to(tl.uint32, bitcast=True)
    distance = tl.maximum(a_key, e_key) - tl.minimum(a_key, e_key)
    return distance.to(tl.uint64 if width == 64 else tl.uint32, bitcast=True)


@triton.jit
def packed_ulp_distance(a_bits, e_bits):
    """Distance between bit patterns of one format of 16 bits, two at a time.

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
