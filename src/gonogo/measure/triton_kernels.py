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
def divide(numerator, denominator, BOUNDED: tl.constexpr):
    """numerator / denominator, correctly rounded.

    BOUNDED: both come from formats of up to 32 bits, so no step of the reciprocal iteration leaves float64's
    range, and the checks and the slow path of the general division can go. Zero over anything is 0; anything
    over zero is NaN, for the caller to replace.
    """
    if BOUNDED:
        return tl.inline_asm_elementwise(
            """
            {
            .reg .f64 y, e, q, r, minus;
            rcp.approx.ftz.f64 y, $2;
            neg.f64 minus, $2;
            fma.rn.f64 e, minus, y, 0d3FF0000000000000;
            fma.rn.f64 e, e, e, e;
            fma.rn.f64 y, y, e, y;
            fma.rn.f64 e, minus, y, 0d3FF0000000000000;
            fma.rn.f64 y, y, e, y;
            mul.rn.f64 q, $1, y;
            fma.rn.f64 r, minus, q, $1;
            fma.rn.f64 $0, y, r, q;
            }
            """,
            "=d,d,d",
            [numerator, denominator],
            dtype=tl.float64,
            is_pure=True,
            pack=1,
        )
    else:
        return numerator / denominator


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
def ulp_distance(a_key, e_key, width: tl.constexpr):
    """Distance between keys as an unsigned integer."""
    distance = tl.maximum(a_key, e_key) - tl.minimum(a_key, e_key)
    if width == 64:
        return distance.to(tl.uint64, bitcast=True)
    else:
        return distance.to(tl.uint32, bitcast=True)


@triton.jit
def saturates_at(actual, expected, a_key, e_key, overflow: tl.constexpr, has_infinity: tl.constexpr):
    """Whether a distance in ULPs means nothing: a NaN, or an infinity the other side does not share."""
    nan = (actual != actual) | (expected != expected)
    beyond = (a_key >= overflow) | (a_key <= -overflow) | (e_key >= overflow) | (e_key <= -overflow)
    if has_infinity:
        return nan | (beyond & (a_key != e_key))
    else:
        return nan | beyond


@triton.jit
def is_below(error, bound, COARSE: tl.constexpr):
    """1 where error < bound, else 0, for error ≥ 0; by the high word alone where the bound's low word is 0."""
    if COARSE:  # both words are positive: the sign of the difference tells, without a comparison
        return ((high_word(error) - high_word(bound)).to(tl.uint32, bitcast=True) >> 31).to(tl.int32)
    else:
        difference = error.to(tl.int64, bitcast=True) - bound.to(tl.int64, bitcast=True)
        return (difference.to(tl.uint64, bitcast=True) >> 63).to(tl.int32)


@triton.jit
def is_inside(error, low, high, COARSE: tl.constexpr):
    """Whether low ≤ error < high; for nothing where high = low."""
    if COARSE:
        offset = (high_word(error) - high_word(low)).to(tl.uint32, bitcast=True)
        return offset < (high_word(high) - high_word(low)).to(tl.uint32, bitcast=True)
    else:
        return (error >= low) & (error < high)


