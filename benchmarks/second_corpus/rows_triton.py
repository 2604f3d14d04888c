"""Row and element kernels in Triton: tensors in, one new tensor of their dtype out; faulty and correct.

A fault that reads by a wrong stride is held within the tensor's own storage, so that it gives wrong numbers and
never an illegal access: `last` is the greatest index it may touch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from entry import Entry
from rows_inputs import BROAD, F16, F32, WIDE, correct, fault, grouped, labelled, line, normal, weighted
from torch import Tensor

# ---------------------------------------------------------------- device helpers


@triton.jit
def _row_at(row, seq, stride_b, stride_s):
    """Offset of a row of a (B, S, H) tensor, in 64 bits."""
    wide = tl.cast(row, tl.int64)
    return wide // seq * stride_b + wide % seq * stride_s


@triton.jit
def _columns(start, block: tl.constexpr):
    """The columns of one tile, in 64 bits."""
    return tl.cast(start + tl.arange(0, block), tl.int64)


@triton.jit
def _read(ptr, cols, width, step, other):
    """One tile of a row in float32."""
    return tl.load(ptr + cols * step, mask=cols < width, other=other).to(tl.float32)


@triton.jit
def _write(ptr, cols, width, values):
    """One tile of a dense row."""
    tl.store(ptr + cols, values.to(ptr.dtype.element_ty), mask=cols < width)


@triton.jit
def _read_within(ptr, offsets, mask, last):
    """Entries at offsets, 0 where they leave the storage."""
    return tl.load(ptr + offsets, mask=mask & (offsets >= 0) & (offsets <= last), other=0.0).to(tl.float32)


@triton.jit
def _sum_row(ptr, width, step, shift, power: tl.constexpr, block: tl.constexpr):
    """The sum of (x - shift) to a power of 1 or 2 over a row."""
    total = tl.zeros([block], dtype=tl.float32)
    for start in range(0, width, block):
        cols = _columns(start, block)
        x = tl.where(cols < width, _read(ptr, cols, width, step, 0.0) - shift, 0.0)
        if power == 2:
            x = x * x
        total += x
    return tl.sum(total, 0)


@triton.jit
def _scale_row(ptr, out, width, step, shift, scale, block: tl.constexpr):
    """Writes (x - shift) * scale over a row."""
    for start in range(0, width, block):
        cols = _columns(start, block)
        _write(out, cols, width, (_read(ptr, cols, width, step, 0.0) - shift) * scale)


@triton.jit
def _online_row(ptr, width, step, guarded: tl.constexpr, block: tl.constexpr):
    """The maximum of a row and the sum of its exponentials, in one pass."""
    top = float("-inf")
    total = 0.0
    for start in range(0, width, block):
        x = _read(ptr, _columns(start, block), width, step, float("-inf"))
        new = tl.maximum(top, tl.max(x, 0))
        base = new
        if guarded:
            base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(x - base), 0)
        top = new
    return top, total


@triton.jit
def _softmax_row(ptr, out, width, step, top, total, logarithm: tl.constexpr, block: tl.constexpr):
    """Writes softmax, or its logarithm, of a row whose maximum and sum are known."""
    for start in range(0, width, block):
        cols = _columns(start, block)
        shifted = _read(ptr, cols, width, step, float("-inf")) - top
        if logarithm:
            _write(out, cols, width, shifted - tl.log(total))
        else:
            _write(out, cols, width, tl.exp(shifted) / total)


# ---------------------------------------------------------------- host helpers


def _power(width: int) -> int:
    """The next power of two."""
    return triton.next_power_of_2(width)


def _last(x: Tensor) -> int:
    """The last index of x's storage, counted from its first element."""
    return x.untyped_storage().nbytes() // x.element_size() - x.storage_offset() - 1


def _dense(x: Tensor, shape: torch.Size | None = None) -> Tensor:
    """A fresh dense tensor of x's dtype."""
    return torch.empty(x.shape if shape is None else shape, dtype=x.dtype, device=x.device)


def _by_row(kernel: Any, x: Tensor, *more: Any, reduced: bool = False, grid: int = 0, **options: Any) -> Tensor:
    """One program to a row (or a grid of so many), given x, the output, S, H and x's strides."""
    batch, seq, width = x.shape
    out = _dense(x, x.shape[:-1] if reduced else None)
    kernel[(grid or batch * seq,)](x, out, seq, width, *x.stride(), *more, **options)
    return out


# ---------------------------------------------------------------- softmax and log_softmax: faults


@triton.jit
def _softmax_zero_padded(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    cols = _columns(0, block)
    x = _read(x_ptr + _row_at(row, seq, stride_b, stride_s), cols, width, stride_h, 0.0)
    e = tl.exp(x - tl.max(x, 0))
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, e / tl.sum(e, 0))


def softmax_pads_with_zero(x: Tensor) -> Tensor:
    """Lanes beyond the row are loaded as 0 and enter the maximum and the sum: widths that are no power of two."""
    return _by_row(_softmax_zero_padded, x, block=_power(x.shape[-1]))


@triton.jit
def _softmax_two_pass(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h,
    guarded: tl.constexpr, logarithm: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    top, total = _online_row(ptr, width, stride_h, guarded, block)
    _softmax_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, top, total, logarithm, block)


def softmax_online_unguarded(x: Tensor) -> Tensor:
    """The online sum rescales by exp(-inf − -inf): rows whose first 128 entries are all -inf become NaN."""
    return _by_row(_softmax_two_pass, x, guarded=False, logarithm=False, block=128)


@triton.jit
def _softmax_narrow_offsets(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, last, block: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, block)
    offsets = row // seq * stride_b + row % seq * stride_s + cols * stride_h
    x = _read_within(x_ptr, offsets, cols < width, last)
    x = tl.where(cols < width, x, float("-inf"))
    e = tl.exp(x - tl.max(x, 0))
    target = row * width + cols
    # A wrapped offset is not written, or it would leave the tensor.
    tl.store(out_ptr + target, (e / tl.sum(e, 0)).to(out_ptr.dtype.element_ty), mask=(cols < width) & (target >= 0))


def softmax_offsets_in_32_bits(x: Tensor) -> Tensor:
    """Row offsets are 32-bit products: rows beyond 2³¹ elements come out wrong (too large to show here)."""
    return _by_row(_softmax_narrow_offsets, x, _last(x), block=_power(x.shape[-1]))


@triton.jit
def _softmax_tile_maximum(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, rows, tall: tl.constexpr, block: tl.constexpr
):
    row = _columns(tl.program_id(0) * tall, tall)
    cols = _columns(0, block)
    live = (row < rows)[:, None] & (cols < width)[None, :]
    source = _row_at(row, seq, stride_b, stride_s)[:, None] + cols[None, :] * stride_h
    x = tl.load(x_ptr + source, mask=live, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(tl.max(x, 1), 0))
    y = e / tl.sum(e, 1)[:, None]
    tl.store(out_ptr + row[:, None] * width + cols[None, :], y.to(out_ptr.dtype.element_ty), mask=live)


def softmax_maximum_of_tile(x: Tensor) -> Tensor:
    """Four rows share one maximum: a row more than 88 below its neighbours underflows to 0/0."""
    rows = x.shape[0] * x.shape[1]
    return _by_row(
        _softmax_tile_maximum, x, rows, grid=triton.cdiv(rows, 4), tall=4, block=_power(x.shape[-1])
    )  # fmt: skip


@triton.jit
def _log_softmax_unit_step(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, last, block: tl.constexpr):
    row = tl.program_id(0)
    cols = _columns(0, block)
    x = _read_within(x_ptr, _row_at(row, seq, stride_b, stride_s) + cols, cols < width, last)
    x = tl.where(cols < width, x, float("-inf"))
    shifted = x - tl.max(x, 0)
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, shifted - tl.log(tl.sum(tl.exp(shifted), 0)))


def log_softmax_assumes_unit_step(x: Tensor) -> Tensor:
    """The reduced entries are taken to lie side by side: transposed, stepped or expanded last axes."""
    return _by_row(_log_softmax_unit_step, x, _last(x), block=_power(x.shape[-1]))


@triton.jit
def _log_softmax_unscaled(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    top = float("-inf")
    total = 0.0
    for start in range(0, width, block):
        x = _read(ptr, _columns(start, block), width, stride_h, float("-inf"))
        top = tl.maximum(top, tl.max(x, 0))
        base = tl.where(top == float("-inf"), 0.0, top)
        total += tl.sum(tl.exp(x - base), 0)
    _softmax_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, top, total, True, block)


def log_softmax_forgets_rescaling(x: Tensor) -> Tensor:
    """The sum so far is not rescaled when a later tile has a larger maximum: rows wider than 512."""
    return _by_row(_log_softmax_unscaled, x, block=512)


@triton.jit
def _log_softmax_lanes(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    top = tl.full([block], float("-inf"), dtype=tl.float32)
    total = tl.zeros([block], dtype=tl.float32)
    for start in range(0, width, block):
        cols = _columns(start, block)
        x = _read(ptr, cols, width, stride_h, float("-inf"))
        new = tl.maximum(top, x)
        total = tl.where(cols < width, total * tl.exp(top - new) + tl.exp(x - new), total)
        top = new
    peak = tl.max(top, 0)
    total = tl.sum(total * tl.exp(top - peak), 0)
    _softmax_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, peak, total, True, block)


def log_softmax_lane_of_infinities(x: Tensor) -> Tensor:
    """Each lane keeps its own maximum: a lane that has met only -inf takes exp(-inf − -inf), and the row is NaN."""
    return _by_row(_log_softmax_lanes, x, block=64)


# ---------------------------------------------------------------- cross_entropy


def _by_logits(kernel: Any, logits: Tensor, target: Tensor, *more: Any, **options: Any) -> Tensor:
    """One program to a row, given logits, target, output, V and the three strides."""
    rows, width = logits.shape
    out = _dense(logits, logits.shape[:1])
    kernel[(rows,)](logits, target, out, width, *logits.stride(), target.stride(0), *more, **options)
    return out


@triton.jit
def _cross_entropy_store(out_ptr, row, top, total, picked):
    """Writes maximum + log of the sum − target logit."""
    tl.store(out_ptr + row, (top - picked + tl.log(total)).to(out_ptr.dtype.element_ty))


