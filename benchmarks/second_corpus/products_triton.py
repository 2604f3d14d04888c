"""Product ops in Triton, written from outside: tensors in, one new tensor out; some faulty, some correct."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from entry import Entry
from products_inputs import (
    attended,
    batched,
    biased,
    bytes_of,
    cancelling,
    image,
    normal,
    numbers,
    pitched,
    product,
    repelled,
    rising_keys,
    transposed,
    weighted,
)

HALVES = ("float16", "bfloat16")
SINGLE = ("float32",)


# --- device side: products --------------------------------------------------------------------------------------


@triton.jit
def _sums(
    a, b, rows, cols, first, end, m, n, a0, a1, b0, b1,
    tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, kind: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """A tile of a·b over first ≤ k < end, added in `kind`."""
    total = tl.zeros((tm, tn), dtype=kind)
    for k in range(first, end, tk):
        ks = (k + tl.arange(0, tk)).to(tl.int64)
        x = tl.load(a + rows[:, None] * a0 + ks[None, :] * a1, (rows[:, None] < m) & (ks[None, :] < end), 0.0)
        y = tl.load(b + ks[:, None] * b0 + cols[None, :] * b1, (ks[:, None] < end) & (cols[None, :] < n), 0.0)
        total += tl.dot(x, y, input_precision=precision).to(kind)
    return total


@triton.jit
def _matmul(
    a, b, out, m, n, k, a0, a1, b0, b1, o0, o1,
    tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, group: tl.constexpr, precision: tl.constexpr,
    fault: tl.constexpr,
):  # fmt: skip
    """One tile of a·b per program, tiles taken in groups of rows."""
    at = tl.program_id(0)
    width = group * tl.cdiv(n, tn)
    first = at // width * group
    size = group if fault == "group" else tl.minimum(tl.cdiv(m, tm) - first, group)
    i = first + at % width % size
    j = at % width // size
    rows = (i * tm + tl.arange(0, tm)).to(tl.int64)
    cols = (j * tn + tl.arange(0, tn)).to(tl.int64)
    end = k
    if fault == "tail":
        end = k // tk * tk
    kind: tl.constexpr = out.dtype.element_ty if fault == "half" else tl.float32
    total = _sums(a, b, rows, cols, 0, end, m, n, a0, a1, b0, b1, tm, tn, tk, kind, precision)
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    if fault == "store":
        inside = (rows[:, None] < m) & (cols[None, :] >= 0)
    tl.store(out + rows[:, None] * o0 + cols[None, :] * o1, total.to(out.dtype.element_ty), inside)


@triton.jit
def _persistent(
    a, b, out, m, n, k, a0, a1, b0, b1, o0, o1, programs,
    tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, fault: tl.constexpr,
):  # fmt: skip
    """Every `programs`-th tile of a·b."""
    tiles_n = tl.cdiv(n, tn)
    tiles = tl.cdiv(m, tm) * tiles_n
    if fault == "rest":
        tiles = tiles // programs * programs
    for tile in range(tl.program_id(0), tiles, programs):
        rows = (tile // tiles_n * tm + tl.arange(0, tm)).to(tl.int64)
        cols = (tile % tiles_n * tn + tl.arange(0, tn)).to(tl.int64)
        total = _sums(a, b, rows, cols, 0, k, m, n, a0, a1, b0, b1, tm, tn, tk, tl.float32, "ieee")
        inside = (rows[:, None] < m) & (cols[None, :] < n)
        tl.store(out + rows[:, None] * o0 + cols[None, :] * o1, total.to(out.dtype.element_ty), inside)


@triton.jit
def _split(
    a, b, bias, work, m, n, k, a0, a1, b0, b1, chunk,
    tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, way: tl.constexpr,
):  # fmt: skip
    """A tile of a·b over one chunk of K, into its own slice of `work` or added to the only one."""
    at, split = tl.program_id(0), tl.program_id(1)
    tiles_n = tl.cdiv(n, tn)
    rows = (at // tiles_n * tm + tl.arange(0, tm)).to(tl.int64)
    cols = (at % tiles_n * tn + tl.arange(0, tn)).to(tl.int64)
    first = split * chunk
    end = tl.minimum(first + chunk, k)
    total = _sums(a, b, rows, cols, first, end, m, n, a0, a1, b0, b1, tm, tn, tk, tl.float32, "ieee")
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    place = rows[:, None] * n + cols[None, :]
    if way == "bias":
        total += tl.load(bias + cols, cols < n, 0.0).to(tl.float32)[None, :]
    if way == "add":
        tl.atomic_add(work + place, total, inside)
    elif way == "race":
        tl.store(work + place, tl.load(work + place, inside, 0.0) + total, inside)
    else:
        tl.store(work + split.to(tl.int64) * m * n + place, total, inside)


@triton.jit
def _gather(work, out, count, splits, block: tl.constexpr):
    """Sums of the slices of `work`."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    total = tl.zeros((block,), dtype=tl.float32)
    place = at
    for _ in range(splits):
        total += tl.load(work + place, at < count, 0.0)
        place += count
    tl.store(out + at, total.to(out.dtype.element_ty), at < count)


@triton.jit
def _row_times_matrix(a, b, out, n, k, a1, b0, b1, tn: tl.constexpr, tk: tl.constexpr):
    """One row times a matrix, without tl.dot."""
    cols = (tl.program_id(0) * tn + tl.arange(0, tn)).to(tl.int64)
    total = tl.zeros((tn,), dtype=tl.float32)
    for start in range(0, k, tk):
        ks = (start + tl.arange(0, tk)).to(tl.int64)
        x = tl.load(a + ks * a1, ks < k, 0.0).to(tl.float32)
        y = tl.load(b + ks[:, None] * b0 + cols[None, :] * b1, (ks[:, None] < k) & (cols[None, :] < n), 0.0)
        total += tl.sum(x[:, None] * y.to(tl.float32), 0)
    tl.store(out + cols, total.to(out.dtype.element_ty), cols < n)


