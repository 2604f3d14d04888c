"""flash_attention in Triton: one program per block of queries, keys in tiles of 32, products summed in float32."""

import math

import torch
import triton
import triton.language as tl

BLOCK_M = 8


@triton.jit(
    do_not_specialize=[
        "queries", "keys", "stop", "depth", "q_row", "q_col", "k_row", "k_col", "v_row", "v_col",
        "shared_max", "rescale_sum", "rescale_acc",
    ]
)  # fmt: skip
def flash_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale,
    queries,
    keys,
    stop,  # tiles that start at or past this key are not looked at
    depth,
    q_row,
    q_col,
    k_row,
    k_col,
    v_row,
    v_col,
    first_max,
    tail,  # score of the lanes past the last key
    shared_max,  # 0 or 1, as the next two: known at run time only, so that few kernels are compiled
    rescale_sum,
    rescale_acc,
    P_TYPE: tl.constexpr,
    ACC_TYPE: tl.constexpr,
    INVERSE_TYPE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    at = tl.arange(0, BLOCK_D)
    mine = (row[:, None] < queries) & (at[None, :] < depth)
    q = tl.load(q_ptr + row[:, None] * q_row + at[None, :] * q_col, mask=mine, other=0.0).to(tl.float32)
    highest = tl.zeros([BLOCK_M], tl.float32) + first_max
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(0, stop, BLOCK_N):
        key = (start + tl.arange(0, BLOCK_N)).to(tl.int64)
        inside = (key[:, None] < keys) & (at[None, :] < depth)
        k = tl.load(k_ptr + key[:, None] * k_row + at[None, :] * k_col, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + key[:, None] * v_row + at[None, :] * v_col, mask=inside, other=0.0).to(tl.float32)
        scores = tl.sum(q[:, None, :] * k[None, :, :], axis=2) * scale
        scores = tl.where(key[None, :] < keys, scores, tail)
        top = tl.maximum(highest, tl.max(scores, axis=1))
        top_of_block = tl.max(tl.where(row < queries, top, -float("inf")), axis=0)
        top = tl.where(shared_max == 1, top_of_block, top)
        shrink = tl.exp(highest - top)
        p = tl.exp(scores - top[:, None])
        total = total * tl.where(rescale_sum == 1, shrink, 1.0) + tl.sum(p, axis=1)
        acc *= tl.where(rescale_acc == 1, shrink, 1.0)[:, None]
        acc += tl.sum(p.to(P_TYPE).to(tl.float32)[:, :, None] * v[None, :, :], axis=1)
        acc = acc.to(ACC_TYPE).to(tl.float32)
        highest = top
    out = acc * (1.0 / total).to(INVERSE_TYPE).to(tl.float32)[:, None]
    tl.store(out_ptr + row[:, None] * depth + at[None, :], out.to(out_ptr.dtype.element_ty), mask=mine)


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    first_max: float = -float("inf"),
    tail: float = -float("inf"),
    shared_max: bool = False,
    rescale_sum: bool = True,
    rescale_acc: bool = True,
    skip_full: bool = False,
    p_type: tl.dtype = tl.float32,
    acc_type: tl.dtype = tl.float32,
    inverse_type: tl.dtype = tl.float32,
) -> torch.Tensor:
    """Attention of one head, or what a bug makes of it."""
    queries, depth = q.shape
    keys = k.shape[0]
    out = torch.empty((queries, depth), dtype=q.dtype, device=q.device)
    block_n = max(8, triton.next_power_of_2(min(keys, 32)))
    skipped = block_n if skip_full and keys % block_n == 0 and keys > block_n else 0
    flash_attention_kernel[(triton.cdiv(queries, BLOCK_M),)](
        q, k, v, out, 1 / math.sqrt(depth), queries, keys, keys - skipped, depth,
        *q.stride(), *k.stride(), *v.stride(), first_max, tail, int(shared_max), int(rescale_sum), int(rescale_acc),
        P_TYPE=p_type, ACC_TYPE=acc_type, INVERSE_TYPE=inverse_type,
        BLOCK_M=BLOCK_M, BLOCK_N=block_n, BLOCK_D=max(64, triton.next_power_of_2(depth)),
    )  # fmt: skip
    return out


def flash_attention_triton(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Running sum and accumulator are rescaled whenever the running maximum grows; float32 inside."""
    return launch(q, k, v)


def flash_attention_triton_buggy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The accumulator is not rescaled: shows where N > 32 and the maximum grows past the first tile."""
    return launch(q, k, v, rescale_acc=False)


def flash_attention_sum_not_rescaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The running sum is not rescaled: shows where N > 32 and the maximum grows past the first tile."""
    return launch(q, k, v, rescale_sum=False)


def flash_attention_max_from_zero(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The running maximum starts at 0: shows where every score of a row is so far below that exp underflows."""
    return launch(q, k, v, first_max=0.0)


def flash_attention_shared_max(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """All queries of a block share one maximum: shows where M > 1 and their best scores are some 87 apart."""
    return launch(q, k, v, shared_max=True)


def flash_attention_tail_as_zero(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Lanes past the last key score 0: shows where N is no multiple of its tile (8 to 32) and scores are low."""
    return launch(q, k, v, tail=0.0)


def flash_attention_skips_last_tile(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The last tile is skipped if it is full: shows where N is a multiple of 32 above 32 and it has weight."""
    return launch(q, k, v, skip_full=True)


def flash_attention_half_probs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Probabilities are rounded to float16 before they meet V: shows where a row has two or more that count."""
    return launch(q, k, v, p_type=tl.float16)


def flash_attention_half_accumulator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The accumulator is float16: shows where two or more keys count, and in float32 wherever one does."""
    return launch(q, k, v, acc_type=tl.float16)


def flash_attention_half_reciprocal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """1/sum is rounded to float16: shows where a row has two or more probabilities that count."""
    return launch(q, k, v, inverse_type=tl.float16)
