"""The running-error mode against simulated kernels, hand-derived scales, autograd and its own refusals."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from sampled_rules import SAMPLED  # noqa: E402

from gonogo import errors  # noqa: E402
from gonogo.cases import Call  # noqa: E402
from gonogo.execution.measurement import read_bounds  # noqa: E402
from gonogo.execution.reference import make_reference  # noqa: E402
from gonogo.formats import get_format  # noqa: E402
from gonogo.instrument.readings import read  # noqa: E402
from gonogo.instrument.running_error import error_scale  # noqa: E402
from gonogo.instrument.running_error.companion import EXACT, Error, Tracked, total  # noqa: E402
from gonogo.instrument.running_error.mode import RunningErrorMode  # noqa: E402
from gonogo.instrument.running_error.rules import PASSIVE, RULES  # noqa: E402
from gonogo.instrument.running_error.rules.linear_algebra import bound_factors  # noqa: E402
from gonogo.instrument.running_error.rules.recurrent import RECURRENT  # noqa: E402
from gonogo.instrument.running_error.rules.smooth import SLOPES  # noqa: E402
from gonogo.ops import get_op  # noqa: E402
from gonogo.schema import Contract  # noqa: E402

_spec = importlib.util.spec_from_file_location("analytic_scale", Path(__file__).with_name("analytic_scale.py"))
assert _spec is not None
assert _spec.loader is not None
analytic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(analytic)

U32 = 2.0**-24
FLOOR = 2.0**-126 / U32
"""What underflow adds to every computed element."""


# References, written in primitive ops so that they run in float64 and, as a simulated kernel, in float32.


def ref_sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def ref_gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))


def ref_gelu_erf(x):
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


def ref_elu(x):
    return torch.where(x > 0, x, torch.exp(torch.clamp(x, max=0.0)) - 1)


def ref_softmax(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def ref_cross_entropy(x, target):
    m = x.amax(-1)
    log_sum = torch.log(torch.exp(x - m[:, None]).sum(-1))
    return (m + log_sum) - x.gather(-1, target[:, None])[:, 0]


def ref_rmsnorm(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w


def ref_l2norm(x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True))


def ref_layernorm(x, w, b):
    c = x - x.mean(-1, keepdim=True)
    v = (c * c).mean(-1, keepdim=True)
    return c * torch.rsqrt(v + 1e-5) * w + b


def ref_groupnorm(x, w, b):
    rows = x.reshape(x.shape[0], 4, -1)
    c = rows - rows.mean(-1, keepdim=True)
    v = (c * c).mean(-1, keepdim=True)
    return (c * torch.rsqrt(v + 1e-5)).reshape(x.shape) * w[:, None] + b[:, None]


def ref_attention(q, k, v):
    return ref_softmax(q @ k.mT * (1 / math.sqrt(q.shape[-1]))) @ v


def ref_rope(x, position, frequency):
    theta = position[:, None] * frequency
    x1, x2 = x.chunk(2, -1)
    return torch.cat([x1 * theta.cos() - x2 * theta.sin(), x2 * theta.cos() + x1 * theta.sin()], -1)


# Second float32 variants: sums in blocks of 16, one after another inside a block.


def sum_blocked(x):
    pieces = x.split(16, -1)
    partial = torch.zeros_like(x[..., :1])
    for piece in pieces:
        inner = torch.zeros_like(partial)
        for column in piece.unbind(-1):
            inner = inner + column[..., None]
        partial = partial + inner
    return partial


def softmax_blocked(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e * (1 / sum_blocked(e))


def cross_entropy_blocked(x, target):
    m = x.amax(-1, keepdim=True)
    return ((m + torch.log(sum_blocked(torch.exp(x - m)))) - x.gather(-1, target[:, None]))[:, 0]


def layernorm_blocked(x, w, b):
    c = x - sum_blocked(x) / x.shape[-1]
    return c / torch.sqrt(sum_blocked(c * c) / x.shape[-1] + 1e-5) * w + b


def groupnorm_blocked(x, w, b):
    # Not F.group_norm: it folds mean and weight into x·scale + shift, which cancels in another place.
    rows = x.reshape(x.shape[0], 4, -1)
    ones = torch.ones(rows.shape[-1])
    return layernorm_blocked(rows, ones, 0 * ones).reshape(x.shape) * w[:, None] + b[:, None]


def rmsnorm_blocked(x, w):
    return x / torch.sqrt(sum_blocked(x * x) / x.shape[-1] + 1e-6) * w


def matmul_blocked(a, b):
    return sum_blocked(a[:, None, :] * b.mT[None, :, :])[..., 0]


def attention_online(q, k, v):
    m = torch.full_like(q[..., :1], -math.inf)
    weight, made = torch.zeros_like(m), torch.zeros_like(q[..., :1] * v[..., :1, :])
    for keys, rows in zip(k.split(8, -2), v.split(8, -2), strict=True):
        s = q @ keys.mT / math.sqrt(q.shape[-1])
        top = torch.maximum(m, s.amax(-1, keepdim=True))
        p, fade = torch.exp(s - top), torch.exp(m - top)
        weight, made, m = weight * fade + p.sum(-1, keepdim=True), made * fade + p @ rows, top
    return made / weight


@dataclass(frozen=True)
class Op:
    """One op of the table of S."""

    reference: Callable[..., Any]
    scale: Callable[..., Any]
    draw: Callable[[Any, Callable[..., Any]], list[Any]]
    """(size, draw_values) → inputs."""
    kernels: tuple[Callable[..., Any], ...] = ()
    """Float32 variants beside the reference itself."""
    chains: tuple[Callable[..., Any], ...] = ()
    """Float32 variants that add in one long chain: judged by a sequential contract, the reference is not."""
    least: int = 1
    """Smallest size judged as blocked: log2(n + 1) is less than the n roundings of a short chain."""


def pointwise(reference, scale, *kernels):
    return Op(reference, scale, lambda n, values: [values(n * 8)], kernels)


def row_op(reference, scale, *kernels):
    return Op(reference, scale, lambda n, values: [values(3, n)], kernels)


def norm_op(reference, scale, *kernels):
    return Op(reference, scale, lambda n, values: [values(3, n), *(torch.randn(n) for _ in range(2))], kernels)


OPS: dict[str, Op] = {
    "relu": pointwise(torch.relu, analytic.relu),
    "leaky_relu": pointwise(
        lambda x: F.leaky_relu(x, 0.01), analytic.leaky_relu, lambda x: torch.where(x > 0, x, x * 0.01)
    ),
    "elu": pointwise(ref_elu, analytic.elu, F.elu),
    "sigmoid": pointwise(torch.sigmoid, analytic.sigmoid, ref_sigmoid),
    "silu": pointwise(lambda x: x * torch.sigmoid(x), analytic.silu, lambda x: x / (1 + torch.exp(-x)), F.silu),
    "tanh": pointwise(torch.tanh, analytic.tanh),
    "gelu_tanh": pointwise(ref_gelu_tanh, analytic.gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
    # Not F.gelu: its vectorised float32 erf is a polynomial good to about 1e-7 absolute, not to 2 ULP.
    "gelu_erf": pointwise(ref_gelu_erf, analytic.gelu_erf),
    "softmax": row_op(ref_softmax, analytic.softmax, softmax_blocked, lambda x: torch.softmax(x, -1)),
    "cross_entropy": Op(
        ref_cross_entropy,
        analytic.cross_entropy,
        lambda n, values: [values(5, n), torch.randint(n, (5,))],
        # Not F.cross_entropy: (x_t − m) − log l rounds |x_t − m|, another S than this reference's.
        (cross_entropy_blocked,),
    ),
    "rmsnorm": Op(
        ref_rmsnorm, analytic.rmsnorm, lambda n, values: [values(3, n), torch.randn(n)], (rmsnorm_blocked,)
    ),
    "l2norm": row_op(ref_l2norm, analytic.l2norm, lambda x: F.normalize(x, dim=-1)),
    "layernorm": norm_op(
        ref_layernorm,
        analytic.layernorm,
        layernorm_blocked,
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
    ),
    "groupnorm": Op(
        ref_groupnorm,
        analytic.groupnorm,
        lambda n, values: [values(2, 8, n), torch.randn(8), torch.randn(8)],
        (groupnorm_blocked,),
    ),
    "matmul": Op(
        torch.matmul,
        analytic.matmul,
        lambda n, values: [values(4, n), values(n, 6)],
        kernels=(matmul_blocked,),
        chains=(torch.matmul, matmul_blocked),
        least=16,
    ),
    "conv": Op(
        lambda x, w, b: F.conv2d(x, w, b),
        analytic.conv,
        lambda n, values: [values(1, 3, 6, 4 + n % 8), values(4, 3, 3, 3), torch.randn(4)],
        chains=(F.conv2d,),
    ),
    "attention": Op(
        ref_attention,
        analytic.attention,
        lambda n, values: [values(6, 16), values(n, 16), torch.randn(n, 8)],
        (attention_online,),
    ),
    "rope": Op(
        ref_rope,
        analytic.rope,
        lambda n, values: [values(n, 8), torch.arange(n).float(), 10000 ** (-torch.arange(4) / 4)],
    ),
    "cumsum": row_op(lambda x: torch.cumsum(x, -1), analytic.cumsum),
}


def draw_cancelling(*shape):
    """Values that nearly cancel in pairs along the last dimension."""
    x = 100 * torch.randn(*shape)
    return torch.where(torch.arange(shape[-1]) % 2 == 0, x, -x.roll(1, -1) + 0.01 * torch.randn(*shape))


DISTRIBUTIONS: dict[str, Callable[..., Any]] = {
    "uniform": lambda *shape: 20 * torch.rand(*shape) - 10,
    "normal": torch.randn,
    "heavy": lambda *shape: (torch.randn(*shape) / torch.randn(*shape).abs()).clamp(-1e4, 1e4),
    "offset": lambda *shape: torch.randn(*shape) + 1000,
    "cancelling": draw_cancelling,
}
SIZES = (1, 2, 7, 16, 33, 100)
ROUNDS = 5


def case_inputs(op):
    """Every size under every distribution, some rounds of each, rounded to float32."""
    for values in DISTRIBUTIONS.values():
        for size in SIZES:
            for _ in range(ROUNDS):
                yield size, op.draw(size, lambda *shape, values=values: values(*shape).float())


def measure_error(kernel, inputs, expected):
    """Error of the float32 output, its own rounding included: S counts |out| in every row but relu's."""
    return (kernel(*inputs).double() - expected).abs()


