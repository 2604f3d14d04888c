"""Matrix product with int8 weights in Triton: one program per 32×32 tile of the output, by tl.dot in float32."""

import torch
import triton
import triton.language as tl

BLOCK = 32
CHUNK = 128
"""Terms added in one chain; chunks are added to one another, so a sum's error grows with K/128, not K."""


@triton.jit(
    do_not_specialize=[
        "rows", "cols", "depth", "x_row", "x_col", "w_row", "w_col", "scale_stride", "zero_point", "largest",
    ]
)  # fmt: skip
def dequant_matmul_kernel(
    x_ptr,
    w_ptr,
    scale_ptr,
    out_ptr,
    rows,
    cols,
    depth,
    x_row,
    x_col,
    w_row,
    w_col,
    scale_stride,
    zero_point,
    largest,  # weights are clipped to ± this
    SHARE: tl.constexpr,  # neighbouring columns with one scale
    SCALE_LAST: tl.constexpr,
    HALF_PRODUCT: tl.constexpr,
    HALF_WEIGHT: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    scale = tl.load(scale_ptr + n // SHARE * SHARE * scale_stride, mask=n < cols, other=0.0).to(tl.float32)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, depth, CHUNK):
        partial = tl.zeros((BLOCK, BLOCK), tl.float32)
        for at in range(start, tl.minimum(start + CHUNK, depth), BLOCK):
            k = (at + tl.arange(0, BLOCK)).to(tl.int64)
            x_mask = (m < rows)[:, None] & (k < depth)[None, :]
            w_mask = (k < depth)[:, None] & (n < cols)[None, :]
            x = tl.load(x_ptr + m[:, None] * x_row + k[None, :] * x_col, mask=x_mask, other=0.0).to(tl.float32)
            levels = tl.load(w_ptr + k[:, None] * w_row + n[None, :] * w_col, mask=w_mask, other=0).to(tl.int32)
            levels = tl.minimum(tl.maximum(levels - zero_point, -largest), largest)
            w = levels.to(tl.float32)
            if not SCALE_LAST:
                w = w * scale
            if HALF_WEIGHT:
                w = w.to(tl.float16).to(tl.float32)
            partial = tl.dot(x, w, partial, input_precision="ieee")
        total += partial
    if HALF_PRODUCT:
        total = total.to(tl.float16).to(tl.float32)
    if SCALE_LAST:
        total = total * scale
    inside = (m < rows)[:, None] & (n < cols)[None, :]
    tl.store(out_ptr + m[:, None] * cols + n[None, :], total.to(out_ptr.dtype.element_ty), mask=inside)


def launch(
    x: torch.Tensor,
    w: torch.Tensor,
    scale: torch.Tensor,
    *,
    drop: int = 0,
    zero_point: int = 0,
    largest: int = 128,
    share: int = 1,
    scale_last: bool = False,
    half_product: bool = False,
    half_weight: bool = False,
) -> torch.Tensor:
    """Product of x and w·scale, or what a bug makes of it."""
    (rows, depth), cols = x.shape, w.shape[1]
    out = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    dequant_matmul_kernel[(triton.cdiv(rows, BLOCK), triton.cdiv(cols, BLOCK))](
        x, w, scale, out, rows, cols, depth - drop, *x.stride(), *w.stride(), *scale.stride(), zero_point, largest,
        SHARE=share, SCALE_LAST=scale_last, HALF_PRODUCT=half_product, HALF_WEIGHT=half_weight,
        CHUNK=CHUNK, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def dequant_matmul_triton(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Weights are scaled in float32, then multiplied."""
    return launch(x, w, scale)


def dequant_matmul_triton_scale_last(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Multiplied in float32, then the sums are scaled."""
    return launch(x, w, scale, scale_last=True)


def dequant_matmul_half_weight(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Scaled weights are rounded to float16: shows wherever scales are no powers of two."""
    return launch(x, w, scale, half_weight=True)


def dequant_matmul_half_product(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Sums are rounded to float16 before they are scaled: shows everywhere, and overflows past 65504."""
    return launch(x, w, scale, scale_last=True, half_product=True)


def dequant_matmul_zero_point(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A zero point of 1 is subtracted from weights that have none: shows where x does not sum to 0."""
    return launch(x, w, scale, zero_point=1)


def dequant_matmul_shared_scale(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Odd columns take the scale of the column before: shows where N > 1."""
    return launch(x, w, scale, share=2)


def dequant_matmul_clipped(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Weights are clipped to ±126: shows where a weight is ±127."""
    return launch(x, w, scale, largest=126)


def dequant_matmul_drops_last_k(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The last term of every sum is left out: shows where K > 1."""
    return launch(x, w, scale, drop=1 if x.shape[1] > 1 else 0)
