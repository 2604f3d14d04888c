"""Sum in Triton: one program per 16 rows, block after block of 256 columns."""

import torch
import triton
import triton.language as tl

ROWS = 16
BLOCK = 256


@triton.jit(do_not_specialize=["rows", "length", "row_stride", "stride"])
def sum_kernel(
    x_ptr,
    out_ptr,
    rows,
    length,
    row_stride,
    stride,
    HALF_SUM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, length, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = (row < rows)[:, None] & (at < length)[None, :]
        x = tl.load(x_ptr + row[:, None] * row_stride + at[None, :] * stride, mask=inside, other=0.0)
        total += tl.sum(x.to(tl.float32), 1)
        if HALF_SUM:
            total = total.to(tl.float16).to(tl.float32)
    tl.store(out_ptr + row, total.to(out_ptr.dtype.element_ty), mask=row < rows)


@triton.jit(do_not_specialize=["length", "row_stride", "stride"])
def racing_sum_kernel(x_ptr, total_ptr, length, row_stride, stride, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + at * stride, mask=at < length, other=0.0)
    part = tl.sum(x.to(tl.float32))
    # Another block of the row may write between this load and this store.
    tl.store(total_ptr + row, tl.load(total_ptr + row) + part)


def launch(
    x: torch.Tensor, *, drop: int = 0, half_sum: bool = False, as_if_contiguous: bool = False
) -> torch.Tensor:
    """Sum over the last axis, or what a bug makes of it."""
    flat = x.reshape(-1, x.shape[-1])
    rows, length = flat.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    row_stride, stride = (length, 1) if as_if_contiguous else flat.stride()
    sum_kernel[(triton.cdiv(rows, ROWS),)](
        flat, out, rows, length - drop, row_stride, stride, HALF_SUM=half_sum, ROWS=ROWS, BLOCK=BLOCK
    )
    return out.view(x.shape[:-1])


def sum_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Blocks of 256 summed in float32, then added one after the other."""
    return launch(input)


def sum_half_accumulator(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The sum is kept in float16 between blocks: shows where H > 256, and in float32 and bfloat16 everywhere."""
    return launch(input, half_sum=True)


def sum_drops_last(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The last element of a row is left out: shows where H > 1."""
    return launch(input, drop=1 if input.shape[-1] > 1 else 0)


def sum_drops_tail(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Elements past the last full block are left out: shows where H > 256 is no multiple of 256."""
    length = input.shape[-1]
    return launch(input, drop=length % BLOCK if length > BLOCK else 0)


def sum_row_stride(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Takes every input for contiguous: shows on inputs with gaps between elements."""
    return launch(input, as_if_contiguous=True)


def sum_race(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Blocks of a row add to its sum without atomics: shows on a GPU where H > 256, now and then."""
    flat = input.reshape(-1, input.shape[-1])
    rows, length = flat.shape
    totals = torch.zeros(rows, dtype=torch.float32, device=input.device)
    racing_sum_kernel[(triton.cdiv(length, BLOCK), rows)](flat, totals, length, *flat.stride(), BLOCK=BLOCK)
    return totals.view(input.shape[:-1]).to(input.dtype)
