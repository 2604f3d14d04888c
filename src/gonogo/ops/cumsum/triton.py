"""Cumulative sum in Triton: one program per 16 rows, a scan per block of 256 columns and a carry between blocks."""

from typing import Literal

import torch
import triton
import triton.language as tl

ROWS = 16
BLOCK = 256


@triton.jit(do_not_specialize=["rows", "length", "row_stride", "stride"])
def cumsum_kernel(
    x_ptr,
    out_ptr,
    rows,
    length,
    row_stride,
    stride,
    CARRY: tl.constexpr,
    HALF_SCAN: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, BLOCK)
    carry = tl.zeros((ROWS,), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + lanes
        inside = (row < rows)[:, None] & (at < length)[None, :]
        x = tl.load(x_ptr + row[:, None] * row_stride + at[None, :] * stride, mask=inside, other=0.0).to(tl.float32)
        scan = tl.cumsum(x, 1)
        if HALF_SCAN:
            scan = scan.to(tl.float16).to(tl.float32)
        out = carry[:, None] + scan
        tl.store(out_ptr + row[:, None] * length + at[None, :], out.to(out_ptr.dtype.element_ty), mask=inside)
        # The carry is the last lane of what was stored; lanes past the row repeat its total.
        if CARRY != "none":
            last = BLOCK - 2 if CARRY == "short" else BLOCK - 1
            carry = tl.sum(tl.where((lanes == last)[None, :], scan if CARRY == "stale" else out, 0.0), 1)
        if CARRY == "narrow":
            carry = carry.to(out_ptr.dtype.element_ty).to(tl.float32)


def launch(
    x: torch.Tensor,
    *,
    carry: Literal["full", "none", "short", "stale", "narrow"] = "full",
    half_scan: bool = False,
    as_if_contiguous: bool = False,
) -> torch.Tensor:
    """Cumulative sum along the last axis, or what a bug makes of it."""
    flat = x.reshape(-1, x.shape[-1])
    rows, length = flat.shape
    out = torch.empty((rows, length), dtype=x.dtype, device=x.device)
    row_stride, stride = (length, 1) if as_if_contiguous else flat.stride()
    cumsum_kernel[(triton.cdiv(rows, ROWS),)](
        flat, out, rows, length, row_stride, stride, CARRY=carry, HALF_SCAN=half_scan, ROWS=ROWS, BLOCK=BLOCK
    )
    return out.view(x.shape)


def cumsum_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Blocks of 256 scanned in float32, their totals carried in float32."""
    return launch(input)


def cumsum_no_carry(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Every block starts again at 0: shows where H > 256."""
    return launch(input, carry="none")


def cumsum_stale_carry(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """A block adds the total of the block before it alone: shows where H > 512."""
    return launch(input, carry="stale")


def cumsum_short_carry(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The last element of a block is missing from the carry: shows where H > 256."""
    return launch(input, carry="short")


def cumsum_narrow_carry(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The carry is rounded to the input dtype: shows in float16 and bfloat16 where H > 256."""
    return launch(input, carry="narrow")


def cumsum_half_scan(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The scan of a block is rounded to float16: shows in float32 and bfloat16, and in float16 where H > 256."""
    return launch(input, half_scan=True)


def cumsum_row_stride(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Takes every input for contiguous: shows on inputs with gaps between elements."""
    return launch(input, as_if_contiguous=True)
