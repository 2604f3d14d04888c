"""Triton functions: bits ↔ float64, keys, errors and ULPs, as gonogo.formats defines them.

Operands come as integers and are decoded here, so that every conversion is an exact widening.
"""

from __future__ import annotations

import triton
import triton.language as tl

F16 = tl.constexpr(0)
BF16 = tl.constexpr(1)
F32 = tl.constexpr(2)
F64 = tl.constexpr(3)
E4M3FN = tl.constexpr(4)
E5M2 = tl.constexpr(5)

INF = tl.constexpr(float("inf"))
FRACTION = tl.constexpr(2**52 - 1)
MAGNITUDE = tl.constexpr(2**63 - 1)


_DIVIDE = """
{
.reg .f64 size, y, e, q, r, minus;
.reg .b32 low, high;
.reg .pred zero;
mov.b64 {low, high}, $3;
and.b32 high, high, 0x7FFFFFFF;
setp.eq.u32 zero, high, 0;
selp.b32 $1, 1, 0, zero;
mov.b64 size, {low, high};
rcp.approx.ftz.f64 y, size;
mov.b64 {low, high}, y;
selp.b32 high, 0, high, zero;
mov.b64 y, {low, high};
neg.f64 minus, size;
fma.rn.f64 e, minus, y, 0d3FF0000000000000;
REFINED
fma.rn.f64 y, y, e, y;
mul.rn.f64 q, $2, y;
fma.rn.f64 r, minus, q, $2;
fma.rn.f64 $0, y, r, q;
}
"""
DIVIDE_BY_11_BITS = tl.constexpr(_DIVIDE.replace("REFINED", ""))
DIVIDE_BY_24_BITS = tl.constexpr(_DIVIDE.replace("REFINED", "fma.rn.f64 e, e, e, e;"))


@triton.jit
def divide_by_short(numerator, denominator, BITS: tl.constexpr):
    """Numerator / |denominator|, correctly rounded, and 1 where the denominator is 0, else 0.

    Both come from formats of up to 24 bits, and the denominator of up to BITS: reciprocals stay in float64's range,
    so the checks and the slow path of the general division can go. The approximate reciprocal is good to 2^-18. A
    quotient that is no tie between two float64 values is 2^-(54 + BITS) or more of itself from one. The remainder
    is exact, and the last step errs by the square of what the reciprocal y errs by: 2^-36 is enough for 11 bits,
    and 2^-50 for 24. Anything finite over 0, whose reciprocal is taken for 0, is 0: to choose that takes one word,
    to choose among quotients two. What is not 0 in such a format shows in the upper word of its float64.
    """
    return tl.inline_asm_elementwise(
        DIVIDE_BY_11_BITS if BITS <= 11 else DIVIDE_BY_24_BITS,
        "=d,=r,d,d",
        [numerator, denominator],
        dtype=(tl.float64, tl.int32),
        is_pure=True,
        pack=1,
    )


@triton.jit
def decode(bits, kind: tl.constexpr):
    """Bit patterns → float64 values, exactly."""
    if kind == F16:
        value = bits.to(tl.float16, bitcast=True).to(tl.float32).to(tl.float64)
    elif kind == BF16:
        value = (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True).to(tl.float64)
    elif kind == F32:
        value = bits.to(tl.float32, bitcast=True).to(tl.float64)
    elif kind == F64:
        value = bits.to(tl.float64, bitcast=True)
    elif kind == E5M2:  # the upper byte of a float16
        value = (bits.to(tl.int16) << 8).to(tl.float16, bitcast=True).to(tl.float32).to(tl.float64)
    else:
        wide = bits.to(tl.int64)
        # Exponent and fraction put where float64 has them, then rebiased by an exact product.
        magnitude = ((wide & 0x7F) << 49).to(tl.float64, bitcast=True) * 2.0**1016
        magnitude = tl.where((wide & 0x7F) == 0x7F, float("nan"), magnitude)
        value = tl.where((wide & 0x80) != 0, -magnitude, magnitude)
    return value


@triton.jit
def key_of_bits(bits, width: tl.constexpr):
    """Bit patterns → ordered integers, ±0 at 0; int32 for formats up to 32 bits, int64 for float64."""
    if width == 64:
        sign = bits >> 63
        key = ((bits & MAGNITUDE) ^ sign) - sign
    elif width == 32:
        sign = bits >> 31
        key = ((bits & 0x7FFFFFFF) ^ sign) - sign
    elif width == 16:
        wide = bits.to(tl.int32)
        sign = wide >> 15
        key = ((wide & 0x7FFF) ^ sign) - sign
    else:
        wide = bits.to(tl.int32)
        sign = -(wide >> 7)
        key = ((wide & 0x7F) ^ sign) - sign
    return key


@triton.jit
def round_to_key(value, largest, precision: tl.constexpr, min_exponent: tl.constexpr, overflow: tl.constexpr):
    """float64 → key of the nearest value of a format of up to 32 bits, ties to even."""
    word = value.to(tl.int64, bitcast=True)
    sign = word >> 63
    magnitude = tl.minimum(tl.abs(value), 2 * largest)
    exponent = tl.maximum(magnitude.to(tl.int64, bitcast=True) >> 52, min_exponent + 1023)
    # 2^52 quanta: the sum is rounded to whole quanta, and their number stands in its low bits.
    anchor = (exponent + (53 - precision)) << 52
    quanta = (magnitude + anchor.to(tl.float64, bitcast=True)).to(tl.int64, bitcast=True) - anchor
    key = ((exponent - (min_exponent + 1023)) << (precision - 1)) + quanta
    key = tl.minimum(key, overflow)
    return (key ^ sign) - sign


@triton.jit
def high_word(value):
    """Upper half of a float64: sign, exponent and 20 bits. Comparing it is one integer instruction."""
    return (value.to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@triton.jit
def absolute(value):
    """|value| by clearing the sign: the float64 unit has enough to do."""
    return (value.to(tl.int64, bitcast=True) & MAGNITUDE).to(tl.float64, bitcast=True)


@triton.jit
def absolute_error(actual, expected):
    """|actual − expected|; agreement on NaN or infinity is 0, any other non-finite difference +inf."""
    difference = absolute(actual - expected)
    agree = (actual == expected) | ((actual != actual) & (expected != expected))
    return tl.where(high_word(difference) >= 0x7FF00000, tl.where(agree, 0.0, INF), difference)


@triton.jit
def ulp_at(value, precision: tl.constexpr, min_exponent: tl.constexpr, max_exponent: tl.constexpr):
    """Unit in the last place at a real value."""
    exponent = tl.abs(value).to(tl.int64, bitcast=True) >> 52
    exponent = tl.minimum(tl.maximum(exponent, min_exponent + 1023), max_exponent + 1023)
    if precision == 53:  # may be subnormal, which the shift cannot make
        normal = (tl.maximum(exponent, 53) - 52) << 52
        word = tl.where(exponent > 52, normal, (tl.zeros_like(normal) + 1) << (tl.minimum(exponent, 52) - 1))
    else:
        word = (exponent - (precision - 1)) << 52
    return word.to(tl.float64, bitcast=True)
