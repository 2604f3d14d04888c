"""swiglu in Triton: one program per 1024 elements."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit(do_not_specialize=["count"])
def swiglu_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    count,
    HALF_GATE: tl.constexpr,
    HALF_PRODUCT: tl.constexpr,
    COARSE_RECIPROCAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=at < count, other=0.0).to(tl.float32)
    s = 1.0 / (1.0 + tl.exp(-a))
    if COARSE_RECIPROCAL:
        s = s.to(tl.float16).to(tl.float32)
    if HALF_PRODUCT:
        y = (a * b).to(tl.float16).to(tl.float32) * s
    else:
        gate = a * s
        if HALF_GATE:
            gate = gate.to(tl.float16).to(tl.float32)
        y = gate * b
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    half_gate: bool = False,
    half_product: bool = False,
    coarse_reciprocal: bool = False,
    b_as_if_contiguous: bool = False,
) -> torch.Tensor:
    """silu(a)·b, or what a bug makes of it."""
    a = a.contiguous()
    count = a.numel()
    readable = b.untyped_storage().nbytes() // b.element_size() - b.storage_offset()
    if not (b_as_if_contiguous and readable >= count):
        b = b.contiguous()
    out = torch.empty(a.shape, dtype=a.dtype, device=a.device)
    swiglu_kernel[(triton.cdiv(count, BLOCK),)](
        a, b, out, count,
        HALF_GATE=half_gate, HALF_PRODUCT=half_product, COARSE_RECIPROCAL=coarse_reciprocal, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def swiglu_triton(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a·σ(a)·b in float32, cast back at the end."""
    return launch(a, b)


def swiglu_half_gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """silu(a) is rounded to float16 before the product: shows on nearly every element."""
    return launch(a, b, half_gate=True)


def swiglu_half_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a·b is rounded to float16 before σ(a) enters: shows on nearly every element, infinite past 65504."""
    return launch(a, b, half_product=True)


def swiglu_coarse_reciprocal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """1/(1 + exp(−a)) is rounded to float16: shows on all but large positive a."""
    return launch(a, b, coarse_reciprocal=True)


def swiglu_b_stride(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Takes b for contiguous: shows where b has gaps between elements or its axes are permuted."""
    return launch(a, b, b_as_if_contiguous=True)


def swiglu_swapped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a·silu(b), the wrong one gated: shows wherever a and b differ."""
    return launch(b, a)