def widen(inputs):
    return [one.double() if one.is_floating_point() else one for one in inputs]


@pytest.mark.parametrize("name", OPS)
def test_scale_covers_float32_kernels_and_stays_near_the_analytic_one(name):
    op = OPS[name]
    torch.manual_seed(len(name))
    ratios = []
    for size, inputs in case_inputs(op):
        expected, scale = error_scale(op.reference, inputs)
        assert torch.equal(expected, op.reference(*widen(inputs)))
        for kernel in op.kernels if op.chains else (op.reference, *op.kernels):
            fits = measure_error(kernel, inputs, expected) <= U32 * scale
            assert size < op.least or bool(fits.all()), (kernel, inputs)
        for kernel in op.chains:
            wide = error_scale(op.reference, inputs, contract=Contract(summation="sequential"))[1]
            assert bool((measure_error(kernel, inputs, expected) <= U32 * wide).all()), (kernel, inputs)
        hand = op.scale(*widen(inputs))
        told = (hand > 1e-30) & (scale > 2 * FLOOR)
        ratios.append((scale / hand)[told])
    # The scale must be able to fail a kernel: one that rounds its inputs to bfloat16 is caught.
    for inputs in (op.draw(16, lambda *shape: torch.randn(*shape)) for _ in range(20)):
        expected, scale = error_scale(op.reference, inputs)
        rough = [one.bfloat16().float() if one.is_floating_point() else one for one in inputs]
        assert bool((measure_error(op.reference, rough, expected) > U32 * scale).any())
    if name == "relu":
        assert error_scale(op.reference, [torch.randn(9)])[1].count_nonzero() == 0
    else:
        assert 1 / 8 <= torch.cat(ratios).median() <= 8


# One rule at a time: errors put in by hand.


def run_mode(function, *inputs, contract=Contract(), guarded=False):  # noqa: B008
    """Run `function` in the mode on values or (value, Error) pairs; give value and total error."""
    mode = RunningErrorMode(contract, RULES, PASSIVE, guarded=guarded)
    tracked = [Tracked(*one) if isinstance(one, tuple) else one for one in inputs]
    with torch.no_grad(), mode:
        made = function(*tracked)
    made = made[0] if isinstance(made, (tuple, list)) else made
    whole = total(made.value, made.error)
    return made.value, torch.zeros_like(made.value) if whole is None else whole.expand(made.value.shape)


DOUBLE = Contract(accumulate="float64")
POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "log1p")
UNIT = ("asin", "acos", "atanh", "logit")

ONE_ARGUMENT: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in SLOPES},
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "neg": torch.neg,
    "abs": torch.abs,
    "square": torch.square,
    "pow 3": lambda x: x**3,
    "pow -2": lambda x: x**-2,
    "pow 2.5": lambda x: x.abs() ** 2.5,
    "pow base": lambda x: 1.7**x,
    "1 - x": lambda x: 1 - x,
    "rsub": lambda x: torch.rsub(x, 2.0, alpha=3),
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 0.1, 7.0),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp_min": lambda x: x.clamp_min(0.0),
    "clamp_max": lambda x: x.clamp_max(0.2),
    "hardtanh": F.hardtanh,
    "where": lambda x: torch.where(x > 0.3, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x < -0.2, 3.0),
    "nan_to_num": torch.nan_to_num,
    "x * 3": lambda x: x * 3.0,
    "x / 3": lambda x: x / 3.0,
}
TWO_ARGUMENTS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: torch.add(x, y, alpha=1.5),
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": lambda x, y: x.abs() ** y,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "clamp": lambda x, y: torch.clamp(x, max=y),
    "where": lambda x, y: torch.where(x > y, x, y),
    "prelu": lambda x, y: F.prelu(x, y[:1]),
}
DECOMPOSED: dict[str, Callable[..., Any]] = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "softplus": lambda x: F.softplus(x, 1.5),
    "logsigmoid": F.logsigmoid,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "logit": torch.logit,
    "lerp": lambda x: torch.lerp(x, 2 * x + 1, 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x + 1, value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.abs() + 1, value=0.5),
    "xlogy": lambda x: torch.xlogy(x, x.abs() + 1),
    "hypot": lambda x: torch.hypot(x, x + 1),
    "logaddexp": lambda x: torch.logaddexp(x, 2 * x),
    "x * x": lambda x: x * x,
}


def domain(name):
    x = torch.randn(400, dtype=torch.float64)
    if name in POSITIVE:
        return x.abs() + 0.01
    if name in UNIT:
        return x.sigmoid() * 0.98 + 0.01
    if name == "masked_fill":  # away from its jump, where the other side is charged too
        return torch.where((x + 0.2).abs() < 0.01, x + 0.1, x)
    return x.abs() + 1.01 if name == "acosh" else x


def slope_of(function, x, *others):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x, *others).sum(), x)[0].abs()


@pytest.mark.parametrize("name", [*ONE_ARGUMENT, *DECOMPOSED])
def test_errors_pass_through_by_the_true_derivative(name):
    torch.manual_seed(3)
    function = ONE_ARGUMENT.get(name) or DECOMPOSED[name]
    x, error = domain(name), torch.rand(400, dtype=torch.float64)
    # Under float64 1000·u is nothing, and first order is all there is.
    value, own = run_mode(function, (x, EXACT), contract=DOUBLE)
    assert torch.equal(value, function(x))
    _, whole = run_mode(function, (x, Error(1000 * error)), contract=DOUBLE)
    carried, true = whole - own, 1000 * slope_of(function, x) * error
    if name in DECOMPOSED:  # parts of opposite sign are added up: never less than the derivative says
        # (torch's own hardsigmoid and celu derivatives are good to float32 constants only)
        assert bool((carried >= true * (1 - 1e-6) - 1e-9).all())
    else:
        torch.testing.assert_close(carried, true, rtol=1e-9, atol=1e-9)
    # The relative part is a shorthand for the same error written out.
    _, short = run_mode(function, (x, Error(error, 3.0)), contract=DOUBLE)
    _, long = run_mode(function, (x, Error(error + 3 * x.abs())), contract=DOUBLE)
    torch.testing.assert_close(short, long, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", TWO_ARGUMENTS)
def test_errors_of_two_arguments_pass_through_by_both_derivatives(name):
    torch.manual_seed(4)
    function = TWO_ARGUMENTS[name]
    x, y = torch.randn(2, 400, dtype=torch.float64)
    ex, ey = 1000 * torch.rand(2, 400, dtype=torch.float64)
    if name == "prelu":
        ey = torch.full_like(ey, 250.0)
    own = run_mode(function, (x, EXACT), (y, EXACT), contract=DOUBLE)[1]
    whole = run_mode(function, (x, Error(ex)), (y, Error(ey)), contract=DOUBLE)[1]
    by_y = slope_of(lambda y: function(x, y), y) * ey
    if name == "prelu":
        by_y = torch.where(x > 0, 0.0, x.abs()) * 250.0
    torch.testing.assert_close(whole - own, slope_of(function, x, y) * ex + by_y, rtol=1e-9, atol=1e-9)
    short = run_mode(function, (x, Error(ex, 2.0)), (y, Error(None, 5.0)), contract=DOUBLE)[1]
    long = run_mode(function, (x, Error(ex + 2 * x.abs())), (y, Error(5 * y.abs())), contract=DOUBLE)[1]
    torch.testing.assert_close(short, long, rtol=1e-12, atol=1e-12)


MOVES: dict[str, Callable[..., Any]] = {
    "view": lambda x: x.view(6, 4),
    "reshape of transposed": lambda x: x.transpose(0, 1).reshape(-1),
    "permute": lambda x: x.permute(1, 0),
    "expand": lambda x: x[None].expand(3, 4, 6),
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x[2],
    "index": lambda x: x[torch.tensor([3, 0, 0])],
    "bool index": lambda x: x[torch.tensor([True, False, True, True])],
    "index_select": lambda x: x.index_select(1, torch.tensor([5, 1])),
    "gather": lambda x: x.gather(1, torch.tensor([[0, 1], [5, 2], [3, 3], [4, 0]])),
    "take_along_dim": lambda x: torch.take_along_dim(x, torch.tensor([[2], [1], [0], [5]]), 1),
    "take": lambda x: x.take(torch.tensor([0, 23, 7])),
    "masked_select": lambda x: x.masked_select(torch.arange(24).reshape(4, 6) % 5 == 0),
    "cat": lambda x: torch.cat([x, x.flip(0)], 1),
    "stack": lambda x: torch.stack([x, x.roll(1, 0)]),
    "split": lambda x: x.split(4, 1)[1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "unbind": lambda x: x.unbind(0)[3],
    "squeeze": lambda x: x[:, None].squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll(2, 1),
    "rot90": lambda x: torch.rot90(x),
    "repeat": lambda x: x.repeat(2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1)),
    "reflection_pad": lambda x: F.pad(x, (2, 2), mode="reflect"),
    "tril": torch.tril,
    "triu": torch.triu,
    "diagonal": torch.diagonal,
    "diag_embed": torch.diag_embed,
    "unfold": lambda x: x.unfold(1, 3, 2),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.t().contiguous(),
    "detach": lambda x: x.detach(),
    "embedding": lambda x: F.embedding(torch.tensor([[2, 3], [0, 0]]), x),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x[:, :, None], 2),
    "float64": lambda x: x.double(),
    "scatter": lambda x: torch.scatter(x, 0, torch.tensor([[1, 2]]), 1000 + x[:1, :2]),
    "select_scatter": lambda x: torch.select_scatter(x, x[0], 0, 2),
    "index_put": lambda x: torch.index_put(x, (torch.tensor([1]),), x[0]),
    "sort": lambda x: x.sort(1, descending=True).values,
    "topk": lambda x: x.topk(2, 0).values,
    "kthvalue": lambda x: x.kthvalue(2, 1).values,
    "median": lambda x: x.median(1).values,
    "median of all": lambda x: x.median(),
    "max": lambda x: x.max(),
    "max along": lambda x: x.max(1).values,
    "min along": lambda x: x.min(0, keepdim=True).values,
    "amax": lambda x: x.amax((0, 1)),
    "amin": lambda x: x.amin(1),
    "cummax": lambda x: x.cummax(1).values,
    "max_pool2d": lambda x: F.max_pool2d(x[None], 2),
    "max_pool3d": lambda x: F.max_pool3d(x[None, None], (1, 2, 2)),
    "cummin": lambda x: x.cummin(1).values,
    "split_with_sizes": lambda x: x.split([2, 4], 1)[1],
    "reflection_pad2d": lambda x: F.pad(x[None], (2, 2, 1, 1), mode="reflect"),
    "reflection_pad3d": lambda x: F.pad(x[None, None], (2, 2, 1, 1, 0, 0), mode="reflect"),
    "replication_pad1d": lambda x: F.pad(x, (2, 2), mode="replicate"),
    "replication_pad2d": lambda x: F.pad(x[None], (2, 2, 1, 1), mode="replicate"),
    "replication_pad3d": lambda x: F.pad(x[None, None], (2, 2, 1, 1, 0, 0), mode="replicate"),
    "interpolate 2d": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "interpolate 3d": lambda x: F.interpolate(x[None, None, None], scale_factor=2),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:2], 0, 1, 3),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x[0, :4]),
    "index_copy": lambda x: torch.index_copy(x, 0, torch.tensor([3]), x[:1]),
    "index_fill": lambda x: torch.index_fill(x, 1, torch.tensor([2]), 0),
    "masked_scatter": lambda x: torch.masked_scatter(x, torch.tensor([True] + 5 * [False]), x[0, :4]),
    "alias": lambda x: torch.ops.aten.alias(x),
    "lift_fresh": lambda x: torch.ops.aten.lift_fresh(x),
}


