"""Triton kernels: bits → the worst error in a gauge's unit per program, and the size of a reference."""

from __future__ import annotations

import triton
import triton.language as tl

from gonogo.instrument.triton_kernels.numbers import (
    F64,
    FRACTION,
    INF,
    MAGNITUDE,
    absolute,
    absolute_error,
    decode,
    high_word,
    ulp_at,
)


@triton.jit
def cell_error(
    actual,
    expected,
    threshold,
    precision: tl.constexpr,
    min_exponent: tl.constexpr,
    max_exponent: tl.constexpr,
    has_infinity: tl.constexpr,
):
    """Distance from expected to the rounding cell of actual: Format.cell_distance, operation by operation."""
    magnitude = tl.abs(actual)
    negative = (actual.to(tl.int64, bitcast=True) >> 63) != 0
    target = tl.where(actual == 0, tl.abs(expected), tl.where(negative, -expected, expected))
    half = 0.5 * ulp_at(actual, precision, min_exponent, max_exponent)
    word = magnitude.to(tl.int64, bitcast=True)
    narrow_below = ((word & FRACTION) == 0) & (word > ((min_exponent + 1023) << 52))
    half_below = tl.where(narrow_below, 0.5 * half, half)
    if precision == 53:
        beyond, short = (target - magnitude) - half, (magnitude - target) - half_below
    else:
        beyond, short = target - (magnitude + half), (magnitude - half_below) - target
    distance = tl.where(beyond > short, beyond, short)
    distance = tl.where(magnitude == INF, threshold - target, distance)
    distance = tl.where(distance > 0, distance, 0.0)
    actual_nan, expected_nan = actual != actual, expected != expected
    rounds_to_nan = expected_nan
    if not has_infinity:
        rounds_to_nan = rounds_to_nan | (tl.abs(expected) > threshold)
    odd = tl.where(actual_nan & rounds_to_nan, 0.0, INF)
    return tl.where(actual_nan | expected_nan, odd, distance)


@triton.jit
def cell_error_finite(actual, expected, a_bits, precision: tl.constexpr, min_exponent: tl.constexpr):
    """cell_error of finite numbers, `actual` of a format of up to 32 bits: mostly 32-bit integer work."""
    LOWEST: tl.constexpr = (min_exponent + 1023) << 20
    high = high_word(actual)
    binade = tl.maximum(high & 0x7FF00000, LOWEST)
    # Half a unit in the last place is a power of two: its low word is 0.
    half = ((binade - (precision << 20)).to(tl.int64) << 32).to(tl.float64, bitcast=True)
    narrow_below = ((a_bits & ((1 << (precision - 1)) - 1)) == 0) & (binade > LOWEST)
    half_below = tl.where(narrow_below, 0.5 * half, half)
    magnitude = absolute(actual)
    sign = actual.to(tl.int64, bitcast=True) & ~MAGNITUDE
    target = (expected.to(tl.int64, bitcast=True) ^ sign).to(tl.float64, bitcast=True)
    target = tl.where(magnitude == 0, absolute(expected), target)
    beyond, short = target - (magnitude + half), (magnitude - half_below) - target
    distance = tl.where(beyond > short, beyond, short)
    return tl.where(distance > 0, distance, 0.0)


