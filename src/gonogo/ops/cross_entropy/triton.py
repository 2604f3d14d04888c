"""Cross-entropy in Triton: one program per row; maximum and sum are kept up to date tile by tile."""

import torch
import triton
import triton.language as tl

TILE = 128


@triton.jit(do_not_specialize=["length", "counted", "row_stride", "stride"])
def cross_entropy_kernel(
    x_ptr,
    target_ptr,
    out_ptr,
    pad,
    length,
    counted,  # elements that enter maximum and sum
    row_stride,
    stride,
    RESCALE: tl.constexpr,
    COARSE_LN2: tl.constexpr,
    HALF: tl.constexpr,  # format the logarithm of the sum is rounded to: "", "float16" or "bfloat16"
    TARGET_AT_EDGE: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * row_stride
    lane = tl.arange(0, TILE)

    top = tl.full((), -float("inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, length, TILE):
        at = start + lane
        x = tl.load(x_ptr + at * stride, mask=at < counted, other=pad).to(tl.float32)
        before = top
        top = tl.maximum(top, tl.max(x))
        # While nothing but minus infinity was seen, x − top would be NaN.
        shift = tl.where(top == -float("inf"), 0.0, top)
        if RESCALE:
            total *= tl.exp(before - shift)
        total += tl.sum(tl.exp(x - shift))
    logsumexp = top + (tl.log2(total) * 0.693 if COARSE_LN2 else tl.log(total))
    if HALF == "float16":
        logsumexp = logsumexp.to(tl.float16).to(tl.float32)
    elif HALF == "bfloat16":
        logsumexp = logsumexp.to(tl.bfloat16).to(tl.float32)

    target = tl.load(target_ptr + row).to(tl.int64)
    if TARGET_AT_EDGE:
        target = tl.where((target > 0) & (target % TILE == 0), target - 1, target)
    chosen = tl.load(x_ptr + target * stride).to(tl.float32)
    tl.store(out_ptr + row, (logsumexp - chosen).to(out_ptr.dtype.element_ty))


def launch(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    pad: float = -float("inf"),
    drop: int = 0,
    rescale: bool = True,
    coarse_ln2: bool = False,
    half: str = "",
    target_at_edge: bool = False,
) -> torch.Tensor:
    """Cross-entropy per row, or what a bug makes of it."""
    rows, length = logits.shape
    out = torch.empty((rows,), dtype=logits.dtype, device=logits.device)
    cross_entropy_kernel[(rows,)](
        logits, target.contiguous(), out, pad, length, length - drop, *logits.stride(),
        RESCALE=rescale, COARSE_LN2=coarse_ln2, HALF=half, TARGET_AT_EDGE=target_at_edge, TILE=TILE,
    )  # fmt: skip
    return out


def cross_entropy_triton(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Online maximum and sum over tiles of 128; float32 inside."""
    return launch(logits, target)


def cross_entropy_no_rescale(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The running sum is not rescaled: shows where V > 128 and the first tile of 128 does not hold the maximum."""
    return launch(logits, target, rescale=False)


def cross_entropy_drops_last(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The last class is left out of maximum and sum: shows where its logit is not negligible, and V > 1."""
    return launch(logits, target, drop=1 if logits.shape[-1] > 1 else 0)


def cross_entropy_pads_zero(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Lanes past the row are 0 and enter maximum and sum: shows where V is no multiple of 128."""
    return launch(logits, target, pad=0.0)


def cross_entropy_coarse_ln2(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The logarithm is log2 times 0.693, 2e-4 too small: shows where the sum is well above 1."""
    return launch(logits, target, coarse_ln2=True)


def cross_entropy_half_logsumexp(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The log of the sum is rounded to float16, or to bfloat16 for bfloat16 inputs: shows nearly always."""
    return launch(logits, target, half="bfloat16" if logits.dtype == torch.bfloat16 else "float16")


def cross_entropy_target_at_edge(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A target at the start of any tile of 128 but the first takes the logit before it: shows at such targets."""
    return launch(logits, target, target_at_edge=True)