@pytest.mark.parametrize("name", MOVES)
def test_errors_move_with_their_values(name):
    # Each element's error tells where it came from: it is twice its value, or a half.
    x = torch.randperm(24, generator=torch.Generator().manual_seed(1)).double().reshape(4, 6) + 1
    for error in (Error(2 * x), Error(None, 2.0), Error(0.5 * x, 1.5)):
        value, moved = run_mode(MOVES[name], (x, error))
        assert torch.equal(value, MOVES[name](x))
        shifted = {"scatter": torch.scatter(x, 0, torch.tensor([[1, 2]]), x[:1, :2])}
        true = 2 * shifted.get(name, value)
        if name == "scatter":  # the sum 1000 + x adds its own rounding
            true[[1, 2], [0, 1]] += 1000 + x[0, :2]
        torch.testing.assert_close(moved, true, rtol=1e-12, atol=0)


def test_errors_broadcast_from_a_row_move_too():
    x, row = torch.rand(4, 6).double() + 1, torch.arange(6.0).double()
    for move in (lambda x: x.view(24), lambda x: x.t(), lambda x: x.amax(0), lambda x: torch.cat([x, x])):
        moved = run_mode(move, (x, Error(row)))[1]
        written_out = run_mode(move, (x, Error(row.expand(4, 6).clone())))[1]
        assert torch.equal(moved, written_out)


def test_at_a_tie_the_largest_error_counts():
    x = torch.tensor([[1.0, 5.0, 5.0], [2.0, 2.0, 0.0]]).double()
    error = torch.tensor([[9.0, 1.0, 4.0], [3.0, 7.0, 99.0]]).double()
    for pick in (lambda x: x.amax(1), lambda x: x.max(1).values):
        assert run_mode(pick, (x, Error(error)))[1].tolist() == [4.0, 7.0]
    other = torch.full_like(error, 5.0)
    assert run_mode(torch.maximum, (x, Error(error)), (x, Error(other)))[1].max() == 99


SUMS: dict[str, tuple[Callable[..., Any], int]] = {
    "sum": (lambda x: x.sum(), 24),
    "sum along": (lambda x: x.sum(1, keepdim=True), 6),
    "mean": (lambda x: x.mean((0, 1)), 24),
    "mean in float32": (lambda x: x.mean(0, dtype=torch.float32), 4),
    "cumsum": (lambda x: x.cumsum(1), 6),
    "avg_pool2d": (lambda x: F.avg_pool2d(x[None], 2), 4),
    "avg_pool3d": (lambda x: F.avg_pool3d(x[None, None], (1, 2, 3)), 6),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x[None, None], (1, 4, 6)), 8),
}


def bound_sums(length, absolute, squares, total):
    """What adding up rounds: min(max(log2(n+1), √n)·Σ|x|, 3·√(n/6·Σx² + n/3·(Σx)²))."""
    length = torch.as_tensor(length, dtype=torch.float64)
    growth = torch.maximum(torch.log2(length + 1), torch.sqrt(length))
    return torch.minimum(growth * absolute, 3 * torch.sqrt(length / 6 * squares + length / 3 * total**2))


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_sums_grow_as_the_contract_says(name, offset):
    function, length = SUMS[name]
    torch.manual_seed(2)
    x, error = torch.randn(4, 6).double() + offset, torch.rand(4, 6).double()
    for summation in ("sequential", "probabilistic"):
        contract = Contract(summation=summation)
        whole = run_mode(function, (x, Error(error, 2.0)), contract=contract)[1]
        weighed = error + (2 + contract.growth(length)) * x.abs()
        torch.testing.assert_close(whole, function(weighed).double(), rtol=1e-6, atol=0)
    whole = run_mode(function, (x, Error(error, 2.0)))[1]
    linear = function(error + 2 * x.abs()).double()
    share = 1 if "sum" in name else length
    if name == "cumsum":
        length = torch.arange(1, 7).double()
    parts = (share * function(part).double() for part in (x.abs(), x * x, x))
    if name.startswith("adaptive"):  # windows of 1 here; what is charged is the most a window may hold
        parts = (x.abs()[None, None], length * x.square()[None, None], length * x[None, None])
        share = length
        own = bound_sums(length, length * x.abs()[None, None], *list(parts)[1:]) / length
    else:
        own = bound_sums(length, *parts) / share
    torch.testing.assert_close(whole, linear + own.reshape(whole.shape), rtol=1e-6, atol=0)


def test_sums_of_whole_numbers_are_exact_below_the_precision():
    whole = torch.randint(-8, 9, (5, 1000)).double()
    other = torch.randint(-8, 9, (1000, 4)).double()
    few = math.log2(1001)
    for function, inputs, absolute in (
        (lambda x: (200 + x).abs().sum(-1), [whole], None),
        (lambda x: x.sum(-1), [whole + 200], (whole + 200).sum(-1)),
        (lambda x: (x * x).sum(-1), [whole], 1.0 * whole.square().sum(-1)),
        (torch.matmul, [whole + 8, other + 8], (whole + 8) @ (other + 8)),
        (torch.matmul, [whole + 8, other], (whole + 8) @ other.abs()),
        (lambda x: F.avg_pool2d(x[None], (1, 1000)).flatten(), [whole + 200], (whole + 200).mean(-1)),
    ):
        scale = error_scale(function, inputs)[1]
        ulps = 1.0 if function is not torch.matmul and inputs[0] is whole else 0.0
        if absolute is not None:
            assert bool((scale <= (few + ulps) * absolute * (1 + 1e-12)).all())
        doubled = error_scale(function, [inputs[0] * 2.0**30, *inputs[1:]])[1]  # no longer below 2^24
        assert bool((doubled >= scale).all())
    x = whole + 200
    prefixes = torch.arange(1, 1001).double()
    torch.testing.assert_close(error_scale(lambda x: x.cumsum(-1), [x])[1], (prefixes + 1).log2() * x.cumsum(-1))
    assert error_scale(lambda x: x.sum(-1), [x + 0.5])[1].ge(31 * x.sum(-1)).all()  # √1000


PRODUCTS: dict[str, tuple[Callable[..., Any], Any, Any, int]] = {
    "mm": (torch.mm, (3, 5), (5, 2), 5),
    "bmm": (torch.matmul, (2, 3, 5), (2, 5, 4), 5),
    "mv": (torch.mv, (3, 5), (5,), 5),
    "dot": (torch.dot, (5,), (5,), 5),
    "linear": (F.linear, (3, 5), (2, 5), 5),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (2, 3, 5), (2, 4, 5), 5),
    "conv1d": (F.conv1d, (1, 4, 9), (6, 4, 3), 12),
    "conv2d grouped": (lambda a, b: F.conv2d(a, b, groups=2, stride=2), (1, 4, 7, 7), (6, 2, 3, 3), 18),
    "conv3d": (lambda a, b: F.conv3d(a, b, padding=1), (1, 2, 3, 3, 3), (2, 2, 2, 2, 2), 16),
    "conv_transpose2d": (F.conv_transpose2d, (1, 4, 5, 5), (4, 2, 3, 3), 36),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_follow_the_table_under_every_contract(name):
    function, shape_a, shape_b, length = PRODUCTS[name]
    torch.manual_seed(5)
    a, b = torch.randn(shape_a).double(), torch.randn(shape_b).double()
    ea, eb = torch.rand(shape_a).double(), torch.rand(shape_b).double()
    both = function(a.abs(), b.abs())
    sums = 3 * torch.sqrt(length / 6 * function(a * a, b * b) + length / 3 * function(a, b) ** 2)
    for contract, added in (
        (Contract(), 0.0),
        (Contract(products="tf32"), 2 * 2.0**-11 / U32),
        (Contract(intermediate="bfloat16"), 2.0**-8 / U32),
        (Contract(accumulate="float16"), 0.0),
    ):
        computed = 1 if contract.intermediate else 0
        tf32 = 0 if computed else added
        whole = run_mode(function, (a, EXACT), (b, EXACT), contract=contract)[1]
        torch.testing.assert_close(whole, sums + tf32 * both)
        whole = run_mode(function, (a, Error(ea)), (b, EXACT), contract=contract)[1]
        torch.testing.assert_close(whole, sums + added * both + function(ea, b.abs()))
        whole = run_mode(function, (a, Error(ea, 1.0)), (b, Error(eb, 2.0)), contract=contract)[1]
        relative = 3 + (1 + computed) * added
        true = sums + relative * both + function(ea, b.abs()) + function(a.abs(), eb)
        torch.testing.assert_close(whole, true)
    for summation in ("sequential", "probabilistic"):
        contract = Contract(summation=summation)
        whole = run_mode(function, (a, EXACT), (b, EXACT), contract=contract)[1]
        torch.testing.assert_close(whole, contract.growth(length) * both)
    whole = run_mode(function, (a.abs(), EXACT), (b.abs(), EXACT))[1]
    torch.testing.assert_close(whole, Contract().growth(length) * both)  # of one sign: √n·Σ|x| is less


