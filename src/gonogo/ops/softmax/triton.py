"""softmax in Triton: one program per row, the row in one block."""

import torch
import triton
import triton.language as tl

from gonogo.ops._launch import count_warps


@triton.jit(do_not_specialize=["length", "counted", "row_stride", "stride"])
def softmax_kernel(
    x_ptr,
    out_ptr,
    length,
    counted,  # elements that enter the sum
    row_stride,
    stride,
    PAD: tl.constexpr,
    SHIFT: tl.constexpr,
    HALF_SUM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + at * stride, mask=at < length, other=PAD).to(tl.float32)
    if SHIFT:
        x -= tl.max(x)
    e = tl.exp(x)
    terms = tl.where(at < counted, e, 0.0)
    total = tl.sum(terms.to(tl.float16) if HALF_SUM else terms).to(tl.float32)
    tl.store(out_ptr + row * length + at, (e / total).to(out_ptr.dtype.element_ty), mask=at < length)


def launch(
    x: torch.Tensor,
    *,
    pad: float = -float("inf"),
    pads_count: bool = False,
    drop: int = 0,
    shift: bool = True,
    half_sum: bool = False,
    as_if_contiguous: bool = False,
) -> torch.Tensor:
    """Softmax over the last axis, or what a bug makes of it."""
    flat = x.reshape(-1, x.shape[-1])
    rows, length = flat.shape
    out = torch.empty((rows, length), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(length)
    row_stride, stride = (length, 1) if as_if_contiguous else flat.stride()
    softmax_kernel[(rows,)](
        flat, out, length, block if pads_count else length - drop, row_stride, stride,
        PAD=pad, SHIFT=shift, HALF_SUM=half_sum, BLOCK=block, num_warps=count_warps(block),
    )  # fmt: skip
    return out.view(x.shape)


def softmax_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Lanes past the row are minus infinity; float32 inside."""
    return launch(input)


def softmax_triton_buggy(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Lanes past the row are 0 and enter maximum and sum: shows where H is no power of two."""
    return launch(input, pad=0.0, pads_count=True)


def softmax_no_shift(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The maximum is not subtracted: overflows past 88, and loses digits wherever the row is far from 0."""
    return launch(input, shift=False)


def softmax_half_sum(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The denominator is summed in float16: shows where a row has two or more comparable elements."""
    return launch(input, half_sum=True)


def softmax_drops_last(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The last element of a row is left out of the denominator: shows where it is not negligible, and H > 1."""
    return launch(input, drop=1 if input.shape[-1] > 1 else 0)


def softmax_row_stride(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Takes every input for contiguous: shows on inputs with gaps between elements."""
    return launch(input, as_if_contiguous=True)
