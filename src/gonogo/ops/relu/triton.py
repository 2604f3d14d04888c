"""relu in Triton: one program per 1024 elements."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit(do_not_specialize=["count"])
def relu_kernel(x_ptr, out_ptr, count, EDGE: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    if HALF:
        x = x.to(tl.float16).to(tl.float32)
    y = tl.where(x < EDGE, 0.0, x)  # this way round a NaN stays one
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(x: torch.Tensor, *, edge: float = 0.0, half: bool = False, whole_blocks: bool = False) -> torch.Tensor:
    """Relu, or what a bug makes of it."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = x.numel()
    blocks = max(1, count // BLOCK) if whole_blocks else triton.cdiv(count, BLOCK)
    relu_kernel[(blocks,)](x, out, count, EDGE=edge, HALF=half, BLOCK=BLOCK)
    return out


def relu_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Exact: every element is kept or becomes 0."""
    return launch(input)


def relu_dead_zone(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Cuts at 0.01, not at 0: shows where an element lies between the two."""
    return launch(input, edge=0.01)


def relu_through_half(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Elements pass through float16: shows on positive float32 and on large or tiny bfloat16 ones."""
    return launch(input, half=True)


def relu_skips_tail(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The last block, not full, is never written: shows past 1024 elements that are no multiple of it."""
    return launch(input, whole_blocks=True)