@triton.jit
def read_kernel(
    a_ptr,
    e_ptr,
    s_ptr,
    count,
    scalars_ptr,  # float64: constant, per_magnitude, per_ulp, per_scale, overflow threshold
    out_ptr,  # int64: room for six totals, then [6, programs]
    KIND_A: tl.constexpr,
    KIND_E: tl.constexpr,
    KIND_S: tl.constexpr,
    PRECISION: tl.constexpr,
    MIN_EXPONENT: tl.constexpr,
    MAX_EXPONENT: tl.constexpr,
    HAS_INFINITY: tl.constexpr,
    HAS_AFFINE: tl.constexpr,
    HAS_ULP: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    FROM_CELL: tl.constexpr,
    CAREFUL: tl.constexpr,  # whether NaN, infinities and bad scales are looked into, or only noticed
    BLOCK: tl.constexpr,
):
    """Worst error in a gauge's unit per program, where, the signed sum, and what is amiss."""
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    constant, per_magnitude = tl.load(scalars_ptr), tl.load(scalars_ptr + 1)
    per_ulp, per_scale, threshold = (
        tl.load(scalars_ptr + 2),
        tl.load(scalars_ptr + 3),
        tl.load(scalars_ptr + 4),
    )
    worst = tl.full([BLOCK], -1.0, tl.float64)
    worst_turn = tl.zeros([BLOCK], tl.int32)
    signed_sum = tl.zeros([BLOCK], tl.float64)
    infinite = tl.zeros([BLOCK], tl.int32)
    odd = tl.zeros([BLOCK], tl.int32)
    bad_at = tl.full([BLOCK], MAGNITUDE, tl.int64)
    lanes = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    step = programs.to(tl.int64) * BLOCK
    for turn in range(tl.cdiv(count, step).to(tl.int32)):
        at = lanes + turn * step
        valid = at < count
        # Padding reads as 0 against 0, no error; it never is the worst, because element 0 is as good.
        a_bits = tl.load(a_ptr + at, mask=valid, other=0)
        actual = decode(a_bits, KIND_A)
        expected = decode(tl.load(e_ptr + at, mask=valid, other=0), KIND_E)
        if not FROM_CELL:
            error = absolute_error(actual, expected)
        elif CAREFUL or KIND_A == F64:
            error = cell_error(actual, expected, threshold, PRECISION, MIN_EXPONENT, MAX_EXPONENT, HAS_INFINITY)
        else:
            error = cell_error_finite(actual, expected, a_bits, PRECISION, MIN_EXPONENT)
        width = tl.zeros([BLOCK], tl.float64)
        if HAS_AFFINE:
            width = constant + per_magnitude * tl.abs(expected)
        if HAS_ULP:
            width += per_ulp * ulp_at(expected, PRECISION, MIN_EXPONENT, MAX_EXPONENT)
        if HAS_SCALE:
            scale = decode(tl.load(s_ptr + at, mask=valid, other=0), KIND_S)
            width += per_scale * scale
        if CAREFUL:
            if HAS_SCALE:
                bad = (scale < 0) | (scale != scale)
                bad_at = tl.where(bad, tl.minimum(bad_at, at), bad_at)
        else:
            odd |= (high_word(absolute(actual - expected)) >= 0x7FF00000).to(tl.int32)
            if HAS_SCALE:  # negative, −0 or NaN
                odd |= (scale.to(tl.uint64, bitcast=True) > 0x7FF0000000000000).to(tl.int32)
        # Zeros and infinities would send the division down its slow path.
        plain = (error > 0) & (error < INF)
        size = tl.where(plain, error, 1.0) / tl.where(plain, width, 1.0)
        size = tl.where(plain, size, error)
        if CAREFUL:
            infinite += (size == INF).to(tl.int32)
        signed = tl.where(actual < expected, -size, size)
        signed_sum += tl.where(size < INF, signed, 0.0)
        better = size > worst
        worst = tl.where(better, size, worst)
        worst_turn = tl.where(better, turn, worst_turn)
    top = tl.max(worst)
    out_ptr += 6 + pid
    tl.store(out_ptr, top.to(tl.int64, bitcast=True))
    tl.store(out_ptr + programs, tl.min(tl.where(worst == top, lanes + worst_turn * step, MAGNITUDE)))
    tl.store(out_ptr + 2 * programs, tl.sum(signed_sum).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 3 * programs, tl.sum(infinite.to(tl.int64)))
    tl.store(out_ptr + 4 * programs, tl.min(bad_at))
    tl.store(out_ptr + 5 * programs, tl.max(odd).to(tl.int64))