def test_bias_of_a_product_adds_its_error_and_one_rounding():
    a, b, c = torch.randn(3, 5).double(), torch.randn(5, 2).double(), torch.randn(2).double()
    value, whole = run_mode(torch.addmm, (c, Error(None, 3.0)), a, b)
    product = 3 * torch.sqrt(5 / 6 * (a * a) @ (b * b) + 5 / 3 * (a @ b) ** 2)
    torch.testing.assert_close(whole, product + 3 * c.abs() + value.abs())
    value, whole = run_mode(lambda c, a, b: torch.addmm(c, a, b, alpha=2, beta=0.5), (c, EXACT), a, b)
    torch.testing.assert_close(whole, 2 * product + 2 * (a @ b).abs() + 0.5 * c.abs() + value.abs())
    x, w = torch.randn(1, 2, 4, 4).double(), torch.randn(3, 2, 2, 2).double()
    bias = torch.randn(3).double()
    value, whole = run_mode(F.conv2d, (x, EXACT), w, (bias, Error(None, 2.0)))
    sums = 3 * torch.sqrt(8 / 6 * F.conv2d(x * x, w * w) + 8 / 3 * F.conv2d(x, w) ** 2)
    true = sums + 2 * bias.abs()[:, None, None] + value.abs()
    torch.testing.assert_close(whole, true)


@pytest.mark.parametrize("transposed", [False, True])
def test_fast_convolution_spreads_the_largest_input_over_its_plane(transposed):
    torch.manual_seed(6)
    x, w = torch.randn(2, 4, 5, 6).double(), torch.randn(4, 3, 2, 2).double()
    x[1, :, 0, 0] = 1e3
    function = F.conv_transpose2d if transposed else F.conv2d
    w = w if transposed else w.transpose(0, 1)
    fast = run_mode(function, (x, EXACT), w, contract=Contract(fast_math=True))[1]
    peaks, reach = x.abs().amax((2, 3)), w.abs().sum((2, 3))
    length = (w.shape[0] if transposed else w.shape[1]) * 4
    wanted = Contract().growth(length) * peaks @ (reach if transposed else reach.T)
    torch.testing.assert_close(fast, wanted[:, :, None, None].expand_as(fast))
    # Past what float16 holds a transform of half inputs is lost, and with it the plane.
    lost = run_mode(function, (100 * x, EXACT), w, contract=Contract(fast_math=True))[1]
    assert bool((lost.isinf() == (wanted[:, :, None, None] / Contract().growth(length) * 100 >= 65504)).all())
    assert bool(lost[1].isinf().all())


DECISIONS: dict[str, Callable[..., Any]] = {
    "eq": lambda x: x == 1,
    "ne": lambda x: x != 1,
    "lt": lambda x: x < 1,
    "le": lambda x: x <= 1,
    "gt": lambda x: x > 1,
    "ge": lambda x: x >= 1,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "isposinf": torch.isposinf,
    "isneginf": torch.isneginf,
    "isin": lambda x: torch.isin(x, torch.tensor([1.0, 2.0])),
    "signbit": torch.signbit,
    "logical_and": lambda x: torch.logical_and(x, x > 1),
    "logical_or": lambda x: torch.logical_or(x, x > 1),
    "logical_xor": lambda x: torch.logical_xor(x, x > 1),
    "logical_not": torch.logical_not,
    "any": torch.any,
    "all": torch.all,
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "nonzero": torch.nonzero,
    "count_nonzero": torch.count_nonzero,
    "searchsorted": lambda x: torch.searchsorted(torch.tensor([0.0, 1.0]).double(), x),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([0.0, 1.0]).double()),
    "sign": torch.sign,
    "sgn": torch.sgn,
    "to bool": lambda x: x.bool(),
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "full_like": lambda x: torch.full_like(x, 0.5),
    "empty_like": lambda x: torch.empty_like(x).fill_(1.0),
    "new_zeros": lambda x: x.new_zeros(2),
    "new_ones": lambda x: x.new_ones(2),
    "new_full": lambda x: x.new_full((2,), 3.0),
    "new_empty": lambda x: x.new_empty(2).zero_(),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_are_exact(name):
    x = torch.tensor([[0.0, 1.0, -2.0], [math.inf, 1.0, 0.5]]).double()
    mode = RunningErrorMode(Contract(), RULES, PASSIVE, guarded=False)
    with torch.no_grad(), mode:
        made = DECISIONS[name](Tracked(x, Error(torch.ones_like(x))))
    if isinstance(made, Tracked):
        # Beside 0 a computed value may have either sign.
        assert made.error.exact or (name in ("sign", "sgn") and torch.equal(made.error.extra > 0, x == 0))
        made = made.value
    assert torch.equal(made, DECISIONS[name](x))


STEPS: dict[str, Callable[..., Any]] = {
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "floor_divide": lambda x: torch.floor_divide(x, 2),
    "remainder": lambda x: torch.remainder(x, 2),
    "fmod": lambda x: torch.fmod(x, 2),
    "div floor": lambda x: torch.div(x, 2, rounding_mode="floor"),
    "to integer": lambda x: x.long().double(),
}


ROUNDED = ("floor", "ceil", "round", "trunc", "to integer")


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_taken_of_exact_values_only(name):
    x = torch.tensor([0.3, 1.7, -2.5]).double()
    assert torch.equal(error_scale(STEPS[name], [x])[0], STEPS[name](x))
    assert error_scale(STEPS[name], [x])[1].count_nonzero() == 0
    if name not in (*ROUNDED, "div floor"):
        with pytest.raises(errors.NoErrorRule, match="whole step"):
            error_scale(lambda x: STEPS[name](x / 3), [x])


def test_a_quotient_beside_a_step_may_take_it():
    """Rounding to float32 makes 2 of 2 − 2⁻³⁰, and of a quotient as close to it."""
    x = torch.tensor([6 - 2.0**-28, 5.0, 6.0], dtype=torch.float64)
    for mode, kept in (("floor", 1.0), ("trunc", 1.0)):
        expected, scale = error_scale(lambda x, mode=mode: torch.div(x, 3, rounding_mode=mode), [x])
        assert expected.tolist() == [kept, kept, 2.0]
        assert (scale * U32).tolist() == pytest.approx([1.0, 0.0, 1.0], abs=1e-9)


@pytest.mark.parametrize("name", ROUNDED)
def test_a_computed_value_beside_a_step_may_take_it(name):
    """1 − 2⁻³⁰ and 1 are one number to a kernel; 1.7 is never 2."""
    half = 0.5 if name == "round" else 0.0
    x = torch.tensor([1 - 2.0**-30, 1.7, -3 + 2.0**-30]).double() - half
    expected, scale = error_scale(lambda x: STEPS[name](x * 3 / 3), [x])
    assert torch.equal(expected, STEPS[name](x * 3 / 3))
    assert [size > 0 for size in (scale * 2.0**-24 > 0.9).tolist()] == [True, False, True]


GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    "cumsum": lambda x: x.cumsum(-1),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_has_a_scale_of_its_own(name):
    """Behind a product, whose errors it carries: autograd in float32 is within it, and it says something."""
    torch.manual_seed(4)
    x, w, given = torch.randn(24, 40), torch.randn(40, 32) / 6, torch.randn(24, 32)

    def gradient(x, w, given):
        return torch.func.vjp(lambda x: GRADIENTS[name](x @ w), x)[1](given)[0]

    expected, scale = error_scale(gradient, [x, w, given])
    ratios = (gradient(x, w, given).double() - expected).abs() / (2.0**-24 * scale)
    assert float(ratios.max()) < 4
    assert float((2.0**-24 * scale / expected.abs().clamp(min=1e-9)).median()) < 1e-3


def test_a_product_adds_up_the_errors_of_its_factors():
    x = torch.rand(4, 6).double() + 0.5
    assert run_mode(lambda x: x.prod(1), (x, Error(None, 2.0)))[1].equal((6 * 2 + 5) * x.prod(1))
    assert run_mode(lambda x: x.cumprod(1), (x, EXACT))[1].equal(5 * x.cumprod(1))
    x[0, 3] = 0.0
    error = torch.rand(4, 6).double()
    alone = torch.stack([torch.cat([x[:, :at], x[:, at + 1 :]], 1).prod(1) for at in range(6)], 1)
    scale = run_mode(lambda x: x.prod(1), (x, Error(error)))[1]
    torch.testing.assert_close(scale, (alone * error).sum(1) + 5 * x.prod(1), rtol=1e-5, atol=0)


