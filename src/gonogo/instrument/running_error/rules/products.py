"""Matrix products, convolutions, pooling → value and error op(|A|,E(B)) + op(E(A),|B|) + what adding up rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gonogo.instrument.running_error.companion import Error, join, magnitude, spread_out, times, total
from gonogo.instrument.running_error.facts import name_ops
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.summation import are_whole, bound_orders, bound_product, limit_whole

Pair = tuple[Tensor, Error]
Bilinear = Callable[[Tensor, Tensor], Tensor]

TRANSFORMED = 65504.0
"""Largest value of a transform that fast convolutions keep: for half inputs cuDNN holds them in float16."""
TF32_ROUNDOFF = 2.0**-11
"""Unit roundoff of tf32: 11 significant bits."""
FP8_STEP, FP8_TERMS, FP8_PROMOTED = 2.0**-13, 32, 128
"""Hopper's FP8 units keep about 14 bits of a sum and cut the rest off, at every step of 32 terms; kernels promote
to float32 after 128 (DeepSeek-V3 technical report, 3.3.2)."""


def product_error(
    ctx: RunningErrorMode,
    apply: Bilinear,
    value: Tensor,
    operands: tuple[tuple[Tensor, Error], tuple[Tensor, Error]],
    length: int,
    *,
    proven: bool = False,
) -> Tensor:
    """Bound a bilinear op over `length` terms; `proven`: its sums by g(n)·op(|A|, |B|) alone."""
    (a, err_a), (b, err_b) = operands
    relative = err_a.ulps + err_b.ulps
    if ctx.contract.products == "tf32":
        relative += (needs_cut(a, err_a) + needs_cut(b, err_b)) * TF32_ROUNDOFF / ctx.unit
    if ctx.contract.products == "fp8":
        relative += math.ceil(min(length, FP8_PROMOTED) / FP8_TERMS) * FP8_STEP / ctx.unit
    if ctx.contract.intermediate is not None:
        # Only what the kernel computed is cast; inputs have their format already.
        computed = (not err_a.exact) + (not err_b.exact)
        relative += computed * ctx.cast_ulps(ctx.contract.intermediate)
    growth = ctx.growth(length)
    lost = ctx.lose_overflow(lambda: apply(a.abs(), b.abs()), growth + relative)
    if proven or ctx.contract.summation != "blocked":
        relative, own = relative + growth, None
    else:
        own = bound_product(apply, value, operands, max(length, 1), ctx.unit)
    carried = carry_product(apply, operands, relative)
    if ctx.guarded and carried is not None and ctx.range == math.inf:
        carried = keep_infinite(apply, operands, relative)
    error = join(join(own, carried), lost)
    return torch.zeros_like(value) if error is None else ctx.keep_lost(error)  # type: ignore[return-value]


def carry_product(
    apply: Bilinear, operands: tuple[tuple[Tensor, Error], tuple[Tensor, Error]], relative: float
) -> Tensor | None:
    """relative·op(|A|, |B|) + op(E(A), |B|) + op(|A|, E(B)), in one product, two where both operands have E."""
    (a, err_a), (b, err_b) = operands
    if relative == 0 and err_a.extra is None and err_b.extra is None:
        return None
    weight_a, weight_b = a.abs(), b.abs()
    if err_a.extra is None and err_b.extra is not None:
        return apply(weight_a, weight_b.mul_(relative).add_(err_b.extra))
    second = None if err_b.extra is None else apply(weight_a, spread_out(err_b.extra, b.shape))
    weight_a.mul_(relative)
    if err_a.extra is not None:
        weight_a.add_(err_a.extra)
    return join(apply(weight_a, weight_b), second)


def keep_infinite(
    apply: Bilinear, operands: tuple[tuple[Tensor, Error], tuple[Tensor, Error]], relative: float
) -> Tensor | None:
    """The same with 0·inf as 0, term by term: in a sum it would hide what other terms may be off by."""
    (a, err_a), (b, err_b) = operands
    parts, lost = [], torch.zeros((), dtype=torch.bool, device=a.device)
    for (x, err), other, flipped in (((a, err_a), b, False), ((b, err_b), a, True)):
        extra = torch.zeros_like(x) if err.extra is None else spread_out(err.extra, x.shape)
        unknown = extra.isinf()
        parts.append(replace(err, extra=extra.masked_fill(unknown, 0.0)))
        reached = [unknown.to(torch.float64), (other != 0).to(torch.float64)]
        lost = lost | (apply(*(reversed(reached) if flipped else reached)) > 0)
    carried = carry_product(apply, ((a, parts[0]), (b, parts[1])), relative)
    return carried if carried is None else carried.masked_fill(lost, torch.inf)


def needs_cut(x: Tensor, error: Error) -> bool:
    """Whether tf32 loses bits of an operand: an input in half precision has no more than it keeps."""
    bits = x.to(torch.float32).view(torch.int32)
    return not error.exact or bool((bits & 0x1FFF).any()) or not torch.equal(x.to(torch.float32).double(), x)


def multiply(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """mm, bmm, mv, dot."""
    (a, err_a), (b, err_b) = ctx.split(args[0]), ctx.split(args[1])
    value = op(a, b)
    return value, Error(matrix_error(ctx, op, value, ((a, err_a), (b, err_b))))


def matrix_error(
    ctx: RunningErrorMode, op: Bilinear, value: Tensor, operands: tuple[tuple[Tensor, Error], tuple[Tensor, Error]]
) -> Tensor:
    """Bound a matrix product; by its norms where Strassen's algorithm may have mixed all rows and columns."""
    (a, _), (b, _) = operands
    mixed = ctx.contract.products == "strassen" and a.dim() > 1 and b.dim() > 1

    def spread(first: Tensor, second: Tensor) -> Tensor:
        # K·max|A|·max|B| in every element: no bound of a fast algorithm is smaller where its operands are.
        peaks = first.amax((-2, -1), keepdim=True) * second.amax((-2, -1), keepdim=True)
        return (peaks * a.shape[-1]).expand(value.shape).contiguous()

    apply = spread if mixed and a.numel() and b.numel() else op
    return product_error(ctx, apply, value, operands, a.shape[-1], proven=apply is spread)


