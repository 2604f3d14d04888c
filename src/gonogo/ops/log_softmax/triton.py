"""log_softmax in Triton: one program per row; maximum and sum are kept up to date tile by tile."""

import torch
import triton
import triton.language as tl

TILE = 256


@triton.jit(do_not_specialize=["length", "row_stride", "stride"])
def log_softmax_kernel(
    x_ptr,
    out_ptr,
    pad,
    length,
    row_stride,
    stride,
    SHIFT: tl.constexpr,
    RESCALE: tl.constexpr,
    HALF_SUM: tl.constexpr,
    STALE_MAX: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    lane = tl.arange(0, TILE)

    top = tl.full((), -float("inf") if SHIFT else 0.0, tl.float32)
    before = top  # the maximum without the last tile
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, length, TILE):
        at = start + lane
        x = tl.load(x_ptr + at * stride, mask=at < length, other=pad).to(tl.float32)
        before = top
        if SHIFT:
            top = tl.maximum(top, tl.max(x))
        # While nothing but minus infinity was seen, x − top would be NaN.
        shift = tl.where(top == -float("inf"), 0.0, top)
        terms = tl.exp(x - shift)
        if RESCALE:
            total *= tl.exp(before - shift)
        total += tl.sum(terms.to(tl.float16) if HALF_SUM else terms).to(tl.float32)
    log_total = tl.log(total)
    if STALE_MAX:
        top = tl.where(length > TILE, before, top)

    for start in range(0, length, TILE):
        at = start + lane
        x = tl.load(x_ptr + at * stride, mask=at < length, other=0.0).to(tl.float32)
        y = x - top - log_total
        tl.store(out_ptr + row * length + at, y.to(out_ptr.dtype.element_ty), mask=at < length)


def launch(
    x: torch.Tensor,
    *,
    pad: float = -float("inf"),
    shift: bool = True,
    rescale: bool = True,
    half_sum: bool = False,
    stale_max: bool = False,
) -> torch.Tensor:
    """log_softmax over the last axis, or what a bug makes of it."""
    flat = x.reshape(-1, x.shape[-1])
    rows, length = flat.shape
    out = torch.empty((rows, length), dtype=x.dtype, device=x.device)
    log_softmax_kernel[(rows,)](
        flat, out, pad, length, *flat.stride(),
        SHIFT=shift, RESCALE=rescale, HALF_SUM=half_sum, STALE_MAX=stale_max, TILE=TILE,
    )  # fmt: skip
    return out.view(x.shape)


def log_softmax_triton(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Online maximum and sum over tiles of 256; float32 inside."""
    return launch(input)


def log_softmax_no_rescale(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The running sum is not rescaled: shows where H > 256 and the first tile of 256 does not hold the maximum."""
    return launch(input, rescale=False)


def log_softmax_no_shift(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The maximum is not subtracted: overflows past 88, and loses digits wherever the row is far from 0."""
    return launch(input, shift=False)


def log_softmax_pads_zero(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Lanes past the row are 0 and enter maximum and sum: shows where H is no multiple of 256."""
    return launch(input, pad=0.0)


def log_softmax_half_sum(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """A tile is summed in float16: shows where a row has two or more comparable elements."""
    return launch(input, half_sum=True)


def log_softmax_stale_max(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Subtracts the maximum of all tiles but the last: shows where H > 256 and the last tile holds the maximum."""
    return launch(input, stale_max=True)