COMPOSED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), ref_softmax),
    "layer_norm": (lambda x: F.layer_norm(x, (8,)), lambda x: ref_layernorm(x, 1.0, 0.0)),
    "rms_norm": (lambda x: F.rms_norm(x, (8,), eps=1e-6), lambda x: ref_rmsnorm(x, 1.0)),
    "group_norm": (lambda x: F.group_norm(x, 2), lambda x: F.layer_norm(x.view(-1, 4), (4,)).view(x.shape)),
    "batch_norm": (
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.layer_norm(x.t(), (6,)).t(),
    ),
    "batch_norm by given moments": (
        lambda x: F.batch_norm(x, torch.ones(8).double(), torch.full((8,), 3.0).double(), eps=1.0),
        lambda x: (x - torch.ones(8)) * torch.rsqrt(torch.full((8,), 3.0) + 1.0),
    ),
    "instance_norm": (lambda x: F.instance_norm(x[None]), lambda x: F.layer_norm(x, (8,))),
    "logsumexp": (
        lambda x: x.logsumexp(-1),
        lambda x: x.amax(-1) + (x - x.amax(-1)[:, None]).exp().sum(-1).log(),
    ),
    "log_softmax": (lambda x: F.log_softmax(x, -1), lambda x: x - x.logsumexp(-1, keepdim=True)),
    "var": (lambda x: x.var(-1), lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1) / 7),
    "std": (
        lambda x: x.std(-1, correction=0),
        lambda x: (x - x.mean(-1, keepdim=True)).square().mean(-1).sqrt(),
    ),
    "var_mean": (lambda x: torch.var_mean(x)[1], lambda x: x.mean()),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), lambda x: (x * x).sum(-1).sqrt()),
    "norm 1": (lambda x: torch.linalg.vector_norm(x, 1), lambda x: x.abs().sum()),
    "norm inf": (lambda x: torch.linalg.vector_norm(x, math.inf), lambda x: x.abs().amax()),
    "norm 3": (lambda x: torch.linalg.vector_norm(x, 3), lambda x: (x.abs() ** 3).sum() ** (1 / 3)),
    "normalize": (lambda x: F.normalize(x), ref_l2norm),
    "cosine_similarity": (
        lambda x: F.cosine_similarity(x, x + 1),
        lambda x: (F.normalize(x) * F.normalize(x + 1)).sum(-1),
    ),
    "glu": (lambda x: F.glu(x), lambda x: x[:, :4] * torch.sigmoid(x[:, 4:])),
    "trace": (lambda x: torch.trace(x @ x.t()), lambda x: (x @ x.t()).diagonal().sum()),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])[0, 0],
        lambda x: ref_attention(x, x, x),
    ),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, torch.arange(6), reduction="none"),
        lambda x: -F.log_softmax(x, -1)[range(6), range(6)],
    ),
    "cross_entropy smoothed": (
        lambda x: F.cross_entropy(x, torch.arange(6), label_smoothing=0.1),
        lambda x: 0.9 * F.cross_entropy(x, torch.arange(6)) - 0.1 / 8 * F.log_softmax(x, -1).sum() / 6,
    ),
    "mse_loss": (lambda x: F.mse_loss(x, x.flip(0)), lambda x: (x - x.flip(0)).square().mean()),
    "smooth_l1_loss": (
        lambda x: F.smooth_l1_loss(x, x.flip(0), reduction="sum", beta=1e-9),
        lambda x: (x - x.flip(0)).abs().sum(),
    ),
    "huber_loss": (
        lambda x: F.huber_loss(x, x.flip(0), reduction="sum", delta=1e3),
        lambda x: (0.5 * (x - x.flip(0)).square()).sum(),
    ),
    "bce": (
        lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x)),
        lambda x: -x.sigmoid().log().mean(),
    ),
    "bce logits": (
        lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
        lambda x: -F.logsigmoid(x).mean(),
    ),
    "std_mean": (lambda x: torch.std_mean(x, -1)[0], lambda x: x.std(-1)),
    "cross_entropy 2d": (
        lambda x: F.cross_entropy(x.view(1, 8, 2, 3), torch.ones(1, 2, 3).long(), reduction="sum"),
        lambda x: -F.log_softmax(x.view(8, 6), 0)[1].sum(),
    ),
    "baddbmm": (
        lambda x: torch.baddbmm(x[None, :, :6], x[None], x.t()[None]),
        lambda x: (x[:, :6] + x @ x.t())[None],
    ),
    "linear": (lambda x: F.linear(x, x, x[:, 0]), lambda x: x @ x.t() + x[:, 0]),
    "addmv": (lambda x: torch.addmv(x[:, 0], x, x[0]), lambda x: x[:, 0] + x @ x[0]),
    "adaptive pool": (lambda x: F.adaptive_avg_pool2d(x[None], (3, 4)), lambda x: F.avg_pool2d(x[None], 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSED)
def test_one_op_composites_count_as_their_primitive_form(name):
    composite, primitive = COMPOSED[name]
    torch.manual_seed(6)
    x = torch.randn(6, 8)
    expected, scale = error_scale(composite, [x])
    assert torch.equal(expected, composite(x.double()))
    by_hand, its_scale = error_scale(primitive, [x])
    torch.testing.assert_close(expected, by_hand.reshape(expected.shape))
    its_scale = its_scale.reshape(scale.shape)
    assert torch.equal(scale == 0, its_scale == 0)
    told = its_scale > 0
    assert not told.any() or 0.3 < (scale / its_scale)[told].median() < 3


ELSEWHERE = {
    # Reached on other devices, or in torch versions that compose these ops differently.
    "aten._fused_rms_norm",
    "aten._fused_sdp_choice",
    "aten._safe_softmax",
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten.cudnn_batch_norm",
    *RECURRENT,
    # Tested by themselves.
    "aten.cumprod",
    "aten.prod",
}


def test_every_rule_is_exercised_by_a_table_above():
    used: set[str] = set()

    def record(name):
        def rule(ctx, op, args, kwargs):
            used.add(name)
            return RULES[name](ctx, op, args, kwargs)

        return rule

    mode = RunningErrorMode(Contract(), {name: record(name) for name in RULES}, PASSIVE, guarded=False)
    x = torch.rand(4, 6).double() * 0.9 + 0.05
    tall = torch.rand(6, 8).double()
    calls = [(lambda x: torch.ops.aten.silu_backward(x, x), [x])]
    calls += [
        (function, [x])
        for table in (MOVES, ONE_ARGUMENT, DECOMPOSED, DECISIONS, STEPS)
        for function in table.values()
    ]
    calls += [(function, [x[0], x[1]]) for function in TWO_ARGUMENTS.values()]
    calls += [(function, [x]) for function, _ in SUMS.values()]
    calls += [
        (function, [torch.rand(a).double(), torch.rand(b).double()]) for function, a, b, _ in PRODUCTS.values()
    ]
    calls += [(function, [tall]) for function, _ in COMPOSED.values()]
    with torch.no_grad():
        for function, inputs in calls:
            with mode:
                function(*(Tracked(one, EXACT) for one in inputs))
    assert set(RULES) - used - SAMPLED <= ELSEWHERE


# Contracts.


def test_fast_math_admits_the_approximate_units():
    x = torch.randn(100).double()
    fast = Contract(fast_math=True)
    assert (error_scale(torch.tanh, [x], contract=fast)[1] / x.tanh().abs()).max() > 2.0**12
    exact_sine = error_scale(torch.sin, [torch.zeros(1)], contract=fast)[1]
    assert exact_sine.item() == pytest.approx(2.0**-20.9 / U32)
    wide = error_scale(torch.exp, [torch.tensor([10.0])], contract=fast)[1] / math.exp(10)
    assert wide.item() == pytest.approx(4 + 2 * 11.73)
    assert error_scale(lambda x: x / 3, [x], contract=fast)[1].equal(4 * (x / 3).abs())


def test_forms_of_tanh_by_exp_are_allowed_for_near_zero_only():
    reference = get_op("tanh").load_reference()
    x = torch.cat([torch.linspace(-9, 9, 200001), torch.logspace(-30, 0, 20001)])
    expected, scale = error_scale(reference, [x])
    assert torch.equal(expected, torch.tanh(x.double()))
    assert torch.equal(reference(x), torch.tanh(x))  # outside error_scale nothing is added
    forms = (
        torch.tanh,
        lambda x: 2 * torch.sigmoid(2 * x) - 1,
        lambda x: (1 - torch.exp(-2 * x)) / (1 + torch.exp(-2 * x)),
        lambda x: torch.expm1(2 * x) / (torch.expm1(2 * x) + 2),
    )
    for form in forms:
        assert bool(((form(x).double() - expected).abs() <= U32 * scale)[x.abs() < 5].all())
    allowed = scale - 4 * expected.abs() - FLOOR
    assert bool((allowed[x.abs() >= 1].abs() < 1e-9).all())
    assert 1.9 < allowed.max() <= 2


def test_accumulating_in_float16_counts_in_its_own_roundoff():
    x = torch.rand(64, 8)
    half, single = (
        error_scale(lambda x: x.tanh().half().sum(-1), [x], contract=Contract(accumulate=fmt))[1]
        for fmt in ("float16", "float32")
    )
    # The cast costs nothing where everything is float16, and u16/u32 = 2^13 where it narrows.
    added = 2.0**13 * x.double().tanh().sum(-1)
    torch.testing.assert_close(single - half, added, rtol=1e-5, atol=0)


HALF = Contract(accumulate="float16", summation="sequential")


@pytest.mark.parametrize("reference", [torch.sum, torch.mean, lambda x: x @ torch.ones(2, dtype=x.dtype)])
@pytest.mark.parametrize("sign", [1, -1])
def test_past_the_range_of_the_accumulator_nothing_is_promised(reference, sign):
    """65,520 is the first sum that float16 rounds to infinity, and two roundings may take 65,457 there."""
    for largest, fits in ((65457.0, False), (65456.0, True)):
        x = torch.tensor([largest - 2, sign * 2.0])
        assert error_scale(reference, [x], contract=HALF)[1].isfinite().all() == fits
        assert error_scale(reference, [x], contract=Contract())[1].isfinite().all()


@pytest.mark.parametrize(
    ("reference", "lost"),
    [
        (lambda x: torch.sqrt(x * x), [0, 2]),
        (lambda x: x / (x * x).sum(-1, keepdim=True), [0, 1, 2]),
        (lambda x: x * (x * x).sum(-1, keepdim=True), [0, 1, 2]),  # 0 · inf is NaN
        (lambda x: (x * x) @ torch.diag(torch.tensor([0.0, 1.0, 1.0], dtype=x.dtype)), [0, 1, 2]),
        (lambda x: (200 * x).cumsum(-1), [2]),
        (lambda x: (200 * x).cumsum(-1) @ torch.eye(3, dtype=x.dtype) - 6e4, [0, 1, 2]),
        (lambda x: torch.relu((200 * x).sum(-1, keepdim=True) - 7 + x), [0, 1, 2]),
        (lambda x: x - (200 * x).cumsum(-1).amax(-1, keepdim=True), [0, 1, 2]),
        (
            lambda x: torch.nn.functional.avg_pool2d((150 * x)[None, None], (1, 3)).expand(1, 1, 2, 3)[0, 0],
            [0, 1, 2],
        ),
        (lambda x: x.abs().prod(-1, keepdim=True).expand(2, 3), [0, 1, 2]),
        (lambda x: torch.softmax(x.masked_fill(x > 100, -1e9), -1), []),
        (lambda x: torch.softmax(x.masked_fill(x > 100, -65504.0), -1), []),
        (lambda x: torch.sigmoid(x), []),
    ],
)
def test_what_is_made_of_a_lost_value_is_lost(reference, lost):
    x = torch.tensor([[300.0, 0.0, -300.0], [2.0, 0.0, 1.0]])
    scale = error_scale(reference, [x], contract=HALF)[1]
    assert scale[0].isinf().nonzero().flatten().tolist() == lost
    assert scale[1].isfinite().all()


@pytest.mark.parametrize("choose", [lambda y: y.amax(-1), torch.relu, lambda y: y.sort().values])
def test_an_infinite_value_is_chosen_as_it_is_and_an_infinite_error_counts_everywhere(choose):
    error = Error(torch.tensor([math.inf, 1.0]).double())
    assert run_mode(choose, (torch.tensor([-math.inf, 4.0]).double(), error))[1].flatten()[-1] == 1
    assert run_mode(choose, (torch.tensor([-3.0, 4.0]).double(), error))[1].isinf().any()


KINKS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "leaky_relu": lambda y: F.leaky_relu(y, 0.1),
    "steep below": lambda y: F.leaky_relu(y, 3.0),
    "prelu": lambda y: F.prelu(y, torch.tensor([2.0]).double()),
    "threshold": lambda y: F.threshold(y, 1.0, -5.0),
    "clamp": lambda y: y.clamp(-1.0, 1.0),
    "clamp by tensors": lambda y: torch.clamp(y, torch.zeros(()).double(), torch.ones(()).double()),
    "maximum": lambda y: torch.maximum(y, y.flip(0)),
    "minimum with a number": lambda y: torch.minimum(y, torch.ones(()).double()),
    "where": lambda y: torch.where(y > 0, y, 0.0),
    "where, a jump": lambda y: torch.where(y >= 1, y, -y),
    "where, of two": lambda y: torch.where(~((y > 0) & (y <= 1)), y, 0.5 * y),
    "where, by a row": lambda y: torch.where((y[:, :1] > 0).expand(-1, 4), y, 2 * y),
    "masked_fill": lambda y: y.masked_fill(y < 0, 7.0),
    "times a mask": lambda y: y * (y > 0),
    "times a mask in numbers": lambda y: y * (y > 0).to(y.dtype),
    "elu": F.elu,
    "hardswish": F.hardswish,
    "amax": lambda y: y.amax(-1),
    "min": lambda y: y.min(-1).values,
    "sort": lambda y: y.sort(-1).values,
    "topk": lambda y: y.topk(2, -1).values,
    "median": lambda y: y.median(0).values,
    "median of all": lambda y: y.median(),
    "cummax": lambda y: y.cummax(1).values,
    "max_pool2d": lambda y: F.max_pool2d(y[None], 2),
    "square root by a power": lambda y: (y * y).sum(-1) ** 0.5,
}