@triton.jit
def _cross_entropy_dense_rows(
    x_ptr, target_ptr, out_ptr, width, stride_n, stride_v, stride_t, last, block: tl.constexpr
):
    row = tl.program_id(0)
    begin = tl.cast(row, tl.int64) * width
    cols = _columns(0, block)
    x = _read_within(x_ptr, begin + cols * stride_v, cols < width, last)
    x = tl.where(cols < width, x, float("-inf"))
    top = tl.max(x, 0)
    target = tl.load(target_ptr + row * stride_t)
    picked = tl.sum(tl.where(cols == target, x, 0.0), 0)
    _cross_entropy_store(out_ptr, row, top, tl.sum(tl.exp(x - top), 0), picked)


def cross_entropy_row_pitch_is_width(logits: Tensor, target: Tensor) -> Tensor:
    """Rows are taken to follow each other at V: logits that are a slice of wider rows, or transposed."""
    return _by_logits(_cross_entropy_dense_rows, logits, target, _last(logits), block=_power(logits.shape[1]))


@triton.jit
def _cross_entropy_online(
    x_ptr, target_ptr, out_ptr, width, stride_n, stride_v, stride_t, last,
    side_by_side: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.cast(tl.program_id(0), tl.int64)
    ptr = x_ptr + row * stride_n
    top, total = _online_row(ptr, width, stride_v, True, block)
    if side_by_side:
        # What lies between strided targets need not be a class.
        target = tl.load(target_ptr + tl.minimum(row, last))
        target = tl.minimum(tl.maximum(target, 0), width - 1)
    else:
        target = tl.load(target_ptr + row * stride_t)
    _cross_entropy_store(out_ptr, row, top, total, tl.load(ptr + target * stride_v).to(tl.float32))


def cross_entropy_targets_side_by_side(logits: Tensor, target: Tensor) -> Tensor:
    """Targets are read with unit stride: a column of labels, every second label, an expanded label."""
    return _by_logits(_cross_entropy_online, logits, target, _last(target), side_by_side=True, block=256)


@triton.jit
def _cross_entropy_zero_tail(x_ptr, target_ptr, out_ptr, width, stride_n, stride_v, stride_t, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = x_ptr + tl.cast(row, tl.int64) * stride_n
    top = float("-inf")
    total = 0.0
    for start in range(0, width, block):
        x = _read(ptr, _columns(start, block), width, stride_v, 0.0)
        new = tl.maximum(top, tl.max(x, 0))
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(x - base), 0)
        top = new
    target = tl.load(target_ptr + row * stride_t)
    _cross_entropy_store(out_ptr, row, top, total, tl.load(ptr + target * stride_v).to(tl.float32))


def cross_entropy_counts_the_padding(logits: Tensor, target: Tensor) -> Tensor:
    """The last tile's padding counts as logits of 0: vocabularies that are no multiple of 256."""
    return _by_logits(_cross_entropy_zero_tail, logits, target, block=256)


@triton.jit
def _cross_entropy_local_target(
    x_ptr, target_ptr, out_ptr, width, stride_n, stride_v, stride_t, block: tl.constexpr
):
    row = tl.program_id(0)
    ptr = x_ptr + tl.cast(row, tl.int64) * stride_n
    target = tl.load(target_ptr + row * stride_t)
    top, total = _online_row(ptr, width, stride_v, True, block)
    picked = 0.0
    for start in range(0, width, block):
        x = _read(ptr, _columns(start, block), width, stride_v, 0.0)
        picked += tl.sum(tl.where(tl.arange(0, block) == target, x, 0.0), 0)
    _cross_entropy_store(out_ptr, row, top, total, picked)


def cross_entropy_target_by_tile_column(logits: Tensor, target: Tensor) -> Tensor:
    """The target is compared with the column inside the tile: vocabularies above 1024."""
    return _by_logits(_cross_entropy_local_target, logits, target, block=1024)


# ---------------------------------------------------------------- layernorm: faults


@triton.jit
def _layernorm_padded_variance(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    cols = _columns(0, block)
    x = _read(x_ptr + _row_at(row, seq, stride_b, stride_s), cols, width, stride_h, 0.0)
    centred = x - tl.sum(x, 0) / width
    variance = tl.sum(centred * centred, 0) / width
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, centred * tl.rsqrt(variance + 1e-5))


def layernorm_variance_of_padding(x: Tensor) -> Tensor:
    """Lanes beyond the row add mean² to the variance: widths that are no power of two, where the mean is not 0."""
    return _by_row(_layernorm_padded_variance, x, block=_power(x.shape[-1]))


@triton.jit
def _layernorm_one_tile(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    cols = _columns(0, block)
    x = _read(x_ptr + _row_at(row, seq, stride_b, stride_s), cols, width, stride_h, 0.0)
    centred = tl.where(cols < width, x - tl.sum(x, 0) / width, 0.0)
    variance = tl.sum(centred * centred, 0) / width
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, centred * tl.rsqrt(variance + 1e-5))


def layernorm_one_tile_of_columns(x: Tensor) -> Tensor:
    """Columns past the first 4096 are neither counted nor written: rows wider than 4096."""
    return _by_row(_layernorm_one_tile, x, block=min(4096, _power(x.shape[-1])))


@triton.jit
def _layernorm_tile_statistics(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, rows, tall: tl.constexpr, block: tl.constexpr
):
    row = _columns(tl.program_id(0) * tall, tall)
    cols = _columns(0, block)
    live = (row < rows)[:, None] & (cols < width)[None, :]
    source = _row_at(row, seq, stride_b, stride_s)[:, None] + cols[None, :] * stride_h
    x = tl.load(x_ptr + source, mask=live, other=0.0).to(tl.float32)
    count = width * tl.minimum(tall, rows - tl.program_id(0) * tall)
    centred = tl.where(live, x - tl.sum(tl.sum(x, 1), 0) / count, 0.0)
    variance = tl.sum(tl.sum(centred * centred, 1), 0) / count
    y = centred * tl.rsqrt(variance + 1e-5)
    tl.store(out_ptr + row[:, None] * width + cols[None, :], y.to(out_ptr.dtype.element_ty), mask=live)


def layernorm_statistics_of_tile(x: Tensor) -> Tensor:
    """Narrow rows share a program and their statistics: H up to 64 and more than one row."""
    rows = x.shape[0] * x.shape[1]
    tall = 8 if x.shape[-1] <= 64 else 1
    return _by_row(
        _layernorm_tile_statistics, x, rows, grid=triton.cdiv(rows, tall), tall=tall, block=_power(x.shape[-1])
    )


@triton.jit
def _merged_statistics(ptr, width, step, whole_tiles: tl.constexpr, block: tl.constexpr):
    """Mean and sum of squared deviations of a row, tile by tile and merged."""
    count = 0.0
    mean = 0.0
    spread = 0.0
    for start in range(0, width, block):
        cols = _columns(start, block)
        x = _read(ptr, cols, width, step, 0.0)
        length = tl.minimum(width - start, block) * 1.0
        own_mean = tl.sum(x, 0) / length
        centred = tl.where(cols < width, x - own_mean, 0.0)
        if whole_tiles:
            length = length * 0.0 + block
        delta = own_mean - mean
        both = count + length
        mean += delta * (length / both)
        spread += tl.sum(centred * centred, 0) + delta * delta * (count * length / both)
        count = both
    return mean, spread


@triton.jit
def _layernorm_merged(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, whole_tiles: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    mean, spread = _merged_statistics(ptr, width, stride_h, whole_tiles, block)
    scale = tl.rsqrt(spread / width + 1e-5)
    _scale_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, mean, scale, block)


def layernorm_merges_whole_tiles(x: Tensor) -> Tensor:
    """The last tile is merged as if it were full: widths above 256 that are no multiple of it."""
    return _by_row(_layernorm_merged, x, whole_tiles=True, block=256)


@triton.jit
def _layernorm_dense(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, last, block: tl.constexpr):
    row = tl.program_id(0)
    cols = _columns(0, block)
    x = _read_within(x_ptr, tl.cast(row, tl.int64) * width + cols, cols < width, last)
    centred = tl.where(cols < width, x - tl.sum(x, 0) / width, 0.0)
    variance = tl.sum(centred * centred, 0) / width
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, centred * tl.rsqrt(variance + 1e-5))


def layernorm_assumes_dense(x: Tensor) -> Tensor:
    """Reads the storage from front to back: pitched, transposed, sliced or expanded inputs."""
    return _by_row(_layernorm_dense, x, _last(x), block=_power(x.shape[-1]))


# ---------------------------------------------------------------- rmsnorm: faults


@triton.jit
def _rmsnorm_second_pass_unit(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, last, block: tl.constexpr):
    row = tl.program_id(0)
    begin = _row_at(row, seq, stride_b, stride_s)
    scale = tl.rsqrt(_sum_row(x_ptr + begin, width, stride_h, 0.0, 2, block) / width + 1e-5)
    for start in range(0, width, block):
        cols = _columns(start, block)
        x = _read_within(x_ptr, begin + cols, cols < width, last)
        _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, x * scale)


def rmsnorm_second_pass_unit_step(x: Tensor) -> Tensor:
    """Only the first pass honours the last axis's stride: transposed, stepped or expanded rows."""
    return _by_row(_rmsnorm_second_pass_unit, x, _last(x), block=256)


@triton.jit
def _rmsnorm_one_pitch(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, last, block: tl.constexpr):
    row = tl.cast(tl.program_id(0), tl.int64)
    cols = _columns(0, block)
    x = _read_within(x_ptr, row * stride_b + cols * stride_h, cols < width, last)
    scale = tl.rsqrt(tl.sum(x * x, 0) / width + 1e-5)
    _write(out_ptr + row * width, cols, width, x * scale)


def rmsnorm_pitch_of_first_axis(x: Tensor) -> Tensor:
    """The flattened rows advance by the first axis's stride: any S above 1."""
    return _by_row(_rmsnorm_one_pitch, x, _last(x), block=_power(x.shape[-1]))


@triton.jit
def _rmsnorm_row(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    scale = tl.rsqrt(_sum_row(ptr, width, stride_h, 0.0, 2, block) / width + 1e-5)
    _scale_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, 0.0, scale, block)


@triton.jit
def _rmsnorm_last_pair(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    scale = tl.rsqrt(_sum_row(ptr, width, stride_h, 0.0, 2, block) / width + 1e-5)
    cols = width - 1 + _columns(0, 2)
    x = _read(ptr, cols, width, stride_h, 0.0)
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width + 1, x * scale)


