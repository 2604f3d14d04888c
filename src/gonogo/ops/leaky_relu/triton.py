"""leaky_relu in Triton: one program per 1024 elements."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
BF16_SLOPE = 0.010009765625
"""0.01 in bfloat16."""


@triton.jit(do_not_specialize=["count"])
def leaky_relu_kernel(
    x_ptr,
    out_ptr,
    count,
    SLOPE: tl.constexpr,
    EDGE: tl.constexpr,
    IN_DTYPE: tl.constexpr,
    HALF_PRODUCT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    if not IN_DTYPE:
        x = x.to(tl.float32)
    # Beside a half-precision tensor the slope is a half-precision number too.
    below = (x.to(tl.float16) * SLOPE).to(tl.float32) if HALF_PRODUCT else x * SLOPE
    y = tl.where(x > EDGE, x, below)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    x: torch.Tensor,
    *,
    slope: float = 0.01,
    edge: float = 0.0,
    in_dtype: bool = False,
    half_product: bool = False,
) -> torch.Tensor:
    """Leaky relu, or what a bug makes of it."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    leaky_relu_kernel[(triton.cdiv(count, BLOCK),)](
        x, out, count, SLOPE=slope, EDGE=edge, IN_DTYPE=in_dtype, HALF_PRODUCT=half_product, BLOCK=BLOCK
    )
    return out


def leaky_relu_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Slope and product in the dtype of the input."""
    return launch(input, in_dtype=True)


def leaky_relu_triton_fp32(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Slope and product in float32."""
    return launch(input)


def leaky_relu_triton_buggy(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The slope is 0.1, not 0.01: shows wherever an element is negative."""
    return launch(input, slope=0.1, in_dtype=True)


def leaky_relu_half_product(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Slope and product are float16: shows on negative elements."""
    return launch(input, half_product=True)


def leaky_relu_bf16_slope(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The slope is rounded to bfloat16, a thousandth too steep: shows on negative elements."""
    return launch(input, slope=BF16_SLOPE)


def leaky_relu_late_edge(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The slope starts below −0.02, not below 0: shows where an element lies between the two."""
    return launch(input, edge=-0.02)