@pytest.mark.parametrize("contract", [Contract(), HALF], ids=["float32", "float16"])
@pytest.mark.parametrize("name", KINKS)
def test_beside_a_kink_what_an_error_may_do_is_within_the_scale(name, contract):
    """A kernel's value is off by k·u·E: its result is off by k·u·S at most, whichever side it is on."""
    function, unit = KINKS[name], get_format(contract.accumulate).unit_roundoff
    random = torch.Generator().manual_seed(5)
    for far in (0.0, 1.0, 8.0):
        kink = torch.randint(0, 3, (64, 4), generator=random).double() - 1
        error = 10 ** (4 * torch.rand(64, 4, generator=random).double() - 2)
        x = kink + far * unit * error * torch.randn(64, 4, generator=random).double()
        scale = run_mode(function, (x, Error(error)), contract=contract)[1]
        for factor in (1.0, 12.0):
            off = factor * unit * error * (2 * torch.rand(64, 4, generator=random).double() - 1)
            moved = (function(x + off) - function(x)).abs()
            assert bool((moved <= factor * unit * scale * (1 + 100 * factor * unit) + 1e-12).all())


@pytest.mark.parametrize("function", [torch.acos, torch.asin, torch.sqrt, lambda y: y**0.25])
def test_where_a_function_is_vertical_its_scale_is_finite_and_enough(function):
    x, error = torch.tensor([1.0, 1.0 - 1e-9, 0.5, 1e-3]).double(), torch.tensor([1.0, 3.0, 2.0, 1.0]).double()
    if function not in (torch.acos, torch.asin):
        x = 1 - x
    value, scale = run_mode(function, (x, Error(error)))
    assert scale.isfinite().all()
    for sign in (1, -1):
        moved = function((x + sign * 2.0**-24 * error).clamp(0, 1)) - value
        assert bool((moved.abs() <= 2.0**-24 * scale * (1 + 1e-3)).all())


@pytest.mark.parametrize("name", [name for name in KINKS if name not in ("amax", "min", "topk", "max_pool2d")])
def test_there_may_be_nothing_to_choose_from(name):
    x = torch.zeros(0, 4).double() if name in ("where, by a row", "maximum") else torch.zeros(3, 0).double()
    value, scale = run_mode(KINKS[name], (x, Error(x)))
    assert torch.equal(value, KINKS[name](x)) or bool(value.isnan().all())
    assert scale.shape == value.shape


def test_a_product_is_lost_only_where_a_factor_is():
    x, error = torch.rand(3, 4).double() + 1, torch.zeros(3, 4).double()
    error[1, 2] = math.inf
    assert run_mode(lambda x: x.prod(1), (x, Error(error)))[1].isinf().tolist() == [False, True, False]
    assert run_mode(lambda x: x.cumprod(1), (x, Error(error)))[1].isinf().sum() == 2


def test_constants_cost_their_own_rounding_subnormal_ones_too():
    x = torch.full((3,), 3.0).double()
    off = abs(float(torch.tensor(3e-6, dtype=torch.float16)) - 3e-6) * 2**11
    _, scale = error_scale(lambda x: x * 3e-6, [x], contract=HALF)
    true = 3 * (off + 3e-6) + 2.0**-14 + 2.0**-13  # the product is subnormal, too, and so might be what is returned
    torch.testing.assert_close(scale, torch.full((3,), true).double())
    for function in (
        lambda x: torch.add(x, x, alpha=0.7),
        lambda x: torch.addmm(x[None], x[None], torch.eye(3).double(), beta=0.7),
    ):
        rounded = float(torch.tensor(0.7, dtype=torch.float16))
        _, scale = error_scale(function, [x], contract=HALF)
        _, known = error_scale(function, [x], contract=Contract(accumulate="float64"))
        assert bool((scale.flatten() >= known.flatten() + 3 * abs(0.7 - rounded) * 2**11 * 0.99).all())


def test_among_subnormals_a_half_costs_half_a_step_whatever_its_value():
    x = torch.logspace(-4, 0, 400, base=10).half()
    expected, scale = error_scale(lambda x: 1 / (x * 1e-5 + 2e-5), [x], contract=HALF)
    made = 1 / (x * torch.tensor(1e-5).half() + torch.tensor(2e-5).half())
    off = (made.double() - expected).abs()
    assert (off / expected).max() > 4 * 2.0**-11
    assert bool((off <= 2.0**-11 * scale * (1 + 2.0**-5)).all())


def test_tf32_cuts_nothing_off_halves():
    tf32 = Contract(products="tf32")
    half = torch.randn(5, 7).half(), torch.randn(7, 3).half()
    whole = torch.randn(5, 7), half[1]
    plain, cut = (error_scale(torch.matmul, list(half), contract=one)[1] for one in (Contract(), tf32))
    assert torch.equal(plain, cut)
    plain, cut = (error_scale(torch.matmul, list(whole), contract=one)[1] for one in (Contract(), tf32))
    torch.testing.assert_close(cut - plain, whole[0].abs().double() @ whole[1].abs().double() * 2**13)


def test_a_sigmoid_may_lose_all_of_its_value_where_its_power_overflows():
    """1/(1 + e^−x) is 0 in float16 below −11.09, where σ is 1.5e-5."""
    x = torch.tensor([-11.0, -11.2])
    expected, scale = error_scale(torch.sigmoid, [x], contract=HALF)
    assert (scale * 2.0**-11 >= expected).tolist() == [False, True]


@given(
    hnp.arrays(
        np.float16,
        (1, 1, 9),
        # Smaller squares underflow, which nothing here charges for.
        elements=st.floats(2.0**-5, 2000, width=16) | st.floats(-2000, -(2.0**-5), width=16) | st.just(0.0),
    )
)
def test_float16_arithmetic_stays_within_its_scale(x):
    """NumPy rounds every step to float16, and overflows as a half-precision accumulator does."""
    total = np.float16(0)
    with np.errstate(over="ignore"):
        for value in x.ravel():
            total = total + value * value
        output = x / np.sqrt(total / np.float16(9) + np.float16(1e-5))
    reference = make_reference(
        get_op("rmsnorm"), Call((torch.from_numpy(x),), {}, ("x",)), HALF, x.shape, "float16"
    )
    measured = read_bounds(torch.from_numpy(output), reference)
    assert measured.deterministic <= 1
    assert reference.unjudged is None or np.square(x.astype(float)).sum() >= 65520 / (1 + 10 * 2.0**-11)


