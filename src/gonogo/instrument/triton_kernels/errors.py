"""Triton kernels: values and errors → errors, in one pass where torch's ops take one each."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def total_kernel(value_ptr, extra_ptr, out_ptr, ulps_ptr, count, BLOCK: tl.constexpr):
    """Extra + ulps·|value|."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    size = tl.abs(tl.load(value_ptr + at, mask=inside))
    tl.store(out_ptr + at, tl.load(extra_ptr + at, mask=inside) + tl.load(ulps_ptr) * size, mask=inside)


@triton.jit
def share_kernel(
    terms_ptr,
    extra_ptr,  # their errors, ulps·|term| left out
    share_ptr,
    rows_ptr,  # four to a row: |1/Σ|, what adding up makes, what terms carry, what they share
    ulps_ptr,
    out_ptr,
    length,
    part,
    parts,
    BLOCK: tl.constexpr,
):
    """One part of one row of |1 − p|·w + |p|·(Σ_{j≠i} w_j + own); w: what a term errs by beyond what all share."""
    program = tl.program_id(0)
    row = (program // parts).to(tl.int64)
    begin = (program % parts).to(tl.int64) * part
    end = tl.minimum(begin + part, length)
    at_row = rows_ptr + row * 4
    weight, own, carried, common = tl.load(at_row), tl.load(at_row + 1), tl.load(at_row + 2), tl.load(at_row + 3)
    ulps = tl.load(ulps_ptr)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < end
        at = row * length + at
        size = tl.abs(tl.load(terms_ptr + at, mask=inside, other=0.0))
        error = tl.load(extra_ptr + at, mask=inside, other=0.0) + ulps * size
        shared = tl.where(common != 0, size * common, 0.0)
        error = tl.maximum(error - shared, 0.0, propagate_nan=tl.PropagateNan.ALL) * weight
        share = tl.load(share_ptr + at, mask=inside, other=0.0)
        others = tl.maximum((carried + own) - error, own, propagate_nan=tl.PropagateNan.ALL)
        others = tl.where(others == others, others, float("inf"))  # all of an infinite error may be another's
        tl.store(out_ptr + at, error * tl.abs(1 - share) + others * tl.abs(share), mask=inside)
