"""2-D convolution in Triton: one program per 32 pixels × 32 output channels, as a matrix product over windows."""

from typing import Literal

import torch
import triton
import triton.language as tl

BLOCK = 32
CHUNK = 128
"""Terms added in one chain; chunks are added to one another, so a sum's error grows with C·R·T/128."""


@triton.jit
def find_source(y, x, height, width, EDGE: tl.constexpr):
    """Where a window reads (row, column), and whether that is inside."""
    if EDGE == "wraps":
        flat = y * width + x
        inside = (flat >= 0) & (flat < height * width)
        flat = tl.where(inside, flat, 0)
        return flat // width, flat % width, inside
    if EDGE == "repeats":
        y = tl.minimum(tl.maximum(y, 0), height - 1)
        x = tl.minimum(tl.maximum(x, 0), width - 1)
    return y, x, (y >= 0) & (y < height) & (x >= 0) & (x < width)


@triton.jit(
    do_not_specialize=[
        "pixels", "height", "width", "outputs", "depth", "counted", "high", "wide", "pad_y", "pad_x",
        "x_n", "x_c", "x_y", "x_x",
    ]
)  # fmt: skip
def conv2d_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    pixels,
    height,
    width,
    outputs,
    depth,
    counted,  # terms of each sum
    high,
    wide,
    pad_y,
    pad_x,
    x_n,
    x_c,
    x_y,
    x_x,
    PRECISION: tl.constexpr,
    EDGE: tl.constexpr,
    HALF_SUM: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pixel = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    output = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    image = pixel // (height * width)
    row = pixel // width % height
    col = pixel % width
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, counted, CHUNK):
        partial = tl.zeros((BLOCK, BLOCK), tl.float32)
        for at in range(start, tl.minimum(start + CHUNK, counted), BLOCK):
            k = (at + tl.arange(0, BLOCK)).to(tl.int64)
            y = row[:, None] + (k // wide % high - pad_y)[None, :]
            x = col[:, None] + (k % wide - pad_x)[None, :]
            y, x, inside = find_source(y, x, height, width, EDGE)
            x_at = image[:, None] * x_n + (k // (high * wide))[None, :] * x_c + y * x_y + x * x_x
            x_mask = inside & (pixel < pixels)[:, None] & (k < counted)[None, :]
            w_mask = (k < counted)[:, None] & (output < outputs)[None, :]
            a = tl.load(x_ptr + x_at, mask=x_mask, other=0.0)
            b = tl.load(weight_ptr + output[None, :] * depth + k[:, None], mask=w_mask, other=0.0)
            partial = tl.dot(a, b, partial, input_precision=PRECISION)
        total += partial
        if HALF_SUM:
            total = total.to(tl.float16).to(tl.float32)
    size = height * width
    out_at = (image * outputs * size + pixel % size)[:, None] + output[None, :] * size
    out_mask = (pixel < pixels)[:, None] & (output < outputs)[None, :]
    tl.store(out_ptr + out_at, total.to(out_ptr.dtype.element_ty), mask=out_mask)


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    drop_channels: int = 0,
    edge: Literal["zeros", "wraps", "repeats"] = "zeros",
    square_padding: bool = False,
    precision: Literal["ieee", "tf32"] = "ieee",
    half_sum: bool = False,
    as_if_contiguous: bool = False,
) -> torch.Tensor:
    """Convolution with zeros around x, or what a bug makes of it."""
    images, channels, height, width = x.shape
    outputs, _, high, wide = weight.shape
    pixels, depth = images * height * width, channels * high * wide
    strides = (channels * height * width, height * width, width, 1) if as_if_contiguous else x.stride()
    out = torch.empty((images, outputs, height, width), dtype=x.dtype, device=x.device)
    conv2d_kernel[(triton.cdiv(pixels, BLOCK), triton.cdiv(outputs, BLOCK))](
        x, weight.contiguous(), out, pixels, height, width, outputs, depth, depth - drop_channels * high * wide,
        high, wide, high // 2, (high if square_padding else wide) // 2, *strides,
        PRECISION=precision, EDGE=edge, HALF_SUM=half_sum, CHUNK=BLOCK if half_sum else CHUNK, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def conv2d_triton(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """tl.dot with all bits of the operands, float32 sums over chunks of 128."""
    return launch(x, weight)


def conv2d_edge_wraps(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Left and right of x stands the neighbouring row instead of zeros: shows where T > 1, and Y or R > 1."""
    return launch(x, weight, edge="wraps")


def conv2d_edge_repeats(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The border of x is repeated outside it, which is not zeros: shows where R > 1 or T > 1."""
    return launch(x, weight, edge="repeats")


def conv2d_square_padding(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Columns are padded as rows are, so the output is shifted: shows where R and T differ."""
    return launch(x, weight, square_padding=True)


def conv2d_half_accumulator(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The sum is kept in float16 every 32 terms: shows where C·R·T > 32, and in float32 and bfloat16 everywhere."""
    return launch(x, weight, half_sum=True)


def conv2d_drops_last_channel(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The last input channel is left out: shows where C > 1."""
    return launch(x, weight, drop_channels=1 if x.shape[1] > 1 else 0)


def conv2d_tf32(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Operands are cut to tf32: shows on a GPU in float32 wherever they have more than 11 significant bits."""
    return launch(x, weight, precision="tf32")


def conv2d_row_stride(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Takes x for contiguous: shows where it is transposed or has gaps between elements."""
    return launch(x, weight, as_if_contiguous=True)
