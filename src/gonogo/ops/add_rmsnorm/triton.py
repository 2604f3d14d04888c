"""Residual addition and RMS normalisation in Triton: one program per row, the row in one block."""

import torch
import triton
import triton.language as tl

from gonogo.ops._launch import count_warps

EPS = 1e-5


@triton.jit(
    do_not_specialize=["length", "counted", "x_row", "x_stride", "residual_row", "residual_stride", "weight_stride"]
)
def add_rmsnorm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    eps,
    length,
    counted,  # elements that enter the sum
    x_row,
    x_stride,
    residual_row,
    residual_stride,
    weight_stride,
    HALF: tl.constexpr,  # what is rounded to half precision: "", "sum" or "normed"
    BFLOAT: tl.constexpr,  # whether half precision is bfloat16
    SUM_X_ONLY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < length
    x = tl.load(x_ptr + row * x_row + at * x_stride, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * residual_row + at * residual_stride, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + at * weight_stride, mask=inside, other=0.0).to(tl.float32)
    added = x + residual.to(tl.float32)
    if HALF == "sum":
        added = added.to(tl.bfloat16 if BFLOAT else tl.float16).to(tl.float32)
    summed = tl.where(at < counted, x if SUM_X_ONLY else added, 0.0)
    normed = added / tl.sqrt(tl.sum(summed * summed) / length + eps)
    if HALF == "normed":
        normed = normed.to(tl.bfloat16 if BFLOAT else tl.float16).to(tl.float32)
    tl.store(out_ptr + row * length + at, (normed * weight).to(out_ptr.dtype.element_ty), mask=inside)


def launch(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float = EPS,
    drop: int = 0,
    half: str = "",
    sum_x_only: bool = False,
    dense_residual: bool = False,
) -> torch.Tensor:
    """Residual addition and RMS normalisation over the last axis, or what a bug makes of it."""
    length = x.shape[-1]
    flat = x.reshape(-1, length)
    other = residual.reshape(-1, length)
    strides = (min(other.stride(0), length), min(other.stride(1), 1)) if dense_residual else other.stride()
    out = torch.empty(flat.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(length)
    add_rmsnorm_kernel[(flat.shape[0],)](
        flat, other, weight, out, eps, length, length - drop,
        *flat.stride(), *strides, weight.stride(0),
        HALF=half, BFLOAT=x.dtype == torch.bfloat16, SUM_X_ONLY=sum_x_only,
        BLOCK=block, num_warps=count_warps(block),
    )  # fmt: skip
    return out.view(x.shape)


def add_rmsnorm_triton(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """float32 inside."""
    return launch(x, residual, weight)


def add_rmsnorm_half_residual(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The sum is rounded to float16 (to bfloat16 for bfloat16 inputs) first: shows where that is inexact."""
    return launch(x, residual, weight, half="sum")


def add_rmsnorm_half_normed(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Rounded to float16 (to bfloat16 for bfloat16 inputs) before the weight is applied: shows nearly always."""
    return launch(x, residual, weight, half="normed")


def add_rmsnorm_no_eps(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """No eps: shows where the mean square is about 1 or less, and gives 0/0 in rows of zeros."""
    return launch(x, residual, weight, eps=0.0)


def add_rmsnorm_drops_odd(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Squares are summed in pairs, without the odd one at the end: shows where H > 1 is odd."""
    length = x.shape[-1]
    return launch(x, residual, weight, drop=length % 2 if length > 1 else 0)


def add_rmsnorm_residual_unsummed(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The mean square is that of x alone: shows where the residual is not 0."""
    return launch(x, residual, weight, sum_x_only=True)


def add_rmsnorm_residual_stride(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Takes the residual for contiguous: shows where it has gaps between elements."""
    return launch(x, residual, weight, dense_residual=True)