@triton.jit
def keep_inside(inside, error, seen_at, values_at, stride, room, INTERPRETED: tl.constexpr):
    """Append the errors that are `inside` to this program's values.

    Triton would move the tile into another layout for the atomic and again for the store, through shared memory
    and four barriers; two predicated instructions do it in place. The interpreter knows no assembly.
    """
    if INTERPRETED:
        ordinal = tl.atomic_add(seen_at, 1, mask=inside, sem="relaxed")
        kept = inside & (ordinal % stride == 0) & (ordinal // stride < room)
        tl.store(values_at + ordinal // stride, error, mask=kept)
    else:
        tl.inline_asm_elementwise(
            """
            {
            .reg .pred in, fits, first;
            .reg .u32 ordinal, slot, back;
            .reg .u64 address;
            setp.ne.u32 in, $1, 0;
            mov.u32 ordinal, 0;
            @in atom.global.relaxed.cta.add.u32 ordinal, [$3], 1;
            div.u32 slot, ordinal, $5;
            mul.lo.u32 back, slot, $5;
            setp.eq.and.u32 first, back, ordinal, in;
            setp.lt.and.u32 fits, slot, $6, first;
            mad.wide.u32 address, slot, 8, $4;
            @fits st.global.b64 [address], $2;
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
    out_ptr,  # int64 [15, programs]
    seen_ptr,  # int32 [programs, 2], zeroed: how many errors fell inside
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
    KEEP: tl.constexpr,
    HAS_ATOL: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    INTERPRETED: tl.constexpr,
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
    max_abs = tl.zeros([LANES, VECTOR], tl.float64)
    max_rel = tl.zeros([LANES, VECTOR], tl.float64)
    exceeding = tl.zeros([LANES], tl.int32)
    zeros = tl.zeros([LANES], tl.int32)
    sum_ulp = tl.zeros([LANES], tl.float64 if WIDTH == 64 else tl.int64)
    max_ulp = tl.zeros([LANES], tl.uint64 if WIDTH == 64 else tl.uint32)
    saturated = tl.zeros([LANES], tl.int32)
    below_low0 = tl.zeros([LANES], tl.int32)
    below_low1 = tl.zeros([LANES], tl.int32)
    below_low2 = tl.zeros([LANES], tl.int32)
    below_high0 = tl.zeros([LANES], tl.int32)
    below_high1 = tl.zeros([LANES], tl.int32)
    below_high2 = tl.zeros([LANES], tl.int32)
    lanes = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    BOUNDED: tl.constexpr = KIND_A != F64 and KIND_E != F64 and not INTERPRETED
    seen_at = seen_ptr + 2 * pid + tl.zeros([LANES, VECTOR], tl.int32)
    values_at = values_ptr + pid.to(tl.int64) * room + tl.zeros([LANES, VECTOR], tl.int32)
    for start in range(pid.to(tl.int64) * BLOCK, count, programs.to(tl.int64) * BLOCK):
        at = start + lanes
        valid = at < count
        a_bits = tl.load(a_ptr + at, mask=valid, other=0)
        e_bits = tl.load(e_ptr + at, mask=valid, other=0)
        actual, expected = decode(a_bits, KIND_A), decode(e_bits, KIND_E)
        if CAREFUL:
            error = absolute_error(actual, expected)
        else:
            error = absolute(actual - expected)
        zero = expected == 0
        if CAREFUL:
            # An infinite error is infinite relative to anything, and agreement is no error.
            plain = (high_word(error) < 0x7FF00000) & (error != 0) & ~zero
            relative = divide(tl.where(plain, error, 1.0), tl.where(plain, absolute(expected), 1.0), BOUNDED)
            relative = tl.where(plain, relative, tl.where(zero, 0.0, error))
        elif BOUNDED:
            relative = tl.where(zero, 0.0, divide(error, absolute(expected), BOUNDED))
        else:  # zeros would send the division down its slow path
            plain = (error != 0) & ~zero
            relative = divide(tl.where(plain, error, 1.0), tl.where(plain, absolute(expected), 1.0), BOUNDED)
            relative = tl.where(plain, relative, 0.0)
        sum_abs += tl.sum(error, axis=1)
        max_abs = tl.where(error > max_abs, error, max_abs)
        sum_rel += tl.sum(relative, axis=1)
        max_rel = tl.where(relative > max_rel, relative, max_rel)
        zeros += tl.sum(zero.to(tl.int32), axis=1)
        if HAS_ATOL:
            exceeding += tl.sum((error > atol).to(tl.int32), axis=1)
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
        below_low0 += tl.sum(is_below(error, low0, COARSE), axis=1)
        below_low1 += tl.sum(is_below(error, low1, COARSE), axis=1)
        below_low2 += tl.sum(is_below(error, low2, COARSE), axis=1)
        if COUNT_HIGH:
            below_high0 += tl.sum(is_below(error, high0, False), axis=1)
            below_high1 += tl.sum(is_below(error, high1, False), axis=1)
            below_high2 += tl.sum(is_below(error, high2, False), axis=1)
        if KEEP:
            inside = is_inside(error, low0, keep0, COARSE)
            inside |= is_inside(error, low1, keep1, COARSE)
            inside |= is_inside(error, low2, keep2, COARSE)
            keep_inside(inside & valid, error, seen_at, values_at, stride, room, INTERPRETED)
    out_ptr += pid
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


@triton.jit
def sampled_error(a_ptr, e_ptr, count, size, stratum, KIND_A: tl.constexpr, KIND_E: tl.constexpr):
    """Absolute error at one pseudo-random place in stratum number `stratum` of `size` equal ones."""
    wide = tl.minimum(stratum, size - 1).to(tl.int64)
    first, end = wide * count // size, (wide + 1) * count // size
    jitter = (tl.randint(0, stratum) & 0x7FFFFFFF).to(tl.int64)
    position = first + jitter % tl.maximum(end - first, 1)
    return absolute_error(decode(tl.load(a_ptr + position), KIND_A), decode(tl.load(e_ptr + position), KIND_E))


@triton.jit
def sample_kernel(
    a_ptr,
    e_ptr,
    count,
    errors_ptr,
    size,
    KIND_A: tl.constexpr,
    KIND_E: tl.constexpr,
    HIGH_WORDS: tl.constexpr,  # whether only the errors' high words are wanted
    BLOCK: tl.constexpr,
):
    """Absolute errors at a stratified sample of places."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    error = sampled_error(a_ptr, e_ptr, count, size, at, KIND_A, KIND_E)
    tl.store(errors_ptr + at, high_word(error) if HIGH_WORDS else error, mask=at < size)


@triton.jit(do_not_specialize=["first0", "last0", "first1", "last1", "first2", "last2"])
def sample_and_place_kernel(
    a_ptr,
    e_ptr,
    count,
    words_ptr,
    first0,
    last0,
    first1,
    last1,
    first2,
    last2,
    given_ptr,
    scalars_ptr,
    KIND_A: tl.constexpr,
    KIND_E: tl.constexpr,
    SIZE: tl.constexpr,
):
    """sample_kernel, a sort and place_kernel in one program, for a small sample."""
    at = tl.arange(0, SIZE)
    error = sampled_error(a_ptr, e_ptr, count, SIZE, at, KIND_A, KIND_E)
    tl.store(words_ptr + at, tl.sort(high_word(error)))
    tl.debug_barrier()
    place_all(words_ptr, SIZE, first0, last0, first1, last1, first2, last2, given_ptr, scalars_ptr)


@triton.jit
def place_one(words_ptr, size, first, last, ends_ptr, keep_ptr):
    """A bracket around ranks first … last of sorted high words: selection._tighten, on the GPU.

    A tie is taken for a single value with an empty low word; if it is none, the count will tell.
    """
    bottom = tl.load(words_ptr + tl.maximum(first, 0))
    top = tl.load(words_ptr + tl.minimum(last, size - 1))
    above_bottom = tl.load(words_ptr + tl.maximum(tl.minimum(first + 1, size - 1), 0))
    below_top = tl.load(words_ptr + tl.maximum(tl.minimum(last - 1, size - 1), 0))
    middle = tl.load(words_ptr + tl.maximum(tl.minimum((first + last) // 2, size - 1), 0))
    low = tl.where(first >= 0, bottom + (above_bottom == bottom).to(tl.int32), 0)
    high = tl.where(last < size, top + (below_top != top).to(tl.int32), 0x7FF00000)
    tie = (middle < low) | (middle >= high)
    low, high = tl.where(tie, middle, low).to(tl.int64) << 32, high.to(tl.int64) << 32
    tl.store(ends_ptr, low.to(tl.float64, bitcast=True))
    tl.store(ends_ptr + 1, tl.where(tie, low + 1, high).to(tl.float64, bitcast=True))
    tl.store(keep_ptr, tl.where(tie, low, high).to(tl.float64, bitcast=True))


@triton.jit
def place_all(words_ptr, size, first0, last0, first1, last1, first2, last2, given_ptr, scalars_ptr):
    """atol and largest as given, and three brackets, written where scan_kernel reads them."""
    tl.store(scalars_ptr, tl.load(given_ptr))
    tl.store(scalars_ptr + 1, tl.load(given_ptr + 1))
    place_one(words_ptr, size, first0, last0, scalars_ptr + 2, scalars_ptr + 8)
    place_one(words_ptr, size, first1, last1, scalars_ptr + 4, scalars_ptr + 9)
    place_one(words_ptr, size, first2, last2, scalars_ptr + 6, scalars_ptr + 10)


@triton.jit(do_not_specialize=["size", "first0", "last0", "first1", "last1", "first2", "last2"])
def place_kernel(words_ptr, size, first0, last0, first1, last1, first2, last2, given_ptr, scalars_ptr):
    """place_all by itself: no wait for the host between sampling and scanning."""
    place_all(words_ptr, size, first0, last0, first1, last1, first2, last2, given_ptr, scalars_ptr)


@triton.jit
def pick_kernel(rows_ptr, programs, padding, scalars_ptr, ranks_ptr, counts_ptr, bins_ptr, BINS: tl.constexpr, PROGRAMS: tl.constexpr):
    """The bins in which each bracket's wanted ranks lie, given how many errors are below it."""
    k = tl.program_id(0)
    at = tl.arange(0, PROGRAMS)
    below = tl.sum(tl.load(rows_ptr + (9 + k) * programs + at, mask=at < programs, other=0))
    below -= tl.where(tl.load(scalars_ptr + 2 + 2 * k) > 0, padding, 0)
    ends = tl.cumsum(tl.load(counts_ptr + k * BINS + tl.arange(0, BINS)), axis=0).to(tl.int64)
    for i in tl.static_range(2):
        rank = tl.load(ranks_ptr + 2 * k + i).to(tl.int64) - below
        tl.store(bins_ptr + 2 * k + i, tl.sum((ends <= rank).to(tl.int32)))


@triton.jit
def bin_of(value, low, high, BINS: tl.constexpr):
    """Bin of a value in [low, high), −1 outside; monotone in the value, so bins are stretches of the order."""
    inside = (value >= low) & (value < high)
    per_bin = BINS / (high - low)
    return tl.where(inside, tl.minimum((tl.where(inside, value - low, 0.0) * per_bin).to(tl.int32), BINS - 1), -1)


@triton.jit
def histogram_kernel(values_ptr, slots, scalars_ptr, counts_ptr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts of the kept values per bin of each bracket."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values_ptr + at, mask=at < slots, other=INF)
    for k in tl.static_range(3):
        bin = bin_of(value, tl.load(scalars_ptr + 2 + 2 * k), tl.load(scalars_ptr + 3 + 2 * k), BINS)
        tl.atomic_add(counts_ptr + k * BINS + bin, 1, mask=bin >= 0, sem="relaxed")


@triton.jit
def bin_values_kernel(
    values_ptr, slots, scalars_ptr, bins_ptr, seen_ptr, extremes_ptr, out_ptr, room, BINS: tl.constexpr, BLOCK: tl.constexpr
):
    """Per bracket, the kept values of its bins first … last, in any order, and the least and largest of them.

    Extremes are bit patterns, counted down from the top for the least, so that maxima over zeros give both.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values_ptr + at, mask=at < slots, other=INF)
    for k in tl.static_range(3):
        bin = bin_of(value, tl.load(scalars_ptr + 2 + 2 * k), tl.load(scalars_ptr + 3 + 2 * k), BINS)
        wanted = (bin >= tl.load(bins_ptr + 2 * k)) & (bin <= tl.load(bins_ptr + 2 * k + 1))
        slot = tl.atomic_add(seen_ptr + k + tl.zeros_like(bin), 1, mask=wanted, sem="relaxed")
        tl.store(out_ptr + k * room + slot, value, mask=wanted & (slot < room))
        word = value.to(tl.int64, bitcast=True)
        tl.atomic_max(extremes_ptr + 2 * k, tl.max(tl.where(wanted, word, 0)))
        tl.atomic_max(extremes_ptr + 2 * k + 1, tl.max(tl.where(wanted, MAGNITUDE - word, 0)))


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
    out_ptr,  # int64 [6, programs]
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
    per_ulp, per_scale, threshold = tl.load(scalars_ptr + 2), tl.load(scalars_ptr + 3), tl.load(scalars_ptr + 4)
    worst = tl.full([BLOCK], -1.0, tl.float64)
    worst_turn = tl.zeros([BLOCK], tl.int32)
    signed_sum = tl.zeros([BLOCK], tl.float64)
    infinite = tl.zeros([BLOCK], tl.int32)
    odd = tl.zeros([BLOCK], tl.int32)
    bad_at = tl.full([BLOCK], MAGNITUDE, tl.int64)
    lanes = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    step = programs.to(tl.int64) * BLOCK
    for turn in range(0, tl.cdiv(count, step).to(tl.int32)):
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
    out_ptr += pid
    tl.store(out_ptr, top.to(tl.int64, bitcast=True))
    tl.store(out_ptr + programs, tl.min(tl.where(worst == top, lanes + worst_turn * step, MAGNITUDE)))
    tl.store(out_ptr + 2 * programs, tl.sum(signed_sum).to(tl.int64, bitcast=True))
    tl.store(out_ptr + 3 * programs, tl.sum(infinite.to(tl.int64)))
    tl.store(out_ptr + 4 * programs, tl.min(bad_at))
    tl.store(out_ptr + 5 * programs, tl.max(odd).to(tl.int64))


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
