"""causal_attention in Triton: one program per 32 queries, keys in tiles of 32 up to the diagonal."""

import math

import torch
import triton
import triton.language as tl

BLOCK_N = 32


@triton.jit(do_not_specialize=["length", "depth", "ahead", "q_row", "q_col", "k_row", "k_col", "v_row", "v_col"])
def causal_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale,
    length,
    depth,
    q_row,
    q_col,
    k_row,
    k_col,
    v_row,
    v_col,
    mask,  # score of later keys
    ahead,  # later keys a query sees
    MAX_SEES_ALL: tl.constexpr,
    SKIP_FULL: tl.constexpr,
    STALE_SHRINK: tl.constexpr,
    SCORE_TYPE: tl.constexpr,
    P_TYPE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    first = tl.program_id(0) * BLOCK
    row = (first + tl.arange(0, BLOCK)).to(tl.int64)
    at = tl.arange(0, BLOCK_D)
    mine = (row[:, None] < length) & (at[None, :] < depth)
    q = tl.load(q_ptr + row[:, None] * q_row + at[None, :] * q_col, mask=mine, other=0.0).to(tl.float32)
    highest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    last_shrink = tl.full([BLOCK], 1.0, tl.float32)
    stop = first + BLOCK
    if SKIP_FULL:
        stop = tl.where((stop == length) & (first > 0), first, stop)
    for start in range(0, stop, BLOCK):
        key = (start + tl.arange(0, BLOCK)).to(tl.int64)
        inside = (key[:, None] < length) & (at[None, :] < depth)
        k = tl.load(k_ptr + key[:, None] * k_row + at[None, :] * k_col, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + key[:, None] * v_row + at[None, :] * v_col, mask=inside, other=0.0).to(tl.float32)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = scores.to(SCORE_TYPE).to(tl.float32)
        everything = tl.where(key[None, :] < length, scores, -float("inf"))
        unseen = tl.where(key[None, :] < length, mask, -float("inf"))
        scores = tl.where(key[None, :] <= row[:, None] + ahead, everything, unseen)
        top = tl.maximum(highest, tl.max(everything if MAX_SEES_ALL else scores, axis=1))
        shrink = tl.exp(highest - top)
        p = tl.exp(scores - top[:, None])
        total = total * shrink + tl.sum(p, axis=1)
        acc *= (last_shrink if STALE_SHRINK else shrink)[:, None]
        acc += tl.dot(p.to(P_TYPE).to(tl.float32), v, input_precision="ieee")
        highest = top
        last_shrink = shrink
    out = acc / total[:, None]
    tl.store(out_ptr + row[:, None] * depth + at[None, :], out.to(out_ptr.dtype.element_ty), mask=mine)


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    mask: float = -float("inf"),
    ahead: int = 0,
    max_sees_all: bool = False,
    skip_full: bool = False,
    stale_shrink: bool = False,
    score_type: tl.dtype = tl.float32,
    p_type: tl.dtype = tl.float32,
) -> torch.Tensor:
    """Causal attention of one head, or what a bug makes of it."""
    length, depth = q.shape
    out = torch.empty((length, depth), dtype=q.dtype, device=q.device)
    scale = 1 / math.sqrt(depth) if scale is None else scale
    causal_attention_kernel[(triton.cdiv(length, BLOCK_N),)](
        q, k, v, out, scale, length, depth, *q.stride(), *k.stride(), *v.stride(), mask, ahead,
        MAX_SEES_ALL=max_sees_all, SKIP_FULL=skip_full, STALE_SHRINK=stale_shrink,
        SCORE_TYPE=score_type, P_TYPE=p_type, BLOCK=BLOCK_N, BLOCK_D=max(64, triton.next_power_of_2(depth)),
    )  # fmt: skip
    return out


def causal_attention_triton(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Later keys score minus infinity; products and sums in float32."""
    return launch(q, k, v)


def causal_attention_sees_next(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A query sees the key after its own within the tile: shows where N > 1 and that key has weight."""
    return launch(q, k, v, ahead=1)


def causal_attention_finite_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Later keys score −100: shows where all keys a query may see score about that or less."""
    return launch(q, k, v, mask=-100.0)


def causal_attention_max_sees_all(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Later keys enter the maximum: shows where one scores some 87 above all that the query may see."""
    return launch(q, k, v, max_sees_all=True)


def causal_attention_padded_scale(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores are divided by the root of D rounded up to a power of two: shows where D is none, and N > 1."""
    return launch(q, k, v, scale=1 / math.sqrt(triton.next_power_of_2(q.shape[-1])))


def causal_attention_skips_diagonal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The last tile is skipped if it is full: shows in the last 32 queries where N is a multiple of 32 above 32."""
    return launch(q, k, v, skip_full=True)


def causal_attention_stale_shrink(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The accumulator is rescaled one tile late: shows where N > 32 and the maximum grows past the first tile."""
    return launch(q, k, v, stale_shrink=True)


def causal_attention_half_probs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Probabilities are rounded to float16 before they meet V: shows where a row has two or more that count."""
    return launch(q, k, v, p_type=tl.float16)


def causal_attention_half_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores are rounded to float16: shows where N > 1 and no score dominates, and where one is past 65504."""
    return launch(q, k, v, score_type=tl.float16)
