"""Triton kernels: errors → a sample, brackets around the wanted ranks, and the few values that hold them."""

from __future__ import annotations

import triton
import triton.language as tl

from gonogo.instrument.triton_kernels.numbers import (
    INF,
    MAGNITUDE,
    absolute_error,
    decode,
    high_word,
)


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
    a_ptr, e_ptr, count, errors_ptr, size, KIND_A: tl.constexpr, KIND_E: tl.constexpr, BLOCK: tl.constexpr
):
    """Absolute errors at a stratified sample of places."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    error = sampled_error(a_ptr, e_ptr, count, size, at, KIND_A, KIND_E)
    tl.store(errors_ptr + at, error, mask=at < size)


@triton.jit
def sample_rows_kernel(
    a_ptr,
    e_ptr,
    count,
    words_ptr,  # int32 [ROWS, ROW]
    out_ptr,
    words,
    values_ptr,
    slots,
    KIND_A: tl.constexpr,
    KIND_E: tl.constexpr,
    ROW: tl.constexpr,
    ROWS: tl.constexpr,
):
    """High words of the errors at a stratified sample of places, a row of it sorted by each program.

    On the way so many words of `out` are set to 0, and slots to +inf, for the scan to come. Strata next to each
    other are of different rows, and those of a row wander: else a row could be of the same columns of a matrix all
    the way down.
    """
    pid = tl.program_id(0)
    at = tl.arange(0, ROW)
    stratum = at * ROWS + ((pid + at * 173) & (ROWS - 1))
    error = sampled_error(a_ptr, e_ptr, count, ROW * ROWS, stratum, KIND_A, KIND_E)
    tl.store(words_ptr + pid * ROW + at, tl.sort(high_word(error)))
    for start in range(pid * ROW, words, ROWS * ROW):
        tl.store(out_ptr + start + at, tl.zeros([ROW], tl.int64), mask=start + at < words)
    for start in range(pid * ROW, slots, ROWS * ROW):
        tl.store(values_ptr + start + at, tl.full([ROW], INF, tl.float64), mask=start + at < slots)


@triton.jit
def put_bracket(first, last, size, bottom, above_bottom, middle, below_top, top, ends_ptr, keep_ptr):
    """A bracket around ranks first … last of sorted high words, given those there: selection._tighten, on the GPU.

    A tie is taken for a single value with an empty low word; if it is none, the count will tell.
    """
    low = tl.where(first >= 0, bottom + (above_bottom == bottom).to(tl.int32), 0)
    high = tl.where(last < size, top + (below_top != top).to(tl.int32), 0x7FF00000)
    tie = (middle < low) | (middle >= high)
    low, high = tl.where(tie, middle, low).to(tl.int64) << 32, high.to(tl.int64) << 32
    tl.store(ends_ptr, low.to(tl.float64, bitcast=True))
    tl.store(ends_ptr + 1, tl.where(tie, low + 1, high).to(tl.float64, bitcast=True))
    tl.store(keep_ptr, tl.where(tie, low, high).to(tl.float64, bitcast=True))


@triton.jit(do_not_specialize=["first0", "last0", "first1", "last1", "first2", "last2"])
def place_kernel(
    words_ptr,
    first0,
    last0,
    first1,
    last1,
    first2,
    last2,
    given_ptr,
    scalars_ptr,
    ROW: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Atol and largest, as given, and brackets where scan_kernel reads them: one by each of three programs.

    What is at a rank is the median over the rows of what each of them has there: no wait for a sort of them all.
    """
    k = tl.program_id(0)
    first = tl.where(k == 0, first0, tl.where(k == 1, first1, first2))
    last = tl.where(k == 0, last0, tl.where(k == 1, last1, last2))
    which, row = tl.arange(0, 8), tl.arange(0, ROWS)
    ranks = tl.where(which == 0, first, tl.where(which == 1, first + 1, (first + last) // 2))
    ranks = tl.where(which == 3, last - 1, tl.where(which == 4, last, ranks))
    ranks = tl.maximum(tl.minimum(ranks, ROW - 1), 0)
    words = tl.sort(tl.load(words_ptr + row[None, :] * ROW + ranks[:, None]), dim=1)
    medians = tl.sum(tl.where(row[None, :] == ROWS // 2, words, 0), axis=1)
    bottom, above_bottom = pick(medians, which, 0), pick(medians, which, 1)
    middle, below_top, top = pick(medians, which, 2), pick(medians, which, 3), pick(medians, which, 4)
    ends_ptr, keep_ptr = scalars_ptr + 2 + 2 * k, scalars_ptr + 8 + k
    put_bracket(first, last, ROW, bottom, above_bottom, middle, below_top, top, ends_ptr, keep_ptr)
    if k < 2:
        tl.store(scalars_ptr + k, tl.load(given_ptr + k))


@triton.jit
def pick(values, which, number: tl.constexpr):
    """One of a few numbers."""
    return tl.sum(tl.where(which == number, values, 0), axis=0)


@triton.jit
def load_row(rows_ptr, row, programs, PROGRAMS: tl.constexpr):
    """One number per program; 0 past the last."""
    at = tl.arange(0, PROGRAMS)
    return tl.load(rows_ptr + row * programs + at, mask=at < programs, other=0)


@triton.jit
def total_scan_kernel(
    out_ptr,
    rows_at,
    programs,
    padding,
    scalars_ptr,
    ranks_ptr,
    bins_ptr,
    KEEP: tl.constexpr,
    PICK: tl.constexpr,
    PICKS_AT: tl.constexpr,
    ROWS: tl.constexpr,
    BINS: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """The scan's rows added up, each by a program; and per bracket, by one more, the bins of its wanted ranks."""
    rows_ptr, row = out_ptr + rows_at, tl.program_id(0)
    if row < ROWS:
        values = load_row(rows_ptr, row, programs, PROGRAMS)
        if (row == 1) | (row == 4):
            total = tl.max(values.to(tl.float64, bitcast=True)).to(tl.int64, bitcast=True)
        elif (row == 2) | (row == 5) | (row == 7):
            total = tl.sum(values.to(tl.float64, bitcast=True)).to(tl.int64, bitcast=True)
        elif row == 6:
            total = tl.max(values.to(tl.uint64, bitcast=True)).to(tl.int64, bitcast=True)
        elif (row == 8) | (row == 15):
            total = tl.max(values)
        else:
            total = tl.sum(values)
        tl.store(out_ptr + row, total)
    elif KEEP:
        k = row - ROWS
        ends = tl.cumsum(tl.load(bins_ptr + k * BINS + tl.arange(0, BINS)), axis=0).to(tl.int64)
        picks_ptr = out_ptr + PICKS_AT + 4 * k
        tl.store(picks_ptr + 3, tl.max(ends))
        if PICK:
            below = tl.sum(load_row(rows_ptr, 9 + k, programs, PROGRAMS))
            below -= tl.where(tl.load(scalars_ptr + 2 + 2 * k) > 0, padding, 0)
            for i in tl.static_range(2):
                rank = tl.load(ranks_ptr + 2 * k + i).to(tl.int64) - below
                before = ends <= rank
                tl.store(picks_ptr + i, tl.sum(before.to(tl.int64)))
                if i == 0:
                    tl.store(picks_ptr + 2, tl.max(tl.where(before, ends, 0)))


@triton.jit
def bin_of(value, low, high, BINS: tl.constexpr):
    """Bin of a value in [low, high), −1 outside; monotone in the value, so bins are stretches of the order."""
    inside = (value >= low) & (value < high)
    per_bin = tl.minimum(BINS / (high - low), 2.0**1023)  # the bracket may be narrower than 1/largest
    return tl.where(inside, tl.minimum((tl.where(inside, value - low, 0.0) * per_bin).to(tl.int32), BINS - 1), -1)


@triton.jit
def histogram_kernel(values_ptr, slots, scalars_ptr, counts_ptr, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts of the kept values per bin of each bracket."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values_ptr + at, mask=at < slots, other=INF)
    for k in tl.static_range(3):
        place = bin_of(value, tl.load(scalars_ptr + 2 + 2 * k), tl.load(scalars_ptr + 3 + 2 * k), BINS)
        tl.atomic_add(counts_ptr + k * BINS + place, 1, mask=place >= 0, sem="relaxed")


@triton.jit
def is_wanted(value, scalars_ptr, picks_ptr, k: tl.constexpr, BINS: tl.constexpr):
    """Whether a value lies in the bins of bracket k that hold its wanted ranks."""
    place = bin_of(value, tl.load(scalars_ptr + 2 + 2 * k), tl.load(scalars_ptr + 3 + 2 * k), BINS)
    return (place >= tl.load(picks_ptr + 4 * k)) & (place <= tl.load(picks_ptr + 4 * k + 1))


@triton.jit
def bin_values_kernel(
    values_ptr,
    slots,
    scalars_ptr,
    picks_ptr,  # int64 [3, 4]: first and last bin of each bracket
    seen_ptr,
    extremes_ptr,
    out_ptr,
    room,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Per bracket, the kept values of its bins first … last, in any order, and the extremes of those without room.

    Extremes are bit patterns, counted down from the top for the least, so that maxima over zeros give both.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values_ptr + at, mask=at < slots, other=INF)
    of_brackets = tl.zeros([BLOCK], tl.int32)
    for k in tl.static_range(3):
        of_brackets |= is_wanted(value, scalars_ptr, picks_ptr, k, BINS).to(tl.int32) << k
    some = tl.reduce(of_brackets, 0, either)  # a few hundred of millions are wanted: most blocks have none
    word = value.to(tl.int64, bitcast=True)
    for k in tl.static_range(3):
        if (some >> k) & 1:
            wanted = ((of_brackets >> k) & 1) != 0
            one = tl.full(wanted.shape, 1, tl.int64)
            slot = tl.atomic_add(seen_ptr + k + tl.zeros_like(at), one, mask=wanted, sem="relaxed")
            tl.store(out_ptr + k * room + slot, value, mask=wanted & (slot < room))
            beyond = wanted & (slot >= room)
            if tl.max(beyond.to(tl.int32)) > 0:
                tl.atomic_max(extremes_ptr + 2 * k, tl.max(tl.where(beyond, word, 0)))
                tl.atomic_max(extremes_ptr + 2 * k + 1, tl.max(tl.where(beyond, MAGNITUDE - word, 0)))


@triton.jit
def either(x, y):
    """Bits that are set in one or the other."""
    return x | y
