"""Batched matrix product in Triton: one program per 32×32 tile of one batch, by tl.dot."""

from typing import Literal

import torch
import triton
import triton.language as tl

BLOCK = 32
CHUNK = 128
"""Terms added in one chain; chunks are added to one another, so a sum's error grows with K/128, not K."""


@triton.jit(
    do_not_specialize=[
        "rows", "cols", "depth", "a_batch", "a_row", "a_col", "b_batch", "b_row", "b_col", "last_b",
    ]
)  # fmt: skip
def bmm_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    rows,
    cols,
    depth,
    a_batch,
    a_row,
    a_col,
    b_batch,
    b_row,
    b_col,
    last_b,  # the last batch of b that is read
    PRECISION: tl.constexpr,
    HALF_SUM: tl.constexpr,
    NARROW_PARTIALS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    batch = tl.program_id(2).to(tl.int64)
    a_ptr += batch * a_batch
    b_ptr += tl.minimum(batch, last_b) * b_batch
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, depth, CHUNK):
        partial = tl.zeros((BLOCK, BLOCK), tl.float32)
        for at in range(start, tl.minimum(start + CHUNK, depth), BLOCK):
            k = (at + tl.arange(0, BLOCK)).to(tl.int64)
            a_mask = (m < rows)[:, None] & (k < depth)[None, :]
            b_mask = (k < depth)[:, None] & (n < cols)[None, :]
            a = tl.load(a_ptr + m[:, None] * a_row + k[None, :] * a_col, mask=a_mask, other=0.0)
            b = tl.load(b_ptr + k[:, None] * b_row + n[None, :] * b_col, mask=b_mask, other=0.0)
            partial = tl.dot(a, b, partial, input_precision=PRECISION)
        if NARROW_PARTIALS:
            partial = partial.to(out_ptr.dtype.element_ty).to(tl.float32)
        total += partial
        if HALF_SUM:
            total = total.to(tl.float16).to(tl.float32)
    inside = (m < rows)[:, None] & (n < cols)[None, :]
    out_at = batch * rows * cols + m[:, None] * cols + n[None, :]
    tl.store(out_ptr + out_at, total.to(out_ptr.dtype.element_ty), mask=inside)


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    drop: int = 0,
    precision: Literal["ieee", "tf32"] = "ieee",
    half_sum: bool = False,
    narrow_partials: bool = False,
    stale_batch: bool = False,
    dense_batches: bool = False,
) -> torch.Tensor:
    """Product batch by batch, or what a bug makes of it."""
    (batches, rows, depth), cols = a.shape, b.shape[2]
    strides = [*a.stride(), *b.stride()]
    if dense_batches:
        strides[0], strides[3] = rows * depth, depth * cols
    last_b = max(batches - 2, 0) if stale_batch else batches - 1
    out = torch.empty((batches, rows, cols), dtype=a.dtype, device=a.device)
    bmm_kernel[(triton.cdiv(rows, BLOCK), triton.cdiv(cols, BLOCK), batches)](
        a, b, out, rows, cols, depth - drop, *strides, last_b,
        PRECISION=precision, HALF_SUM=half_sum, NARROW_PARTIALS=narrow_partials,
        CHUNK=BLOCK if half_sum else CHUNK, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def bmm_triton(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """tl.dot with all bits of the operands, float32 sums over chunks of 128."""
    return launch(a, b)


def bmm_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Operands are cut to tf32: shows on a GPU in float32 wherever they have more than 11 significant bits."""
    return launch(a, b, precision="tf32")


def bmm_half_accumulator(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The sum is kept in float16 between blocks: shows where K > 32, and in float32 and bfloat16 everywhere."""
    return launch(a, b, half_sum=True)


def bmm_narrow_partials(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sums over 128 terms are rounded to the input dtype before they are added: shows in half where K > 128."""
    return launch(a, b, narrow_partials=True)


def bmm_drops_k_tail(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Terms past the last full 16 are left out: shows where K > 16 is no multiple of 16."""
    depth = a.shape[2]
    return launch(a, b, drop=depth % 16 if depth > 16 else 0)


def bmm_stale_batch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The last batch is multiplied by the b of the batch before it: shows where Z > 1."""
    return launch(a, b, stale_batch=True)


def bmm_batch_stride(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Takes batches to follow one another without gaps: shows where Z > 1 and an input has gaps between them."""
    return launch(a, b, dense_batches=True)
