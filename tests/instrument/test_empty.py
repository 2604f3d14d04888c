"""Tensors without elements, and axes of size 0: what torch itself makes of them, and a scale of the same shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812

from gonogo.errors import BadReference  # noqa: E402
from gonogo.instrument.running_error import error_scale  # noqa: E402
from gonogo.schema import Contract  # noqa: E402

SHAPES = ((0,), (3, 0), (0, 5), (2, 0, 4), (0, 2, 3, 4), (1, 2, 3, 0))
BEFORE: dict[str, Callable[[Any], Any]] = {
    "inputs": lambda x: x, "relative errors": lambda x: x * 1.1, "errors": lambda x: x * 1.1 + 0.3,
}  # fmt: skip
CONTRACTS = (Contract(), Contract(accumulate="float16"), Contract(summation="sequential"))


def ones(*shape: int) -> Any:
    return torch.ones(*shape, dtype=torch.float64)


def zeros(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.int64)


ALONG: dict[str, Callable[[Any, int], Any]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "softmin": F.softmin,
    "logsumexp": torch.logsumexp,
    "logsumexp, kept": lambda x, dim: x.logsumexp(dim, keepdim=True),
    "sum": torch.sum,
    "sum, kept": lambda x, dim: x.sum(dim, keepdim=True),
    "mean": torch.mean,
    "nansum": torch.nansum,
    "prod": torch.prod,
    "cumsum": torch.cumsum,
    "logcumsumexp": torch.logcumsumexp,
    "cumprod": torch.cumprod,
    "cummax": lambda x, dim: x.cummax(dim).values,
    "cummin": lambda x, dim: x.cummin(dim).values,
    "amax": torch.amax,
    "amin": torch.amin,
    "aminmax": lambda x, dim: tuple(torch.aminmax(x, dim=dim)),
    "max": lambda x, dim: x.max(dim).values,
    "min": lambda x, dim: x.min(dim).values,
    "median": lambda x, dim: x.median(dim).values,
    "argmax": lambda x, dim: x.gather(dim, x.argmax(dim, keepdim=True)),
    "argmin": lambda x, dim: x.gather(dim, x.argmin(dim, keepdim=True)),
    "argsort": lambda x, dim: x.gather(dim, x.argsort(dim)),
    "sort": lambda x, dim: x.sort(dim).values,
    "topk": lambda x, dim: x.topk(1, dim).values,
    "topk of none": lambda x, dim: x.topk(0, dim).values,
    "kthvalue": lambda x, dim: x.kthvalue(1, dim).values,
    "var": torch.var,
    "var, uncorrected": lambda x, dim: x.var(dim, correction=0),
    "std": torch.std,
    "var_mean": lambda x, dim: torch.var_mean(x, dim),
    "std_mean": lambda x, dim: torch.std_mean(x, dim),
    **{
        f"norm of order {order}": lambda x, dim, order=order: torch.linalg.vector_norm(x, order, dim=dim)
        for order in (0, 1, 2, 3, -1, math.inf, -math.inf)
    },
    "normalize": lambda x, dim: F.normalize(x, dim=dim),
    "cosine_similarity": lambda x, dim: F.cosine_similarity(x, x + 1, dim=dim),
    "diff": lambda x, dim: x.diff(dim=dim),
    "cat": lambda x, dim: torch.cat([x, x], dim),
    "stack": lambda x, dim: torch.stack([x, x], dim),
    "split": lambda x, dim: tuple(x.split(2, dim)),
    "select": lambda x, dim: x.select(dim, 0),
    "narrow": lambda x, dim: x.narrow(dim, 0, 0),
    "unfold": lambda x, dim: x.unfold(dim, 1, 1),
    "glu": F.glu,
    "any": lambda x, dim: x * (x > 0).any(dim, keepdim=True),
    "scatter": lambda x, dim: x.scatter(dim, torch.zeros_like(x, dtype=torch.int64), x),
    "index_fill": lambda x, dim: x.index_fill(dim, torch.arange(x.shape[dim]), 1.5),
    "layer_norm": lambda x, dim: F.layer_norm(x, x.shape[dim:]),
    "rms_norm": lambda x, dim: F.rms_norm(x, x.shape[dim:], eps=1e-6),
    "cross": lambda x, dim: torch.linalg.cross(x, x + 1, dim=dim),
}

WHOLE: dict[str, Callable[[Any], Any]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "prod": torch.prod,
    "amax": torch.amax,
    "max": torch.max,
    "median": torch.median,
    "var": torch.var,
    "std": torch.std,
    "norm": torch.linalg.vector_norm,
    "norm of order inf": lambda x: torch.linalg.vector_norm(x, math.inf),
    "argmax": lambda x: x.sum() * x.argmax(),
    "logsumexp": lambda x: torch.logsumexp(x, tuple(range(x.dim()))),
    "aminmax": lambda x: tuple(x.aminmax()),
    "trace": torch.trace,
    "mse_loss": lambda x: F.mse_loss(x, x + 1),
    "mse_loss, summed": lambda x: F.mse_loss(x, x + 1, reduction="sum"),
    "huber_loss": lambda x: F.huber_loss(x, x + 1),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x + 1),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid()),
    "cross_entropy": lambda x: F.cross_entropy(x, zeros(x.shape[0], *x.shape[2:])),
    "cross_entropy of each": lambda x: F.cross_entropy(x, zeros(x.shape[0], *x.shape[2:]), reduction="none"),
    "nll_loss, summed": lambda x: F.nll_loss(x, zeros(x.shape[0], *x.shape[2:]), reduction="sum"),
    "group_norm": lambda x: F.group_norm(x, 1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm of running moments": lambda x: F.batch_norm(x, ones(x.shape[1]), ones(x.shape[1])),
    "instance_norm": F.instance_norm,
    "matmul": lambda x: x @ x.mT,
    "matmul, transposed": lambda x: x.mT @ x,
    "mv": lambda x: x @ ones(x.shape[-1]),
    "dot": lambda x: x.flatten() @ x.flatten(),
    "addmm": lambda x: torch.addmm(ones(1, 1), x, x.mT, beta=0.5, alpha=0.3),
    "linear": lambda x: F.linear(x, ones(4, x.shape[-1]), ones(4)),
    "einsum": lambda x: torch.einsum("...i,...i->...", x, x + 1),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "attention, causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "attention to nothing": lambda x: F.scaled_dot_product_attention(ones(*x.shape[:-2], 3, x.shape[-1]), x, x),
    "conv1d": lambda x: F.conv1d(x, ones(3, x.shape[1], 1)),
    "conv2d": lambda x: F.conv2d(x, ones(3, x.shape[1], 1, 1), ones(3), padding=1),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 1),
    "max_pool2d": lambda x: F.max_pool2d(x, 1),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "adaptive_avg_pool2d to nothing": lambda x: F.adaptive_avg_pool2d(x, (0, 2)),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0),
    "interpolate, linear": lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"),
    "pad": lambda x: F.pad(x, (1, 1)),
    "pad by a value": lambda x: F.pad(x, (1, 1), value=2.0),
    "relu": torch.relu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "exp": torch.exp,
    "log": lambda x: x.exp().log(),
    "sin": torch.sin,
    "pow": lambda x: x.exp() ** 1.5,
    "clamp": lambda x: x.clamp(-1, 1),
    "where": lambda x: torch.where(x > 0, x, 2 * x),
    "maximum": lambda x: torch.maximum(x, x + 1),
    "floor": lambda x: (1.5 * x).floor(),
    "sign": lambda x: (1.5 * x).sign(),
    "whole": lambda x: (1.5 * x).to(torch.int32).double(),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.5),
    "masked_select": lambda x: x.masked_select(x > 0),
    "nonzero": lambda x: x[torch.nonzero(x, as_tuple=True)],
    "embedding": lambda x: F.embedding(zeros(0), x),
    "searchsorted": lambda x: x * torch.searchsorted(torch.arange(3.0, dtype=torch.float64), x),
    "bucketize": lambda x: x * torch.bucketize(x, torch.arange(3.0, dtype=torch.float64)),
    "tril": torch.tril,
    "reshape": lambda x: x.reshape(0, 7),
    "expand": lambda x: x[None].expand(4, *x.shape),
    "repeat": lambda x: x.repeat(2, *[1] * (x.dim() - 1)),
    "standardised": lambda x: (x - x.mean(0)) / x.std(0),
    "softmax, twice": lambda x: x.softmax(-1) @ x.softmax(-2).mT,
}


def hold_to_torch(function: Callable[[Any], Any], x: Any) -> None:
    """The same outputs as torch, or the same error; scales of their shapes, none of them negative or NaN."""
    for before in BEFORE.values():
        try:
            wanted = function(before(x))
        except (RuntimeError, IndexError, ValueError) as error:
            with pytest.raises(BadReference) as caught:
                error_scale(lambda x, before=before: function(before(x)), [x])
            assert (type(caught.value.__cause__), str(caught.value.__cause__)) == (type(error), str(error))  # noqa: PT017
            continue
        for contract in CONTRACTS:
            made = error_scale(lambda x, before=before: function(before(x)), [x], contract=contract)
            outputs = wanted if isinstance(wanted, tuple) else (wanted,)
            expected, scales = made if isinstance(wanted, tuple) else ((made[0],), (made[1],))
            for output, value, scale in zip(outputs, expected, scales, strict=True):
                torch.testing.assert_close(value, output, rtol=0, atol=0, equal_nan=True)
                assert scale.shape == output.shape
                assert bool((scale >= 0).all())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ALONG)
def test_along_every_axis(name: str, shape: tuple[int, ...]) -> None:
    for dim in range(-len(shape), len(shape)):
        hold_to_torch(lambda x, dim=dim: ALONG[name](x, dim), ones(*shape))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_of_the_whole(name: str, shape: tuple[int, ...]) -> None:
    hold_to_torch(WHOLE[name], ones(*shape))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("name", ["sum", "cumsum", "prod", "cumprod", "var", "var, uncorrected", "std", "softmax"])
def test_along_the_axis_that_a_single_number_has(name: str) -> None:
    for dim in (0, -1):
        hold_to_torch(lambda x, dim=dim: ALONG[name](x, dim), torch.tensor(0.7, dtype=torch.float64))


def test_a_sum_of_nothing_is_exact() -> None:
    for before in BEFORE.values():
        for function in (lambda x: x.sum(-1), lambda x: x.prod(-1), lambda x: x.sum()):
            _, scale = error_scale(lambda x, before=before, function=function: function(before(x)), [ones(3, 0)])
            assert bool((scale == 0).all())
