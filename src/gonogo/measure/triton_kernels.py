"""Triton kernels: bits on a GPU → partials per program. Launched by path_triton and nowhere else.

Operands come as integers and are decoded here, so that no conversion of the framework or the compiler takes
part; scalars come in a float64 tensor, because Triton passes Python floats as float32. Every program walks the
tiles `program, program + programs, …` and keeps its sums per lane; the host adds the programs up.
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
def absolute_error(actual, expected):
    """|actual − expected|; agreement on NaN or infinity is 0, any other non-finite value +inf."""
    difference = tl.abs(actual - expected)
    difference = tl.where(difference < INF, difference, INF)
    agree = (actual == expected) | ((actual != actual) & (expected != expected))
    return tl.where(agree, 0.0, difference)


@triton.jit
def ulp_distance(
    a_bits,
    e_bits,
    actual,
    expected,
    largest,
    same: tl.constexpr,
    width: tl.constexpr,
    precision: tl.constexpr,
    min_exponent: tl.constexpr,
    largest_key: tl.constexpr,
    overflow: tl.constexpr,
    has_infinity: tl.constexpr,
):
    """(distance in ULPs as uint64, whether it saturates) per element."""
    a_key = key_of_bits(a_bits, width).to(tl.int64)
    if same:
        e_key = key_of_bits(e_bits, width).to(tl.int64)
    elif width == 64:
        e_key = key_of_bits(expected.to(tl.int64, bitcast=True), 64)
    else:
        e_key = round_to_key(expected, largest, precision, min_exponent, overflow)
    distance = tl.maximum(a_key, e_key) - tl.minimum(a_key, e_key)
    e_beyond = (e_key > largest_key) | (e_key < -largest_key)
    beyond = (a_key > largest_key) | (a_key < -largest_key) | e_beyond
    nan = (actual != actual) | (expected != expected)
    if not has_infinity:
        nan = nan | e_beyond
    return distance.to(tl.uint64, bitcast=True), nan | (beyond & (distance != 0))


@triton.jit
def keep_inside(error, inside, seen_ptr, values_ptr, pid, stride, room):
    """Append the errors that are `inside` to this program's stretch of a bracket's values."""
    ordinal = tl.atomic_add(seen_ptr + pid + tl.zeros_like(inside).to(tl.int32), 1, mask=inside, sem="relaxed")
    slot = ordinal // stride
    kept = inside & (ordinal % stride == 0) & (slot < room)
    tl.store(values_ptr + pid.to(tl.int64) * room + slot, error, mask=kept)


@triton.jit
def scan_kernel(
    a_ptr,
    e_ptr,
    count,
    scalars_ptr,  # float64: atol, largest, low and high of three brackets
    out_ptr,  # int64 [13, programs]
    seen_ptr,  # int32 [3, programs], zeroed
    values0_ptr,
    values1_ptr,
    values2_ptr,  # float64 [programs, room], filled with +inf
    stride0,
    stride1,
    stride2,
    room0,
    room1,
    room2,
    KIND_A: tl.constexpr,
    KIND_E: tl.constexpr,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
    MIN_EXPONENT: tl.constexpr,
    LARGEST_KEY: tl.constexpr,
    OVERFLOW: tl.constexpr,
    HAS_INFINITY: tl.constexpr,
    KEEP0: tl.constexpr,
    KEEP1: tl.constexpr,
    KEEP2: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Partial ErrorStats per program, and what falls into three brackets."""
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    atol, largest = tl.load(scalars_ptr), tl.load(scalars_ptr + 1)
    low0, high0 = tl.load(scalars_ptr + 2), tl.load(scalars_ptr + 3)
    low1, high1 = tl.load(scalars_ptr + 4), tl.load(scalars_ptr + 5)
    low2, high2 = tl.load(scalars_ptr + 6), tl.load(scalars_ptr + 7)
    sum_abs = tl.zeros([BLOCK], tl.float64)
    max_abs = tl.zeros([BLOCK], tl.float64)
    sum_rel = tl.zeros([BLOCK], tl.float64)
    max_rel = tl.zeros([BLOCK], tl.float64)
    exceeding = tl.zeros([BLOCK], tl.int32)
    nonzero = tl.zeros([BLOCK], tl.int32)
    sum_ulp = tl.zeros([BLOCK], tl.float64 if WIDTH == 64 else tl.int64)
    max_ulp = tl.zeros([BLOCK], tl.uint64)
    saturated = tl.zeros([BLOCK], tl.int32)
    below_low0 = tl.zeros([BLOCK], tl.int32)
    below_low1 = tl.zeros([BLOCK], tl.int32)
    below_low2 = tl.zeros([BLOCK], tl.int32)
    below_high0 = tl.zeros([BLOCK], tl.int32)
    below_high1 = tl.zeros([BLOCK], tl.int32)
    below_high2 = tl.zeros([BLOCK], tl.int32)
    for start in range(pid.to(tl.int64) * BLOCK, count, programs.to(tl.int64) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        valid = at < count
        a_bits = tl.load(a_ptr + at, mask=valid, other=0)
        e_bits = tl.load(e_ptr + at, mask=valid, other=0)
        actual, expected = decode(a_bits, KIND_A), decode(e_bits, KIND_E)
        error = absolute_error(actual, expected)
        counts = expected != 0  # never true of the padding, which is 0 − 0
        relative = tl.where(error < INF, error / tl.abs(expected), INF)
        relative = tl.where(counts & (error != 0), relative, 0.0)
        sum_abs += error
        max_abs = tl.maximum(max_abs, error)
        sum_rel += relative
        max_rel = tl.maximum(max_rel, relative)
        exceeding += (error > atol).to(tl.int32)
        nonzero += counts.to(tl.int32)
        ulp, saturates = ulp_distance(
            a_bits, e_bits, actual, expected, largest, KIND_A == KIND_E, WIDTH, PRECISION, MIN_EXPONENT,
            LARGEST_KEY, OVERFLOW, HAS_INFINITY,
        )  # fmt: skip
        if WIDTH == 64:
            sum_ulp += ulp.to(tl.float64)
        else:
            sum_ulp += ulp.to(tl.int64)
        max_ulp = tl.maximum(max_ulp, ulp)
        saturated |= saturates.to(tl.int32)
        under0, under1, under2 = valid & (error < low0), valid & (error < low1), valid & (error < low2)
        upto0, upto1, upto2 = valid & (error < high0), valid & (error < high1), valid & (error < high2)
        below_low0 += under0.to(tl.int32)
        below_low1 += under1.to(tl.int32)
        below_low2 += under2.to(tl.int32)
        below_high0 += upto0.to(tl.int32)
        below_high1 += upto1.to(tl.int32)
        below_high2 += upto2.to(tl.int32)
        if KEEP0:
            keep_inside(error, upto0 & (error >= low0), seen_ptr, values0_ptr, pid, stride0, room0)
        if KEEP1:
            keep_inside(error, upto1 & (error >= low1), seen_ptr + programs, values1_ptr, pid, stride1, room1)
        if KEEP2:
            keep_inside(error, upto2 & (error >= low2), seen_ptr + 2 * programs, values2_ptr, pid, stride2, room2)
    out_ptr += pid
    tl.store(out_ptr, tl.sum(exceeding.to(tl.int64)))
    tl.store(out_ptr + programs, tl.max(max_abs).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 2 * programs, tl.sum(sum_abs).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 3 * programs, tl.sum(nonzero.to(tl.int64)))
    tl.store(out_ptr + 4 * programs, tl.max(max_rel).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 5 * programs, tl.sum(sum_rel).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 6 * programs, tl.max(max_ulp).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 7 * programs, tl.sum(sum_ulp.to(tl.float64)).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 8 * programs, tl.max(saturated).to(tl.int64))
    tl.store(out_ptr + 9 * programs, tl.sum(below_low0.to(tl.int64)))
    tl.store(out_ptr + 10 * programs, tl.sum(below_low1.to(tl.int64)))
    tl.store(out_ptr + 11 * programs, tl.sum(below_low2.to(tl.int64)))
    tl.store(out_ptr + 12 * programs, tl.sum(below_high0.to(tl.int64)))
    tl.store(out_ptr + 13 * programs, tl.sum(below_high1.to(tl.int64)))
    tl.store(out_ptr + 14 * programs, tl.sum(below_high2.to(tl.int64)))


@triton.jit
def sample_kernel(
    a_ptr, e_ptr, count, errors_ptr, size, KIND_A: tl.constexpr, KIND_E: tl.constexpr, BLOCK: tl.constexpr
):
    """Absolute error at one pseudo-random place in each of `size` equal strata."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = at < size
    stratum = at.to(tl.int64)
    first, end = stratum * count // size, (stratum + 1) * count // size
    jitter = (tl.randint(0, at) & 0x7FFFFFFF).to(tl.int64)
    position = first + jitter % tl.maximum(end - first, 1)
    actual = decode(tl.load(a_ptr + position, mask=valid, other=0), KIND_A)
    expected = decode(tl.load(e_ptr + position, mask=valid, other=0), KIND_E)
    tl.store(errors_ptr + at, absolute_error(actual, expected), mask=valid)


@triton.jit
def bin_of(value, low, per_bin, bins: tl.constexpr):
    """Bin of a value in [low, …); monotone in the value, so bins are stretches of the order."""
    return tl.minimum(((value - low) * per_bin).to(tl.int32), bins - 1)


@triton.jit
def histogram_kernel(values_ptr, slots, scalars_ptr, counts_ptr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts of kept values per bin of their bracket; +inf marks a slot nothing was kept in."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values_ptr + at, mask=at < slots, other=INF)
    low, per_bin = tl.load(scalars_ptr), tl.load(scalars_ptr + 1)
    kept = value < INF
    tl.atomic_add(counts_ptr + bin_of(tl.where(kept, value, low), low, per_bin, BINS), 1, mask=kept, sem="relaxed")


@triton.jit
def bin_values_kernel(
    values_ptr, slots, scalars_ptr, first_bin, last_bin, seen_ptr, out_ptr, room, BINS: tl.constexpr, BLOCK: tl.constexpr
):
    """The kept values of bins first … last, in any order."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values_ptr + at, mask=at < slots, other=INF)
    low, per_bin = tl.load(scalars_ptr), tl.load(scalars_ptr + 1)
    kept = value < INF
    bin = bin_of(tl.where(kept, value, low), low, per_bin, BINS)
    wanted = kept & (bin >= first_bin) & (bin <= last_bin)
    slot = tl.atomic_add(seen_ptr + tl.zeros_like(bin), 1, mask=wanted, sem="relaxed")
    tl.store(out_ptr + slot, value, mask=wanted & (slot < room))


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
def read_kernel(
    a_ptr,
    e_ptr,
    s_ptr,
    count,
    scalars_ptr,  # float64: constant, per_magnitude, per_ulp, per_scale, overflow threshold
    out_ptr,  # int64 [5, programs]
    KIND_A: tl.constexpr,
    KIND_E: tl.constexpr,
    KIND_S: tl.constexpr,
    PRECISION: tl.constexpr,
    MIN_EXPONENT: tl.constexpr,
    MAX_EXPONENT: tl.constexpr,
    HAS_INFINITY: tl.constexpr,
    HAS_ULP: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    FROM_CELL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Worst error in a gauge's unit per program, where, the signed sum, and what is amiss with the scale."""
    pid = tl.program_id(0)
    programs = tl.num_programs(0)
    constant, per_magnitude = tl.load(scalars_ptr), tl.load(scalars_ptr + 1)
    per_ulp, per_scale, threshold = tl.load(scalars_ptr + 2), tl.load(scalars_ptr + 3), tl.load(scalars_ptr + 4)
    worst = tl.full([BLOCK], -1.0, tl.float64)
    worst_at = tl.full([BLOCK], MAGNITUDE, tl.int64)
    signed_sum = tl.zeros([BLOCK], tl.float64)
    infinite = tl.zeros([BLOCK], tl.int64)
    bad_at = tl.full([BLOCK], MAGNITUDE, tl.int64)
    for start in range(pid.to(tl.int64) * BLOCK, count, programs.to(tl.int64) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        valid = at < count
        actual = decode(tl.load(a_ptr + at, mask=valid, other=0), KIND_A)
        expected = decode(tl.load(e_ptr + at, mask=valid, other=0), KIND_E)
        if FROM_CELL:
            error = cell_error(actual, expected, threshold, PRECISION, MIN_EXPONENT, MAX_EXPONENT, HAS_INFINITY)
        else:
            error = absolute_error(actual, expected)
        width = constant + per_magnitude * tl.abs(expected)
        if HAS_ULP:
            width += per_ulp * ulp_at(expected, PRECISION, MIN_EXPONENT, MAX_EXPONENT)
        if HAS_SCALE:
            scale = decode(tl.load(s_ptr + at, mask=valid, other=0), KIND_S)
            bad = valid & ((scale < 0) | (scale != scale))
            bad_at = tl.where(bad, tl.minimum(bad_at, at), bad_at)
            width += per_scale * scale
        size = tl.where(error < INF, error / width, INF)
        size = tl.where(error == 0, 0.0, size)
        unbounded = size == INF
        infinite += (valid & unbounded).to(tl.int64)
        signed = tl.where(actual < expected, -size, size)
        signed_sum += tl.where(unbounded, 0.0, signed)
        better = valid & (size > worst)
        worst = tl.where(better, size, worst)
        worst_at = tl.where(better, at, worst_at)
    top = tl.max(worst)
    out_ptr += pid
    tl.store(out_ptr, top.to(tl.int64, bitcast=True))
    tl.store(out_ptr + programs, tl.min(tl.where(worst == top, worst_at, MAGNITUDE)))
    tl.store(out_ptr + 2 * programs, tl.sum(signed_sum).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 3 * programs, tl.sum(infinite))
    tl.store(out_ptr + 4 * programs, tl.min(bad_at))


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