def test_a_cast_is_charged_and_not_performed():
    x = torch.randn(50)
    expected, scale = error_scale(lambda x: (x * 3).bfloat16().to(x.dtype), [x])
    assert torch.equal(expected, x.double() * 3)
    torch.testing.assert_close(scale, (1 + 2.0**16) * expected.abs())
    # Nothing is lost by casting exact values to a format that holds them.
    assert error_scale(lambda x: x.float(), [x.half()])[1].count_nonzero() == 0
    assert error_scale(lambda x: x.half(), [x])[1].count_nonzero() > 0


# Inputs and outputs.


def test_inputs_of_every_kind_are_taken_exactly():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.5, -0.125, 3.0])
    mapping = {
        "a": values.astype(np.float16),
        "b": values.astype(ml_dtypes.bfloat16),
        "c": values.astype(ml_dtypes.float8_e4m3fn),
        "d": torch.tensor(values, dtype=torch.bfloat16, requires_grad=False),
        "e": torch.tensor(values, requires_grad=True),
        "i": np.array([2, 0, 1]),
        "k": 2,
        "f": 0.5,
        "flag": True,
    }

    def reference(a, b, c, d, e, i, k, f, flag):
        assert flag is True
        assert i.dtype == torch.int64
        return (a + b + c + d + e)[i] * k * f, a

    (expected, same), (scale, zero) = error_scale(reference, mapping)
    assert expected.tolist() == (5 * values[[2, 0, 1]]).tolist()
    assert expected.dtype == scale.dtype == torch.float64
    assert not expected.requires_grad
    assert bool((scale > 0).all())
    assert same.tolist() == values.tolist()
    assert zero.tolist() == [0, 0, 0]


def test_subnormal_inputs_are_kept_where_the_process_flushes_them(several_threads):
    x = torch.full((70000,), 2.0**-140)  # long enough for several threads
    expected, scale = error_scale(lambda x: x * 2.0**100, [x])
    threads = torch.get_num_threads()
    assert threads > 1
    assert torch.set_flush_denormal(True)
    try:
        flushed = error_scale(lambda x: x * 2.0**100, [x])
        reference = make_reference(get_op("relu"), Call((x,), {}, ("x",)), Contract(), x.shape, "float32")
        assert float(torch.tensor([2.0**-140]) * 1) == 0  # as it was
        assert torch.get_num_threads() == threads
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(flushed[0], expected)
    assert torch.equal(flushed[1], scale)
    assert torch.equal(reference.expected, x.double())
    assert float(expected[0]) == 2.0**-40


@pytest.mark.parametrize(
    "norm", [lambda x: F.rms_norm(x, (8,)), lambda x: torch.rms_norm(x, (8,)), torch.nn.RMSNorm(8)]
)
def test_an_epsilon_that_depends_on_the_dtype_is_refused(norm):
    with pytest.raises(errors.BadReference, match=r"rms_norm without eps.*pass eps="):
        error_scale(norm, [torch.randn(3, 8)])


def test_constants_of_the_reference_are_exact_until_computed_with():
    def reference(x):
        mask = torch.full((4, 4), -math.inf).triu_(1)
        mask[0, 0] = 0.5
        turns = torch.arange(4) / 2
        return x + mask + turns, x * (torch.arange(4) / 3)

    x = torch.randn(4, 4)
    (masked, divided), (first, second) = error_scale(reference, [x])
    assert masked.isinf().sum() == 6
    assert bool((first[masked.isinf()] == 0).all())
    # arange / 2 is exact in float32: only the sum of three terms rounds. arange / 3 is not: a division's 2u more.
    shown = masked.isfinite()
    turns = torch.arange(4).double() / 2
    sizes = x.double().abs() + (masked - x.double() - turns).abs() + turns
    torch.testing.assert_close(first[shown], 2 * sizes[shown], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(second, 3 * divided.abs(), rtol=1e-9, atol=1e-30)


def test_masked_attention_has_a_finite_scale():
    q, k, v = torch.randn(3, 2, 5, 8)

    def causal(q, k, v):
        s = (q @ k.mT / math.sqrt(8)).masked_fill(torch.ones(5, 5).tril() == 0, -math.inf)
        return ref_softmax(s) @ v

    expected, scale = error_scale(causal, [q, k, v])
    assert torch.equal(expected, causal(q.double(), k.double(), v.double()))
    assert bool(scale.isfinite().all())
    # A row sees what the full attention over its own keys sees.
    alone = error_scale(ref_attention, [q[:, 2:3], k[:, :3], v[:, :3]])[1]
    assert (scale[:, 2:3] / alone).min() > 0.5
    assert (scale[:, 2:3] / alone).max() < 2
    flash = error_scale(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v])[1]
    assert 0.3 < (flash / scale).median() < 3


@pytest.mark.parametrize("name", OPS)
def test_infinities_and_nan_do_not_reach_the_scale(name):
    torch.manual_seed(7)
    for poison in (math.inf, -math.inf, math.nan, 0.0, 1e300):
        inputs = OPS[name].draw(16, lambda *shape: torch.randn(*shape).double())
        inputs[0].flatten()[3] = poison
        expected, scale = error_scale(OPS[name].reference, inputs)
        assert not scale.isnan().any()
        assert bool((scale[~expected.isfinite()] == 0).all())
        calm = error_scale(OPS[name].reference, OPS[name].draw(16, lambda *shape: torch.randn(*shape).double()))[1]
        assert bool(calm.isfinite().all())


def test_a_root_at_zero_keeps_a_finite_scale():
    expected, scale = error_scale(lambda x: x.std(-1), [torch.full((2, 9), 1 / 3)])
    assert expected.abs().max() < 1e-12
    assert bool(scale.isfinite().all())
    assert bool((scale > 0).all())


def test_empty_and_scalar_outputs():
    expected, scale = error_scale(lambda x: x * 2, [torch.zeros(0, 3)])
    assert expected.shape == scale.shape == (0, 3)
    expected, scale = error_scale(lambda x: (x * x).sum(), [torch.tensor(3.0)])
    assert (expected.item(), scale.item()) == (9.0, 18.0)


# Refusals.

ADD_ONE = (
    ". To add one: gonogo.error_scale(..., rules={{'{op}': rule}}), where rule(ctx, op, args, kwargs) "
    "returns (value, error); see gonogo/instrument/running_error"
)
TO_PYTHON = (
    "it takes a computed value out to Python, where no error can follow; keep it a tensor, "
    "or pass the number as an input"
)
JUMP = (
    "a rounding error of any size can move it by a whole step, which no first-order scale covers; "
    "compare the value before the step, or pass the discrete value as an input"
)


def add_in_place(x):
    y = x * 2
    y += 1
    y.relu_()
    return y


def write_rows(x):
    out = torch.empty(x.shape)
    for row in range(3):
        out[row] = torch.softmax(x[row], -1)
    return out


def write_through_views(x):
    y = x.clone()
    y.view(-1)[3:6] = y.view(-1)[0:3] * 1.5
    y.t()[2].add_(1.0)
    return y


def write_where(x):
    out = torch.zeros_like(x)
    out[x > 0.5] = (x * 3)[x > 0.5]
    return out


def add_up_in_place(x):
    total = torch.zeros(3, dtype=torch.float64)
    for row in range(3):
        total += x[row] * 0.3
    return total


def write_to_an_input(x):
    x.mul_(2)
    return x + 1


IN_PLACE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "arithmetic": (add_in_place, lambda x: torch.relu(x * 2 + 1)),
    "rows of an output": (write_rows, lambda x: torch.softmax(x, -1)),
    "views": (
        write_through_views,
        lambda x: torch.stack([x[0], x[0] * 1.5, x[2]]) + torch.tensor([0.0, 0.0, 1.0]) * torch.ones(3, 1),
    ),
    "a mask": (write_where, lambda x: torch.where(x > 0.5, x * 3, 0.0)),
    "a sum": (add_up_in_place, lambda x: x[0] * 0.3 + x[1] * 0.3 + x[2] * 0.3),
    "an input": (write_to_an_input, lambda x: x * 2 + 1),
    "a module": (torch.nn.ReLU(inplace=True), torch.relu),
    "a constant": (lambda x: x + torch.ones(3).div_(4), lambda x: x + 0.25),
    "out": (lambda x: torch.add(x, 1, out=torch.empty(3, 3)), lambda x: x + 1),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_written_in_place_is_what_is_returned(name):
    writing, returning = IN_PLACE[name]
    x = torch.rand(3, 3, generator=torch.Generator().manual_seed(3)).double() - 0.3
    kept = x.clone()
    value, scale = error_scale(writing, [x])
    wanted, bound = error_scale(returning, [x])
    assert torch.equal(value, wanted)
    assert torch.equal(x, kept), "the caller's own are left alone"
    if name != "views":  # whose other form adds 0 to all other elements
        assert bool((scale >= bound * (1 - 1e-12)).all())
    assert bool((scale <= bound * 2 + 3).all())


def test_autograd_inside_a_reference_is_followed():
    def differentiate(x):
        tracked = x.detach().requires_grad_()
        with torch.enable_grad():
            summed = torch.tanh(tracked).sum()
        return torch.autograd.grad(summed, tracked)[0]

    x = torch.rand(5).double()
    made, wanted = error_scale(differentiate, [x]), error_scale(torch.func.grad(lambda x: torch.tanh(x).sum()), [x])
    assert torch.equal(made[0], wanted[0])
    assert torch.equal(made[1], wanted[1])


def test_an_infinite_error_is_not_lost_among_zeros():
    """In a product of matrices 0·inf would hide what the other terms may be off by."""

    def reference(x):
        vectors = torch.linalg.eigh(x @ x.T).eigenvectors
        return vectors @ torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)) @ vectors.T

    with pytest.raises(errors.NoErrorRule, match="vectors of close values are as good as any others"):
        error_scale(reference, [torch.rand(3, 3).double()])


