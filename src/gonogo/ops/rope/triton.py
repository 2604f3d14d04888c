"""rope in Triton: one program per 1024 pairs, angles in float32."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
LOG_BASE = 9.210340371976184
"""log(10000)."""


@triton.jit(
    do_not_specialize=["count", "pairs", "rotated", "period", "row_stride", "half_stride", "pair_stride"],
)
def rope_kernel(
    x_ptr,
    out_ptr,
    count,  # rows × pairs
    pairs,
    rotated,  # pairs of a row that are rotated
    period,  # rows after which positions start again
    row_stride,
    half_stride,
    pair_stride,
    LOG_BASE: tl.constexpr,
    BF16_FREQUENCY: tl.constexpr,
    HALF_ANGLE: tl.constexpr,
    HALF_TABLE: tl.constexpr,
    OVERWRITE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = at // pairs
    pair = at % pairs
    from_ptr = x_ptr + row * row_stride + pair * pair_stride
    first = tl.load(from_ptr, mask=at < count, other=0.0).to(tl.float32)
    second = tl.load(from_ptr + half_stride, mask=at < count, other=0.0).to(tl.float32)
    frequency = tl.exp(pair.to(tl.float32) * -LOG_BASE / pairs)
    if BF16_FREQUENCY:
        frequency = frequency.to(tl.bfloat16).to(tl.float32)
    angle = (row % period).to(tl.float32) * frequency
    if HALF_ANGLE:
        angle = angle.to(tl.float16).to(tl.float32)
    cos = tl.where(pair < rotated, tl.cos(angle), 1.0)
    sin = tl.where(pair < rotated, tl.sin(angle), 0.0)
    if HALF_TABLE:
        cos = cos.to(tl.float16).to(tl.float32)
        sin = sin.to(tl.float16).to(tl.float32)
    turned = first * cos - second * sin
    if OVERWRITE:
        first = turned
    out = out_ptr + row * 2 * pairs + pair
    tl.store(out, turned.to(out_ptr.dtype.element_ty), mask=at < count)
    tl.store(out + pairs, (second * cos + first * sin).to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    x: torch.Tensor,
    *,
    skip: int = 0,
    period: int | None = None,
    log_base: float = LOG_BASE,
    bf16_frequency: bool = False,
    half_angle: bool = False,
    half_table: bool = False,
    overwrite: bool = False,
) -> torch.Tensor:
    """Rotary embedding, or what a bug makes of it."""
    rows, _, pairs = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count = rows * pairs
    rope_kernel[(triton.cdiv(count, BLOCK),)](
        x, out, count, pairs, pairs - skip, period or rows, *x.stride(),
        LOG_BASE=log_base, BF16_FREQUENCY=bf16_frequency, HALF_ANGLE=half_angle, HALF_TABLE=half_table,
        OVERWRITE=overwrite, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def rope_triton(x: torch.Tensor) -> torch.Tensor:
    """Frequencies, angles and rotation in float32, cast back at the end."""
    return launch(x)


def rope_half_angle(x: torch.Tensor) -> torch.Tensor:
    """The angle is rounded to float16: shows past row 0, most where it is large and P > 1."""
    return launch(x, half_angle=True)


def rope_bf16_frequency(x: torch.Tensor) -> torch.Tensor:
    """Frequencies are rounded to bfloat16: shows past row 0 where P > 1, and grows with the row."""
    return launch(x, bf16_frequency=True)


def rope_half_table(x: torch.Tensor) -> torch.Tensor:
    """Cosine and sine are rounded to float16: shows past row 0."""
    return launch(x, half_table=True)


def rope_short_log(x: torch.Tensor) -> torch.Tensor:
    """9.2103 for log(10000): frequencies are off by up to 4e−5, shows where P > 1, and grows with the row."""
    return launch(x, log_base=9.2103)


def rope_block_position(x: torch.Tensor) -> torch.Tensor:
    """Positions start again at every 64th row: shows where S > 64."""
    return launch(x, period=64)


def rope_overwritten_half(x: torch.Tensor) -> torch.Tensor:
    """The second half is turned with the new first half: shows past row 0, least where the angle is small."""
    return launch(x, overwrite=True)


def rope_odd_tail(x: torch.Tensor) -> torch.Tensor:
    """The last pair of an odd P is not turned: shows past row 0 where P is odd."""
    return launch(x, skip=x.shape[-1] % 2)