@triton.jit
def total_reading_kernel(out_ptr, programs, PROGRAMS: tl.constexpr):
    """read_kernel's rows put together, in one program."""
    rows_ptr = out_ptr + 6
    at = tl.arange(0, PROGRAMS)
    there = at < programs
    worst = tl.load(rows_ptr + at, mask=there, other=0).to(tl.float64, bitcast=True)
    worst = tl.where(there, worst, -1.0)
    top = tl.max(worst)
    tl.store(out_ptr, top.to(tl.int64, bitcast=True))
    index = tl.load(rows_ptr + programs + at, mask=there, other=0)
    tl.store(out_ptr + 1, tl.min(tl.where(there & (worst == top), index, MAGNITUDE)))
    signed_sum = tl.load(rows_ptr + 2 * programs + at, mask=there, other=0).to(tl.float64, bitcast=True)
    tl.store(out_ptr + 2, tl.sum(signed_sum).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 3, tl.sum(tl.load(rows_ptr + 3 * programs + at, mask=there, other=0)))
    tl.store(out_ptr + 4, tl.min(tl.load(rows_ptr + 4 * programs + at, mask=there, other=MAGNITUDE)))
    tl.store(out_ptr + 5, tl.max(tl.load(rows_ptr + 5 * programs + at, mask=there, other=0)))


@triton.jit
def units_kernel(
    a_ptr,
    e_ptr,
    count,
    scalars_ptr,  # float64, three to a unit: constant, per_magnitude, per_ulp
    out_ptr,  # int64, zeroed: the bits of the worst error in each unit
    programs,  # to a unit
    KIND_A: tl.constexpr,
    KIND_E: tl.constexpr,
    PRECISION: tl.constexpr,
    MIN_EXPONENT: tl.constexpr,
    MAX_EXPONENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Worst error in each of several units, as read_kernel finds it; as many programs walk the arrays for each."""
    unit = tl.program_id(0) // programs
    pid = tl.program_id(0) % programs
    scalars_ptr += 3 * unit
    constant, per_magnitude = tl.load(scalars_ptr), tl.load(scalars_ptr + 1)
    per_ulp = tl.load(scalars_ptr + 2)
    worst = tl.zeros([BLOCK], tl.float64)
    # One program is a constant to Triton, which has no .to.
    for start in range(pid.to(tl.int64) * BLOCK, count, tl.full([], BLOCK, tl.int64) * programs):
        at = start + tl.arange(0, BLOCK)
        valid = at < count
        actual = decode(tl.load(a_ptr + at, mask=valid, other=0), KIND_A)
        expected = decode(tl.load(e_ptr + at, mask=valid, other=0), KIND_E)
        error = absolute_error(actual, expected)
        width = constant + per_magnitude * tl.abs(expected)
        width += per_ulp * ulp_at(expected, PRECISION, MIN_EXPONENT, MAX_EXPONENT)
        plain = (error > 0) & (error < INF)
        size = tl.where(plain, error, 1.0) / tl.where(plain, width, 1.0)
        size = tl.where(plain, size, error)
        worst = tl.where(size > worst, size, worst)
    # Bits of numbers ≥ 0 are in the order of the numbers.
    tl.atomic_max(out_ptr + unit, tl.max(worst).to(tl.int64, bitcast=True))


@triton.jit
def moments_kernel(x_ptr, count, scalars_ptr, out_ptr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Largest finite magnitude, sum of squares of finite values · factor, and their number, per program."""
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    factor = tl.load(scalars_ptr)
    largest = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    finite = tl.zeros([BLOCK], tl.int64)
    for start in range(pid.to(tl.int64) * BLOCK, count, programs.to(tl.int64) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        valid = at < count
        magnitude = tl.abs(decode(tl.load(x_ptr + at, mask=valid, other=0), KIND))
        counts = valid & (magnitude < INF)
        magnitude = tl.where(counts, magnitude, 0.0)
        scaled = magnitude * factor
        squares += scaled * scaled
        largest = tl.maximum(largest, magnitude)
        finite += counts.to(tl.int64)
    out_ptr += pid
    tl.store(out_ptr, tl.max(largest).to(tl.int64, bitcast=True))
    tl.store(out_ptr + programs, tl.sum(squares).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 2 * programs, tl.sum(finite))