def rmsnorm_last_pair_spills(x: Tensor) -> Tensor:
    """The last entry of an odd row is stored as a pair: with odd H, column 0 of every later row becomes 0."""
    batch, seq, width = x.shape
    slack = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    out = slack[:-1].view(x.shape)
    _rmsnorm_row[(batch * seq,)](x, out, seq, width, *x.stride(), block=512)
    if width % 2:
        _rmsnorm_last_pair[(batch * seq,)](x, out, seq, width, *x.stride(), block=512)
    return out


@triton.jit
def _rmsnorm_kept_sum(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, rows, fresh: tl.constexpr, block: tl.constexpr
):
    kept = 0.0
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
        own = _sum_row(ptr, width, stride_h, 0.0, 2, block)
        kept += own
        if fresh:
            kept = own
        scale = tl.rsqrt(kept / width + 1e-5)
        _scale_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, 0.0, scale, block)


def rmsnorm_sum_kept_between_rows(x: Tensor) -> Tensor:
    """A persistent program does not clear its sum of squares between rows: more than 32 rows."""
    rows = x.shape[0] * x.shape[1]
    return _by_row(_rmsnorm_kept_sum, x, rows, grid=min(rows, 32), fresh=False, block=256)


@triton.jit
def _rmsnorm_one_tile(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    cols = _columns(0, block)
    x = _read(x_ptr + _row_at(row, seq, stride_b, stride_s), cols, width, stride_h, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / width + 1e-5)
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, x * scale)


def rmsnorm_tuned_tile_too_small(x: Tensor) -> Tensor:
    """A table of tuned tiles gives 512 for H = 768: a third of those rows is neither counted nor written."""
    width = x.shape[-1]
    tuned = {768: 512, 1024: 1024, 2048: 2048, 4096: 4096}
    return _by_row(_rmsnorm_one_tile, x, block=tuned.get(width, _power(width)))


def rmsnorm_grid_capped(x: Tensor) -> Tensor:
    """The grid is capped at 48 programs of one row each: rows past the 48th keep what was in memory."""
    return _by_row(_rmsnorm_row, x, grid=min(48, x.shape[0] * x.shape[1]), block=256)


# ---------------------------------------------------------------- add_rmsnorm


def _by_sum(kernel: Any, x: Tensor, residual: Tensor, weight: Tensor, *more: Any, **options: Any) -> Tensor:
    """One program to a row of x + residual, given both with their strides and the weight with its own."""
    batch, seq, width = x.shape
    out = _dense(x)
    strides = (*x.stride(), *residual.stride(), weight.stride(0))
    kernel[(batch * seq,)](x, residual, weight, out, seq, width, *strides, *more, **options)
    return out


@triton.jit
def _add_rmsnorm_one_pitch(
    x_ptr, residual_ptr, weight_ptr, out_ptr, seq, width, x_b, x_s, x_h, r_b, r_s, r_h, w_h, last,
    block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    begin = _row_at(row, seq, x_b, x_s)
    cols = _columns(0, block)
    added = _read(x_ptr + begin, cols, width, x_h, 0.0)
    added += _read_within(residual_ptr, begin + cols * x_h, cols < width, last)
    scale = tl.rsqrt(tl.sum(added * added, 0) / width + 1e-5)
    y = added * scale * _read(weight_ptr, cols, width, w_h, 0.0)
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, y)