@triton.jit
def _bmm(
    a, b, out, m, n, k, az, a0, a1, bz, b0, b1,
    tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, fault: tl.constexpr,
):  # fmt: skip
    """One tile of one batch per program; `out` is contiguous."""
    tiles_m, tiles_n = tl.cdiv(m, tm), tl.cdiv(n, tn)
    z = (tl.program_id(0) // (tiles_m * tiles_n)).to(tl.int64)
    at = tl.program_id(0) % (tiles_m * tiles_n)
    across = tiles_m if fault == "swapped" else tiles_n
    rows = (at // across * tm + tl.arange(0, tm)).to(tl.int64)
    cols = (at % across * tn + tl.arange(0, tn)).to(tl.int64)
    before = z * az
    if fault == "wrapped":
        before = before & 0x7FFFFFFF
    total = _sums(a + before, b + z * bz, rows, cols, 0, k, m, n, a0, a1, b0, b1, tm, tn, tk, tl.float32, "ieee")
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    place = z * m * n + rows[:, None] * n + cols[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), inside)


@triton.jit
def _gelu(z, overflowing: tl.constexpr):
    """The tanh gelu: z times the sigmoid of twice the argument, or by a quotient of exponentials."""
    twice = 1.5957691216057308 * (z + 0.044715 * z * z * z)
    if overflowing:
        e = tl.exp(twice)
        return 0.5 * z * (1 + (e - 1) / (e + 1))
    return z / (1 + tl.exp(-twice))


@triton.jit
def _biased(
    a, b, bias, out, m, n, k, a0, a1, b0, b1, c0,
    tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, fault: tl.constexpr,
):  # fmt: skip
    """One tile of gelu(a·b + bias) per program; `out` is contiguous."""
    tiles_n = tl.cdiv(n, tn)
    rows = (tl.program_id(0) // tiles_n * tm + tl.arange(0, tm)).to(tl.int64)
    cols = (tl.program_id(0) % tiles_n * tn + tl.arange(0, tn)).to(tl.int64)
    total = _sums(a, b, rows, cols, 0, k, m, n, a0, a1, b0, b1, tm, tn, tk, tl.float32, "ieee")
    known = cols < n
    if fault == "rows":
        known = known & (cols < m)
    if fault == "first":
        total += tl.load(bias + tl.arange(0, tn) * c0, known, 0.0).to(tl.float32)[None, :]
    else:
        total += tl.load(bias + cols * c0, known, 0.0).to(tl.float32)[None, :]
    inside = (rows[:, None] < m) & (cols[None, :] < n)
    value = _gelu(total, fault == "overflow")
    if fault == "whole":
        value = tl.where(cols[None, :] < n // tn * tn, value, total)
    tl.store(out + rows[:, None] * n + cols[None, :], value.to(out.dtype.element_ty), inside)


@triton.jit
def _weighted(
    x, w, scale, out, m, n, k, x0, x1, w0, w1, s0, programs,
    tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr, fault: tl.constexpr,
):  # fmt: skip
    """Every `programs`-th tile of x·(w·scale), weights scaled in float32; `out` is contiguous."""
    tiles_n = tl.cdiv(n, tn)
    cols = (tl.program_id(0) % tiles_n * tn + tl.arange(0, tn)).to(tl.int64)
    factor = tl.load(scale + cols * s0, cols < n, 0.0).to(tl.float32)
    end = k
    if fault == "sixteen":
        end = k // 16 * 16
    for tile in range(tl.program_id(0), tl.cdiv(m, tm) * tiles_n, programs):
        rows = (tile // tiles_n * tm + tl.arange(0, tm)).to(tl.int64)
        cols = (tile % tiles_n * tn + tl.arange(0, tn)).to(tl.int64)
        if fault == "first":
            factor = tl.load(scale + tl.arange(0, tn) * s0, tl.arange(0, tn) < n, 0.0).to(tl.float32)
        elif fault != "kept":
            factor = tl.load(scale + cols * s0, cols < n, 0.0).to(tl.float32)
        total = tl.zeros((tm, tn), dtype=tl.float32)
        for start in range(0, end, tk):
            ks = (start + tl.arange(0, tk)).to(tl.int64)
            p = tl.load(x + rows[:, None] * x0 + ks[None, :] * x1, (rows[:, None] < m) & (ks[None, :] < end), 0.0)
            q = tl.load(w + ks[:, None] * w0 + cols[None, :] * w1, (ks[:, None] < end) & (cols[None, :] < n), 0)
            total += tl.dot(p.to(tl.float32), q.to(tl.float32) * factor[None, :], input_precision="ieee")
        inside = (rows[:, None] < m) & (cols[None, :] < n)
        tl.store(out + rows[:, None] * n + cols[None, :], total.to(out.dtype.element_ty), inside)


@triton.jit
def _convolve(
    x, w, out, pixels, channels, height, width, outputs, r, t, x_end, pad_y, pad_x,
    xn, xc, xy, xx, wo, wc, wr, wt,
    tp: tl.constexpr, to: tl.constexpr, tc: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """A tile of pixels by output channels: a channel product per tap; `out` is contiguous."""
    pixel = (tl.program_id(0) * tp + tl.arange(0, tp)).to(tl.int64)
    o = (tl.program_id(1) * to + tl.arange(0, to)).to(tl.int64)
    which, place = pixel // (height * width), pixel % (height * width)
    total = tl.zeros((tp, to), dtype=tl.float32)
    for tap in range(r * t):
        y = place // width + tap // t - pad_y
        z = place % width + tap % t - pad_x
        inside = (pixel < pixels) & (y >= 0) & (y < height) & (z >= 0) & (z < x_end)
        here = which * xn + y * xy + z * xx
        there = (tap // t) * wr + (tap % t) * wt
        for start in range(0, channels, tc):
            c = (start + tl.arange(0, tc)).to(tl.int64)
            p = tl.load(x + here[:, None] + c[None, :] * xc, inside[:, None] & (c[None, :] < channels), 0.0)
            q = tl.load(
                w + there + o[None, :] * wo + c[:, None] * wc, (o[None, :] < outputs) & (c[:, None] < channels), 0.0
            )
            total += tl.dot(p, q, input_precision=precision)
    at = which[:, None] * outputs * height * width + o[None, :] * height * width + place[:, None]
    tl.store(out + at, total.to(out.dtype.element_ty), (pixel[:, None] < pixels) & (o[None, :] < outputs))


# --- device side: attention, rope, cumsum -----------------------------------------------------------------------


@triton.jit
def _attend(
    q, k, v, out, m, n, d, q0, q1, k0, k1, v0, v1, o0, o1, scale,
    tm: tl.constexpr, tn: tl.constexpr, td: tl.constexpr, step: tl.constexpr, causal: tl.constexpr,
    precision: tl.constexpr, fault: tl.constexpr,
):  # fmt: skip
    """A tile of queries over blocks of keys, with a running maximum."""
    at = tl.program_id(0)
    rows = (at * tm + tl.arange(0, tm)).to(tl.int64)
    ds = tl.arange(0, td).to(tl.int64)
    x = tl.load(q + rows[:, None] * q0 + ds[None, :] * q1, (rows[:, None] < m) & (ds[None, :] < d), 0.0)
    top = tl.full((tm,), -5e4 if fault == "sentinel" else float("-inf"), dtype=tl.float32)
    mass = tl.zeros((tm,), dtype=tl.float32)
    total = tl.zeros((tm, td), dtype=tl.float32)
    first = 0
    if fault == "prologue":
        first = tl.where(n > 4 * tn, tn, 0)
    end = n
    if causal:
        end = tl.minimum(n, at * tm // tn * tn + tn if fault == "early" else (at + 1) * tm)
    for start in range(first, end, step):
        cols = (start + tl.arange(0, tn)).to(tl.int64)
        inside = (cols[:, None] < n) & (ds[None, :] < d)
        y = tl.load(k + cols[:, None] * k0 + ds[None, :] * k1, inside, 0.0)
        z = tl.load(v + cols[:, None] * v0 + ds[None, :] * v1, inside, 0.0)
        s = tl.dot(x, tl.trans(y), input_precision=precision) * scale
        seen = (cols[None, :] < n) & (rows[:, None] >= 0)
        if fault == "zeros":
            seen = (cols[None, :] >= 0) & (rows[:, None] >= 0)
        if causal:
            place = rows
            if fault == "local":
                place = rows - at * tm
            past = cols[None, :] <= place[:, None]
            if fault == "diagonal":
                past = past | (start + tn < end)
            if fault == "strict":
                past = past & ((cols[None, :] < rows[:, None]) | (start + tn <= n))
            seen = seen & past
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p, fade = tl.exp(s - higher[:, None]), tl.exp(top - higher)
        if fault == "lazy":
            fade = tl.where(higher - top < 5.0, 1.0, fade)
        if fault == "uncounted":
            mass = mass * fade + tl.where(start + tn <= n, 1.0, 0.0) * tl.sum(p, 1)
        else:
            mass = mass * fade + tl.sum(p, 1)
        if fault == "half":
            more = tl.dot(p.to(tl.float16), z.to(tl.float16))
        else:
            more = tl.dot(p, z.to(tl.float32), input_precision=precision)
        total = total * fade[:, None] + more
        top = higher
    total = total / mass[:, None]
    if fault == "sentinel":
        total = tl.where(mass[:, None] > 0, total, 0.0)
    inside = (rows[:, None] < m) & (ds[None, :] < d)
    tl.store(out + rows[:, None] * o0 + ds[None, :] * o1, total.to(out.dtype.element_ty), inside)


@triton.jit
def _rotate(
    x, cos, sin, out, rows, pairs, x0, x1, x2, o0, o1, o2, pitch,
    ts: tl.constexpr, tp: tl.constexpr, fault: tl.constexpr,
):  # fmt: skip
    """A tile of rows by pairs, turned by tables of float32."""
    row = (tl.program_id(0) * ts + tl.arange(0, ts)).to(tl.int64)
    pair = (tl.program_id(1) * tp + tl.arange(0, tp)).to(tl.int64)
    inside = (row[:, None] < rows) & (pair[None, :] < pairs)
    table_row, table_pair = row, pair
    if fault == "rows":
        table_row = tl.arange(0, ts).to(tl.int64)
    if fault == "pairs":
        table_pair = tl.arange(0, tp).to(tl.int64)
    entry = table_row[:, None] * pitch + table_pair[None, :]
    c, s = tl.load(cos + entry, inside, 0.0), tl.load(sin + entry, inside, 0.0)
    at = row[:, None] * x0 + pair[None, :] * x2
    first = tl.load(x + at, inside, 0.0).to(tl.float32)
    second = tl.load(x + at + x1, inside, 0.0).to(tl.float32)
    at = row[:, None] * o0 + pair[None, :] * o2
    tl.store(out + at, (first * c - second * s).to(out.dtype.element_ty), inside)
    tl.store(out + at + o1, (second * c + first * s).to(out.dtype.element_ty), inside)


@triton.jit
def _scan(x, out, inner, h, x0, x1, x2, block: tl.constexpr, fault: tl.constexpr):
    """One row: blocks with the sum so far carried on; `out` is contiguous."""
    row = tl.program_id(0).to(tl.int64)
    here = row // inner * x0 + row % inner * x1
    carry = tl.zeros((1,), dtype=tl.float32)
    for start in range(0, h, block):
        at = (start + tl.arange(0, block)).to(tl.int64)
        value = tl.load(x + here + at * x2, at < h, 0.0).to(tl.float32)
        tl.store(out + row * h + at, (tl.cumsum(value, 0) + carry).to(out.dtype.element_ty), at < h)
        total = tl.sum(value, 0, keep_dims=True)
        if fault == "replaced":
            carry = total
        elif fault == "half":
            carry = (carry + total).to(out.dtype.element_ty).to(tl.float32)
        else:
            carry = carry + total
    if fault == "past":
        tl.store(out + row * h + h + tl.arange(0, 1), carry.to(out.dtype.element_ty))


@triton.jit
def _chained_scan(x, sums, out, inner, h, blocks, x0, x1, x2, block: tl.constexpr):
    """One block of one row, on top of the sum its neighbour to the left has published, if it has."""
    row, j = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    at = (j * block + tl.arange(0, block)).to(tl.int64)
    value = tl.load(x + row // inner * x0 + row % inner * x1 + at * x2, at < h, 0.0).to(tl.float32)
    before = tl.load(sums + row * (blocks + 1) + j)
    tl.store(sums + row * (blocks + 1) + j + 1, before + tl.sum(value, 0))
    tl.store(out + row * h + at, (tl.cumsum(value, 0) + before).to(out.dtype.element_ty), at < h)


# --- host side --------------------------------------------------------------------------------------------------


def _launch_matmul(a, b, tm=64, tn=64, tk=32, group=4, precision="ieee", fault="", b_strides=None, out=None):
    """Runs _matmul; the output starts at zero unless it is given, and columns past its own are not made."""
    (m, k), n = a.shape, b.shape[1]
    spare = tn if fault == "store" else 0
    if out is None:
        out = torch.zeros(m * n + spare, dtype=a.dtype, device=a.device)[: m * n].view(m, n)
    tiles = triton.cdiv(m, tm) * triton.cdiv(n, tn)
    strides = (*a.stride(), *(b_strides or b.stride()), *out.stride())
    _matmul[(tiles,)](a, b, out, m, n, k, *strides, tm, tn, tk, group, precision, fault)
    return out


def _launch_persistent(a, b, programs, fault=""):
    """Runs _persistent on a few programs."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.zeros(m, n, dtype=a.dtype, device=a.device)
    programs = min(programs, triton.cdiv(m, 32) * triton.cdiv(n, 32))
    _persistent[(programs,)](a, b, out, m, n, k, *a.stride(), *b.stride(), n, 1, programs, 32, 32, 32, fault)
    return out


def _launch_split(a, b, work, splits, chunk, way="", bias=None):
    """Runs _split over `splits` chunks of K."""
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 32), splits)
    bias = work if bias is None else bias
    _split[grid](a, b, bias, work, m, n, k, *a.stride(), *b.stride(), chunk, 32, 32, 32, way)
    return work


def _launch_bmm(a, b, tm=32, tn=32, tk=32, fault="", a_batch=None):
    """Runs _bmm."""
    (z, m, k), n = a.shape, b.shape[2]
    out = torch.zeros(z, m, n, dtype=a.dtype, device=a.device)
    strides = (a.stride(0) if a_batch is None else a_batch, *a.stride()[1:], *b.stride())
    grid = (z * triton.cdiv(m, tm) * triton.cdiv(n, tn),)
    _bmm[grid](a, b, out, m, n, k, *strides, tm, tn, tk, fault)
    return out


def _launch_biased(a, b, bias, tm=64, tn=64, tk=32, fault="", step=None):
    """Runs _biased."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, tm) * triton.cdiv(n, tn),)
    step = bias.stride(0) if step is None else step
    _biased[grid](a, b, bias, out, m, n, k, *a.stride(), *b.stride(), step, tm, tn, tk, fault)
    return out


def _launch_weighted(x, w, scale, tm=32, tn=32, tk=32, programs=1 << 20, fault="", w_strides=None):
    """Runs _weighted; by default every tile has its own program."""
    (m, k), n = x.shape, w.shape[1]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    programs = min(programs, triton.cdiv(m, tm) * triton.cdiv(n, tn))
    strides = (*x.stride(), *(w_strides or w.stride()), *scale.stride())
    _weighted[(programs,)](x, w, scale, out, m, n, k, *strides, programs, tm, tn, tk, fault)
    return out


def _launch_convolve(x, weight, channels=None, x_end=None, pad_x=None, tiles_o=None, precision="ieee"):
    """Runs _convolve; what is not given is as it should be."""
    (count, c, height, width), (o, _, r, t) = x.shape, weight.shape
    out = torch.zeros(count, o, height, width, dtype=x.dtype, device=x.device)
    pixels = count * height * width
    grid = (triton.cdiv(pixels, 32), tiles_o or triton.cdiv(o, 16))
    sizes = (pixels, channels or c, height, width, o, r, t, x_end or width)
    pads = (r // 2, t // 2 if pad_x is None else pad_x)
    _convolve[grid](x, weight, out, *sizes, *pads, *x.stride(), *weight.stride(), 32, 16, 32, precision)
    return out


def _launch_attend(
    q, k, v, tm=64, tn=32, d=None, scale_of=None, step=None, v_strides=None, tiles=None, causal=False,
    precision="ieee", fault="",
):  # fmt: skip
    """Runs _attend; what is not given is as it should be."""
    m, n, d = q.shape[0], k.shape[0], d or q.shape[1]
    td = max(16, triton.next_power_of_2(d))
    if td > 128:
        tm, tn = 16, 16
    out = torch.zeros(m, q.shape[1], dtype=q.dtype, device=q.device)
    strides = (*q.stride(), *k.stride(), *(v_strides or v.stride()), *out.stride())
    scale = 1 / math.sqrt(scale_of or q.shape[1])
    sizes = (tm, tn, td, step or tn)
    grid = (tiles or triton.cdiv(m, tm),)
    _attend[grid](q, k, v, out, m, n, d, *strides, scale, *sizes, causal, precision, fault, num_stages=1)
    return out


def _tables(rows, pairs, device):
    """Cosines and sines of s·10000^(-p/P), made in float64, kept as float32."""
    pair = torch.arange(pairs, device=device, dtype=torch.float64)
    angle = torch.arange(rows, device=device)[:, None] * torch.exp(-math.log(10000) * pair / pairs)
    return torch.cos(angle).float(), torch.sin(angle).float()


def _launch_rotate(x, out, out_strides=None, fault="", table_pairs=None):
    """Runs _rotate from x into out."""
    rows, _, pairs = x.shape
    cos, sin = _tables(rows, table_pairs or pairs, x.device)
    grid = (triton.cdiv(rows, 64), triton.cdiv(pairs, 64))
    strides = (*x.stride(), *(out_strides or out.stride()), cos.stride(0))
    _rotate[grid](x, cos, sin, out, rows, pairs, *strides, 64, 64, fault)
    return out


def _launch_scan(x, out=None, block=1024, fault="", strides=None, h=None):
    """Runs _scan, one program a row; `out` is written as if it were contiguous."""
    out = torch.zeros(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    _scan[(x.shape[0] * x.shape[1],)](x, out, x.shape[1], h or x.shape[2], *(strides or x.stride()), block, fault)
    return out


def _room(x):
    """How many elements lie in x's storage from its first on."""
    return x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()


def _span(x):
    """How many elements from x's first to its last."""
    return sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1


def _row_pitch_dropped(x):
    """The strides a kernel assumes that asks for unit steps in a row only (None: it makes no such assumption)."""
    # Expanded and transposed matrices go through unharmed, so that nothing outside their storage is read.
    return (x.shape[1], 1) if x.stride(1) == 1 and x.stride(0) >= x.shape[1] else None


# --- matmul: faults ---------------------------------------------------------------------------------------------


def matmul_drops_k_tail(a, b):
    """Whole blocks of 32 of K only: any K that 32 does not divide."""
    return _launch_matmul(a, b, fault="tail")


def matmul_ragged_last_group(a, b):
    """Four rows of tiles to every group, the last too: M > 128 whose tiles of 32 rows 4 does not divide, N > 32."""
    return _launch_matmul(a, b, tm=32, tn=32, group=4 if a.shape[0] > 96 else 1, fault="group")


def matmul_half_accumulator(a, b):
    """Adds up in the half type: K beyond one block, worst where large products cancel."""
    return _launch_matmul(a, b, fault="half")


def matmul_tf32(a, b):
    """TF32 products: float32 on a GPU; the interpreter multiplies exactly, so there is no witness."""
    return _launch_matmul(a, b, precision="tf32")


def matmul_unmasked_columns(a, b):
    """Stores whole tiles of 16 columns over the next row's start: N that 16 does not divide.

    The storage has room for what is written past the end.
    """
    return _launch_matmul(a, b, tn=16, fault="store")


def matmul_ignores_pitch(a, b):
    """Takes rows of b to follow one another when its columns do: b cut out of a wider matrix."""
    return _launch_matmul(a, b, b_strides=_row_pitch_dropped(b))


def matmul_persistent_rest(a, b):
    """Eight programs share the tiles 8 at a time and leave the rest: over 8 tiles of 32×32, no multiple of 8."""
    return _launch_persistent(a, b, 8, fault="rest")


_workspace: dict[str, torch.Tensor] = {}


def matmul_kept_workspace(a, b):
    """Splits of K add into a workspace that is kept and not cleared: the second call of a shape, K > 128."""
    (m, k), n = a.shape, b.shape[1]
    if k <= 128:
        return _launch_matmul(a, b)
    kept = _workspace.get("work")
    if kept is None or kept.shape != (m, n) or kept.device != a.device:
        kept = _workspace["work"] = torch.zeros(m, n, device=a.device)
    return _launch_split(a, b, kept, triton.cdiv(k, 128), 128, "add").to(a.dtype, copy=True)


def matmul_lost_split_tail(a, b):
    """Four splits of whole blocks once K reaches 512: K ≥ 512 that 128 does not divide."""
    (m, k), n = a.shape, b.shape[1]
    if k < 512:
        return _launch_matmul(a, b)
    work = torch.zeros(4, m, n, device=a.device)
    return _launch_split(a, b, work, 4, k // 128 * 32).sum(0).to(a.dtype)


def matmul_row_steps(a, b):
    """The path for one row takes its numbers to be neighbours: M = 1 and a with steps over 1 along K."""
    if a.shape[0] > 1:
        return _launch_matmul(a, b)
    n, k = b.shape[1], a.shape[1]
    out = torch.empty(1, n, dtype=a.dtype, device=a.device)
    step = min(a.stride(1), 1)
    _row_times_matrix[(triton.cdiv(n, 64),)](a, b, out, n, k, step, *b.stride(), 64, 32)
    return out


def matmul_unwritten_columns(a, b):
    """Columns past the last whole tile are never written: N > 64 that 64 does not divide, whatever memory held."""
    n = b.shape[1]
    out = torch.empty(a.shape[0], n, dtype=a.dtype, device=a.device)
    _launch_matmul(a, b[:, : n if n < 64 else n // 64 * 64], out=out)
    return out


def matmul_tuned_4096(a, b):
    """The tuned entry for K = 4096 makes one block too few: K = 4096 alone."""
    k = 4032 if a.shape[1] == 4096 else a.shape[1]
    return _launch_matmul(a[:, :k], b[:k], tk=64)


def matmul_racing_splits(a, b):
    """Splits of 128 of K read, add and write without atomics: K > 128, a race of a GPU alone."""
    (m, k), n = a.shape, b.shape[1]
    work = torch.zeros(m, n, device=a.device)
    return _launch_split(a, b, work, triton.cdiv(k, 128), 128, "race").to(a.dtype)


# --- bmm: faults ------------------------------------------------------------------------------------------------


def bmm_batch_pitch(a, b):
    """Batches of a taken M rows apart: a whose batches lie further apart than that."""
    close = a.shape[1] * a.stride(1)
    # Batches that lie closer go through unharmed, so that nothing outside their storage is read.
    return _launch_bmm(a, b, a_batch=close if a.stride(1) > 0 and a.stride(0) >= close else None)


def bmm_swapped_tile_counts(a, b):
    """Divides the tile number by the wrong count: batches whose rows and columns make unlike numbers of tiles."""
    return _launch_bmm(a, b, fault="swapped")


def bmm_wrapped_offset(a, b):
    """Start of a batch of a in 31 bits: a of over 2³¹ elements, too many for a witness."""
    return _launch_bmm(a, b, fault="wrapped")


# --- matmul_bias_gelu: faults -----------------------------------------------------------------------------------


def gelu_bias_per_split(a, b, bias):
    """Every split of 256 of K adds the bias: K > 256."""
    splits = triton.cdiv(a.shape[1], 256)
    work = torch.empty(splits, a.shape[0], b.shape[1], device=a.device)
    _launch_split(a, b, work, splits, 256, "bias", bias.contiguous())
    return torch.nn.functional.gelu(work.sum(0), approximate="tanh").to(a.dtype)


def gelu_overflowing_tanh(a, b, bias):
    """The tanh as a quotient of exponentials: NaN from about z = 10 on."""
    return _launch_biased(a, b, bias, fault="overflow")


def gelu_bias_bounded_by_rows(a, b, bias):
    """The bias is masked by the number of rows: no bias in columns from M on, N > M."""
    return _launch_biased(a, b, bias, fault="rows")


def gelu_bias_of_first_tile(a, b, bias):
    """Every tile of 64 columns takes the bias of the first: N > 64."""
    return _launch_biased(a, b, bias, fault="first")


def gelu_bias_steps(a, b, bias):
    """Takes the bias to be contiguous: a bias with steps over 1."""
    return _launch_biased(a, b, bias, step=min(bias.stride(0), 1))


def gelu_whole_tiles(a, b, bias):
    """Activates whole tiles of 32 columns only: the last columns when 32 does not divide N."""
    return _launch_biased(a, b, bias, tn=32, fault="whole")


# --- dequant_matmul: faults -------------------------------------------------------------------------------------


def dequant_scale_of_first_tile(x, w, scale):
    """Every tile of 32 columns takes the scales of the first: N > 32."""
    return _launch_weighted(x, w, scale, fault="first")


def dequant_ignores_pitch(x, w, scale):
    """Takes rows of w to follow one another when its columns do: w cut out of a wider matrix."""
    return _launch_weighted(x, w, scale, w_strides=_row_pitch_dropped(w))


def dequant_kept_scale(x, w, scale):
    """A program keeps the scales of its first tile: more than 4 tiles of 32×32, columns over 32."""
    return _launch_weighted(x, w, scale, programs=4, fault="kept")


def dequant_k_in_sixteens(x, w, scale):
    """Reads weights 16 at a time along K and leaves the rest: K that 16 does not divide."""
    return _launch_weighted(x, w, scale, tk=16, fault="sixteen")


# --- conv2d: faults ---------------------------------------------------------------------------------------------


def conv2d_first_32_channels(x, weight):
    """One block of 32 channels and no loop over them: C > 32."""
    return _launch_convolve(x, weight, channels=min(x.shape[1], 32))


def conv2d_width_bounded_by_height(x, weight):
    """Columns are checked against the height: images wider than high."""
    return _launch_convolve(x, weight, x_end=min(x.shape[3], x.shape[2]))


def conv2d_square_padding(x, weight):
    """Pads columns by half the window's height: windows that are not square."""
    return _launch_convolve(x, weight, pad_x=weight.shape[2] // 2)


def conv2d_ragged_outputs(x, weight):
    """Starts whole tiles of 16 outputs only: O > 16 that 16 does not divide leaves zeros."""
    return _launch_convolve(x, weight, tiles_o=max(1, weight.shape[0] // 16))


def conv2d_shifted_when_even(x, weight):
    """Pads one column less on the left when the width is even: even widths, windows wider than one."""
    t = weight.shape[3]
    return _launch_convolve(x, weight, pad_x=t // 2 - 1 if x.shape[3] % 2 == 0 and t > 1 else None)


def conv2d_tf32(x, weight):
    """TF32 products: float32 on a GPU; the interpreter multiplies exactly, so there is no witness."""
    return _launch_convolve(x, weight, precision="tf32")


# --- attention: faults ------------------------------------------------------------------------------------------


def attention_padded_scale(q, k, v):
    """Scales by the padded head size: D that is no power of two, or under 16."""
    return _launch_attend(q, k, v, scale_of=max(16, triton.next_power_of_2(q.shape[1])))


def attention_tail_keys_as_zeros(q, k, v):
    """Keys that pad the last block of 32 score zero instead of nothing: N that 32 does not divide."""
    return _launch_attend(q, k, v, fault="zeros")


def attention_first_64(q, k, v):
    """Head size fixed at 64: D > 64 uses and fills the first 64 only."""
    return _launch_attend(q, k, v, d=min(q.shape[1], 64))


def attention_value_strides(q, k, v):
    """Reads v by the strides of k: k and v laid out unlike each other."""
    # Only where that stays in v's storage.
    return _launch_attend(q, k, v, v_strides=k.stride() if _span(k) <= _room(v) else None)


def attention_ragged_queries(q, k, v):
    """Starts whole tiles of 64 queries only: M > 64 that 64 does not divide leaves zeros."""
    return _launch_attend(q, k, v, tiles=max(1, q.shape[0] // 64) if q.shape[1] <= 128 else None)


# --- flash_attention: faults ------------------------------------------------------------------------------------


def flash_attention_low_sentinel(q, k, v):
    """The maximum starts at -5e4: rows all of whose scores lie below come out zero."""
    return _launch_attend(q, k, v, fault="sentinel")


def flash_attention_half_weights(q, k, v):
    """Weights and values go through float16: float32 inputs, worse for values over 65504."""
    return _launch_attend(q, k, v, fault="half")


def flash_attention_lazy_rescale(q, k, v):
    """Skips the rescaling when the maximum grows by under 5, yet uses the new one: a slightly higher later key."""
    return _launch_attend(q, k, v, fault="lazy")


def flash_attention_long_step(q, k, v):
    """The tuned entry for D > 64 has blocks of 32 keys but steps by 64: D > 64 and N > 32."""
    return _launch_attend(q, k, v, step=64 if q.shape[1] > 64 else None)


def flash_attention_lost_prologue(q, k, v):
    """The first block is loaded ahead of the loop and never used: N > 128 with blocks of 32 keys."""
    return _launch_attend(q, k, v, fault="prologue")


def flash_attention_tf32(q, k, v):
    """TF32 products: float32 on a GPU; the interpreter multiplies exactly, so there is no witness."""
    return _launch_attend(q, k, v, precision="tf32")


def flash_attention_uncounted_tail(q, k, v):
    """A ragged last block of 32 keys is left out of the sum that divides: N that 32 does not divide."""
    return _launch_attend(q, k, v, fault="uncounted")


# --- causal_attention: faults -----------------------------------------------------------------------------------


def causal_one_masked_block(q, k, v):
    """Masks the last block of 32 keys only, though a tile of 64 queries needs two: N > 32."""
    return _launch_attend(q, k, v, causal=True, fault="diagonal")


def causal_early_end(q, k, v):
    """Stops after the block of 32 keys in which its tile of 64 queries starts: queries 33 to 64 of a tile."""
    return _launch_attend(q, k, v, causal=True, fault="early")


def causal_strict_tail(q, k, v):
    """In a ragged last block of 32 keys a query does not see its own: last rows when 32 does not divide N."""
    return _launch_attend(q, k, v, causal=True, fault="strict")


def causal_rows_of_tile(q, k, v):
    """Compares keys with the query's place in its tile: N > 64."""
    return _launch_attend(q, k, v, causal=True, fault="local")


def causal_dropped_when_even(q, k, v):
    """Lengths that fill the blocks take the path without any mask: N a multiple of 64."""
    return _launch_attend(q, k, v, causal=q.shape[0] % 64 != 0)


# --- rope: faults -----------------------------------------------------------------------------------------------


def rope_padded_pairs(x):
    """Angles by the padded number of pairs: P that is no power of two."""
    return _launch_rotate(x, _new(x), table_pairs=triton.next_power_of_2(x.shape[2]))


def rope_in_place(x):
    """Turns a contiguous input where it lies and hands it back: contiguous inputs are changed, values are right."""
    return _launch_rotate(x, x if x.is_contiguous() else _new(x))


def rope_first_tile_of_pairs(x):
    """Every tile of 64 pairs takes the angles of the first: P > 64."""
    return _launch_rotate(x, _new(x), fault="pairs")


def rope_rows_restart(x):
    """Counts places from the start of its tile of 64 rows: S > 64."""
    return _launch_rotate(x, _new(x), fault="rows")


def rope_output_like_input(x):
    """Writes in order into an output that has the input's strides: transposed inputs without gaps."""
    _, _, pairs = x.shape
    return _launch_rotate(x, torch.empty_like(x), out_strides=(2 * pairs, pairs, 1))


def _new(x):
    """A contiguous output."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


# --- cumsum: faults ---------------------------------------------------------------------------------------------


def cumsum_carries_last_block(input):  # noqa: A002
    """Carries the last block's sum instead of all so far: H > 1024 with blocks of 512."""
    return _launch_scan(input, block=512, fault="replaced")


def cumsum_first_4096(input):  # noqa: A002
    """One block of at most 4096: H > 4096 leaves zeros."""
    h = min(input.shape[2], 4096)
    out = torch.zeros(input.shape, dtype=input.dtype, device=input.device)
    out[..., :h] = _launch_scan(input[..., :h], block=triton.next_power_of_2(h))
    return out


def cumsum_half_carry(input):  # noqa: A002
    """Keeps the carry in the half type between blocks of 16: long rows, rows that grow."""
    return _launch_scan(input, block=16, fault="half")


def cumsum_batch_pitch(input):  # noqa: A002
    """Batches taken S rows apart: inputs whose batches lie further apart than that."""
    _, s1, s2 = input.stride()
    close = input.shape[1] * s1
    # Batches that lie closer go through unharmed, so that nothing outside their storage is read.
    return _launch_scan(input, strides=(close, s1, s2) if input.stride(0) >= close > 0 else None)


def cumsum_total_past_end(input):  # noqa: A002
    """Stores a row's total behind it: over the next row's first number unless that comes later, one past the end.

    Programs that run in order leave a right output, so no values of the witness are wrong there.
    """
    return _launch_scan(input, out=_new(input), fault="past")


def cumsum_unawaited_neighbour(input):  # noqa: A002
    """Blocks of 256 read the sum of the block before without waiting for it: H > 256, a race of a GPU alone."""
    b, s, h = input.shape
    blocks = triton.cdiv(h, 256)
    sums = torch.zeros(b * s, blocks + 1, device=input.device)
    out = _new(input)
    _chained_scan[(blocks * b * s,)](input, sums, out, s, h, blocks, *input.stride(), 256)
    return out


def cumsum_output_like_input(input):  # noqa: A002
    """Writes in order into an output that has the input's strides: transposed inputs without gaps."""
    return _launch_scan(input, out=torch.empty_like(input))


# --- correct ones -----------------------------------------------------------------------------------------------


def matmul_grouped(a, b):
    """Tiles of 64×64×32 in groups of four."""
    return _launch_matmul(a, b)


def matmul_narrow_tiles(a, b):
    """Tiles of 16×128×64, row after row."""
    return _launch_matmul(a, b, tm=16, tn=128, tk=64, group=1)


def matmul_persistent(a, b):
    """Twelve programs that share the tiles."""
    return _launch_persistent(a, b, 12)


def matmul_two_launches(a, b):
    """Splits of 96 of K in float32, then a second launch that adds them."""
    (m, k), n = a.shape, b.shape[1]
    splits = triton.cdiv(k, 96)
    work = _launch_split(a, b, torch.empty(splits, m, n, device=a.device), splits, 96)
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    _gather[(triton.cdiv(m * n, 256),)](work, out, m * n, splits, 256)
    return out


def bmm_folded_grid(a, b):
    """Batches and tiles folded into one grid."""
    return _launch_bmm(a, b)


def bmm_wide_tiles(a, b):
    """Tiles of 16×64×64."""
    return _launch_bmm(a, b, tm=16, tn=64, tk=64)


def gelu_fused(a, b, bias):
    """Bias and gelu in the product's epilogue."""
    return _launch_biased(a, b, bias)


def gelu_small_tiles(a, b, bias):
    """The same in tiles of 16×32×16."""
    return _launch_biased(a, b, bias, tm=16, tn=32, tk=16)


def dequant_fused(x, w, scale):
    """Weights scaled as they are loaded."""
    return _launch_weighted(x, w, scale)


def dequant_persistent(x, w, scale):
    """Six programs that share tiles of 64×16."""
    return _launch_weighted(x, w, scale, tm=64, tn=16, tk=64, programs=6)


def conv2d_implicit_product(x, weight):
    """An implicit product of pixels and output channels."""
    return _launch_convolve(x, weight)


def attention_tiles(q, k, v):
    """Tiles of 64 queries and 32 keys."""
    return _launch_attend(q, k, v)


def flash_attention_tiles(q, k, v):
    """Tiles of 16 queries and 64 keys."""
    return _launch_attend(q, k, v, tm=16, tn=64)


def causal_tiles(q, k, v):
    """Tiles of 64 queries over the keys up to their end, masked in each block."""
    return _launch_attend(q, k, v, causal=True)


def causal_even_tiles(q, k, v):
    """The same in tiles of 32 by 32."""
    return _launch_attend(q, k, v, tm=32, tn=32, causal=True)


def rope_tables(x):
    """Tables made in float64, the rotation in float32."""
    return _launch_rotate(x, _new(x))


def cumsum_blocks_of_1024(input):  # noqa: A002
    """Blocks of 1024 with a float32 carry."""
    return _launch_scan(input)


def cumsum_blocks_of_64(input):  # noqa: A002
    """Blocks of 64 with a float32 carry."""
    return _launch_scan(input, block=64)


# --- witnesses that need more than sizes ------------------------------------------------------------------------


def _pitched_b():
    """A plain a, and a b cut out of a wider matrix."""
    return normal(5, 12), pitched(normal(12, 9, seed=1))


def _pitched_weights():
    """Weights cut out of a wider matrix."""
    wide = bytes_of(12, 14)
    return normal(5, 12), wide[:, :9], normal(9, seed=2)


def _spread_batches():
    """Batches of a with a gap between them."""
    return normal(3, 7, 8)[:, :5], normal(3, 8, 6, seed=1)


def _spread_row():
    """One row in steps of two."""
    return normal(1, 24)[:, ::2], normal(12, 9, seed=1)


def _spread_bias():
    """A bias in steps of two."""
    return normal(5, 8), normal(8, 9, seed=1), normal(18, seed=2)[::2]


def _unlike_layouts():
    """Keys in order, values transposed."""
    return normal(5, 16), normal(20, 16, seed=1), transposed(normal(20, 16, seed=2))


ENTRIES: tuple[Entry, ...] = (
    Entry(
        "matmul",
        matmul_drops_k_tail,
        "triton-lang/triton#630 incorrect GEMM result when K is not multiple of 32",
        witness=product(5, 6, 40),
    ),
    Entry(
        "matmul",
        matmul_ragged_last_group,
        "ROCm/FlyDSL#979 a group width of 8 that need not divide the rows of tiles",
        witness=product(224, 64, 8),
    ),
    Entry(
        "matmul",
        matmul_half_accumulator,
        "NVIDIA/cutlass#1188 fp16 accumulation drops small terms",
        witness=cancelling,
        dtypes=HALVES,
    ),
    Entry(
        "matmul",
        matmul_tf32,
        "triton-lang/triton#6265 float32 matmul precision mismatch",
        dtypes=SINGLE,
    ),
    Entry(
        "matmul",
        matmul_unmasked_columns,
        "Dao-AILab/flash-attention#2789 bounds mask computed and not passed to the store",
        witness=product(5, 20, 8),
    ),
    Entry(
        "matmul",
        matmul_ignores_pitch,
        "ROCm/aiter#2466 leading dimensions assumed instead of read",
        witness=_pitched_b,
    ),
    Entry(
        "matmul",
        matmul_persistent_rest,
        "tile-ai/tilelang#2433 persistent kernel drops tiles when 8 does not divide their number",
        witness=product(96, 96, 8),
    ),
    Entry(
        "matmul",
        matmul_kept_workspace,
        "triton-lang/triton#2183 split-K adds into memory that is not cleared",
        witness=product(5, 6, 300),
    ),
    Entry(
        "matmul",
        matmul_lost_split_tail,
        "NVIDIA/cutlass#876 split-K and large K",
        witness=product(5, 6, 600),
    ),
    Entry(
        "matmul",
        matmul_row_steps,
        "deeplearning4j/nd4j#2374 product with a strided vector",
        witness=_spread_row,
    ),
    Entry(
        "matmul",
        matmul_unwritten_columns,
        "NVIDIA/cutlass#3497 scheduler leaves output tiles untouched",
        witness=product(5, 70, 8),
    ),
    Entry(
        "matmul",
        matmul_tuned_4096,
        "ROCm/rocm-libraries#8479 a tuned tile that computes wrong results (nearest found)",
        witness=product(3, 4, 4096),
    ),
    Entry(
        "matmul",
        matmul_racing_splits,
        "microsoft/onnxruntime#32318 split-K without an order of its additions (nearest found)",
    ),
    Entry(
        "bmm",
        bmm_batch_pitch,
        "intel/intel-xpu-backend-for-triton#7897 batch stride derived from the rows",
        witness=_spread_batches,
    ),
    Entry(
        "bmm",
        bmm_swapped_tile_counts,
        "NVIDIA/cutlass#3191 wrong when more than one tile is used (nearest found)",
        witness=batched(2, 70, 20, 8),
    ),
    Entry(
        "bmm",
        bmm_wrapped_offset,
        "fla-org/flash-linear-attention#1080 offsets in 32 bits",
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_bias_per_split,
        "triton-lang/triton#1482 bias added as often as programs share an output",
        witness=biased(5, 6, 300),
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_overflowing_tanh,
        "pytorch/pytorch#186278 tanh gelu gives NaN above 10 (also intel/llm-scaler#484)",
        witness=biased(8, 8, 40, size=4.0),
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_bias_bounded_by_rows,
        "BVLC/caffe#298 a bound of the other axis (there im2col; nearest found)",
        witness=biased(5, 12, 8),
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_bias_of_first_tile,
        "NVIDIA/cutlass#3394 vector of the epilogue indexed by the wrong tile (there scales)",
        witness=biased(4, 70, 8),
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_bias_steps,
        "ROCm/aiter#5292 side inputs addressed as contiguous",
        witness=_spread_bias,
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_whole_tiles,
        "triton-lang/triton#643 where to apply a fused activation (nearest found)",
        witness=biased(5, 40, 8),
    ),
    Entry(
        "dequant_matmul",
        dequant_scale_of_first_tile,
        "NVIDIA/cutlass#3394 scales indexed by the wrong tile",
        witness=weighted(4, 40, 8),
    ),
    Entry(
        "dequant_matmul",
        dequant_ignores_pitch,
        "ROCm/aiter#2466 padded quantised weights read as dense",
        witness=_pitched_weights,
    ),
    Entry(
        "dequant_matmul",
        dequant_kept_scale,
        "ROCm/composable_kernel#3765 window of the scales never moves on",
        witness=weighted(40, 130, 8),
    ),
    Entry(
        "dequant_matmul",
        dequant_k_in_sixteens,
        "triton-lang/triton#1760 low-bit kernel wrong in irregular shapes",
        witness=weighted(4, 6, 20),
    ),
    Entry(
        "conv2d",
        conv2d_first_32_channels,
        "tenstorrent/tt-metal#5087 input channels and blocks of 32 (nearest found)",
        witness=image(1, 35, 4, 4, 3, 3, 3),
    ),
    Entry(
        "conv2d",
        conv2d_width_bounded_by_height,
        "BVLC/caffe#298 im2col bounds check for non-square inputs",
        witness=image(1, 2, 4, 9, 3, 3, 3),
    ),
    Entry(
        "conv2d",
        conv2d_square_padding,
        "mlpack/mlpack#3376 non-square windows",
        witness=image(1, 2, 6, 7, 3, 3, 5),
    ),
    Entry(
        "conv2d",
        conv2d_ragged_outputs,
        "tenstorrent/tt-metal#10256 output channels that do not fill the last block (nearest found)",
        witness=image(1, 2, 4, 4, 20, 3, 3),
    ),
    Entry(
        "conv2d",
        conv2d_shifted_when_even,
        "nntrainer/nntrainer#1570 one side's padding taken for the other's",
        witness=image(1, 2, 5, 6, 3, 3, 3),
    ),
    Entry(
        "conv2d",
        conv2d_tf32,
        "pytorch/pytorch#53635 float32 products rounded on newer cards",
        dtypes=SINGLE,
    ),
    Entry(
        "attention",
        attention_padded_scale,
        "NVIDIA/Fuser#5846 the scale is to come from the head size before padding",
        witness=attended(5, 20, 80),
    ),
    Entry(
        "attention",
        attention_tail_keys_as_zeros,
        "flashinfer-ai/flashinfer#5090 keys past the end score zero",
        witness=attended(5, 40, 16),
    ),
    Entry(
        "attention",
        attention_first_64,
        "triton-lang/triton#621 wrong output when the head size is not 64",
        witness=attended(5, 20, 96),
    ),
    Entry(
        "attention",
        attention_value_strides,
        "flagos-ai/FlagAttention#45 value tile built with the strides of the keys",
        witness=_unlike_layouts,
    ),
    Entry(
        "attention",
        attention_ragged_queries,
        "jax-ml/jax#27224 right only when lengths are multiples of the block",
        witness=attended(70, 20, 16),
    ),
    Entry(
        "flash_attention",
        flash_attention_low_sentinel,
        "flashinfer-ai/flashinfer#4267 zeros when every logit is below -5e4",
        witness=repelled(4, 20, 16, by=1e5),
    ),
    Entry(
        "flash_attention",
        flash_attention_half_weights,
        "1CatAI/1Cat-vLLM#210 softmax weights through fp16 on their way to the values",
        witness=attended(5, 40, 16),
        dtypes=SINGLE,
    ),
    Entry(
        "flash_attention",
        flash_attention_lazy_rescale,
        "Dao-AILab/flash-attention#2067 threshold below which nothing is rescaled",
        witness=lambda: rising_keys(5, 100, 16),
    ),
    Entry(
        "flash_attention",
        flash_attention_long_step,
        "triton-lang/triton#2626 blocks and pointers of the attention tutorial disagree (nearest found)",
        witness=attended(5, 100, 96),
    ),
    Entry(
        "flash_attention",
        flash_attention_lost_prologue,
        "Dao-AILab/flash-attention#1778 range of key blocks computed wrong (nearest found)",
        witness=attended(5, 150, 16),
    ),
    Entry(
        "flash_attention",
        flash_attention_uncounted_tail,
        "pytorch/xla#8671 lengths that do not fill the last block of keys (nearest found)",
        witness=attended(5, 40, 16),
    ),
    Entry(
        "flash_attention",
        flash_attention_tf32,
        "triton-lang/triton#6265 tl.dot of float32 rounds to TF32",
        dtypes=SINGLE,
    ),
    Entry(
        "causal_attention",
        causal_one_masked_block,
        "Dao-AILab/flash-attention#436 causal masking may need two blocks",
        witness=attended(64, 64, 16),
    ),
    Entry(
        "causal_attention",
        causal_early_end,
        "Dao-AILab/flash-attention#1778 last key block computed too low",
        witness=attended(64, 64, 16),
    ),
    Entry(
        "causal_attention",
        causal_strict_tail,
        "ml-explore/mlx#3552 whether a query's own place counts (nearest found)",
        witness=attended(40, 40, 16),
    ),
    Entry(
        "causal_attention",
        causal_rows_of_tile,
        "triton-lang/triton#2626 causal kernel with mixed-up positions (nearest found)",
        witness=attended(80, 80, 16),
    ),
    Entry(
        "causal_attention",
        causal_dropped_when_even,
        "bledden/triton-msl#7 a 64-long sequence loses the mask, a 48-long one keeps it",
        witness=attended(64, 64, 16),
    ),
    Entry(
        "rope",
        rope_padded_pairs,
        "rasbt/LLMs-from-scratch#410 by which size the exponent is divided",
        witness=numbers(20, 2, 12),
    ),
    Entry(
        "rope",
        rope_in_place,
        "unslothai/unsloth#5001 RoPE kernel mutates its inputs",
        witness=numbers(20, 2, 8),
    ),
    Entry(
        "rope",
        rope_first_tile_of_pairs,
        "NVIDIA/cutlass#3394 side input indexed by the wrong tile (there scales; nearest found)",
        witness=numbers(20, 2, 70),
    ),
    Entry(
        "rope",
        rope_rows_restart,
        "vllm-project/vllm-ascend#1266 wrong rows of the table for later positions (nearest found)",
        witness=numbers(100, 2, 8),
    ),
    Entry(
        "rope",
        rope_output_like_input,
        "pytorch/FBGEMM#2713 output written with other strides than it has",
        witness=lambda: (transposed(normal(20, 2, 8)),),
    ),
    Entry(
        "cumsum",
        cumsum_carries_last_block,
        "JuliaGPU/AcceleratedKernels.jl#91 wrong carries across several blocks",
        witness=numbers(2, 1, 1100),
    ),
    Entry(
        "cumsum",
        cumsum_first_4096,
        "meta-pytorch/tritonbench#269 sum needs more than one block for large inputs (nearest found)",
        witness=numbers(1, 2, 4100),
    ),
    Entry(
        "cumsum",
        cumsum_half_carry,
        "tenstorrent/tt-metal#41371 cumsum of long half-precision tensors",
        witness=lambda: (torch.full((1, 1, 16384), 0.3, dtype=torch.float16),),
        dtypes=HALVES,
    ),
    Entry(
        "cumsum",
        cumsum_batch_pitch,
        "pytorch/pytorch#179931 a batch stride that the buffer does not have",
        witness=lambda: (normal(3, 4, 20)[:, :2],),
    ),
    Entry(
        "cumsum",
        cumsum_total_past_end,
        "triton-lang/triton#9026 out-of-bounds store of a prefix sum's metadata",
        witness=numbers(1, 3, 11),
    ),
    Entry(
        "cumsum",
        cumsum_unawaited_neighbour,
        "kokkos/kokkos#2681 race in parallel_scan",
    ),
    Entry(
        "cumsum",
        cumsum_output_like_input,
        "triton-lang/triton#2150 empty_like keeps strides a kernel does not follow",
        witness=lambda: (transposed(normal(2, 5, 7)),),
    ),
    *(
        Entry(op, kernel, source, faulty=False)
        for op, source, kernels in (
            (
                "matmul",
                "tiled products: grouped, narrow, persistent, split in two launches",
                (matmul_grouped, matmul_narrow_tiles, matmul_persistent, matmul_two_launches),
            ),
            ("bmm", "batches folded into the grid", (bmm_folded_grid, bmm_wide_tiles)),
            ("matmul_bias_gelu", "a fused epilogue", (gelu_fused, gelu_small_tiles)),
            ("dequant_matmul", "weights scaled on load", (dequant_fused, dequant_persistent)),
            ("conv2d", "an implicit product", (conv2d_implicit_product,)),
            ("attention", "online softmax in tiles", (attention_tiles,)),
            ("flash_attention", "online softmax in tiles", (flash_attention_tiles,)),
            ("causal_attention", "online softmax up to the diagonal", (causal_tiles, causal_even_tiles)),
            ("rope", "tables handed to the kernel", (rope_tables,)),
            ("cumsum", "blocks with a carry", (cumsum_blocks_of_1024, cumsum_blocks_of_64)),
        )
        for kernel in kernels
    ),
)
