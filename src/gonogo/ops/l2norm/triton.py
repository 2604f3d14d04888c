"""Euclidean normalisation in Triton: one program per row, the row in one block."""

import torch
import triton
import triton.language as tl

from gonogo.ops._launch import count_warps

EPS = 1e-12


@triton.jit(do_not_specialize=["length", "row_stride", "stride"])
def l2norm_kernel(
    x_ptr,
    out_ptr,
    eps,
    pad,
    length,
    row_stride,
    stride,
    HALF_SUM: tl.constexpr,
    DIVIDE_BY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + at * stride, mask=at < length, other=0.0).to(tl.float32)
    terms = tl.where(at < length, x * x, pad)
    total = tl.sum(terms.to(tl.float16) if HALF_SUM else terms).to(tl.float32) + eps
    if DIVIDE_BY == "norm":
        y = x / tl.sqrt(total)
    elif DIVIDE_BY == "square":
        y = x / total
    else:
        y = x * (1.0 / tl.sqrt(total)).to(tl.bfloat16).to(tl.float32)
    tl.store(out_ptr + row * length + at, y.to(out_ptr.dtype.element_ty), mask=at < length)


def launch(
    x: torch.Tensor,
    *,
    pad: float = 0.0,
    half_sum: bool = False,
    divide_by: str = "norm",
    as_if_contiguous: bool = False,
) -> torch.Tensor:
    """Rows over their norms, or what a bug makes of that."""
    flat = x.reshape(-1, x.shape[-1])
    rows, length = flat.shape
    out = torch.empty((rows, length), dtype=x.dtype, device=x.device)
    strides = (min(flat.stride(0), length), min(flat.stride(1), 1)) if as_if_contiguous else flat.stride()
    block = triton.next_power_of_2(length)
    l2norm_kernel[(rows,)](
        flat, out, EPS, pad, length, *strides,
        HALF_SUM=half_sum, DIVIDE_BY=divide_by, BLOCK=block, num_warps=count_warps(block),
    )  # fmt: skip
    return out.view(x.shape)


def l2norm_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """float32 inside."""
    return launch(input)


def l2norm_triton_buggy(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Divides by the squared norm: shows where that is not 1."""
    return launch(input, divide_by="square")


def l2norm_pads_one(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Lanes past the row add 1 each to the sum of squares: shows where H is no power of two."""
    return launch(input, pad=1.0)


def l2norm_half_sum(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Squares are summed in float16: shows everywhere, and overflows past a sum of 65504."""
    return launch(input, half_sum=True)


def l2norm_half_reciprocal(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The reciprocal norm is rounded to bfloat16: shows in nearly every row, up to 0.4 % off."""
    return launch(input, divide_by="half reciprocal")


def l2norm_row_stride(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Takes every input for contiguous: shows on inputs with gaps between elements."""
    return launch(input, as_if_contiguous=True)