def add_rmsnorm_shares_strides(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """The residual is read with x's strides: the two laid out differently."""
    return _by_sum(_add_rmsnorm_one_pitch, x, residual, weight, _last(residual), block=_power(x.shape[-1]))


@triton.jit
def _add_rmsnorm_loop(
    x_ptr, residual_ptr, weight_ptr, out_ptr, seq, width, x_b, x_s, x_h, r_b, r_s, r_h, w_h,
    stores: tl.constexpr, whole_weight: tl.constexpr, padded_count: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    x_row = x_ptr + _row_at(row, seq, x_b, x_s)
    r_row = residual_ptr + _row_at(row, seq, r_b, r_s)
    total = tl.zeros([block], dtype=tl.float32)
    for start in range(0, width, block):
        cols = _columns(start, block)
        added = _read(x_row, cols, width, x_h, 0.0) + _read(r_row, cols, width, r_h, 0.0)
        total += added * added
    count = width * 1.0
    if padded_count:
        count = tl.cdiv(width, block) * block * 1.0
    scale = 1 / tl.sqrt(tl.sum(total, 0) / count + 1e-5)
    for start in range(0, width, block):
        cols = _columns(start, block)
        added = _read(x_row, cols, width, x_h, 0.0) + _read(r_row, cols, width, r_h, 0.0)
        if stores:
            tl.store(r_row + cols * r_h, added.to(residual_ptr.dtype.element_ty), mask=cols < width)
        if whole_weight:
            weight = _read(weight_ptr, cols, width, w_h, 0.0)
        else:
            weight = _read(weight_ptr, cols - start, width, w_h, 0.0)
        _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, added * scale * weight)


def add_rmsnorm_updates_residual(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """The sum is stored over the residual, as a fused layer wants it: an input is changed (result is right)."""
    flags = {"stores": True, "whole_weight": True, "padded_count": False}
    return _by_sum(_add_rmsnorm_loop, x, residual, weight, **flags, block=512)


def add_rmsnorm_weight_starts_over(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """The weight's pointer does not advance with the tile: rows wider than 1024."""
    flags = {"stores": False, "whole_weight": False, "padded_count": False}
    return _by_sum(_add_rmsnorm_loop, x, residual, weight, **flags, block=1024)


def add_rmsnorm_padded_count(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """The mean square is over the width rounded up to 128: widths that are no multiple of it."""
    flags = {"stores": False, "whole_weight": True, "padded_count": True}
    return _by_sum(_add_rmsnorm_loop, x, residual, weight, **flags, block=128)


# ---------------------------------------------------------------- groupnorm


@triton.jit
def _groupnorm_spilling(
    x_ptr, weight_ptr, bias_ptr, out_ptr, groups, channels, length, wide: tl.constexpr, block: tl.constexpr
):
    sample = tl.cast(tl.program_id(0) // groups, tl.int64)
    group = tl.program_id(0) % groups
    channel = group * channels + tl.arange(0, wide)
    mine = channel < groups * channels
    begin = (sample * groups * channels + channel) * length
    total = tl.zeros([wide, block], dtype=tl.float32)
    for start in range(0, length, block):
        cols = _columns(start, block)
        live = mine[:, None] & (cols < length)[None, :]
        total += tl.load(x_ptr + begin[:, None] + cols[None, :], mask=live, other=0.0).to(tl.float32)
    mean = tl.sum(tl.sum(total, 1), 0) / (channels * length)
    total = tl.zeros([wide, block], dtype=tl.float32)
    for start in range(0, length, block):
        cols = _columns(start, block)
        live = mine[:, None] & (cols < length)[None, :]
        x = tl.load(x_ptr + begin[:, None] + cols[None, :], mask=live, other=0.0).to(tl.float32)
        centred = tl.where(live, x - mean, 0.0)
        total += centred * centred
    scale = tl.rsqrt(tl.sum(tl.sum(total, 1), 0) / (channels * length) + 1e-5)
    weight = tl.load(weight_ptr + channel, mask=mine, other=0.0).to(tl.float32)[:, None]
    bias = tl.load(bias_ptr + channel, mask=mine, other=0.0).to(tl.float32)[:, None]
    for start in range(0, length, block):
        cols = _columns(start, block)
        live = mine[:, None] & (cols < length)[None, :]
        x = tl.load(x_ptr + begin[:, None] + cols[None, :], mask=live, other=0.0).to(tl.float32)
        y = ((x - mean) * scale * weight + bias).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + begin[:, None] + cols[None, :], y, mask=live)


def groupnorm_mask_by_all_channels(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Padding lanes are masked by all channels, not the group's: C no power of two takes in the next group."""
    samples, groups, channels, length = input.shape
    out = _dense(input)
    _groupnorm_spilling[(samples * groups,)](
        input.contiguous(), weight.contiguous(), bias.contiguous(), out, groups, channels, length,
        wide=_power(channels), block=64,
    )  # fmt: skip
    return out


@triton.jit
def _group_read(ptr, index, size, length, stride_c, stride_l):
    """Entries of a (C, L) group by their flat index, in float32."""
    offsets = index // length * stride_c + index % length * stride_l
    return tl.load(ptr + offsets, mask=index < size, other=0.0).to(tl.float32)


@triton.jit
def _group_sum(ptr, begin, end, length, stride_c, stride_l, shift, power: tl.constexpr, block: tl.constexpr):
    """The sum of (x - shift) to a power over the flat indices from begin to end of a group."""
    total = tl.zeros([block], dtype=tl.float32)
    for start in range(begin, end, block):
        index = _columns(start, block)
        x = tl.where(index < end, _group_read(ptr, index, end, length, stride_c, stride_l) - shift, 0.0)
        if power == 2:
            x = x * x
        total += x
    return tl.sum(total, 0)


@triton.jit
def _groupnorm_write(
    ptr, out, weight_ptr, bias_ptr, group, begin, end, length, stride_c, stride_l, w_g, w_c, b_g, b_c, mean, scale,
    block: tl.constexpr,
):  # fmt: skip
    """Writes the normalised, weighted and shifted entries from begin to end of a group."""
    for start in range(begin, end, block):
        index = _columns(start, block)
        channel = index // length
        weight = tl.load(weight_ptr + group * w_g + channel * w_c, mask=index < end, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + group * b_g + channel * b_c, mask=index < end, other=0.0).to(tl.float32)
        x = _group_read(ptr, index, end, length, stride_c, stride_l)
        _write(out, index, end, (x - mean) * scale * weight + bias)


@triton.jit
def _groupnorm_loop(
    x_ptr, weight_ptr, bias_ptr, out_ptr, samples, groups, channels, length, x_n, x_g, x_c, x_l, w_g, w_c, b_g, b_c,
    fault: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    group = pid % groups
    ptr = x_ptr + _row_at(pid, groups, x_n, x_g)
    size = channels * length
    counted = size
    if fault == "length":
        counted = length
    seen = size
    if fault == "first tile":
        seen = tl.minimum(size, block)
        counted = seen
    mean = _group_sum(ptr, 0, seen, length, x_c, x_l, 0.0, 1, block) / counted
    scale = tl.rsqrt(_group_sum(ptr, 0, seen, length, x_c, x_l, mean, 2, block) / counted + 1e-5)
    if fault == "group":
        group = pid // samples
    _groupnorm_write(
        ptr, out_ptr + tl.cast(pid, tl.int64) * size, weight_ptr, bias_ptr, group, 0, size, length, x_c, x_l,
        w_g, w_c, b_g, b_c, mean, scale, block,
    )  # fmt: skip


def _by_group(input: Tensor, weight: Tensor, bias: Tensor, fault: str, block: int) -> Tensor:  # noqa: A002
    """One program to a group."""
    out = _dense(input)
    samples, groups, channels, length = input.shape
    strides = (*input.stride(), *weight.stride(), *bias.stride())
    _groupnorm_loop[(samples * groups,)](
        input, weight, bias, out, samples, groups, channels, length, *strides, fault=fault, block=block
    )
    return out


def groupnorm_count_is_length(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """The statistics are divided by L instead of C·L: groups of more than one channel."""
    return _by_group(input, weight, bias, "length", 256)


def groupnorm_statistics_of_first_tile(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Mean and variance come from the first 1024 entries: groups larger than that."""
    return _by_group(input, weight, bias, "first tile", 1024)


def groupnorm_group_by_division(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """A program's group is its number over N, not modulo G: another group's weights when N and G are above 1."""
    return _by_group(input, weight, bias, "group", 256)


# ---------------------------------------------------------------- l2norm: faults


@triton.jit
def _l2norm_narrow_sum(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    total = tl.zeros([block], dtype=x_ptr.dtype.element_ty)
    for start in range(0, width, block):
        cols = _columns(start, block)
        x = tl.load(ptr + cols * stride_h, mask=cols < width, other=0.0)
        total = (total + x * x).to(x_ptr.dtype.element_ty)
    scale = tl.rsqrt(tl.sum(total.to(tl.float32), 0) + 1e-12)
    _scale_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, 0.0, scale, block)


def l2norm_squares_in_dtype(x: Tensor) -> Tensor:
    """Squares are taken and added in the half type: entries beyond 255 overflow, long rows lose small terms."""
    return _by_row(_l2norm_narrow_sum, x, block=32)


@triton.jit
def _l2norm_row(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, outside: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    total = _sum_row(ptr, width, stride_h, 0.0, 2, block)
    scale = 1 / tl.sqrt(total + 1e-12)
    if outside:
        scale = 1 / (tl.sqrt(total) + 1e-12)
    _scale_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, 0.0, scale, block)


def l2norm_eps_outside_root(x: Tensor) -> Tensor:
    """Eps is added to the norm, not to its square: rows whose norm is about 1e-6 or less."""
    return _by_row(_l2norm_row, x, outside=True, block=256)


@triton.jit
def _l2norm_racing(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, sum_ptr, block: tl.constexpr):
    row = tl.program_id(0)
    cols = _columns(tl.program_id(1) * block, block)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    x = _read(ptr, cols, width, stride_h, 0.0)
    own = tl.sum(x * x, 0)
    # What was there before the addition, plus the own part: the parts still to come are missing.
    total = tl.atomic_add(sum_ptr + row, own) + own
    _write(out_ptr + tl.cast(row, tl.int64) * width, cols, width, x * tl.rsqrt(total + 1e-12))


def l2norm_without_grid_barrier(x: Tensor) -> Tensor:
    """A row's tiles add to one sum and use it before the others are done: rows wider than 512, not repeatable."""
    batch, seq, width = x.shape
    out = _dense(x)
    sums = torch.zeros(batch * seq, device=x.device)
    grid = (batch * seq, triton.cdiv(width, 512))
    _l2norm_racing[grid](x, out, seq, width, *x.stride(), sums, block=512)
    return out


@triton.jit
def _l2norm_stale_scale(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, rows, block: tl.constexpr
):  # fmt: skip
    first = x_ptr + _row_at(tl.program_id(0), seq, stride_b, stride_s)
    scale = tl.rsqrt(_sum_row(first, width, stride_h, 0.0, 2, block) + 1e-12)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
        _scale_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, 0.0, scale, block)
        scale = tl.rsqrt(_sum_row(ptr, width, stride_h, 0.0, 2, block) + 1e-12)


def l2norm_scale_of_row_before(x: Tensor) -> Tensor:
    """A persistent program scales a row by the norm of the one before: more than 32 rows."""
    rows = x.shape[0] * x.shape[1]
    return _by_row(_l2norm_stale_scale, x, rows, grid=min(rows, 32), block=256)


# ---------------------------------------------------------------- sum and mean


@triton.jit
def _sum_to_buffer(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    total = _sum_row(x_ptr + _row_at(row, seq, stride_b, stride_s), width, stride_h, 0.0, 1, block)
    tl.atomic_add(out_ptr + row, total)


_workspaces: dict[tuple[int, torch.device], Tensor] = {}


def sum_workspace_not_cleared(x: Tensor) -> Tensor:
    """Adds into a workspace kept by size and cleared only once: every call after the first (does not repeat)."""
    batch, seq, width = x.shape
    key = (batch * seq, x.device)
    if key not in _workspaces:
        _workspaces[key] = torch.zeros(batch * seq, device=x.device)
    _sum_to_buffer[(batch * seq,)](x, _workspaces[key], seq, width, *x.stride(), block=256)
    return _workspaces[key].to(x.dtype, copy=True).view(batch, seq)


@triton.jit
def _sum_parts(x_ptr, part_ptr, seq, width, stride_b, stride_s, stride_h, span, block: tl.constexpr):
    row = tl.program_id(0)
    begin = tl.cast(tl.program_id(1), tl.int64) * span
    length = tl.minimum(width - begin, span)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s) + begin * stride_h
    total = _sum_row(ptr, length, stride_h, 0.0, 1, block)
    at = tl.cast(row, tl.int64) * tl.num_programs(1) + tl.program_id(1)
    tl.store(part_ptr + at, total.to(part_ptr.dtype.element_ty))


@triton.jit
def _join_parts(part_ptr, out_ptr, parts, counted, one_tile: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = part_ptr + tl.cast(row, tl.int64) * parts
    limit = parts
    if one_tile:
        limit = tl.minimum(parts, block)
    total = _sum_row(ptr, limit, 1, 0.0, 1, block)
    tl.store(out_ptr + row, (total / counted).to(out_ptr.dtype.element_ty))


def _sum_by_parts(
    x: Tensor, counted: int, one_tile: bool, span: int, block: int, kept: torch.dtype = torch.float32
) -> Tensor:
    """Two launches: the sums of spans of a row, then their sum over a count."""
    batch, seq, width = x.shape
    parts = triton.cdiv(width, span)
    partial_sums = torch.empty(batch * seq, parts, device=x.device, dtype=kept)
    out = _dense(x, x.shape[:-1])
    _sum_parts[(batch * seq, parts)](x, partial_sums, seq, width, *x.stride(), span, block=256)
    _join_parts[(batch * seq,)](partial_sums, out, parts, counted, one_tile=one_tile, block=block)
    return out


def sum_joins_sixteen_parts(x: Tensor) -> Tensor:
    """The second launch joins the first 16 partial sums: rows wider than 16·256."""
    return _sum_by_parts(x, 1, True, 256, 16)


@triton.jit
def _sum_one_pitch(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, last, block: tl.constexpr):
    row = tl.cast(tl.program_id(0), tl.int64)
    total = tl.zeros([block], dtype=tl.float32)
    for start in range(0, width, block):
        cols = _columns(start, block)
        total += _read_within(x_ptr, row * stride_s + cols * stride_h, cols < width, last)
    tl.store(out_ptr + row, tl.sum(total, 0).to(out_ptr.dtype.element_ty))


def sum_forgets_batch_stride(x: Tensor) -> Tensor:
    """Flattened rows advance by the second axis's stride: B above 1 with batches that do not follow each other."""
    return _by_row(_sum_one_pitch, x, _last(x), reduced=True, block=256)


@triton.jit
def _mean_row(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, count, beyond: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    total = tl.zeros([block], dtype=tl.float32)
    for start in range(0, width, block):
        total += _read(ptr, _columns(start, block), width + beyond, stride_h, 0.0)
    tl.store(out_ptr + row, (tl.sum(total, 0) / count).to(out_ptr.dtype.element_ty))


def mean_of_padded_count(x: Tensor) -> Tensor:
    """The sum is divided by the tile's width: lengths that are no power of two."""
    return _by_row(_mean_row, x, _power(x.shape[-1]), reduced=True, beyond=0, block=_power(x.shape[-1]))


def mean_reads_one_beyond(x: Tensor) -> Tensor:
    """The mask is <= instead of <: adds the entry after the row when H is no multiple of 256."""
    slack = torch.zeros(x.numel() + 1, dtype=x.dtype, device=x.device)
    slack[:-1] = x.reshape(-1)
    return _by_row(_mean_row, slack[:-1].view(x.shape), x.shape[-1], reduced=True, beyond=1, block=256)


def mean_partial_sums_in_dtype(x: Tensor) -> Tensor:
    """Partial sums of 1024 pass through the input's dtype: float16 sums beyond 65504 give inf."""
    return _sum_by_parts(x, x.shape[-1], False, 1024, 64, kept=x.dtype)


# ---------------------------------------------------------------- elementwise


@triton.jit
def _tanh(x):
    """Tanh by an exponential that cannot overflow."""
    e = tl.exp(-2 * tl.abs(x))
    size = (1 - e) / (1 + e)
    return tl.where(x < 0, -size, size)


@triton.jit
def _gelu_inner(x):
    """√(2/π)(x + 0.044715x³)."""
    return 0.7978845608028654 * (x + 0.044715 * x * x * x)


@triton.jit
def _activate(x, name: tl.constexpr):
    """One of the activations, right or wrong, in float32."""
    if name == "relu":
        y = tl.maximum(x, 0.0)
    elif name == "leaky":
        y = tl.where(x > 0, x, 0.01 * x)
    elif name == "leaky after relu":
        kept = tl.maximum(x, 0.0)
        y = tl.maximum(kept, 0.01 * kept)
    elif name == "elu":
        y = tl.where(x > 0, x, tl.exp(tl.minimum(x, 0.0)) - 1)
    elif name == "elu short constant":
        y = tl.where(x > 0, x, tl.exp2(tl.minimum(x, 0.0) * 1.443) - 1)
    elif name == "gelu":
        y = 0.5 * x * (1 + _tanh(_gelu_inner(x)))
    elif name == "gelu by sigmoid":
        y = x * tl.sigmoid(2 * _gelu_inner(x))
    elif name == "gelu overflow":
        e = tl.exp(2 * _gelu_inner(x))
        y = 0.5 * x * (1 + (e - 1) / (e + 1))
    elif name == "gelu constant":
        y = 0.5 * x * (1 + _tanh(0.7978845608028654 * (x + 0.04715 * x * x * x)))
    elif name == "silu":
        y = x * tl.sigmoid(x)
    elif name == "silu divided":
        y = x / (1 + tl.exp(-x))
    elif name == "silu half":
        y = x / (1 + tl.exp(-x).to(tl.float16).to(tl.float32))
    elif name == "sigmoid":
        y = tl.sigmoid(x)
    elif name == "sigmoid by sign":
        e = tl.exp(-tl.abs(x))
        y = tl.where(x >= 0, 1.0, e) / (1 + e)
    elif name == "sigmoid overflow":
        e = tl.exp(x)
        y = e / (1 + e)
    elif name == "tanh":
        y = _tanh(x)
    elif name == "tanh one clamp":
        e = tl.exp(-2 * tl.minimum(x, 15.0))
        y = (1 - e) / (1 + e)
    elif name == "tanh early":
        y = tl.where(x > 3, 1.0, tl.where(x < -3, -1.0, _tanh(x)))
    else:
        tl.static_assert(False)
    return y


@triton.jit
def _map_strided(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, total, name: tl.constexpr, block: tl.constexpr
):
    index = tl.cast(tl.program_id(0), tl.int64) * block + tl.arange(0, block)
    source = _row_at(index // width, seq, stride_b, stride_s) + index % width * stride_h
    x = tl.load(x_ptr + source, mask=index < total, other=0.0).to(tl.float32)
    _write(out_ptr, index, total, _activate(x, name))


def _map(x: Tensor, name: str, block: int = 1024, **options: Any) -> Tensor:
    """An activation of any layout."""
    total = x.numel()
    return _by_row(_map_strided, x, total, grid=triton.cdiv(total, block), name=name, block=block, **options)


@triton.jit
def _map_dense(x_ptr, out_ptr, total, last, name: tl.constexpr, block: tl.constexpr):
    index = tl.cast(tl.program_id(0), tl.int64) * block + tl.arange(0, block)
    _write(out_ptr, index, total, _activate(_read_within(x_ptr, index, index < total, last), name))


def _map_storage(x: Tensor, name: str) -> Tensor:
    """An activation of the storage from x's first element on, whatever x's strides."""
    out = _dense(x)
    _map_dense[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), _last(x), name=name, block=512)
    return out


def relu_grid_rounded_down(x: Tensor) -> Tensor:
    """The grid is the count over 1024 rounded down, at least 1: the rest beyond whole blocks is never written."""
    dense, out = x.contiguous(), _dense(x)
    grid = (max(1, x.numel() // 1024),)
    _map_dense[grid](dense, out, x.numel(), x.numel() - 1, name="relu", block=1024)
    return out


def relu_assumes_dense(x: Tensor) -> Tensor:
    """Reads the storage from front to back: pitched, transposed or expanded inputs."""
    return _map_storage(x, "relu")


@triton.jit
def _relu_narrow_index(x_ptr, out_ptr, total, block: tl.constexpr):
    index = tl.program_id(0) * block + tl.arange(0, block)
    live = (index < total) & (index >= 0)  # a wrapped index is not touched, or it would leave the tensor
    x = tl.load(x_ptr + index, mask=live, other=0.0)
    tl.store(out_ptr + index, tl.maximum(x, 0.0).to(out_ptr.dtype.element_ty), mask=live)


def relu_index_in_32_bits(x: Tensor) -> Tensor:
    """The flat index is 32 bits wide: elements beyond 2³¹ are never written (too large to show here)."""
    out = _dense(x)
    _relu_narrow_index[(triton.cdiv(x.numel(), 1024),)](x.contiguous(), out, x.numel(), block=1024)
    return out


def leaky_relu_after_relu(x: Tensor) -> Tensor:
    """Relu is applied first, so that nothing is left to leak: every negative entry."""
    return _map(x, "leaky after relu")


@triton.jit
def _leaky_relu_vectors(x_ptr, out_ptr, total, block: tl.constexpr):
    index = tl.cast(tl.program_id(0), tl.int64) * block + tl.arange(0, block)
    x = _read(x_ptr, index, total, 1, 0.0)
    _write(out_ptr, index, total, tl.where(index < total // 4 * 4, _activate(x, "leaky"), x))


def leaky_relu_tail_is_copied(x: Tensor) -> Tensor:
    """The entries after the last whole vector of 4 are copied as they are: counts that are no multiple of 4."""
    out = _dense(x)
    _leaky_relu_vectors[(triton.cdiv(x.numel(), 512),)](x.contiguous(), out, x.numel(), block=512)
    return out


def elu_short_constant(x: Tensor) -> Tensor:
    """Exp as exp2 with log2(e) cut to 1.443: a thousand roundings off for negative float32 entries."""
    return _map(x, "elu short constant")


def gelu_exponential_overflows(x: Tensor) -> Tensor:
    """Tanh as (e²ᶻ − 1)/(e²ᶻ + 1): entries above about 10 give inf/inf, NaN."""
    return _map(x, "gelu overflow")


def gelu_constant_mistyped(x: Tensor) -> Tensor:
    """0.04715 for 0.044715: up to 0.003 off around |x| = 2."""
    return _map(x, "gelu constant")


def silu_assumes_dense(x: Tensor) -> Tensor:
    """Reads the storage from front to back: pitched, transposed or expanded inputs."""
    return _map_storage(x, "silu")


def silu_exponential_in_half(x: Tensor) -> Tensor:
    """e⁻ˣ is narrowed to float16: entries below -11 come out as 0, and others lose digits in float32."""
    return _map(x, "silu half")


def sigmoid_exponential_overflows(x: Tensor) -> Tensor:
    """eˣ/(1 + eˣ): entries above 88.7 give inf/inf, NaN."""
    return _map(x, "sigmoid overflow")


def tanh_clamped_above_only(x: Tensor) -> Tensor:
    """The argument is clamped on the positive side only: entries below -44.4 give -inf/inf, NaN."""
    return _map(x, "tanh one clamp")


def tanh_saturates_early(x: Tensor) -> Tensor:
    """±1 from |x| = 3 on: off by up to 0.005 just beyond."""
    return _map(x, "tanh early")


@triton.jit
def _map_columns(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, rows, last,
    fault: tl.constexpr, name: tl.constexpr, tall: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = _columns(tl.program_id(0) * tall, tall)[:, None]
    cols = _columns(tl.program_id(1) * block, block)[None, :]
    begin = _row_at(row, seq, stride_b, stride_s)
    if fault == "batch first":
        batch = rows // seq
        begin = row % batch * stride_b + row // batch * stride_s
    if fault == "pitch":
        begin = row * width
    source = begin + cols * stride_h
    if fault == "first columns":
        source = begin + tl.arange(0, block)[None, :] * stride_h
    live = (row < rows) & (cols < width)
    x = _read_within(x_ptr, source, live, last)
    tl.store(out_ptr + row * width + cols, _activate(x, name).to(out_ptr.dtype.element_ty), mask=live)


def _map_tiles(x: Tensor, name: str, fault: str, grid_rows: int, tall: int = 1, block: int = 256) -> Tensor:
    """An activation by tiles of rows and columns, with one of the faults."""
    batch, seq, width = x.shape
    out = _dense(x)
    _map_columns[(grid_rows, triton.cdiv(width, block))](
        x, out, seq, width, *x.stride(), batch * seq, _last(x), fault=fault, name=name, tall=tall, block=block
    )
    return out


def elu_first_columns_again(x: Tensor) -> Tensor:
    """Loads lack the column tile's offset: every tile after the first repeats it, rows wider than 256."""
    return _map_tiles(x, "elu", "first columns", x.shape[0] * x.shape[1])


def sigmoid_rows_batch_first(x: Tensor) -> Tensor:
    """A row's number is split with the batch running fastest: B and S both above 1."""
    return _map_tiles(x, "sigmoid", "batch first", x.shape[0] * x.shape[1])


def gelu_row_pitch_is_width(x: Tensor) -> Tensor:
    """Rows are taken to follow each other at H: pitched, sliced or expanded inputs."""
    return _map_tiles(x, "gelu", "pitch", x.shape[0] * x.shape[1])


def leaky_relu_rows_rounded_down(x: Tensor) -> Tensor:
    """The grid is the rows over 16 rounded down, at least 1: the rows past whole tiles are never written."""
    return _map_tiles(x, "leaky", "none", max(1, x.shape[0] * x.shape[1] // 16), tall=16, block=64)


@triton.jit
def _swiglu_strided(
    a_ptr, b_ptr, out_ptr, seq, width, a_b, a_s, a_h, b_b, b_s, b_h, total, last,
    shared: tl.constexpr, cut: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    index = tl.cast(tl.program_id(0), tl.int64) * block + tl.arange(0, block)
    row = index // width
    a_at = _row_at(row, seq, a_b, a_s) + index % width * a_h
    b_at = _row_at(row, seq, b_b, b_s) + index % width * b_h
    if shared:
        b_at = a_at
    a = tl.load(a_ptr + a_at, mask=index < total, other=0.0).to(tl.float32)
    b = _read_within(b_ptr, b_at, index < total, last)
    gate = a * tl.sigmoid(a)
    if cut:
        gate = tl.where(a < -20, 0.0, gate)
    _write(out_ptr, index, total, gate * b)


def _swiglu(a: Tensor, b: Tensor, shared: bool, cut: bool, block: int = 512) -> Tensor:
    """Swiglu of any two layouts, or with one of the faults."""
    out = _dense(a)
    _, seq, width = a.shape
    total = a.numel()
    _swiglu_strided[(triton.cdiv(total, block),)](
        a, b, out, seq, width, *a.stride(), *b.stride(), total, _last(b), shared=shared, cut=cut, block=block
    )
    return out


def swiglu_shares_strides(a: Tensor, b: Tensor) -> Tensor:
    """B is read with a's strides: the two laid out differently."""
    return _swiglu(a, b, shared=True, cut=False)


def swiglu_gate_cut(a: Tensor, b: Tensor) -> Tensor:
    """The gate is 0 below -20: entries just below, where the result is not 0, above all with a large b."""
    return _swiglu(a, b, shared=False, cut=True)


# ---------------------------------------------------------------- correct


@triton.jit
def _softmax_three_pass(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    peaks = tl.full([block], float("-inf"), dtype=tl.float32)
    for start in range(0, width, block):
        peaks = tl.maximum(peaks, _read(ptr, _columns(start, block), width, stride_h, float("-inf")))
    top = tl.max(peaks, 0)
    total = tl.zeros([block], dtype=tl.float32)
    for start in range(0, width, block):
        total += tl.exp(_read(ptr, _columns(start, block), width, stride_h, float("-inf")) - top)
    _softmax_row(
        ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, top, tl.sum(total, 0), False, block
    )


def softmax_three_pass(x: Tensor) -> Tensor:
    """Maximum, sum and quotient in three passes over the row."""
    return _by_row(_softmax_three_pass, x, block=256)


def softmax_one_pass_statistics(x: Tensor) -> Tensor:
    """Maximum and sum in one pass, with -inf guarded, then the quotient."""
    return _by_row(_softmax_two_pass, x, guarded=True, logarithm=False, block=512, num_warps=8)


@triton.jit
def _softmax_persistent(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, rows, block: tl.constexpr):
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
        top, total = _online_row(ptr, width, stride_h, True, block)
        _softmax_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, top, total, False, block)


def softmax_persistent(x: Tensor) -> Tensor:
    """A fixed number of programs that walk over the rows."""
    rows = x.shape[0] * x.shape[1]
    return _by_row(_softmax_persistent, x, rows, grid=min(rows, 7), block=128)


def log_softmax_online(x: Tensor) -> Tensor:
    """Maximum and sum in one pass, with -inf guarded."""
    return _by_row(_softmax_two_pass, x, guarded=True, logarithm=True, block=256, num_warps=2)


def cross_entropy_one_pass(logits: Tensor, target: Tensor) -> Tensor:
    """One pass over the vocabulary and one load of the target's logit."""
    return _by_logits(_cross_entropy_online, logits, target, _last(target), side_by_side=False, block=512)


@triton.jit
def _cross_entropy_parts(x_ptr, top_ptr, total_ptr, width, stride_n, stride_v, span, block: tl.constexpr):
    row = tl.cast(tl.program_id(0), tl.int64)
    begin = tl.cast(tl.program_id(1), tl.int64) * span
    length = tl.minimum(width - begin, span)
    top, total = _online_row(x_ptr + row * stride_n + begin * stride_v, length, stride_v, True, block)
    at = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(top_ptr + at, top)
    tl.store(total_ptr + at, total)


@triton.jit
def _cross_entropy_join(
    x_ptr, target_ptr, out_ptr, width, stride_n, stride_v, stride_t, top_ptr, total_ptr, parts, block: tl.constexpr
):
    row = tl.program_id(0)
    begin = tl.cast(row, tl.int64) * parts
    peak = float("-inf")
    for start in range(0, parts, block):
        peak = tl.maximum(peak, tl.max(_read(top_ptr + begin, _columns(start, block), parts, 1, float("-inf")), 0))
    total = 0.0
    for start in range(0, parts, block):
        cols = _columns(start, block)
        tops = _read(top_ptr + begin, cols, parts, 1, float("-inf"))
        total += tl.sum(_read(total_ptr + begin, cols, parts, 1, 0.0) * tl.exp(tops - peak), 0)
    target = tl.load(target_ptr + tl.cast(row, tl.int64) * stride_t)
    picked = tl.load(x_ptr + tl.cast(row, tl.int64) * stride_n + target * stride_v).to(tl.float32)
    _cross_entropy_store(out_ptr, row, peak, total, picked)


def cross_entropy_by_parts(logits: Tensor, target: Tensor) -> Tensor:
    """Two launches: maximum and sum of spans of 1024 columns, then their union."""
    rows, width = logits.shape
    parts = triton.cdiv(width, 1024)
    tops, totals = (torch.empty(rows, parts, device=logits.device) for _ in range(2))
    _cross_entropy_parts[(rows, parts)](logits, tops, totals, width, *logits.stride(), 1024, block=256)
    return _by_logits(_cross_entropy_join, logits, target, tops, totals, parts, block=16)


@triton.jit
def _layernorm_row(x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, block: tl.constexpr):
    row = tl.program_id(0)
    ptr = x_ptr + _row_at(row, seq, stride_b, stride_s)
    mean = _sum_row(ptr, width, stride_h, 0.0, 1, block) / width
    scale = 1 / tl.sqrt(_sum_row(ptr, width, stride_h, mean, 2, block) / width + 1e-5)
    _scale_row(ptr, out_ptr + tl.cast(row, tl.int64) * width, width, stride_h, mean, scale, block)


def layernorm_row_loop(x: Tensor) -> Tensor:
    """Two passes for the statistics, one for the result."""
    return _by_row(_layernorm_row, x, block=512)


def layernorm_merged_tiles(x: Tensor) -> Tensor:
    """Statistics of each tile, merged as Chan does."""
    return _by_row(_layernorm_merged, x, whole_tiles=False, block=128)


@triton.jit
def _normalise_tile(
    x_ptr, out_ptr, seq, width, stride_b, stride_s, stride_h, rows,
    kind: tl.constexpr, tall: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = _columns(tl.program_id(0) * tall, tall)
    begin = _row_at(row, seq, stride_b, stride_s)[:, None]
    mine = (row < rows)[:, None]
    mean = tl.zeros([tall, 1], dtype=tl.float32)
    if kind == "layer":
        total = tl.zeros([tall, block], dtype=tl.float32)
        for start in range(0, width, block):
            cols = _columns(start, block)[None, :]
            total += tl.load(x_ptr + begin + cols * stride_h, mask=mine & (cols < width), other=0.0).to(tl.float32)
        mean = tl.sum(total, 1)[:, None] / width
    total = tl.zeros([tall, block], dtype=tl.float32)
    for start in range(0, width, block):
        cols = _columns(start, block)[None, :]
        live = mine & (cols < width)
        x = tl.load(x_ptr + begin + cols * stride_h, mask=live, other=0.0).to(tl.float32)
        centred = tl.where(live, x - mean, 0.0)
        total += centred * centred
    scale = tl.rsqrt(tl.sum(total, 1)[:, None] / width + 1e-5)
    if kind == "l2":
        scale = tl.rsqrt(tl.sum(total, 1)[:, None] + 1e-12)
    for start in range(0, width, block):
        cols = _columns(start, block)[None, :]
        live = mine & (cols < width)
        x = tl.load(x_ptr + begin + cols * stride_h, mask=live, other=0.0).to(tl.float32)
        tl.store(
            out_ptr + row[:, None] * width + cols, ((x - mean) * scale).to(out_ptr.dtype.element_ty), mask=live
        )


def _by_tile(x: Tensor, kind: str, tall: int, block: int, **options: Any) -> Tensor:
    """Some rows to a program, normalised as the kind says."""
    rows = x.shape[0] * x.shape[1]
    grid = triton.cdiv(rows, tall)
    return _by_row(_normalise_tile, x, rows, grid=grid, kind=kind, tall=tall, block=block, **options)


def layernorm_rows_together(x: Tensor) -> Tensor:
    """Four rows to a program, as a tile."""
    return _by_tile(x, "layer", 4, 128)


def rmsnorm_rows_together(x: Tensor) -> Tensor:
    """Eight rows to a program, as a tile."""
    return _by_tile(x, "rms", 8, 64, num_warps=8)


def l2norm_rows_together(x: Tensor) -> Tensor:
    """Two rows to a program, as a tile."""
    return _by_tile(x, "l2", 2, 256)


def rmsnorm_row_loop(x: Tensor) -> Tensor:
    """Two passes over the row and rsqrt."""
    return _by_row(_rmsnorm_row, x, block=1024)


def rmsnorm_persistent(x: Tensor) -> Tensor:
    """A fixed number of programs that walk over the rows."""
    rows = x.shape[0] * x.shape[1]
    return _by_row(_rmsnorm_kept_sum, x, rows, grid=min(rows, 6), fresh=True, block=256)


def add_rmsnorm_row_loop(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """Two passes over both inputs, and 1/sqrt."""
    flags = {"stores": False, "whole_weight": True, "padded_count": False}
    return _by_sum(_add_rmsnorm_loop, x, residual, weight, **flags, block=256)


def add_rmsnorm_wide_tile(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """The same with tiles of 2048 and sixteen warps."""
    flags = {"stores": False, "whole_weight": True, "padded_count": False}
    return _by_sum(_add_rmsnorm_loop, x, residual, weight, **flags, block=2048, num_warps=16)


def groupnorm_group_loop(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Two passes over a flattened group for the statistics, one for the result."""
    return _by_group(input, weight, bias, "none", 512)


@triton.jit
def _groupnorm_parts(x_ptr, stat_ptr, groups, channels, length, x_n, x_g, x_c, x_l, span, block: tl.constexpr):
    pid = tl.program_id(0)
    ptr = x_ptr + _row_at(pid, groups, x_n, x_g)
    begin = tl.program_id(1) * span
    end = tl.minimum(begin + span, channels * length)
    mean = _group_sum(ptr, begin, end, length, x_c, x_l, 0.0, 1, block) / (end - begin)
    spread = _group_sum(ptr, begin, end, length, x_c, x_l, mean, 2, block)
    at = (tl.cast(pid, tl.int64) * tl.num_programs(1) + tl.program_id(1)) * 2
    tl.store(stat_ptr + at, mean)
    tl.store(stat_ptr + at + 1, spread)


@triton.jit
def _groupnorm_join(
    x_ptr, weight_ptr, bias_ptr, out_ptr, stat_ptr, groups, channels, length, x_n, x_g, x_c, x_l,
    w_g, w_c, b_g, b_c, span, block: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    size = channels * length
    count = 0.0
    mean = 0.0
    spread = 0.0
    for part in range(tl.num_programs(1)):
        at = (tl.cast(pid, tl.int64) * tl.num_programs(1) + part) * 2
        own = tl.minimum(size - part * span, span) * 1.0
        delta = tl.load(stat_ptr + at) - mean
        both = count + own
        spread += tl.load(stat_ptr + at + 1) + delta * delta * (count * own / both)
        mean += delta * (own / both)
        count = both
    begin = tl.program_id(1) * span
    end = tl.minimum(begin + span, size)
    _groupnorm_write(
        x_ptr + _row_at(pid, groups, x_n, x_g), out_ptr + tl.cast(pid, tl.int64) * size, weight_ptr, bias_ptr,
        pid % groups, begin, end, length, x_c, x_l, w_g, w_c, b_g, b_c, mean, tl.rsqrt(spread / size + 1e-5), block,
    )  # fmt: skip


def groupnorm_by_parts(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Two launches: statistics of spans of 1024 entries, then their union and the result."""
    samples, groups, channels, length = input.shape
    parts = triton.cdiv(channels * length, 1024)
    stats = torch.empty(samples * groups, parts, 2, device=input.device)
    out = _dense(input)
    grid = (samples * groups, parts)
    _groupnorm_parts[grid](input, stats, groups, channels, length, *input.stride(), 1024, block=256)
    strides = (*input.stride(), *weight.stride(), *bias.stride())
    _groupnorm_join[grid](
        input, weight, bias, out, stats, groups, channels, length, *strides, 1024, block=256
    )  # fmt: skip
    return out


def l2norm_row_loop(x: Tensor) -> Tensor:
    """Two passes over the row and 1/sqrt."""
    return _by_row(_l2norm_row, x, outside=False, block=512)


def sum_row_loop(x: Tensor) -> Tensor:
    """Lanes along the row, then a tree."""
    return _by_row(_mean_row, x, 1, reduced=True, beyond=0, block=1024)


def sum_by_parts(x: Tensor) -> Tensor:
    """Two launches: the sums of spans of 512, then their sum."""
    return _sum_by_parts(x, 1, False, 512, 32)


def mean_row_loop(x: Tensor) -> Tensor:
    """Lanes along the row, then a tree and a division."""
    return _by_row(_mean_row, x, x.shape[-1], reduced=True, beyond=0, block=512)


def mean_by_parts(x: Tensor) -> Tensor:
    """Two launches: the sums of spans of 1024, then their sum over the count."""
    return _sum_by_parts(x, x.shape[-1], False, 1024, 64)


def relu_strided(x: Tensor) -> Tensor:
    """Any layout, by its strides."""
    return _map(x, "relu")


def leaky_relu_strided(x: Tensor) -> Tensor:
    """Any layout, by its strides."""
    return _map(x, "leaky", block=256)


def elu_strided(x: Tensor) -> Tensor:
    """Any layout, by its strides; exp(x) − 1 below 0."""
    return _map(x, "elu", num_warps=8)


def gelu_strided(x: Tensor) -> Tensor:
    """Any layout, by its strides; tanh by an exponential that cannot overflow."""
    return _map(x, "gelu")


def gelu_by_sigmoid_dense(x: Tensor) -> Tensor:
    """x·σ(2u), on a dense copy."""
    return _map_storage(x.contiguous(), "gelu by sigmoid")


def silu_strided(x: Tensor) -> Tensor:
    """Any layout, by its strides."""
    return _map(x, "silu", block=128)


def silu_divided_dense(x: Tensor) -> Tensor:
    """x/(1 + e⁻ˣ), on a dense copy."""
    return _map_storage(x.contiguous(), "silu divided")


def sigmoid_strided(x: Tensor) -> Tensor:
    """Any layout, by its strides."""
    return _map(x, "sigmoid", block=2048)


def sigmoid_by_sign(x: Tensor) -> Tensor:
    """A choice by sign, so that no exponential overflows."""
    return _map(x, "sigmoid by sign", num_warps=2)


def tanh_strided(x: Tensor) -> Tensor:
    """Any layout, by its strides."""
    return _map(x, "tanh")


def swiglu_strided(a: Tensor, b: Tensor) -> Tensor:
    """Any two layouts, by their strides."""
    return _swiglu(a, b, shared=False, cut=False, block=1024)


# ---------------------------------------------------------------- witnesses


def _pitched(*shape: int, extra: int = 5) -> Tensor:
    """A tensor whose rows are the front of wider ones."""
    return normal(*shape[:-1], shape[-1] + extra)[..., : shape[-1]]


def _transposed(*shape: int) -> Tensor:
    """A tensor whose last two axes are stored in the other order."""
    return normal(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)


def _front_masked(width: int, masked: int) -> tuple[Tensor]:
    """Rows that begin with so many -inf."""
    x = normal(1, 3, width)
    x[..., :masked] = float("-inf")
    return (x,)


def _stepped_mask() -> tuple[Tensor]:
    """Rows of 200 in which lane 3 of 64 meets only -inf."""
    x = normal(1, 2, 200)
    x[..., 3::64] = float("-inf")
    return (x,)


def _apart() -> tuple[Tensor]:
    """Rows 300 apart from each other."""
    return (normal(1, 4, 9) - 300.0 * torch.arange(4).view(1, 4, 1),)


def _rising(width: int) -> tuple[Tensor]:
    """Rows that grow along their length."""
    return (normal(1, 2, width) + torch.linspace(0, 5, width),)


def _late_targets() -> tuple[Tensor, Tensor]:
    """A vocabulary of 1500 with targets on both sides of 1024."""
    return normal(4, 1500), torch.tensor([3, 1023, 1030, 1499])


def _column_of_targets() -> tuple[Tensor, Tensor]:
    """Targets that are one column of a table."""
    return normal(6, 11), (torch.arange(12).view(6, 2) * 5 % 11)[:, 0]


def _two_layouts() -> tuple[Tensor, Tensor]:
    """Two tensors of one shape, the second transposed in storage."""
    return normal(2, 4, 6), _transposed(2, 4, 6)


def _sum_of_layouts() -> tuple[Tensor, Tensor, Tensor]:
    """x, a residual with a pitch, and a weight."""
    x, _, weight = weighted(2, 3, 24)
    return x, _pitched(2, 3, 24), weight


def _unshown(op: str, kernel: Callable[..., Tensor], source: str) -> Entry:
    """A faulty entry that only shows on sizes beyond this place."""
    return Entry(op, kernel, source, faulty=True, witness=None)


ENTRIES: tuple[Entry, ...] = (
    fault(
        "softmax",
        softmax_pads_with_zero,
        "vllm-project/vllm#55009 row skeleton loads padding as 0.0 for softmax",
        lambda: (normal(2, 2, 5, shift=-2.0),),
    ),
    fault(
        "softmax",
        softmax_online_unguarded,
        "flagos-ai/FlagGems#330 online softmax where there are infs in the input",
        lambda: _front_masked(300, 130),
    ),
    _unshown(
        "softmax",
        softmax_offsets_in_32_bits,
        "PaddlePaddle/Paddle#71935 address overflow in the softmax kernel",
    ),
    fault(
        "softmax",
        softmax_maximum_of_tile,
        "flagos-ai/FlagGems#59 reductions over a tile of rows without an axis (nearest, for layernorm)",
        _apart,
    ),
    fault(
        "log_softmax",
        log_softmax_assumes_unit_step,
        "flagos-ai/FlagGems#4995 reduced elements assumed contiguous",
        lambda: (_transposed(2, 4, 6),),
    ),
    fault(
        "log_softmax",
        log_softmax_forgets_rescaling,
        "linkedin/Liger-Kernel#1252 broken multi-block softmax (nearest)",
        lambda: _rising(1200),
    ),
    fault(
        "log_softmax",
        log_softmax_lane_of_infinities,
        "flashinfer-ai/flashinfer#1178 NaN when a thread sees only -inf",
        _stepped_mask,
    ),
    fault(
        "cross_entropy",
        cross_entropy_row_pitch_is_width,
        "NVIDIA/TransformerEngine#2746 wrong row stride for non-contiguous input",
        lambda: (_pitched(6, 17), torch.arange(6)),
    ),
    fault(
        "cross_entropy",
        cross_entropy_targets_side_by_side,
        "unslothai/unsloth#10713 strided labels read with unit stride",
        _column_of_targets,
    ),
    fault(
        "cross_entropy",
        cross_entropy_counts_the_padding,
        "verl-project/verl#2899 vocabulary assumed divisible by the tile",
        lambda: labelled(4, 300),
    ),
    fault(
        "cross_entropy",
        cross_entropy_target_by_tile_column,
        "unslothai/unsloth#91 vocabularies wider than one block (nearest)",
        _late_targets,
    ),
    fault(
        "layernorm",
        layernorm_variance_of_padding,
        "triton-lang/triton#9838 variance over padded positions",
        lambda: (normal(2, 3, 17, shift=2.0),),
    ),
    fault(
        "layernorm",
        layernorm_one_tile_of_columns,
        "facebookresearch/xformers#785 columns beyond BLOCK_SIZE_N are not included",
        lambda: (normal(1, 2, 4500),),
    ),
    fault(
        "layernorm",
        layernorm_statistics_of_tile,
        "flagos-ai/FlagGems#59 layer norm wrong with BLOCK_ROW_SIZE above 1 (in its backward)",
        lambda: (normal(2, 3, 20) + torch.arange(3).view(1, 3, 1),),
    ),
    fault(
        "layernorm",
        layernorm_merges_whole_tiles,
        "tenstorrent/tt-metal#35291 Welford layer norm wrong for some widths",
        lambda: _rising(300),
    ),
    fault(
        "layernorm",
        layernorm_assumes_dense,
        "ELS-RD/kernl#193 layernorm not working on non-contiguous tensors",
        lambda: (_pitched(2, 3, 20),),
    ),
    fault(
        "rmsnorm",
        rmsnorm_second_pass_unit_step,
        "ModelTC/LightLLM#1467 the normalize pass drops the last stride",
        lambda: (_transposed(2, 5, 8),),
    ),
    fault(
        "rmsnorm",
        rmsnorm_pitch_of_first_axis,
        "vllm-project/vllm-xpu-kernels#397 stride(0) used for flattened tokens",
        lambda: (normal(2, 3, 8),),
    ),
    fault(
        "rmsnorm",
        rmsnorm_last_pair_spills,
        "ROCm/aiter#5044 row-boundary elements corrupted for odd hidden sizes",
        lambda: (normal(1, 3, 9),),
    ),
    fault(
        "rmsnorm",
        rmsnorm_sum_kept_between_rows,
        "pytorch/FBGEMM#2789 numeric issues of persistent row-wise kernels (nearest)",
        lambda: (normal(5, 8, 16),),
    ),
    fault(
        "rmsnorm",
        rmsnorm_tuned_tile_too_small,
        "ROCm/FlyDSL#848 a path chosen by one exact width (nearest)",
        lambda: (normal(1, 2, 768),),
    ),
    fault(
        "rmsnorm",
        rmsnorm_grid_capped,
        "vllm-project/vllm-ascend#5012 grid capped at 48 programs, one row each",
        lambda: (normal(5, 11, 12),),
    ),
    fault(
        "add_rmsnorm",
        add_rmsnorm_shares_strides,
        "NVIDIA/TensorRT-LLM#14810 one row stride for possibly-strided inputs",
        _sum_of_layouts,
    ),
    fault(
        "add_rmsnorm",
        add_rmsnorm_updates_residual,
        "vllm-project/vllm#20197 out-of-place variant of the fused add norm (nearest)",
        lambda: weighted(2, 3, 24),
    ),
    fault(
        "add_rmsnorm",
        add_rmsnorm_weight_starts_over,
        "facebookresearch/xformers#785 column offsets not advanced (nearest)",
        lambda: weighted(1, 2, 1100),
    ),
    fault(
        "add_rmsnorm",
        add_rmsnorm_padded_count,
        "tenstorrent/tt-metal#34584 reduce scalar of the padded width",
        lambda: weighted(2, 3, 100),
    ),
    fault(
        "groupnorm",
        groupnorm_mask_by_all_channels,
        "flagos-ai/FlagGems#4984 group size no power of two",
        lambda: grouped(2, 4, 3, 40),
    ),
    fault(
        "groupnorm",
        groupnorm_count_is_length,
        "linkedin/Liger-Kernel#1376 hidden size measured before flattening (in its backward)",
        lambda: grouped(1, 2, 3, 40, shift=1.0),
    ),
    fault(
        "groupnorm",
        groupnorm_statistics_of_first_tile,
        "tenstorrent/tt-metal#26622 group norm wrong for some large shapes (nearest)",
        lambda: grouped(1, 2, 4, 500),
    ),
    fault(
        "groupnorm",
        groupnorm_group_by_division,
        "tenstorrent/tt-metal#56202 wrong group index (in its backward)",
        lambda: grouped(2, 3, 2, 10),
    ),
    fault(
        "l2norm",
        l2norm_squares_in_dtype,
        "nntrainer/nntrainer#3935 sum of squares in float16",
        lambda: (normal(1, 2, 64, scale=400.0, dtype=torch.float16),),
        F16,
    ),
    fault(
        "l2norm",
        l2norm_eps_outside_root,
        "openvinotoolkit/openvino#6349 eps applied after the root",
        lambda: (normal(1, 3, 16, scale=2e-7),),
        BROAD,
    ),
    fault(
        "l2norm",
        l2norm_without_grid_barrier,
        "PaddlePaddle/Paddle#9119 needs a global synchronization (for cross entropy)",
        lambda: (normal(1, 2, 1200),),
    ),
    fault(
        "sum",
        sum_workspace_not_cleared,
        "triton-lang/triton#4217 atomic sum runs again into the same output",
        lambda: (normal(1, 13, 7),),
    ),
    fault(
        "sum",
        sum_joins_sixteen_parts,
        "CoffeeBeforeArch/cuda_programming#4 more partial sums than the second launch takes",
        lambda: (normal(1, 2, 5000),),
    ),
    fault(
        "sum",
        sum_forgets_batch_stride,
        "vllm-project/vllm#28103 flattened view of a non-contiguous 3-D tensor",
        lambda: (normal(3, 6, 10)[:, :4],),
    ),
    fault(
        "mean",
        mean_of_padded_count,
        "tenstorrent/tt-metal#34584 1/W of the padded width",
        lambda: (normal(2, 3, 9, shift=1.0),),
    ),
    fault(
        "mean",
        mean_reads_one_beyond,
        "tenstorrent/tt-metal#53209 a read past the end of a row (nearest)",
        lambda: (normal(2, 3, 9, shift=1.0),),
    ),
    fault(
        "relu",
        relu_grid_rounded_down,
        "BobMcDear/attorch#18 floor division where the ceiling is meant",
        lambda: (normal(2, 3, 500, shift=1.0),),
    ),
    fault(
        "relu",
        relu_assumes_dense,
        "rahul-goel/fused-ssim#44 buffers indexed as dense arrays (nearest)",
        lambda: (_transposed(2, 5, 8),),
    ),
    _unshown(
        "relu",
        relu_index_in_32_bits,
        "triton-lang/triton#1058 elementwise kernel on more than 2³¹ elements",
    ),
    fault(
        "leaky_relu",
        leaky_relu_after_relu,
        "tflearn/tflearn#784 relu applied before the leak",
        lambda: (normal(2, 3, 16),),
    ),
    fault(
        "leaky_relu",
        leaky_relu_tail_is_copied,
        "vllm-project/vllm-xpu-kernels#131 tail of a vectorised loop (nearest)",
        lambda: (-normal(1, 1, 7).abs(),),
    ),
    fault(
        "elu",
        elu_short_constant,
        "linkedin/Liger-Kernel#1266 exp replaced by exp2 and log2(e) (nearest)",
        lambda: line(-4.0, 1.0),
        F32,
    ),
    fault(
        "gelu",
        gelu_exponential_overflows,
        "intel/llm-scaler#484 gelu_tanh NaN on large activations",
        lambda: line(-20.0, 20.0),
    ),
    fault(
        "gelu",
        gelu_constant_mistyped,
        "flagos-ai/FlagGems#4972 gelu_tanh loses accuracy (nearest)",
        lambda: line(-4.0, 4.0),
        WIDE,
    ),
    fault(
        "silu",
        silu_assumes_dense,
        "vllm-project/vllm#3324 silu_and_mul only supports contiguous tensors",
        lambda: (_pitched(2, 3, 16),),
    ),
    fault(
        "silu",
        silu_exponential_in_half,
        "tenstorrent/tt-metal#55714 silu loses its negative tail (nearest)",
        lambda: line(-14.0, 3.0),
    ),
    fault(
        "sigmoid",
        sigmoid_exponential_overflows,
        "clab/dynet#1525 sigmoid gives NaN on large inputs",
        lambda: line(-5.0, 100.0),
    ),
    fault(
        "tanh",
        tanh_clamped_above_only,
        "sonos/tract#84 tanh negative saturation",
        lambda: line(-60.0, 5.0),
    ),
    fault(
        "tanh",
        tanh_saturates_early,
        "Tencent/ncnn#2751 tanh_ps wrong on some input (nearest)",
        lambda: line(-4.0, 4.0),
    ),
    fault(
        "swiglu",
        swiglu_shares_strides,
        "vllm-project/vllm#3324 non-contiguous inputs of silu_and_mul (nearest)",
        _two_layouts,
    ),
    fault(
        "swiglu",
        swiglu_gate_cut,
        "tenstorrent/tt-metal#55714 silu's deep negative tail flushed to zero (nearest)",
        lambda: (torch.full((1, 1, 8), -20.5), torch.full((1, 1, 8), 1e6)),
        BROAD,
    ),
    fault(
        "l2norm",
        l2norm_scale_of_row_before,
        "gittensor-ai-lab/sparkinfer#705 a token normalised by another's sum (nearest: there a race)",
        lambda: (normal(5, 8, 16) * torch.arange(1, 41).view(5, 8, 1),),
    ),
    fault(
        "mean",
        mean_partial_sums_in_dtype,
        "ROCm/AMDMIGraphX#850 fp16 overflow in reduce_mean",
        lambda: (torch.full((1, 2, 1500), 100.0, dtype=torch.float16),),
        F16,
    ),
    fault(
        "leaky_relu",
        leaky_relu_rows_rounded_down,
        "BobMcDear/attorch#18 rows over the block rounded down (nearest, for norms)",
        lambda: (normal(3, 7, 20),),
    ),
    fault(
        "elu",
        elu_first_columns_again,
        "bledden/triton-msl#6 column tiles after the first are wrong (nearest, for matmul)",
        lambda: (normal(1, 2, 300),),
    ),
    fault(
        "gelu",
        gelu_row_pitch_is_width,
        "microsoft/DirectML#588 wrong result with non-contiguous input (nearest, for layer norm)",
        lambda: (_pitched(2, 3, 16),),
    ),
    fault(
        "sigmoid",
        sigmoid_rows_batch_first,
        "ooples/AiDotNet.Tensors#652 order of a kernel's size arguments (nearest, for group norm)",
        lambda: (normal(2, 3, 16),),
    ),
    correct("softmax", softmax_three_pass, "three passes over a row"),
    correct("softmax", softmax_one_pass_statistics, "online softmax, Milakov and Gimelshein"),
    correct("softmax", softmax_persistent, "persistent grid, as the Triton tutorial has it"),
    correct("log_softmax", log_softmax_online, "online softmax, Milakov and Gimelshein"),
    correct("cross_entropy", cross_entropy_one_pass, "fused losses with an online logsumexp"),
    correct("cross_entropy", cross_entropy_by_parts, "chunked vocabulary in two launches"),
    correct("layernorm", layernorm_row_loop, "two passes over a row"),
    correct("layernorm", layernorm_merged_tiles, "Welford per tile, merged as Chan does"),
    correct("layernorm", layernorm_rows_together, "several rows to a program"),
    correct("rmsnorm", rmsnorm_row_loop, "two passes over a row"),
    correct("rmsnorm", rmsnorm_persistent, "persistent grid"),
    correct("rmsnorm", rmsnorm_rows_together, "several rows to a program"),
    correct("add_rmsnorm", add_rmsnorm_row_loop, "two passes over both inputs"),
    correct("add_rmsnorm", add_rmsnorm_wide_tile, "wide tiles and many warps"),
    correct("groupnorm", groupnorm_group_loop, "two passes over a group"),
    correct("groupnorm", groupnorm_by_parts, "split statistics in two launches"),
    correct("l2norm", l2norm_row_loop, "two passes over a row"),
    correct("l2norm", l2norm_rows_together, "several rows to a program"),
    correct("sum", sum_row_loop, "lanes along a row"),
    correct("sum", sum_by_parts, "split reduction in two launches"),
    correct("mean", mean_row_loop, "lanes along a row"),
    correct("mean", mean_by_parts, "split reduction in two launches"),
    correct("relu", relu_strided, "flat index over any layout"),
    correct("leaky_relu", leaky_relu_strided, "flat index over any layout"),
    correct("elu", elu_strided, "flat index over any layout"),
    correct("gelu", gelu_strided, "flat index over any layout"),
    correct("gelu", gelu_by_sigmoid_dense, "x·σ(2u)"),
    correct("silu", silu_strided, "flat index over any layout"),
    correct("silu", silu_divided_dense, "x/(1 + e⁻ˣ)"),
    correct("sigmoid", sigmoid_strided, "flat index over any layout"),
    correct("sigmoid", sigmoid_by_sign, "a choice by sign"),
    correct("tanh", tanh_strided, "flat index over any layout"),
    correct("swiglu", swiglu_strided, "flat index over any two layouts"),
)