REFUSED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "unknown": (lambda x: torch.geqrf(x[None])[0], "aten.geqrf", "write the reference in primitive ops"),
    "on a constant": (
        lambda x: x + torch.geqrf(torch.ones(3, 3))[1],
        "aten.geqrf",
        "write the reference in primitive ops",
    ),
    "vectors": (
        lambda x: torch.linalg.eigvals(x[:, None] * x).real,
        "aten.linalg_eig",
        "eigenvalues of a matrix that is not symmetric may move by any amount; judge det(A − λ·I), or residuals",
    ),
    "vectors of a symmetric matrix": (
        lambda x: torch.linalg.eigh(x[:, None] * x).eigenvectors,
        "aten._linalg_eigh",
        "vectors of close values are as good as any others of their plane; judge what they are for: the residual "
        "A·v − λ·v or U·S·Vᵀ − A, and that they are orthogonal",
    ),
    "into what is repeated": (
        lambda x: [y := x.clone(), y.expand(2, 3).fill_(0.5)][0] * 1,
        "aten.copy_",
        "it writes to memory that a tensor repeats, as expand makes it; write to a copy: .clone()",
    ),
    "of complex numbers": (
        lambda x: torch.exp(torch.complex(x, x)).real,
        "aten.exp",
        "it has none for complex numbers; take them apart by torch.view_as_real",
    ),
    "item": (lambda x: x * x[0].item(), "aten._local_scalar_dense", TO_PYTHON),
    "float": (lambda x: x * float(x.sum()), "aten._local_scalar_dense", TO_PYTHON),
    "bool": (lambda x: x if x.sum() else -x, "aten._local_scalar_dense", TO_PYTHON),
    "numpy": (lambda x: torch.from_numpy(x.numpy()), "Tensor.numpy", TO_PYTHON),
    "tolist": (lambda x: torch.tensor(x.tolist()), "Tensor.tolist", TO_PYTHON),
    "equal": (lambda x: x if torch.equal(x, x) else -x, "aten.equal", TO_PYTHON),
    "random": (
        lambda x: x + torch.rand_like(x),
        "aten.rand_like",
        "it draws random numbers; draw them before the call and pass them as an input",
    ),
    "random constant": (
        lambda x: x + torch.rand(3),
        "aten.rand",
        "it draws random numbers; draw them before the call and pass them as an input",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_by_name(name):
    reference, op, hint = REFUSED[name]
    x = torch.tensor([1.0, 2.0, 3.0])
    kept = x.clone()
    with pytest.raises(errors.NoErrorRule) as raised:
        error_scale(reference, [x.double()])
    assert str(raised.value) == f"no error rule for {op}: {hint}" + ADD_ONE.format(op=op)
    assert torch.equal(x, kept)


def test_a_tensor_that_outlives_the_call_is_refused():
    kept = []
    error_scale(lambda x: kept.append(x * 2) or x, [torch.ones(2)])
    with pytest.raises(errors.NoErrorRule, match="kept from inside error_scale"):
        kept[0] + 1


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "reference returned NoneType; return one floating tensor, or a tuple or list of them"),
        (1.0, "reference returned float; return one floating tensor, or a tuple or list of them"),
        (
            torch.ones(2).long(),
            "reference returned a torch.int64 tensor; S is defined for floating outputs only",
        ),
    ],
)
def test_what_a_reference_may_not_return(output, message):
    with pytest.raises(errors.BadReference) as raised:
        error_scale(lambda x: output, [torch.ones(2)])
    assert str(raised.value) == message


def test_inputs_that_are_one_array_are_refused():
    with pytest.raises(errors.UnsupportedArray, match="inputs is one Tensor where a list, tuple or mapping"):
        error_scale(torch.exp, torch.ones(2))


def test_a_rule_of_the_users_own_is_taken():
    def bessel(ctx, op, args, kwargs):
        x, error = ctx.split(args[0])
        value = op(x)
        return value, 8 * value + torch.special.i1(x).abs() * total(x, error)

    x = torch.rand(5).double()
    expected, scale = error_scale(lambda x: torch.special.i0(x * 2), [x], rules={"aten.i0": bessel})
    assert torch.equal(expected, torch.special.i0(2 * x))
    torch.testing.assert_close(scale, 8 * expected + torch.special.i1(2 * x) * 2 * x)
    doubled = {"aten.exp.default": lambda ctx, op, args, kwargs: (op(ctx.split(args[0])[0]), None)}
    assert error_scale(torch.exp, [x], rules=doubled)[1].count_nonzero() == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", OPS)
def test_a_gpu_gives_the_same_scale(name):
    torch.manual_seed(8)
    inputs = OPS[name].draw(33, torch.randn)
    expected, scale = error_scale(OPS[name].reference, inputs)
    there = error_scale(OPS[name].reference, [one.cuda() for one in inputs])
    assert all(one.is_cuda for one in there)
    torch.testing.assert_close(there[0].cpu(), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(there[1].cpu(), scale, rtol=1e-6, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [*COMPOSED, *DECOMPOSED])
def test_a_gpu_takes_every_composite(name):
    torch.manual_seed(9)
    function = COMPOSED[name][0] if name in COMPOSED else DECOMPOSED[name]
    x = torch.rand(6, 8) * 0.9 + 0.05
    with torch.device("cuda"):  # constants the function makes stand beside its input
        expected, scale = error_scale(function, [x.cuda()])
    # torch's CUDA kernels of hardsigmoid and hardswish hold 1/6 in float32 even for float64.
    close = 1e-7 if name.startswith("hards") else 1e-9
    torch.testing.assert_close(expected.cpu(), error_scale(function, [x])[0], rtol=close, atol=close)
    assert bool(scale.isfinite().all())


def test_importing_the_package_does_not_import_torch():
    code = "import sys; from gonogo.instrument.running_error import error_scale; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_subnormal_of_float16_keeps_its_charge_in_float64():
    """A product of int8 codes and scales among float16's subnormals, then a matrix product of it."""
    codes, scales = torch.tensor([[3, -5]], dtype=torch.int8), torch.tensor([1e-6, 2e-6])
    x = torch.ones(4, 1, dtype=torch.float64)
    _, scale = error_scale(
        lambda x, w, s: x @ (w.to(x.dtype) * s), [x, codes, scales], contract=Contract(accumulate="float16")
    )
    assert scale.dtype == torch.float64
    assert bool((scale * 2.0**-11 >= 2.0**-25).all()), "half a step of a subnormal"


def test_factors_without_exchanged_rows_are_charged_for_their_own_size():
    """A GPU takes pivot=False: with a small pivot L and U are large, and so is what elimination rounds."""
    torch.manual_seed(12)
    a = torch.rand(6, 6)
    a[0, 0] = 1e-3
    packed = a.clone()
    exact = a.double()
    for step in range(5):
        for matrix in (packed, exact):
            matrix[step + 1 :, step] /= matrix[step, step].clone()
            matrix[step + 1 :, step + 1 :] -= matrix[step + 1 :, step, None] * matrix[step, step + 1 :]
    lower, upper = exact.tril(-1) + torch.eye(6).double(), exact.triu()
    mode = RunningErrorMode(Contract(summation="sequential"), RULES, PASSIVE, guarded=False)
    own = bound_factors(mode, a.double(), EXACT, (torch.zeros(0), lower, upper))[0]
    exchanged = bound_factors(mode, a.double(), EXACT, torch.linalg.lu(a.double()))[0]
    worst = [read(packed, exact, gauge="bound", scale=scale).worst for scale in (own, exchanged)]
    assert worst[0] <= 1 < worst[1]


def fill_in_place(y, mask):
    return y.masked_fill_(mask, 1.5)


def assign_by_mask(y, mask):
    y[mask] = 1.5
    return y


@pytest.mark.parametrize("write", [fill_in_place, assign_by_mask])
def test_writes_by_a_doubtful_mask_have_the_scale_of_a_choice(write):
    """In bfloat16 the sign of a long sum is in doubt: both sides are charged, and nothing is refused."""
    torch.manual_seed(0)
    x = torch.randn(200)

    def choose(x):
        return torch.where((x * 3).cumsum(0) > 0, 1.5, x * 2)

    expected, scale = error_scale(choose, [x], contract="bfloat16")
    assert scale.max() > 100
    written = error_scale(lambda x: write(x * 2, (x * 3).cumsum(0) > 0), [x], contract="bfloat16")
    assert torch.equal(written[0], expected)
    assert torch.equal(written[1], scale)


def test_factors_beside_a_determinant_are_of_the_matrix_that_torch_factored():
    """Of A or of its transpose, as suits its memory: rows of very different sizes tell them apart."""
    torch.manual_seed(0)

    def factor(a):
        return torch.ops.aten._linalg_det(a)[1]

    for _ in range(40):
        rows = torch.randn(1, 5, 5) * torch.logspace(-6, 6, 5)[:, None]
        for matrix in (rows, rows.mT.contiguous().mT):
            expected, scale = error_scale(factor, [matrix])
            measured = read(factor(matrix).contiguous(), expected, gauge="bound", scale=scale)
            assert measured.worst <= 1


LAYER = torch.nn.LSTM(8, 6)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("is_global", [False, True])
def test_recurrent_layers_in_float32_are_references(name, is_global, monkeypatch):
    """They refuse wide inputs in Python; a reference may hold one in a closure, or know it by a name."""
    layer, x = getattr(torch.nn, name)(8, 6, 2, bidirectional=True), torch.randn(5, 3, 8)
    monkeypatch.setitem(globals(), "LAYER", layer)
    reference = (lambda x: LAYER(x)[0]) if is_global else (lambda x: layer(x)[0])
    before = dict(layer.__dict__)
    expected, scale = error_scale(reference, [x])
    assert layer.__dict__.keys() == before.keys()
    assert read(layer(x)[0].detach(), expected, gauge="bound", scale=scale).worst < 3
    with pytest.raises(errors.BadReference, match="Expected 8, got 7"):
        error_scale(reference, [x[..., :7]])
