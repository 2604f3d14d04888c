"""Matrix product in Triton, one program per 32×32 tile of the output: by rank-1 updates, and by tl.dot."""

from typing import Literal

import torch
import triton
import triton.language as tl

BLOCK = 32
CHUNK = 128
"""Terms added in one chain; chunks are added to one another, so a sum's error grows with K/128, not K."""


@triton.jit(do_not_specialize=["rows", "cols", "depth", "a_row", "a_col", "b_row", "b_col"])
def rank1_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    rows,
    cols,
    depth,
    a_row,
    a_col,
    b_row,
    b_col,
    OVERWRITE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a_at, b_at = a_ptr + m * a_row, b_ptr + n * b_col
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for _ in range(depth):
        a = tl.load(a_at, mask=m < rows, other=0.0).to(tl.float32)
        b = tl.load(b_at, mask=n < cols, other=0.0).to(tl.float32)
        a_at += a_col
        b_at += b_row
        update = a[:, None] * b[None, :]
        if OVERWRITE:
            total = update
        else:
            total += update
    inside = (m < rows)[:, None] & (n < cols)[None, :]
    tl.store(out_ptr + m[:, None] * cols + n[None, :], total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "cols", "depth", "counted", "a_row", "a_col", "b_row", "b_col"])
def dot_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    rows,
    cols,
    depth,
    counted,  # terms of each sum
    a_row,
    a_col,
    b_row,
    b_col,
    PRECISION: tl.constexpr,
    BF16_INPUTS: tl.constexpr,
    UNMASKED_TAIL: tl.constexpr,
    HALF_SUM: tl.constexpr,
    NARROW_PARTIALS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, counted, CHUNK):
        partial = tl.zeros((BLOCK, BLOCK), tl.float32)
        for at in range(start, tl.minimum(start + CHUNK, counted), BLOCK):
            k = (at + tl.arange(0, BLOCK)).to(tl.int64)
            if UNMASKED_TAIL:
                # a is contiguous: past a row's end stands the next row, past the last row nothing.
                a_at = tl.minimum(m[:, None] * depth + k[None, :], rows * depth - 1)
                b_at = tl.minimum(k, depth - 1)[:, None] * b_row + n[None, :] * b_col
                a_mask = (m < rows)[:, None]
                b_mask = (n < cols)[None, :]
            else:
                a_at = m[:, None] * a_row + k[None, :] * a_col
                b_at = k[:, None] * b_row + n[None, :] * b_col
                a_mask = (m < rows)[:, None] & (k < counted)[None, :]
                b_mask = (k < counted)[:, None] & (n < cols)[None, :]
            a = tl.load(a_ptr + a_at, mask=a_mask, other=0.0)
            b = tl.load(b_ptr + b_at, mask=b_mask, other=0.0)
            if BF16_INPUTS:
                a = a.to(tl.float32).to(tl.bfloat16).to(tl.float32)
                b = b.to(tl.float32).to(tl.bfloat16).to(tl.float32)
            partial = tl.dot(a, b, partial, input_precision=PRECISION)
        if NARROW_PARTIALS:
            partial = partial.to(out_ptr.dtype.element_ty).to(tl.float32)
        total += partial
        if HALF_SUM:
            total = total.to(tl.float16).to(tl.float32)
    inside = (m < rows)[:, None] & (n < cols)[None, :]
    tl.store(out_ptr + m[:, None] * cols + n[None, :], total.to(out_ptr.dtype.element_ty), mask=inside)


def launch_rank1(a: torch.Tensor, b: torch.Tensor, *, overwrite: bool = False) -> torch.Tensor:
    """Product by rank-1 updates, or its last update alone."""
    (rows, depth), cols = a.shape, b.shape[1]
    out = torch.empty((rows, cols), dtype=a.dtype, device=a.device)
    rank1_kernel[(triton.cdiv(rows, BLOCK), triton.cdiv(cols, BLOCK))](
        a, b, out, rows, cols, depth, *a.stride(), *b.stride(), OVERWRITE=overwrite, BLOCK=BLOCK
    )
    return out


def launch_dot(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    drop: int = 0,
    precision: Literal["ieee", "tf32"] = "ieee",
    bf16_inputs: bool = False,
    unmasked_tail: bool = False,
    half_sum: bool = False,
    narrow_partials: bool = False,
    b_as_if_contiguous: bool = False,
) -> torch.Tensor:
    """Product by tl.dot, or what a bug makes of it."""
    (rows, depth), cols = a.shape, b.shape[1]
    a = a.contiguous() if unmasked_tail else a
    b_strides = (cols, 1) if b_as_if_contiguous else b.stride()
    out = torch.empty((rows, cols), dtype=a.dtype, device=a.device)
    dot_kernel[(triton.cdiv(rows, BLOCK), triton.cdiv(cols, BLOCK))](
        a, b, out, rows, cols, depth, depth - drop, *a.stride(), *b_strides,
        PRECISION=precision, BF16_INPUTS=bf16_inputs, UNMASKED_TAIL=unmasked_tail, HALF_SUM=half_sum,
        NARROW_PARTIALS=narrow_partials, CHUNK=BLOCK if half_sum else CHUNK, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def matmul_triton(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rank-1 updates, one k after the other, into a float32 accumulator."""
    return launch_rank1(a, b)


def matmul_triton_buggy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The accumulator is overwritten, not added to, so the last k alone counts: shows where K > 1."""
    return launch_rank1(a, b, overwrite=True)


def matmul_triton_dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """tl.dot with all bits of the operands, float32 sums over chunks of 128."""
    return launch_dot(a, b)


def matmul_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Operands are cut to tf32: shows on a GPU in float32 wherever they have more than 11 significant bits."""
    return launch_dot(a, b, precision="tf32")


def matmul_bf16_inputs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Operands are rounded to bfloat16: shows where they have more than 8 significant bits."""
    return launch_dot(a, b, bf16_inputs=True)


def matmul_half_accumulator(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The sum is kept in float16 between blocks: shows where K > 32, and in float32 and bfloat16 everywhere."""
    return launch_dot(a, b, half_sum=True)


def matmul_narrow_partials(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sums over 128 terms are rounded to the input dtype before they are added: shows in half where K > 128."""
    return launch_dot(a, b, narrow_partials=True)


def matmul_drops_last_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The last term of every sum is left out: shows where K > 1."""
    return launch_dot(a, b, drop=1 if a.shape[1] > 1 else 0)


def matmul_k_tail_unmasked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Lanes past K read the next row of a and the last row of b: shows where K is no multiple of 32."""
    return launch_dot(a, b, unmasked_tail=True)


def matmul_b_stride(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Takes b for contiguous: shows where it is transposed or has gaps between elements."""
    return launch_dot(a, b, b_as_if_contiguous=True)
