"""silu in Triton: one program per 1024 elements."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit(do_not_specialize=["count"])
def silu_kernel(
    x_ptr,
    out_ptr,
    count,
    BETA: tl.constexpr,
    LINEAR: tl.constexpr,  # above it the result is x
    HALF_SIGMOID: tl.constexpr,
    SHORT_LOG2E: tl.constexpr,
    NEWTON: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    below = 1.0 + (tl.exp2(x * -1.4427) if SHORT_LOG2E else tl.exp(-BETA * x))
    s = 1.0 / below
    if NEWTON:
        s = s.to(tl.bfloat16).to(tl.float32)
        s = s * (2.0 - below * s)
    if HALF_SIGMOID:
        s = s.to(tl.float16).to(tl.float32)
    y = tl.where(x > LINEAR, x, x * s)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    x: torch.Tensor,
    *,
    beta: float = 1.0,
    linear: float = float("inf"),
    half_sigmoid: bool = False,
    short_log2e: bool = False,
    newton: bool = False,
) -> torch.Tensor:
    """Silu, or what a bug makes of it."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    silu_kernel[(triton.cdiv(count, BLOCK),)](
        x, out, count,
        BETA=beta, LINEAR=linear, HALF_SIGMOID=half_sigmoid, SHORT_LOG2E=short_log2e, NEWTON=newton, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def silu_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """x·σ(x) in float32, cast back at the end."""
    return launch(input)


def silu_triton_buggy(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """σ(2x) for σ(x): shows where x is neither near 0 nor large."""
    return launch(input, beta=2.0)


def silu_half_sigmoid(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """σ(x) is rounded to float16 before the product: shows on all but large positive elements."""
    return launch(input, half_sigmoid=True)


def silu_one_newton_step(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """1/(1 + exp(−x)) is one Newton step from 8 bits: off by 2^−18 or less; NaN where x is below −88."""
    return launch(input, newton=True)


def silu_short_log2e(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """exp(−x) is 2^(−1.4427x), the constant cut to 5 digits: grows with −x, shows most in float32."""
    return launch(input, short_log2e=True)


def silu_linear_above(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Takes x itself above 7, where σ(x) is still 0.999: shows where an element lies between 7 and 16."""
    return launch(input, linear=7.0)
