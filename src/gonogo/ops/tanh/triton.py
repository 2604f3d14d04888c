"""tanh in Triton: one program per 1024 elements."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit(do_not_specialize=["count"])
def tanh_kernel(
    x_ptr,
    out_ptr,
    count,
    LIMIT: tl.constexpr,  # past it the result is ±1
    ABS: tl.constexpr,
    FRACTION: tl.constexpr,
    HALF_RECIPROCAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    size = tl.abs(x)
    if FRACTION:
        q = x * x
        above = size * (135135.0 + q * (17325.0 + q * (378.0 + q)))
        y = above / (135135.0 + q * (62370.0 + q * (3150.0 + q * 28.0)))
    elif ABS:
        r = 1.0 / (tl.exp(2.0 * size) + 1.0)
        if HALF_RECIPROCAL:
            r = r.to(tl.float16).to(tl.float32)
        y = 1.0 - 2.0 * r
    else:
        e = tl.exp(2.0 * x)
        y = tl.abs((e - 1.0) / (e + 1.0))
    y = tl.where(size > LIMIT, 1.0, y)
    y = tl.where(x < 0, -y, y)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    x: torch.Tensor,
    *,
    limit: float = float("inf"),
    abs_first: bool = True,
    fraction: bool = False,
    half_reciprocal: bool = False,
) -> torch.Tensor:
    """Hyperbolic tangent, or what a bug makes of it."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    tanh_kernel[(triton.cdiv(count, BLOCK),)](
        x, out, count,
        LIMIT=limit, ABS=abs_first, FRACTION=fraction, HALF_RECIPROCAL=half_reciprocal, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def tanh_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """1 − 2/(exp(2|x|) + 1) with the sign of x, in float32."""
    return launch(input)


def tanh_no_abs(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """(exp(2x) − 1)/(exp(2x) + 1): infinity over infinity, NaN, where x is above 44."""
    return launch(input, abs_first=False)


def tanh_half_reciprocal(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """1/(exp(2|x|) + 1) is rounded to float16: shows where |x| is below about 4."""
    return launch(input, half_reciprocal=True)


def tanh_early_saturation(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """±1 past 4.5, though 1 − tanh(4.5) is 0.0002: shows where |x| lies between 4.5 and 9, most in float32."""
    return launch(input, limit=4.5)


def tanh_fraction(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """A continued fraction of 7 terms, ±1 past 4.97: off by up to 0.0001 where |x| lies between 2.5 and 9."""
    return launch(input, fraction=True, limit=4.97)
