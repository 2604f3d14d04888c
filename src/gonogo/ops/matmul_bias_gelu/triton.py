"""Matrix product, bias and gelu in Triton: one program per 32×32 tile of the output, by tl.dot."""

from typing import Literal

import torch
import triton
import triton.language as tl

BLOCK = 32
CHUNK = 128
"""Terms added in one chain; chunks are added to one another, so a sum's error grows with K/128, not K."""


@triton.jit
def gelu(z, CUBIC: tl.constexpr, ERF: tl.constexpr):
    if ERF:
        return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    # z/2·(1 + tanh v) is z·sigmoid(2v), which does not cancel near tanh v = −1; exp(−2|v|) does not overflow.
    v = 0.7978845608028654 * (z + CUBIC * z * z * z)
    e = tl.exp(-2.0 * tl.abs(v))
    return z * tl.where(v < 0, e, 1.0) / (1.0 + e)


@triton.jit(
    do_not_specialize=["rows", "cols", "depth", "a_row", "a_col", "b_row", "b_col", "bias_stride", "bias_tile"]
)
def matmul_bias_gelu_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    out_ptr,
    rows,
    cols,
    depth,
    a_row,
    a_col,
    b_row,
    b_col,
    bias_stride,
    bias_tile,  # elements of bias from one tile to the next
    PRECISION: tl.constexpr,
    CUBIC: tl.constexpr,
    ERF: tl.constexpr,
    BIAS_AFTER: tl.constexpr,
    NARROW_SUM: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    m = tl.program_id(0).to(tl.int64) * BLOCK + lanes
    n = tl.program_id(1).to(tl.int64) * BLOCK + lanes
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, depth, CHUNK):
        partial = tl.zeros((BLOCK, BLOCK), tl.float32)
        for at in range(start, tl.minimum(start + CHUNK, depth), BLOCK):
            k = (at + lanes).to(tl.int64)
            a_mask = (m < rows)[:, None] & (k < depth)[None, :]
            b_mask = (k < depth)[:, None] & (n < cols)[None, :]
            a = tl.load(a_ptr + m[:, None] * a_row + k[None, :] * a_col, mask=a_mask, other=0.0)
            b = tl.load(b_ptr + k[:, None] * b_row + n[None, :] * b_col, mask=b_mask, other=0.0)
            partial = tl.dot(a, b, partial, input_precision=PRECISION)
        total += partial
    bias_at = (tl.program_id(1) * bias_tile + lanes) * bias_stride
    bias = tl.load(bias_ptr + bias_at, mask=n < cols, other=0.0).to(tl.float32)[None, :]
    if BIAS_AFTER:
        out = gelu(total, CUBIC, ERF) + bias
    else:
        z = total + bias
        if NARROW_SUM:
            z = z.to(out_ptr.dtype.element_ty).to(tl.float32)
        out = gelu(z, CUBIC, ERF)
    inside = (m < rows)[:, None] & (n < cols)[None, :]
    tl.store(out_ptr + m[:, None] * cols + n[None, :], out.to(out_ptr.dtype.element_ty), mask=inside)


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor,
    *,
    drop: int = 0,
    precision: Literal["ieee", "tf32"] = "ieee",
    cubic: float = 0.044715,
    erf: bool = False,
    bias_after: bool = False,
    bias_tile: int = BLOCK,
    narrow_sum: bool = False,
) -> torch.Tensor:
    """gelu(a @ b + bias), or what a bug makes of it."""
    (rows, depth), cols = a.shape, b.shape[1]
    out = torch.empty((rows, cols), dtype=a.dtype, device=a.device)
    matmul_bias_gelu_kernel[(triton.cdiv(rows, BLOCK), triton.cdiv(cols, BLOCK))](
        a, b, bias, out, rows, cols, depth - drop, *a.stride(), *b.stride(), *bias.stride(), bias_tile,
        PRECISION=precision, CUBIC=cubic, ERF=erf, BIAS_AFTER=bias_after, NARROW_SUM=narrow_sum,
        CHUNK=CHUNK, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def matmul_bias_gelu_triton(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Product, bias and gelu in float32, rounded once."""
    return launch(a, b, bias)


def matmul_bias_gelu_erf(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The erf form for the tanh form of gelu: shows where a·b + bias is of moderate size, up to about 5."""
    return launch(a, b, bias, erf=True)


def matmul_bias_gelu_cubic(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """0.044 for 0.044715 in gelu: shows where a·b + bias is of moderate size, most near −2."""
    return launch(a, b, bias, cubic=0.044)


def matmul_bias_gelu_bias_after(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The bias is added after gelu: shows where a·b + bias is negative or small."""
    return launch(a, b, bias, bias_after=True)


def matmul_bias_gelu_bias_tile(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Every tile adds the bias of the first one: shows where N > 32."""
    return launch(a, b, bias, bias_tile=0)


def matmul_bias_gelu_narrow_sum(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """a·b + bias is rounded to the input dtype before gelu: shows in float16 and bfloat16."""
    return launch(a, b, bias, narrow_sum=True)


def matmul_bias_gelu_drops_last_k(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The last term of every sum is left out: shows where K > 1 and gelu is not saturated at 0."""
    return launch(a, b, bias, drop=1 if a.shape[1] > 1 else 0)


def matmul_bias_gelu_tf32(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Operands are cut to tf32: shows on a GPU in float32 wherever they have more than 11 significant bits."""
    return launch(a, b, bias, precision="tf32")
