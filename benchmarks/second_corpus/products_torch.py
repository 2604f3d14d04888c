"""Product ops in plain torch, written from outside: tensors in, one new tensor out; some faulty, some correct."""

from __future__ import annotations

import math

import torch
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
    product,
    repelled,
    rising_keys,
    weighted,
)
from torch.nn import functional

HALVES = ("float16", "bfloat16")
SINGLE = ("float32",)


def _gelu(z: torch.Tensor) -> torch.Tensor:
    """The tanh gelu of float32 z."""
    return functional.gelu(z, approximate="tanh")


def _taps(x: torch.Tensor, weight: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For every tap of the window, the image moved under it (float32, zeros around) and its weights (O, C)."""
    (y, width), (r, t) = x.shape[2:], weight.shape[2:]
    padded = functional.pad(x.float(), (t // 2, t // 2, r // 2, r // 2))
    return [
        (padded[:, :, i : i + y, j : j + width], weight[:, :, i, j].float()) for i in range(r) for j in range(t)
    ]


def _mix(pixels: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Sums over channels: (N, C, Y, X) and (O, C) to (N, O, Y, X)."""
    return torch.einsum("ncyx,oc->noyx", pixels, weight)


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """q·kᵀ/√D in float32."""
    return q.float() @ k.float().t() / math.sqrt(q.shape[1])


def _online(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: int, causal: bool = False) -> torch.Tensor:
    """Attention over blocks of keys with a running maximum, in float32; all queries at once."""
    top = torch.full((q.shape[0], 1), -math.inf, device=q.device)
    mass = torch.zeros_like(top)
    out = torch.zeros(q.shape[0], v.shape[1], device=q.device)
    at = torch.arange(q.shape[0], device=q.device)[:, None]
    for n in range(0, k.shape[0], block):
        s = _scores(q, k[n : n + block])
        if causal:
            s = s.masked_fill(torch.arange(n, n + s.shape[1], device=q.device) > at, -math.inf)
        higher = torch.maximum(top, s.amax(1, keepdim=True))
        p, fade = torch.exp(s - higher), torch.exp(top - higher)
        out, mass, top = out * fade + p @ v[n : n + block].float(), mass * fade + p.sum(1, keepdim=True), higher
    return (out / mass).to(q.dtype)


def _tables(rows: int, pairs: int, device: torch.device, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of s·10000^(-p/P), all computed in `dtype`."""
    pair = torch.arange(pairs, device=device, dtype=dtype)
    angle = torch.arange(rows, device=device, dtype=dtype)[:, None] * torch.exp(-math.log(10000) * pair / pairs)
    return torch.cos(angle), torch.sin(angle)


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Pairs turned by the tables, in the tables' precision."""
    first, second = x[:, 0].to(cos.dtype), x[:, 1].to(cos.dtype)
    return torch.stack((first * cos - second * sin, second * cos + first * sin), 1).to(x.dtype)


# --- matmul: faults ---------------------------------------------------------------------------------------------


def matmul_bfloat16_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Operands rounded to bfloat16 before the product: every product of float32 or float16 numbers."""
    return (a.bfloat16().float() @ b.bfloat16().float()).to(a.dtype)


def matmul_half_partial_sums(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Slices of 256 of K are rounded to the half type and added in it: K > 256, worst where the slices cancel."""
    out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    for k in range(0, a.shape[1], 256):
        out += (a[:, k : k + 256].float() @ b[k : k + 256].float()).to(a.dtype)
    return out


_last_product: dict[str, object] = {}


def matmul_remembered(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Keeps the last result by address and layout: a second call with new numbers in the same memory."""
    key = tuple((t.data_ptr(), t.shape, t.stride(), t.dtype, t.device) for t in (a, b))
    if _last_product.get("key") != key:
        _last_product.update(key=key, out=(a.float() @ b.float()).to(a.dtype))
    return _last_product["out"].clone()


_buffers: dict[str, torch.Tensor] = {}


def matmul_shared_output(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Hands out one buffer it keeps: an earlier result changes at the next call of its shape."""
    kept = _buffers.get("out")
    if kept is None or (kept.shape, kept.dtype, kept.device) != ((a.shape[0], b.shape[1]), a.dtype, a.device):
        kept = _buffers["out"] = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    return kept.copy_(a.float() @ b.float())


def matmul_tall_split(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Cuts K in eight equal slices once K reaches 4096 and drops the rest: K ≥ 4096 that 8 does not divide."""
    k = a.shape[1] if a.shape[1] < 4096 else a.shape[1] // 8 * 8
    return (a[:, :k].float() @ b[:k].float()).to(a.dtype)


# --- bmm: faults ------------------------------------------------------------------------------------------------


def bmm_row_times_first(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One row a batch takes the matrix-vector path, which knows no batch: M = 1 and Z > 1 use the first b."""
    if a.shape[1] == 1:
        return (a[:, 0].float() @ b[0].float()).to(a.dtype)[:, None]
    return torch.bmm(a.float(), b.float()).to(a.dtype)


def bmm_ragged_group(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Batches go in groups of 16 and a ragged last group is left at zero: Z > 16 that 16 does not divide."""
    z = a.shape[0]
    out = torch.zeros(z, a.shape[1], b.shape[2], dtype=a.dtype, device=a.device)
    done = z if z < 16 else z // 16 * 16
    out[:done] = torch.bmm(a[:done].float(), b[:done].float())
    return out


def bmm_either_broadcast(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Takes the path for a shared b when either side is expanded over the batch: a expanded, b not."""
    if a.shape[0] > 1 and 0 in (a.stride(0), b.stride(0)):
        return (a.float() @ b[0].float()).to(a.dtype)
    return torch.bmm(a.float(), b.float()).to(a.dtype)


def bmm_drifting_batch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Moves its place in b on by the batch number instead of by one: batches from the third on (kept in range)."""
    at = [min(i * (i + 1) // 2, a.shape[0] - 1) for i in range(a.shape[0])]
    return torch.bmm(a.float(), b[at].float()).to(a.dtype)


# --- matmul_bias_gelu: faults -----------------------------------------------------------------------------------


def gelu_erf(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Gelu by erf instead of tanh: a few 1e-4, most of all near z = -2.5 where little else is left."""
    return functional.gelu(a.float() @ b.float() + bias.float()).to(a.dtype)


def gelu_sigmoid(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Gelu by z·sigmoid(1.702·z): up to 0.02 for moderate z."""
    z = a.float() @ b.float() + bias.float()
    return (z * torch.sigmoid(1.702 * z)).to(a.dtype)


def gelu_before_bias(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Bias added after the activation: any bias but zero."""
    return (_gelu(a.float() @ b.float()) + bias.float()).to(a.dtype)


# --- dequant_matmul: faults -------------------------------------------------------------------------------------


def dequant_symmetric_clamp(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Weights clamped to -127: every -128."""
    return (x.float() @ (w.float().clamp(-127, 127) * scale.float())).to(x.dtype)


def dequant_guessed_zero_point(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Takes weights with no negative among them for unsigned ones about 128: w ≥ 0 throughout."""
    zero = 128.0 if int(w.min()) >= 0 else 0.0
    return (x.float() @ ((w.float() - zero) * scale.float())).to(x.dtype)


def dequant_absolute_scale(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Scales taken by size: columns of negative scale."""
    return (x.float() @ (w.float() * scale.float().abs())).to(x.dtype)


def dequant_scale_floor(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Scales kept at least 1e-5 in size: columns of a smaller scale, zero included."""
    size = scale.float().abs().clamp(min=1e-5)
    return (x.float() @ (w.float() * torch.where(scale < 0, -size, size))).to(x.dtype)


def dequant_rounded_activations(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Rounds each row of x to eight bits of its largest: rows with an outlier lose their small numbers."""
    step = x.float().abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
    return (torch.round(x.float() / step) @ w.float() * step * scale.float()).to(x.dtype)


def dequant_square_transposed(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Scales rows instead of columns where the lengths allow it: square w, K = N."""
    by_rows = w.shape[0] == w.shape[1]
    return (x.float() @ (w.float() * (scale.float()[:, None] if by_rows else scale.float()))).to(x.dtype)


# --- conv2d: faults ---------------------------------------------------------------------------------------------


def conv2d_flipped(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A true convolution, the window turned about: windows that are not symmetric."""
    return sum(_mix(p, w) for p, w in _taps(x, weight.flip(2, 3))).to(x.dtype)


def conv2d_pairs_of_columns(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The 3×3 path makes two columns at a time and leaves an odd last one: 3×3 windows on images of odd width."""
    out = sum(_mix(p, w) for p, w in _taps(x, weight))
    if weight.shape[2:] == (3, 3) and x.shape[3] % 2 and x.shape[3] > 1:
        out[..., -1] = 0
    return out.to(x.dtype)


def conv2d_dense_as_rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Reads any gapless image as if its axes lay in order: channels-last and transposed images."""
    # Only a gapless image: then as many elements lie from its start on as the reading takes.
    if sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1 == x.numel():
        x = x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())
    return sum(_mix(p, w) for p, w in _taps(x, weight)).to(x.dtype)


def conv2d_one_by_one_folds_batch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The 1×1 path reads the batch as more pixels without moving channels first: 1×1 windows and N > 1, C > 1."""
    if weight.shape[2:] == (1, 1):
        n, c, y, width = x.shape
        rows = weight[:, :, 0, 0].float() @ x.float().reshape(c, n * y * width)
        return rows.reshape(-1, n, y, width).transpose(0, 1).contiguous().to(x.dtype)
    return sum(_mix(p, w) for p, w in _taps(x, weight)).to(x.dtype)


def conv2d_half_taps(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Taps are added up in the half type: windows of many taps, worst where they cancel."""
    out = None
    for p, w in _taps(x, weight):
        tap = _mix(p, w).to(x.dtype)
        out = tap if out is None else out + tap
    return out


def conv2d_library_default(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The library as it comes, TF32 left on: float32 on a GPU, by cuDNN's choice; none on a CPU."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        return functional.conv2d(x, weight, padding=(weight.shape[2] // 2, weight.shape[3] // 2))


def conv2d_first_batch_twice(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Batches after the first 32 start over when 32 does not divide N: N > 32 that 32 does not divide."""
    n = x.shape[0]
    if n > 32 and n % 32:
        x = x[torch.arange(n, device=x.device) % 32]
    return sum(_mix(p, w) for p, w in _taps(x, weight)).to(x.dtype)


# --- attention, flash_attention, causal_attention: faults -------------------------------------------------------


def attention_no_maximum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Exp of the scores as they are: scores beyond 88 overflow, rows all below -104 vanish."""
    e = torch.exp(_scores(q, k))
    return (e @ v.float() / e.sum(1, keepdim=True)).to(q.dtype)


def attention_base_two(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """exp2 without the factor log2(e): any row whose scores differ."""
    s = _scores(q, k)
    e = torch.exp2(s - s.amax(1, keepdim=True))
    return (e @ v.float() / e.sum(1, keepdim=True)).to(q.dtype)


def attention_half_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores rounded to the half type, before scaling, on their way to the softmax: large scores."""
    s = (q.float() @ k.float().t()).to(q.dtype).float() / math.sqrt(q.shape[1])
    return (torch.softmax(s, 1) @ v.float()).to(q.dtype)


def flash_attention_merged_by_maximum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Splits of 128 keys, each divided by its own sum, are weighed by their maximum alone: N > 128."""
    parts, tops = [], []
    for n in range(0, k.shape[0], 128):
        s = _scores(q, k[n : n + 128])
        parts.append(torch.softmax(s, 1) @ v[n : n + 128].float())
        tops.append(s.amax(1, keepdim=True))
    weights = torch.softmax(torch.stack(tops), 0)
    return (weights * torch.stack(parts)).sum(0).to(q.dtype)


def flash_attention_zero_maximum(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The running maximum starts at 0: rows all of whose scores lie below about -88."""
    top = torch.zeros(q.shape[0], 1, device=q.device)
    mass, out = torch.zeros_like(top), torch.zeros(q.shape[0], v.shape[1], device=q.device)
    for n in range(0, k.shape[0], 64):
        s = _scores(q, k[n : n + 64])
        higher = torch.maximum(top, s.amax(1, keepdim=True))
        p, fade = torch.exp(s - higher), torch.exp(top - higher)
        out, mass, top = out * fade + p @ v[n : n + 64].float(), mass * fade + p.sum(1, keepdim=True), higher
    return (out / mass.clamp(min=1e-30)).to(q.dtype)


def flash_attention_sum_not_faded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The sum is not rescaled when the maximum grows, the output is: a higher key in a later block of 64."""
    top = torch.full((q.shape[0], 1), -math.inf, device=q.device)
    mass, out = torch.zeros_like(top), torch.zeros(q.shape[0], v.shape[1], device=q.device)
    for n in range(0, k.shape[0], 64):
        s = _scores(q, k[n : n + 64])
        higher = torch.maximum(top, s.amax(1, keepdim=True))
        p = torch.exp(s - higher)
        out, mass = out * torch.exp(top - higher) + p @ v[n : n + 64].float(), mass + p.sum(1, keepdim=True)
        top = higher
    return (out / mass).to(q.dtype)


def _masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor, fill: float) -> torch.Tensor:
    """Attention whose hidden scores are replaced by `fill`."""
    return (torch.softmax(_scores(q, k).masked_fill(hidden, fill), 1) @ v.float()).to(q.dtype)


def _future(q: torch.Tensor) -> torch.Tensor:
    """Which keys lie after each query."""
    at = torch.arange(q.shape[0], device=q.device)
    return at[None, :] > at[:, None]


def causal_short_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The mask was made for 1024 places; queries beyond see every key: N > 1024."""
    hidden = _future(q)
    hidden[1024:] = False
    return _masked(q, k, v, hidden, -math.inf)


def causal_finite_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Hides later keys by a score of -1e4: rows whose own scores are all near -1e4 or below."""
    return _masked(q, k, v, _future(q), -1e4)


def causal_maximum_of_all(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Takes the maximum before hiding later keys: a later key that scores some 90 above all seen ones."""
    s = _scores(q, k)
    e = torch.exp(s - s.amax(1, keepdim=True)).masked_fill(_future(q), 0)
    return (e @ v.float() / e.sum(1, keepdim=True).clamp(min=1e-30)).to(q.dtype)


def causal_window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A sliding window of 512 keys left switched on: queries from the 513th on."""
    at = torch.arange(q.shape[0], device=q.device)
    return _masked(q, k, v, _future(q) | (at[:, None] - at[None, :] >= 512), -math.inf)


# --- rope: faults -----------------------------------------------------------------------------------------------


def rope_short_table(x: torch.Tensor) -> torch.Tensor:
    """The table ends at 2048 and later places take its last row: S > 2048."""
    cos, sin = _tables(min(x.shape[0], 2048), x.shape[2], x.device, torch.float64)
    at = torch.arange(x.shape[0], device=x.device).clamp(max=2047)
    return _turn(x, cos[at], sin[at])


def rope_angle_in_input_type(x: torch.Tensor) -> torch.Tensor:
    """Places, angles and tables in the half type: from some tens of rows on."""
    cos, sin = _tables(x.shape[0], x.shape[2], x.device, x.dtype)
    return _turn(x, cos.float(), sin.float())


def rope_interleaved(x: torch.Tensor) -> torch.Tensor:
    """Pairs neighbours of the flat row instead of its halves: every row but the first, P > 1."""
    rows, _, pairs = x.shape
    cos, sin = _tables(rows, pairs, x.device, torch.float64)
    turned = _turn(x.reshape(rows, pairs, 2).transpose(1, 2), cos, sin)
    return turned.transpose(1, 2).reshape(rows, 2, pairs)


_kept_tables: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}


def rope_kept_table(x: torch.Tensor) -> torch.Tensor:
    """Cuts its tables from those of a larger call, whose angles are others: a call after one of more pairs.

    The first call is right, so the witness is only wrong after a call of as many rows and more pairs.
    """
    kept = _kept_tables.get(x.device)
    if kept is None or kept[0].shape[0] < x.shape[0] or kept[0].shape[1] < x.shape[2]:
        kept = _kept_tables[x.device] = _tables(x.shape[0], x.shape[2], x.device, torch.float64)
    return _turn(x, *(table[: x.shape[0], : x.shape[2]] for table in kept))


def rope_half_tables(x: torch.Tensor) -> torch.Tensor:
    """Cosines and sines kept as bfloat16: float32 and float16 at every place but the first."""
    tables = _tables(x.shape[0], x.shape[2], x.device, torch.float64)
    return _turn(x, *(table.bfloat16().float() for table in tables))


# --- cumsum: faults ---------------------------------------------------------------------------------------------


def cumsum_early_carry(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Adds a block's total one place early: the last element of every block of 256 but the last block."""
    h = input.shape[-1]
    out = torch.cumsum(input.float(), -1)
    ends = torch.arange(255, h - 1, 256, device=input.device)
    following = (ends + 256).clamp(max=h - 1)
    out[..., ends] = out[..., ends] + (out[..., following] - out[..., ends])
    return out.to(input.dtype)


def cumsum_from_the_end(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The total less the sums from the end: large numbers late in a row swallow the small ones before."""
    x = input.float()
    behind = torch.flip(torch.cumsum(torch.flip(x, (-1,)), -1), (-1,))
    return (x.sum(-1, keepdim=True) + x - behind).to(input.dtype)


def cumsum_sweeps(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Sweeps up and down a tree that is only whole for powers of two: H > 2 that is no power of two."""
    out, h, reach = input.float().clone(), input.shape[-1], 1
    while reach < h:
        at = torch.arange(0, h - 2 * reach + 1, 2 * reach, device=input.device)
        out[..., at + 2 * reach - 1] += out[..., at + reach - 1]
        reach *= 2
    out[..., h - 1] = 0
    reach //= 2
    while reach >= 1:
        at = torch.arange(0, h - 2 * reach + 1, 2 * reach, device=input.device)
        left = out[..., at + reach - 1].clone()
        out[..., at + reach - 1] = out[..., at + 2 * reach - 1]
        out[..., at + 2 * reach - 1] += left
        reach //= 2
    return (out + input.float()).to(input.dtype)


# --- correct ones -----------------------------------------------------------------------------------------------


def matmul_library(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Torch's own product."""
    return torch.matmul(a, b)


def matmul_linear(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """As a linear layer, in float32."""
    return functional.linear(a.float(), b.float().t()).to(a.dtype)


def matmul_einsum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Einsum in float32."""
    return torch.einsum("mk,kn->mn", a.float(), b.float()).to(a.dtype)


def matmul_chunks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """K in chunks of 48, added in float32."""
    out = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for k in range(0, a.shape[1], 48):
        out.addmm_(a[:, k : k + 48].float(), b[k : k + 48].float())
    return out.to(a.dtype)


def matmul_splits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Five float32 partial products over K, then their sum."""
    parts = zip(a.float().tensor_split(5, 1), b.float().tensor_split(5, 0), strict=True)
    return torch.stack([x @ y for x, y in parts]).sum(0).to(a.dtype)


def matmul_tiles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Tiles of 96 rows by 80 columns."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    for m in range(0, a.shape[0], 96):
        for n in range(0, b.shape[1], 80):
            out[m : m + 96, n : n + 80] = a[m : m + 96].float() @ b[:, n : n + 80].float()
    return out


def matmul_outer_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A chain of rank-one updates in float32."""
    out = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for k in range(a.shape[1]):
        out.addr_(a[:, k].float(), b[k].float())
    return out.to(a.dtype)


def bmm_library(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Torch's own batched product."""
    return torch.bmm(a, b)


def bmm_loop(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One float32 product after another."""
    return torch.stack([x.float() @ y.float() for x, y in zip(a, b, strict=True)]).to(a.dtype)


def bmm_einsum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Einsum in float32."""
    return torch.einsum("zmk,zkn->zmn", a.float(), b.float()).to(a.dtype)


def gelu_library(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Addmm in float32 and torch's tanh gelu."""
    return _gelu(torch.addmm(bias.float(), a.float(), b.float())).to(a.dtype)


def gelu_by_sigmoid(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The tanh gelu as z times the sigmoid of twice its argument, column block by column block."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    for n in range(0, b.shape[1], 128):
        z = a.float() @ b[:, n : n + 128].float() + bias[n : n + 128].float()
        out[:, n : n + 128] = z * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z))
    return out


def dequant_first(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Weights scaled in float32, then the product."""
    return (x.float() @ (w.float() * scale.float())).to(x.dtype)


def dequant_columns(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Blocks of 32 columns and 64 of K, scaled as they come, added in float32."""
    out = torch.zeros(x.shape[0], w.shape[1], device=x.device)
    for n in range(0, w.shape[1], 32):
        for k in range(0, w.shape[0], 64):
            block = w[k : k + 64, n : n + 32].float() * scale[n : n + 32].float()
            out[:, n : n + 32] += x[:, k : k + 64].float() @ block
    return out.to(x.dtype)


def conv2d_library(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Torch's own convolution with TF32 off."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return functional.conv2d(x, weight, padding=(weight.shape[2] // 2, weight.shape[3] // 2))


def conv2d_taps(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """One channel product per tap, added in float32."""
    return sum(_mix(p, w) for p, w in _taps(x, weight)).to(x.dtype)


def conv2d_unfold(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """im2col and one product in float32."""
    o, _, r, t = weight.shape
    columns = functional.unfold(x.float(), (r, t), padding=(r // 2, t // 2))
    rows = weight.float().reshape(o, -1) @ columns
    return rows.reshape(x.shape[0], o, *x.shape[2:]).to(x.dtype)


def conv2d_windows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A view of all windows of the padded image and one einsum over it, image by image."""
    r, t = weight.shape[2:]
    padded = functional.pad(x.float(), (t // 2, t // 2, r // 2, r // 2))
    windows = padded.unfold(2, r, 1).unfold(3, t, 1)
    images = [torch.einsum("cyxrt,ocrt->oyx", one, weight.float()) for one in windows]
    return torch.stack(images).to(x.dtype)


def attention_softmax(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores, softmax and product in float32."""
    return (torch.softmax(_scores(q, k), 1) @ v.float()).to(q.dtype)


def attention_two_passes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One pass over blocks of 100 keys for the maximum, a second for the sums."""
    blocks = range(0, k.shape[0], 100)
    top = torch.stack([_scores(q, k[n : n + 100]).amax(1) for n in blocks]).amax(0)[:, None]
    weights = [torch.exp(_scores(q, k[n : n + 100]) - top) for n in blocks]
    mass = sum(w.sum(1, keepdim=True) for w in weights)
    return (sum(w @ v[n : n + 100].float() for n, w in zip(blocks, weights, strict=True)) / mass).to(q.dtype)


def attention_merged_splits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Splits of 192 keys, merged by their log-sum-exp."""
    parts, masses = [], []
    for n in range(0, k.shape[0], 192):
        s = _scores(q, k[n : n + 192])
        parts.append(torch.softmax(s, 1) @ v[n : n + 192].float())
        masses.append(torch.logsumexp(s, 1, keepdim=True))
    return (torch.softmax(torch.stack(masses), 0) * torch.stack(parts)).sum(0).to(q.dtype)


def flash_attention_blocks_of_17(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Online softmax over blocks of 17 keys."""
    return _online(q, k, v, 17)


def flash_attention_blocks_of_128(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Online softmax over blocks of 128 keys, 64 queries at a time."""
    return torch.cat([_online(q[m : m + 64], k, v, 128) for m in range(0, q.shape[0], 64)])


def causal_softmax(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Later keys hidden by -inf, in float32."""
    return _masked(q, k, v, _future(q), -math.inf)


def causal_online(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Online softmax over blocks of 40 keys with a mask in each."""
    return _online(q, k, v, 40, causal=True)


def causal_skipping(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Tiles of 64 queries over the keys up to the tile's end only."""
    hidden, tiles = _future(q), []
    for m in range(0, q.shape[0], 64):
        end = min(m + 64, q.shape[0])
        tiles.append(_masked(q[m:end], k[:end], v[:end], hidden[m:end, :end], -math.inf))
    return torch.cat(tiles)


def rope_double_tables(x: torch.Tensor) -> torch.Tensor:
    """Tables and rotation in float64."""
    return _turn(x, *_tables(x.shape[0], x.shape[2], x.device, torch.float64))


def rope_single_tables(x: torch.Tensor) -> torch.Tensor:
    """Tables made in float64 and kept as float32."""
    tables = _tables(x.shape[0], x.shape[2], x.device, torch.float64)
    return _turn(x, *(table.float() for table in tables))


def rope_complex(x: torch.Tensor) -> torch.Tensor:
    """Pairs as complex numbers times numbers of length one."""
    cos, sin = _tables(x.shape[0], x.shape[2], x.device, torch.float64)
    turned = torch.complex(x[:, 0].float(), x[:, 1].float()) * torch.complex(cos.float(), sin.float())
    return torch.stack((turned.real, turned.imag), 1).to(x.dtype)


def cumsum_library(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Torch's own in float32."""
    return torch.cumsum(input.float(), -1).to(input.dtype)


def cumsum_carried_blocks(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Blocks of 300 with the sum so far carried on in float32."""
    carry, blocks = torch.zeros(*input.shape[:-1], 1, device=input.device), []
    for block in input.float().split(300, -1):
        blocks.append(torch.cumsum(block, -1) + carry)
        carry = blocks[-1][..., -1:]
    return torch.cat(blocks, -1).to(input.dtype)


def cumsum_doubling(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Doubling steps (Hillis and Steele) in float32."""
    out, step = input.float(), 1
    while step < out.shape[-1]:
        out = torch.cat((out[..., :step], out[..., step:] + out[..., :-step]), -1)
        step *= 2
    return out.to(input.dtype)


def cumsum_triangle(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Products of blocks of 64 with a triangle of ones, and the carry added."""
    carry, blocks = torch.zeros(*input.shape[:-1], 1, device=input.device), []
    ones = torch.ones(64, 64, device=input.device).triu()
    for block in input.float().split(64, -1):
        size = block.shape[-1]
        blocks.append(block @ ones[:size, :size] + carry)
        carry = blocks[-1][..., -1:]
    return torch.cat(blocks, -1).to(input.dtype)


# --- witnesses that need more than sizes ------------------------------------------------------------------------


def _shared_rows() -> tuple[torch.Tensor, ...]:
    """A expanded over the batch, b not."""
    return normal(1, 4, 6).expand(3, 4, 6), normal(3, 6, 5, seed=1)


def _grown_image() -> tuple[torch.Tensor, ...]:
    """Large taps that cancel, in half precision."""
    weight = normal(4, 8, 5, 5, seed=1, dtype=torch.float16)
    weight[:, :, 0, 0], weight[:, :, 4, 4] = 300, -300
    return torch.ones(1, 8, 33, 33, dtype=torch.float16), weight


def _late_giants() -> tuple[torch.Tensor, ...]:
    """Small numbers, then 1e8."""
    x = normal(2, 3, 100)
    x[..., -1] = 1e8
    return (x,)


def _outlier() -> tuple[torch.Tensor, ...]:
    """A row with one large number whose weights are zero."""
    x, w = normal(4, 32), bytes_of(32, 8)
    x[:, 5], w[5] = 1e4, 0
    return x, w, normal(8, seed=2)


def _climbing_future() -> tuple[torch.Tensor, ...]:
    """Later keys score hundreds above earlier ones."""
    return rising_keys(32, 32, 64)[0] * 30, *rising_keys(32, 32, 64)[1:]


def _near_ties() -> tuple[torch.Tensor, ...]:
    """Large scores that differ by little."""
    q, k = torch.full((8, 64), 4.0), 8 + normal(40, 64) / 20
    return q.half(), k.half(), normal(40, 64, seed=2, dtype=torch.float16)


_GONE = "ScalingIntelligence/KernelBench: generated kernels"

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "matmul",
        matmul_bfloat16_products,
        "pytorch/pytorch#53635 float32 product comes out rounded (there TF32; here a cast, nearest found)",
        witness=product(8, 8, 64),
        dtypes=("float16", "float32"),
    ),
    Entry(
        "matmul",
        matmul_half_partial_sums,
        "triton-lang/triton#2630 split-K error greater than without",
        witness=cancelling,
        dtypes=HALVES,
    ),
    Entry(
        "matmul",
        matmul_remembered,
        f"{_GONE} that keep results; discussed in anthony-chaudhary/dos-kernel#107 (nearest found)",
        witness=product(4, 4, 4),
    ),
    Entry(
        "matmul",
        matmul_shared_output,
        "flashinfer-ai/flashinfer#3283 one cached workspace for all calls",
        witness=product(4, 4, 4),
    ),
    Entry(
        "matmul",
        matmul_tall_split,
        "NVIDIA/cutlass#876 split-K wrong for very large K",
        witness=product(2, 3, 4099),
    ),
    Entry(
        "bmm",
        bmm_row_times_first,
        "alibaba/BladeDISC#243 batched product with m = 1 sent to gemv",
        witness=batched(3, 1, 4, 5),
    ),
    Entry(
        "bmm",
        bmm_ragged_group,
        "NervanaSystems/neon#361 wrong when the batch is over 32 and not a multiple (there conv3d)",
        witness=batched(19, 2, 3, 4),
    ),
    Entry(
        "bmm",
        bmm_either_broadcast,
        "pytorch/pytorch#179505 bmm with a broadcast batch dimension",
        witness=_shared_rows,
    ),
    Entry(
        "bmm",
        bmm_drifting_batch,
        "ARM-software/CMSIS_5#708 pointer advanced by batch number times size",
        witness=batched(4, 2, 3, 4),
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_erf,
        "tenstorrent/tt-metal#1262 erf and tanh gelu under one name",
        witness=biased(16, 16, 8),
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_sigmoid,
        "ROCm/AMDMIGraphX#2542 gelu by a sigmoid",
        witness=biased(8, 8, 8),
    ),
    Entry(
        "matmul_bias_gelu",
        gelu_before_bias,
        "triton-lang/triton#1482 bias added in the wrong place of a fused linear (nearest found)",
        witness=biased(8, 8, 8),
    ),
    Entry(
        "dequant_matmul",
        dequant_symmetric_clamp,
        "tenstorrent/tt-metal#56526 -128 never comes out",
        witness=weighted(4, 6, 8),
    ),
    Entry(
        "dequant_matmul",
        dequant_guessed_zero_point,
        "OpenNMT/CTranslate2#666 uint8 numbers in an int8 buffer",
        witness=lambda: (normal(4, 8), bytes_of(8, 6).clamp(min=0), normal(6, seed=2)),
    ),
    Entry(
        "dequant_matmul",
        dequant_absolute_scale,
        "mit-han-lab/llm-awq#193 scales clamped to be positive (nearest found)",
        witness=weighted(4, 6, 8),
    ),
    Entry(
        "dequant_matmul",
        dequant_scale_floor,
        "pytorch/ao#4534 eps as the least scale loses small scales",
        witness=lambda: (normal(4, 8), bytes_of(8, 6), normal(6, seed=2) * 1e-7),
    ),
    Entry(
        "dequant_matmul",
        dequant_rounded_activations,
        "microsoft/onnxruntime#29849 int8 activations and massive outliers",
        witness=_outlier,
    ),
    Entry(
        "dequant_matmul",
        dequant_square_transposed,
        "Comfy-Org/comfy-kitchen#37 transposed weights keep their scales; square ones do not fail",
        witness=weighted(4, 8, 8),
    ),
    Entry(
        "conv2d",
        conv2d_flipped,
        "CNugteren/CLBlast#267 convolution or correlation",
        witness=image(1, 2, 5, 6, 3, 3, 3),
    ),
    Entry(
        "conv2d",
        conv2d_pairs_of_columns,
        "Tencent/TNN#394 winograd tail of the map wrong for one parity of its width",
        witness=image(1, 2, 4, 7, 3, 3, 3),
    ),
    Entry(
        "conv2d",
        conv2d_dense_as_rows,
        "pytorch/executorch#16429 channels-last read as contiguous",
        witness=lambda: (
            normal(1, 3, 4, 5).contiguous(memory_format=torch.channels_last),
            normal(2, 3, 3, 3, seed=1),
        ),
    ),
    Entry(
        "conv2d",
        conv2d_one_by_one_folds_batch,
        "ggml-org/ggml#993 im2col takes the batch from the wrong axis",
        witness=image(2, 3, 4, 4, 2, 1, 1),
    ),
    Entry(
        "conv2d",
        conv2d_half_taps,
        "ROCm/AMDMIGraphX#850 fp16 accumulation in convolution",
        witness=_grown_image,
        dtypes=HALVES,
    ),
    Entry(
        "conv2d",
        conv2d_library_default,
        "microsoft/onnxruntime#19426 float32 convolution runs in TF32 unless told not to",
        dtypes=SINGLE,
    ),
    Entry(
        "conv2d",
        conv2d_first_batch_twice,
        "NervanaSystems/neon#361 batch over 32 and not a multiple of 32 (there conv3d)",
        witness=image(35, 1, 3, 3, 1, 3, 3),
    ),
    Entry(
        "attention",
        attention_no_maximum,
        "jadore801120/attention-is-all-you-need-pytorch#5 nan from softmax (nearest found)",
        witness=attended(4, 8, 16, size=100.0),
    ),
    Entry(
        "attention",
        attention_base_two,
        "jax-ml/jax#25984 exp2 in place of exp needs log2(e) folded into the scale",
        witness=attended(4, 8, 16),
    ),
    Entry(
        "attention",
        attention_half_scores,
        "Dao-AILab/flash-attention#613 why the softmax is not in half precision",
        witness=_near_ties,
        dtypes=HALVES,
    ),
    Entry(
        "flash_attention",
        flash_attention_merged_by_maximum,
        "flashinfer-ai/flashinfer#50 the merge of splits needs the log-sum-exp",
        witness=attended(4, 150, 16),
    ),
    Entry(
        "flash_attention",
        flash_attention_zero_maximum,
        "Wenyueh/MinivLLM#74 maxima that start as zeros",
        witness=repelled(4, 20, 16, by=200.0),
    ),
    Entry(
        "flash_attention",
        flash_attention_sum_not_faded,
        "Dao-AILab/flash-attention#2067 rescaling of the running sums (nearest found)",
        witness=lambda: rising_keys(4, 150, 16),
    ),
    Entry(
        "causal_attention",
        causal_short_mask,
        "karpathy/nanoGPT#473 a mask of the block size, longer sequences",
        witness=attended(1100, 1100, 8),
    ),
    Entry(
        "causal_attention",
        causal_finite_mask,
        "tracel-ai/burn#4697 a floor of -1e4 under the scores",
        witness=repelled(12, 12, 16, by=2e4),
    ),
    Entry(
        "causal_attention",
        causal_maximum_of_all,
        "pytorch/executorch#22483 softmax taken over keys that are hidden",
        witness=_climbing_future,
    ),
    Entry(
        "causal_attention",
        causal_window,
        "ModelTC/LightLLM#1312 sliding window size handed to the kernel wrong",
        witness=attended(600, 600, 8),
    ),
    Entry(
        "rope",
        rope_short_table,
        "vllm-project/vllm-ascend#1266 tables shorter than the longest sequence",
        witness=numbers(2100, 2, 4),
    ),
    Entry(
        "rope",
        rope_angle_in_input_type,
        "EleutherAI/gpt-neox#1003 rotary tables computed in half precision",
        witness=numbers(300, 2, 16, dtype=torch.float16),
        dtypes=HALVES,
    ),
    Entry(
        "rope",
        rope_interleaved,
        "karpathy/nanochat#264 halves or neighbours",
        witness=numbers(5, 2, 4),
    ),
    Entry(
        "rope",
        rope_kept_table,
        "facebookresearch/xformers#728 when kept rotary tables may be used again",
        witness=numbers(50, 2, 4),
    ),
    Entry(
        "rope",
        rope_half_tables,
        "KellerJordan/modded-nanogpt#39 bfloat16 cosines and sines",
        witness=numbers(50, 2, 16),
        dtypes=("float16", "float32"),
    ),
    Entry(
        "cumsum",
        cumsum_early_carry,
        "arrayfire/arrayfire#2366 block totals added one element early",
        witness=numbers(2, 1, 300),
    ),
    Entry(
        "cumsum",
        cumsum_from_the_end,
        "tenstorrent/tt-metal#55542 cumsum whose error depends on the distribution (nearest found)",
        witness=_late_giants,
    ),
    Entry(
        "cumsum",
        cumsum_sweeps,
        "stanford-cs149/asst3#11 scan by sweeps of a length that is no power of two",
        witness=numbers(2, 1, 7),
    ),
    *(
        Entry(op, kernel, source, faulty=False)
        for op, source, kernels in (
            (
                "matmul",
                "the library and the usual ways to split a product",
                (
                    matmul_library,
                    matmul_linear,
                    matmul_einsum,
                    matmul_chunks,
                    matmul_splits,
                    matmul_tiles,
                    matmul_outer_products,
                ),
            ),
            ("bmm", "the library, a loop, einsum", (bmm_library, bmm_loop, bmm_einsum)),
            (
                "matmul_bias_gelu",
                "addmm and tanh gelu; the sigmoid form of the same",
                (gelu_library, gelu_by_sigmoid),
            ),
            ("dequant_matmul", "weights scaled in float32", (dequant_first, dequant_columns)),
            (
                "conv2d",
                "the library, im2col, sums over taps",
                (
                    conv2d_library,
                    conv2d_taps,
                    conv2d_unfold,
                    conv2d_windows,
                ),
            ),
            (
                "attention",
                "softmax at once, in two passes, in merged splits",
                (
                    attention_softmax,
                    attention_two_passes,
                    attention_merged_splits,
                ),
            ),
            ("flash_attention", "online softmax", (flash_attention_blocks_of_17, flash_attention_blocks_of_128)),
            ("causal_attention", "a mask; tiles that skip", (causal_softmax, causal_online, causal_skipping)),
            (
                "rope",
                "tables from float64; complex numbers",
                (rope_double_tables, rope_single_tables, rope_complex),
            ),
            (
                "cumsum",
                "the library, carried blocks, doubling, triangles of ones",
                (
                    cumsum_library,
                    cumsum_carried_blocks,
                    cumsum_doubling,
                    cumsum_triangle,
                ),
            ),
        )
        for kernel in kernels
    ),
)
