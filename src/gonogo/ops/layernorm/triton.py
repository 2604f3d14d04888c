"""Layer normalisation in Triton: one program per row, the row in one block."""

import torch
import triton
import triton.language as tl

from gonogo.ops._launch import count_warps

EPS = 1e-5


@triton.jit(do_not_specialize=["length", "divisor", "back", "row_stride", "stride"])
def layernorm_kernel(
    x_ptr,
    out_ptr,
    eps,
    length,
    divisor,  # of the sum of squares
    back,  # how many rows further up mean and variance are taken
    row_stride,
    stride,
    ONE_PASS: tl.constexpr,
    PADS_CENTRED: tl.constexpr,
    HALF_CENTRED: tl.constexpr,
    EPS_OUTSIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + at * stride, mask=at < length, other=0.0).to(tl.float32)
    source = x_ptr + tl.maximum(row - back, 0) * row_stride
    read = tl.load(source + at * stride, mask=at < length, other=0.0).to(tl.float32)
    mean = tl.sum(read) / length
    if ONE_PASS:
        variance = tl.maximum(tl.sum(read * read) / divisor - mean * mean, 0.0)
    else:
        centred = read - mean
        if HALF_CENTRED:
            centred = centred.to(tl.bfloat16).to(tl.float32)
        if not PADS_CENTRED:
            centred = tl.where(at < length, centred, 0.0)
        variance = tl.sum(centred * centred) / divisor
    deviation = tl.sqrt(variance) + eps if EPS_OUTSIDE else tl.sqrt(variance + eps)
    y = (x - mean) / deviation
    tl.store(out_ptr + row * length + at, y.to(out_ptr.dtype.element_ty), mask=at < length)


def launch(
    x: torch.Tensor,
    *,
    eps: float = EPS,
    unbiased: bool = False,
    back: int = 0,
    one_pass: bool = False,
    pads_centred: bool = False,
    half_centred: bool = False,
    eps_outside: bool = False,
) -> torch.Tensor:
    """Layer normalisation over the last axis, or what a bug makes of it."""
    flat = x.reshape(-1, x.shape[-1])
    rows, length = flat.shape
    out = torch.empty((rows, length), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(length)
    layernorm_kernel[(rows,)](
        flat, out, eps, length, max(length - 1, 1) if unbiased else length, back, *flat.stride(),
        ONE_PASS=one_pass, PADS_CENTRED=pads_centred, HALF_CENTRED=half_centred, EPS_OUTSIDE=eps_outside,
        BLOCK=block, num_warps=count_warps(block),
    )  # fmt: skip
    return out.view(x.shape)


def layernorm_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Two passes, population variance, float32 inside."""
    return launch(input)


def layernorm_one_pass(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Variance is mean square minus squared mean: shows where the mean is large against the deviation."""
    return launch(input, one_pass=True)


def layernorm_unbiased(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Squares are divided by H - 1: shows where H > 1, least in long rows."""
    return launch(input, unbiased=True)


def layernorm_pads_centred(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Each lane past the row adds the squared mean to the variance: shows where H is no power of two."""
    return launch(input, pads_centred=True)


def layernorm_stale_row(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Each row but the first takes mean and variance of the row before: shows where there are two rows."""
    return launch(input, back=1)


def layernorm_eps_outside(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Adds eps to the deviation instead of the variance: shows most where the deviation is small."""
    return launch(input, eps_outside=True)


def layernorm_no_eps(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """No eps: shows where the variance is small, and gives 0/0 where all elements are equal, as at H = 1."""
    return launch(input, eps=0.0)


def layernorm_half_centred(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Differences from the mean are squared as bfloat16: shows where that is inexact, least in long rows."""
    return launch(input, half_centred=True)