def multiply_add(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """addmm, baddbmm, addmv: the product's error, the bias's, and one rounding of their sum."""
    (bias, err), (a, err_a), (b, err_b) = (ctx.split(arg) for arg in args[:3])
    (beta, err_beta), (alpha, err_alpha) = map(ctx.split, read_factors(args[3:], kwargs))
    value = op(bias, a, b, beta=beta, alpha=alpha)
    product = torch.matmul(a, b)
    error = matrix_error(ctx, torch.matmul, product, ((a, err_a), (b, err_b)))
    if alpha != 1:
        # |alpha|, and one rounding more of the product's result, besides alpha's own.
        error.mul_(abs(alpha)).add_(product.abs_().mul_(abs(alpha) * (1 + err_alpha.ulps)))
    own = total(bias, err)
    if beta != 1:
        own = join(times(own, beta), magnitude(bias) * (abs(beta) * (1 + err_beta.ulps)))
    return value, Error(join(error, own), 1.0)


def read_factors(rest: Any, kwargs: Any) -> tuple[float, float]:
    """Beta and alpha of the addmm family."""
    given = dict(zip(("beta", "alpha"), rest, strict=False)) | kwargs
    return given.get("beta", 1), given.get("alpha", 1)


def convolve(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Convolution of any rank, grouped or transposed; K = input channels of a group × kernel elements."""
    (x, err_x), (weight, err_w) = ctx.split(args[0]), ctx.split(args[1])
    bias, err = ctx.split(args[2])
    settings = args[3:]
    value = op(x, weight, bias, *settings)
    transposed, groups = settings[3], settings[5]
    channels = weight.shape[0] // groups if transposed else weight.shape[1]
    length = channels * math.prod(weight.shape[2:])

    plane, one, none = tuple(range(2, weight.dim())), [1] * (weight.dim() - 2), [0] * (weight.dim() - 2)

    def apply(a: Tensor, b: Tensor) -> Tensor:
        convolved: Tensor
        if ctx.contract.fast_math and a.numel():
            # Winograd and FFT multiply what transforms have added up, so every element of a plane may have the
            # rounding of its largest input times all weights of the filter.
            peaks, reach = a.amax(plane, keepdim=True), b.sum(plane, keepdim=True)
            convolved = op(peaks, reach, None, one, none, one, transposed, none, groups)
            return convolved.expand(value.shape).contiguous()
        convolved = op(a, b, None, *settings)
        return convolved

    sums = value if bias is None else op(x, weight, None, *settings)
    operands = ((x, err_x), (weight, err_w))
    error = product_error(ctx, apply, sums, operands, length, proven=ctx.contract.fast_math)
    if ctx.contract.fast_math:
        error = error.masked_fill(apply(x.abs(), weight.abs()) >= TRANSFORMED, torch.inf)
    if bias is None:
        return value, Error(error)
    own = total(bias, err)
    if own is not None:
        own = own.reshape(-1, *[1] * (weight.dim() - 2))
    return value, Error(join(error, own), 1.0)


def pool_average(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """avg_pool: a mean over the window: op(E) + what adding up the window rounds."""
    rank = int(op._schema.name[-2])
    size = args[1]
    window = math.prod(size) if len(size) == rank else size[0] ** rank
    divisor = args[6] if len(args) > 6 else kwargs.get("divisor_override")
    return pool_windows(ctx, op, args, kwargs, window, window / abs(divisor or window))


def pool_average_adaptive(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """adaptive_avg_pool: a mean over windows of at most ⌈in/out⌉ + 1 each way."""
    ends = zip(ctx.split(args[0])[0].shape[-len(args[1]) :], args[1], strict=False)  # torch refuses other ranks
    window = math.prod(math.ceil(full / max(out, 1)) + 1 for full, out in ends)
    return pool_windows(ctx, op, args, kwargs, window, 1.0)


def pool_windows(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any, window: int, share: float) -> Pair:
    """Mean of each window of x; `share` is the window's size over what its sum is divided by."""
    x, err = ctx.split(args[0])

    def pool(terms: Tensor) -> Tensor:
        pooled: Tensor = op(terms, *args[1:], **kwargs)
        return pooled

    value, absolute = pool(x), pool(x.abs()).abs_()  # of a divisor below 0, too
    growth = ctx.growth(window)
    lost = ctx.lose_overflow(lambda: absolute * window, growth)
    own = absolute * growth
    if ctx.contract.summation == "blocked":
        # In a window with padding fewer terms are added: n/6·Σx²/n² is its mean square/6 at most, whatever n.
        squares = pool(x * x).abs_().mul_(max(share, 1.0) / window)
        own = torch.minimum(own, bound_orders(window, squares, value))
        own = limit_whole(own, absolute, window, ctx.unit * window / share) if are_whole(x, err) else own
    carried = absolute.mul_(err.ulps) if err.ulps else None
    if err.extra is not None:
        carried = join(carried, pool(spread_out(err.extra, x.shape)).abs_())
    return value, Error(join(join(own, lost), carried))


def resample(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> Pair:
    """Means of a window, weighed by where a position falls: positions are rounded, and weights are off by as much.

    The largest element around a window stands for all of it: (n + taps)·peak + peak of E, n the length of an axis.
    """
    x, err = ctx.split(args[0])
    value = op(x, *args[1:], **kwargs)
    sizes, rank = value.shape[2:], value.dim() - 2
    shrunk = max((math.ceil(full / max(out, 1)) for full, out in zip(x.shape[2:], sizes, strict=True)), default=1)
    taps = (4 * shrunk) ** rank
    antialiased = op._schema.name.endswith("_aa")
    reach = 4 * shrunk if antialiased else 3

    def find_peaks(sizes_of: Tensor) -> Tensor:
        pool = (torch.nn.functional.max_pool1d, torch.nn.functional.max_pool2d, torch.nn.functional.max_pool3d)[
            rank - 1
        ]
        window = [2 * min(reach, size // 2) + 1 for size in x.shape[2:]]
        around = pool(sizes_of, window, stride=1, padding=[width // 2 for width in window])
        return functional.interpolate(around, size=list(sizes), mode="nearest")

    if not x.numel():
        return value, Error()
    own = find_peaks(x.abs()) * (2 * sum(x.shape[2:]) + 4 + 2 * ctx.growth(taps))
    whole = total(x, err)
    return value, Error(own if whole is None else own + 2 * find_peaks(spread_out(whole, x.shape)))


def pool_maximum(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """max_pool: the largest E of each window, for any of its elements may come out on top."""
    x, err = ctx.split(args[0])
    values, indices = op(x, *args[1:], **kwargs)
    if err.extra is None:
        return (values, indices), (Error(None, err.ulps), Error())
    largest, _ = op(spread_out(err.extra, x.shape), *args[1:], **kwargs)
    return (values, indices), (Error(largest, err.ulps), Error())


PRODUCTS: dict[str, Rule] = {
    "aten.mm": multiply,
    "aten.bmm": multiply,
    "aten.mv": multiply,
    "aten.dot": multiply,
    "aten.addmm": multiply_add,
    "aten.baddbmm": multiply_add,
    "aten.addmv": multiply_add,
    "aten.convolution": convolve,
    "aten.avg_pool2d": pool_average,
    "aten.avg_pool3d": pool_average,
    "aten._adaptive_avg_pool2d": pool_average_adaptive,
    "aten._adaptive_avg_pool3d": pool_average_adaptive,
    "aten.max_pool2d_with_indices": pool_maximum,
    "aten.adaptive_max_pool2d": pool_maximum,
    "aten.adaptive_max_pool3d": pool_maximum,
    "aten.fractional_max_pool2d": pool_maximum,
    "aten.fractional_max_pool3d": pool_maximum,
    **dict.fromkeys(
        name_ops(
            "upsample_linear1d",
            "upsample_bilinear2d",
            "upsample_trilinear3d",
            "upsample_bicubic2d",
            "_upsample_bilinear2d_aa",
            "_upsample_bicubic2d_aa",
        ),
        resample,
    ),
    "aten.max_pool3d_with_indices": pool_maximum,
}
