"""RMS normalisation in Triton: one program per row, the row in one block."""

import torch
import triton
import triton.language as tl

from gonogo.ops._launch import count_warps

EPS = 1e-5


@triton.jit
def guess_rsqrt(x):
    guess = (0x5F3759DF - (x.to(tl.int32, bitcast=True) >> 1)).to(tl.float32, bitcast=True)
    guess = guess * (1.5 - 0.5 * x * guess * guess)
    return guess * (1.5 - 0.5 * x * guess * guess)


@triton.jit(do_not_specialize=["length", "counted", "divisor", "back", "row_stride", "stride"])
def rmsnorm_kernel(
    x_ptr,
    out_ptr,
    eps,
    length,
    counted,  # elements that enter the sum
    divisor,  # of the sum
    back,  # how many rows further up the sum is taken
    row_stride,
    stride,
    IN_DTYPE: tl.constexpr,
    DIVIDE_BY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + at * stride, mask=at < length, other=0.0)
    summed = tl.load(x_ptr + tl.maximum(row - back, 0) * row_stride + at * stride, mask=at < counted, other=0.0)
    terms = summed if IN_DTYPE else summed.to(tl.float32)
    mean = tl.sum(terms * terms).to(tl.float32) / divisor
    x = x.to(tl.float32)
    if DIVIDE_BY == "root":
        y = x / tl.sqrt(mean + eps)
    elif DIVIDE_BY == "mean":
        y = x / (mean + eps)
    elif DIVIDE_BY == "root, then eps":
        y = x / (tl.sqrt(mean) + eps)
    else:
        y = x * guess_rsqrt(mean + eps)
    tl.store(out_ptr + row * length + at, y.to(out_ptr.dtype.element_ty), mask=at < length)


def launch(
    x: torch.Tensor,
    *,
    eps: float = EPS,
    drop: int = 0,
    pads_count: bool = False,
    back: int = 0,
    in_dtype: bool = False,
    divide_by: str = "root",
) -> torch.Tensor:
    """RMS normalisation over the last axis, or what a bug makes of it."""
    flat = x.reshape(-1, x.shape[-1])
    rows, length = flat.shape
    out = torch.empty((rows, length), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(length)
    rmsnorm_kernel[(rows,)](
        flat, out, eps, length, length - drop, block if pads_count else length, back, *flat.stride(),
        IN_DTYPE=in_dtype, DIVIDE_BY=divide_by, BLOCK=block, num_warps=count_warps(block),
    )  # fmt: skip
    return out.view(x.shape)


def rmsnorm_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Squares and their sum in the dtype of the input, float32 from the mean on."""
    return launch(input, in_dtype=True)


def rmsnorm_triton_fp32(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """float32 inside."""
    return launch(input)


def rmsnorm_triton_buggy(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Divides by the mean square instead of its root: shows where that is not 1."""
    return launch(input, in_dtype=True, divide_by="mean")


def rmsnorm_eps_outside(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Adds eps to the root instead of the mean square: shows most where values are small."""
    return launch(input, divide_by="root, then eps")


def rmsnorm_eps_small(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """An eps of 1e-6 for 1e-5: shows where the mean square is about 1 or less."""
    return launch(input, eps=1e-6)


def rmsnorm_padded_mean(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The mean counts the padding lanes: shows where H is no power of two."""
    return launch(input, pads_count=True)


def rmsnorm_drops_last(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The last element of a row is left out of the sum: shows where it is not negligible, and H > 1."""
    return launch(input, drop=1 if input.shape[-1] > 1 else 0)


def rmsnorm_stale_row(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Each row but the first is divided by the root mean square of the row before: shows from two rows on."""
    return launch(input, back=1)


def rmsnorm_coarse_rsqrt(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The reciprocal root is a bit-shift guess and two Newton steps, 5e-6 off: shows least in half precision."""
    return launch(input, divide_by="guess")
