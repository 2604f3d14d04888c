"""gelu in Triton: one program per 1024 elements."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
ROOT = 0.7978845608028654
"""√(2/π)."""
CUBIC = 0.044715


@triton.jit(do_not_specialize=["count"])
def gelu_kernel(
    x_ptr,
    out_ptr,
    count,
    SCALE: tl.constexpr,
    ROOT: tl.constexpr,
    CUBIC: tl.constexpr,
    ERF: tl.constexpr,
    HALF_CUBE: tl.constexpr,
    HALF_TANH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    if ERF:
        t = tl.erf(x * 0.7071067811865476)
    else:
        cube = x * x * x
        if HALF_CUBE:
            cube = cube.to(tl.float16).to(tl.float32)
        z = ROOT * (x + CUBIC * cube)
        t = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(z)) + 1.0)
        t = tl.where(z < 0, -t, t)
    if HALF_TANH:
        t = t.to(tl.float16).to(tl.float32)
    y = SCALE * x * (1.0 + t)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    x: torch.Tensor,
    *,
    scale: float = 0.5,
    root: float = ROOT,
    cubic: float = CUBIC,
    erf: bool = False,
    half_cube: bool = False,
    half_tanh: bool = False,
) -> torch.Tensor:
    """Gelu by tanh, or what a bug makes of it."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    gelu_kernel[(triton.cdiv(count, BLOCK),)](
        x, out, count,
        SCALE=scale, ROOT=root, CUBIC=cubic, ERF=erf, HALF_CUBE=half_cube, HALF_TANH=half_tanh, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def gelu_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Upcast first; tanh by exp(2|z|), in float32."""
    return launch(input)


def gelu_triton_buggy(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The factor ½ is missing: every element is twice too large."""
    return launch(input, scale=1.0)


def gelu_erf(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The erf form for its tanh approximation: off by up to 0.0005 where |x| lies between 0.5 and 5."""
    return launch(input, erf=True)


def gelu_short_cubic(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """0.0447 for 0.044715: shows where |x| lies between 0.5 and 5, most in float32."""
    return launch(input, cubic=0.0447)


def gelu_short_root(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """0.7979 for √(2/π): off by 2e−5 in the argument of tanh, shows where |x| is below 5, most in float32."""
    return launch(input, root=0.7979)


def gelu_half_cube(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """x³ is rounded to float16: shows where |x| lies between 0.1 and 5."""
    return launch(input, half_cube=True)


def gelu_half_tanh(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The tanh is rounded to float16 before 1 is added: shows on negative elements, most past −2."""
    return launch(input, half_tanh=True)


def gelu_quick(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """x·σ(1.702x), the other approximation: off by up to 0.02 where |x| is below 5."""
    return launch(input, root=0.851, cubic=0.0)
