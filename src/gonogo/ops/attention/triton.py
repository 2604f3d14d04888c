"""attention in Triton: one program per query, all keys in one block, the head's depth in slabs."""

import math

import torch
import triton
import triton.language as tl

from gonogo.ops._launch import count_warps

TILE = 8192
"""Elements of K or V held at a time, in slabs of up to 8 columns: what one program has registers for."""


@triton.jit
def cut_to_tf32(x):
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["keys", "counted", "depth", "q_row", "q_col", "k_row", "k_col", "v_row", "v_col"])
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale,
    pad,  # score of the lanes past the last key
    keys,
    counted,  # keys whose scores enter the softmax
    depth,
    q_row,
    q_col,
    k_row,
    k_col,
    v_row,
    v_col,
    TF32: tl.constexpr,
    P_TYPE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SLAB: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    key = tl.arange(0, BLOCK_N).to(tl.int64)
    scores = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, depth, SLAB):
        at = start + tl.arange(0, SLAB)
        inside = (key[:, None] < keys) & (at[None, :] < depth)
        q = tl.load(q_ptr + row * q_row + at * q_col, mask=at < depth, other=0.0).to(tl.float32)
        k = tl.load(k_ptr + key[:, None] * k_row + at[None, :] * k_col, mask=inside, other=0.0).to(tl.float32)
        if TF32:
            q = cut_to_tf32(q)
            k = cut_to_tf32(k)
        scores += tl.sum(q[None, :] * k, axis=1)
    scores = tl.where(key < counted, scores * scale, pad)
    e = tl.exp(scores - tl.max(scores, axis=0))
    p = (e / tl.sum(e, axis=0)).to(P_TYPE).to(tl.float32)
    for start in range(0, depth, SLAB):
        at = start + tl.arange(0, SLAB)
        inside = (key[:, None] < keys) & (at[None, :] < depth)
        v = tl.load(v_ptr + key[:, None] * v_row + at[None, :] * v_col, mask=inside, other=0.0).to(tl.float32)
        out = tl.sum(p[:, None] * v, axis=0)
        tl.store(out_ptr + row * depth + at, out.to(out_ptr.dtype.element_ty), mask=at < depth)


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    drop: int = 0,
    pad: float = -float("inf"),
    tf32: bool = False,
    p_type: tl.dtype = tl.float32,
) -> torch.Tensor:
    """Attention of one head, or what a bug makes of it."""
    queries, depth = q.shape
    keys = k.shape[0]
    out = torch.empty((queries, depth), dtype=q.dtype, device=q.device)
    block_n = max(16, triton.next_power_of_2(keys))
    scale = 1 / math.sqrt(depth) if scale is None else scale
    attention_kernel[(queries,)](
        q, k, v, out, scale, pad, keys, keys - drop, depth, *q.stride(), *k.stride(), *v.stride(),
        TF32=tf32, P_TYPE=p_type, BLOCK_N=block_n, SLAB=max(1, min(8, TILE // block_n)),
        num_warps=count_warps(block_n),
    )  # fmt: skip
    return out


def attention_triton(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys past the last score minus infinity; float32 inside."""
    return launch(q, k, v)


def attention_triton_buggy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores are not divided by √D: shows where N > 1 and the two best scores are close."""
    return launch(q, k, v, scale=1.0)


def attention_half_probs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Probabilities are rounded to float16: shows where a row has two or more that count."""
    return launch(q, k, v, p_type=tl.float16)


def attention_half_scale(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """1/√D is rounded to float16: shows where D is no power of four, and N > 1."""
    return launch(q, k, v, scale=torch.tensor(1 / math.sqrt(q.shape[-1]), dtype=torch.float16).item())


def attention_tf32_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Q and K lose all but 11 bits before the scores: shows in float32 where N > 1 and no score dominates."""
    return launch(q, k, v, tf32=True)


def attention_drops_last_key(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The last key is left out: shows where N > 1 and it has weight."""
    return launch(q, k, v, drop=1 if k.shape[0] > 1 else 0)


def attention_padding_counts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Lanes past the last key score 0 and are counted: shows where N is no power of two and scores are low."""
    return launch(q, k, v, pad=0.0)
