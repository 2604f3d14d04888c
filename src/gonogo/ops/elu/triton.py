"""elu in Triton: one program per 1024 elements."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit(do_not_specialize=["count"])
def elu_kernel(
    x_ptr,
    out_ptr,
    count,
    EDGE: tl.constexpr,
    FLOOR: tl.constexpr,  # below it the result is −1
    SERIES: tl.constexpr,  # above it the result is x + x²/2
    HALF_EXP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    e = tl.exp(x)
    if HALF_EXP:
        e = e.to(tl.float16).to(tl.float32)
    below = e - 1.0
    below = tl.where(x < FLOOR, -1.0, below)
    below = tl.where(x > SERIES, x + 0.5 * x * x, below)
    y = tl.where(x >= EDGE, x, below)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    x: torch.Tensor,
    *,
    edge: float = 0.0,
    floor: float = -float("inf"),
    series: float = float("inf"),
    half_exp: bool = False,
) -> torch.Tensor:
    """Elu, or what a bug makes of it."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    elu_kernel[(triton.cdiv(count, BLOCK),)](
        x, out, count, EDGE=edge, FLOOR=floor, SERIES=series, HALF_EXP=half_exp, BLOCK=BLOCK
    )
    return out


def elu_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """exp(x) − 1 in float32, cast back at the end."""
    return launch(input)


def elu_half_exp(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """exp(x) is rounded to float16 before 1 is taken off: shows on negative elements, most near 0."""
    return launch(input, half_exp=True)


def elu_early_floor(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Below −7 the result is −1, though exp(−7) is 0.0009: shows where an element lies between −16 and −7."""
    return launch(input, floor=-7.0)


def elu_short_series(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Above −0.25 it takes x + x²/2, good only much nearer to 0: shows between −0.25 and 0."""
    return launch(input, series=-0.25)


def elu_late_branch(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The branch is at −0.02, not at 0: shows where an element lies between the two."""
    return launch(input, edge=-0.02)
