"""sigmoid in Triton: one program per 1024 elements."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit(do_not_specialize=["count"])
def sigmoid_kernel(
    x_ptr,
    out_ptr,
    count,
    LIMIT: tl.constexpr,  # past it the result is 0 or 1
    HALF_EXP: tl.constexpr,
    SHORT_LOG2E: tl.constexpr,
    BF16_RECIPROCAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    e = tl.exp2(x * -1.4427) if SHORT_LOG2E else tl.exp(-x)
    if HALF_EXP:
        e = e.to(tl.float16).to(tl.float32)
    y = 1.0 / (1.0 + e)
    if BF16_RECIPROCAL:
        y = y.to(tl.bfloat16).to(tl.float32)
    y = tl.where(x < -LIMIT, 0.0, tl.where(x > LIMIT, 1.0, y))
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    x: torch.Tensor,
    *,
    limit: float = float("inf"),
    half_exp: bool = False,
    short_log2e: bool = False,
    bf16_reciprocal: bool = False,
) -> torch.Tensor:
    """Sigmoid, or what a bug makes of it."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    sigmoid_kernel[(triton.cdiv(count, BLOCK),)](
        x, out, count,
        LIMIT=limit, HALF_EXP=half_exp, SHORT_LOG2E=short_log2e, BF16_RECIPROCAL=bf16_reciprocal, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def sigmoid_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """1/(1 + exp(−x)) in float32, cast back at the end."""
    return launch(input)


def sigmoid_half_exp(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """exp(−x) is rounded to float16, and overflows below −11.1: shows wherever x is not large."""
    return launch(input, half_exp=True)


def sigmoid_bf16_reciprocal(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The reciprocal is rounded to bfloat16: shows in float16 and float32."""
    return launch(input, bf16_reciprocal=True)


def sigmoid_early_saturation(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """0 below −9 and 1 above 9, though exp(−9) is 0.0001: shows on negative elements past that, and in float32."""
    return launch(input, limit=9.0)


def sigmoid_short_log2e(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """exp(−x) is 2^(−1.4427x), the constant cut to 5 digits: grows with −x, shows most in float32."""
    return launch(input, short_log2e=True)
