"""Group normalisation in Triton: one program per group, which walks over the group in tiles three times."""

import torch
import triton
import triton.language as tl

EPS = 1e-5
TILE = 1024


@triton.jit(do_not_specialize=["groups", "count", "counted", "channels", "length", "weight_groups"])
def groupnorm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    eps,
    groups,
    count,  # elements of a group
    counted,  # of them, those that enter mean and variance
    channels,
    length,
    weight_groups,  # groups that have weights of their own
    ONE_PASS: tl.constexpr,
    HALF_MEAN: tl.constexpr,
    PADS_CENTRED: tl.constexpr,
    TILE: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    x_ptr += program * count
    out_ptr += program * count
    lane = tl.arange(0, TILE)

    sums = tl.zeros((TILE,), tl.float32)
    for start in range(0, counted, TILE):
        sums += tl.load(x_ptr + start + lane, mask=start + lane < counted, other=0.0).to(tl.float32)
    mean = tl.sum(sums) / counted
    if HALF_MEAN:
        mean = mean.to(tl.bfloat16).to(tl.float32)

    squares = tl.zeros((TILE,), tl.float32)
    for start in range(0, counted, TILE):
        x = tl.load(x_ptr + start + lane, mask=start + lane < counted, other=0.0).to(tl.float32)
        if not ONE_PASS:
            x -= mean
        if not ONE_PASS and not PADS_CENTRED:
            x = tl.where(start + lane < counted, x, 0.0)
        squares += x * x
    variance = tl.sum(squares) / counted
    if ONE_PASS:
        variance = tl.maximum(variance - mean * mean, 0.0)
    deviation = tl.sqrt(variance + eps)

    first_channel = program % groups % weight_groups * channels
    for start in range(0, count, TILE):
        at = start + lane
        x = tl.load(x_ptr + at, mask=at < count, other=0.0).to(tl.float32)
        channel = first_channel + at // length
        weight = tl.load(weight_ptr + channel, mask=at < count, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + channel, mask=at < count, other=0.0).to(tl.float32)
        y = (x - mean) / deviation * weight + bias
        tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=at < count)


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    whole_tiles: bool = False,
    first_group_weight: bool = False,
    one_pass: bool = False,
    half_mean: bool = False,
    pads_centred: bool = False,
) -> torch.Tensor:
    """Group normalisation, or what a bug makes of it."""
    batch, groups, channels, length = x.shape
    count = channels * length
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    groupnorm_kernel[(batch * groups,)](
        x.contiguous(), weight.contiguous(), bias.contiguous(), out, EPS, groups, count,
        count - count % TILE if whole_tiles and count > TILE else count,
        channels, length, 1 if first_group_weight else groups,
        ONE_PASS=one_pass, HALF_MEAN=half_mean, PADS_CENTRED=pads_centred,
        TILE=min(TILE, triton.next_power_of_2(count)),
    )  # fmt: skip
    return out


def groupnorm_triton(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Two passes over the group, population variance, float32 inside."""
    return launch(input, weight, bias)


def groupnorm_one_pass(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Variance is mean square minus squared mean: shows where the mean is large against the deviation."""
    return launch(input, weight, bias, one_pass=True)


def groupnorm_half_mean(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The mean is rounded to bfloat16: shows where it is not 0, most where it is large against the deviation."""
    return launch(input, weight, bias, half_mean=True)


def groupnorm_pads_centred(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Each lane past the group adds the squared mean to the variance: shows where C·L does not fill its tiles."""
    return launch(input, weight, bias, pads_centred=True)


def groupnorm_skips_partial_tile(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """Mean and variance stop at the last full tile of 1024: shows where C·L > 1024 is no multiple of 1024."""
    return launch(input, weight, bias, whole_tiles=True)


def groupnorm_first_group_weight(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """Every group takes weight and bias of the first: shows where G > 1."""
    return launch(input, weight, bias, first_group_weight=True)
