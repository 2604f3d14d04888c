"""Mean in Triton: one program per 16 rows, block after block of 256 columns."""

import torch
import triton
import triton.language as tl

ROWS = 16
BLOCK = 256


@triton.jit(do_not_specialize=["rows", "length", "counted", "divisor", "row_stride", "stride"])
def mean_kernel(
    x_ptr,
    out_ptr,
    rows,
    length,
    counted,  # elements that enter the sum
    divisor,
    row_stride,
    stride,
    HALF_SUM: tl.constexpr,
    HALF_RECIPROCAL: tl.constexpr,
    OF_MEANS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (at < counted)[None, :]
        x = tl.load(x_ptr + row[:, None] * row_stride + at[None, :] * stride, mask=inside, other=0.0)
        part = tl.sum(x.to(tl.float32), 1)
        if OF_MEANS:
            part = part / tl.minimum(length - start, BLOCK).to(tl.float32)
        total += part
        if HALF_SUM:
            total = total.to(tl.float16).to(tl.float32)
    if HALF_RECIPROCAL:
        mean = total * (1.0 / divisor.to(tl.float32)).to(tl.float16).to(tl.float32)
    else:
        mean = total / divisor.to(tl.float32)
    tl.store(out_ptr + row, mean.to(out_ptr.dtype.element_ty), mask=row < rows)


def launch(
    x: torch.Tensor,
    *,
    drop: int = 0,
    divisor: int | None = None,
    half_sum: bool = False,
    half_reciprocal: bool = False,
    of_means: bool = False,
) -> torch.Tensor:
    """Mean over the last axis, or what a bug makes of it."""
    flat = x.reshape(-1, x.shape[-1])
    rows, length = flat.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    mean_kernel[(triton.cdiv(rows, ROWS),)](
        flat, out, rows, length, length - drop, divisor or length, *flat.stride(),
        HALF_SUM=half_sum, HALF_RECIPROCAL=half_reciprocal, OF_MEANS=of_means, ROWS=ROWS, BLOCK=BLOCK,
    )  # fmt: skip
    return out.view(x.shape[:-1])


def mean_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Blocks of 256 summed in float32, added one after the other, divided by H."""
    return launch(input)


def mean_half_accumulator(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The sum is kept in float16 between blocks: shows everywhere but at H = 1 in float16, overflows past 65504."""
    return launch(input, half_sum=True)


def mean_drops_last(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The last element of a row is left out of the sum, not of the length: shows where H > 1."""
    return launch(input, drop=1 if input.shape[-1] > 1 else 0)


def mean_padded_length(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Divides by H rounded up to a multiple of 8: shows where it is none."""
    return launch(input, divisor=triton.cdiv(input.shape[-1], 8) * 8)


def mean_half_reciprocal(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Multiplies by 1/H rounded to float16: shows where H is no power of two."""
    return launch(input, half_reciprocal=True)


def mean_of_means(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Blocks weigh the same in the mean, however short the last: shows where H > 256 is no multiple of 256."""
    return launch(input, of_means=True, divisor=triton.cdiv(input.shape[-1], BLOCK))
