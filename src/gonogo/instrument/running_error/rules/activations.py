"""Activations torch has as one op → their primitive form, with the cancellations one derivative hides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gonogo.instrument.running_error.companion import EXACT, Error, Tracked
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode


def primitive_rule(function: Callable[..., Any]) -> Rule:
    """Rule of an op with a primitive form: torch's own value, the primitive form's error."""

    def rule(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if ctx.noisy:  # what is disturbed on the way counts
            made = ctx.run_primitive(function, args, kwargs)
            return tree_map(lambda one: ctx.split(one)[0], made), EXACT
        value = op(*ctx.values(args), **ctx.values(kwargs))
        shadow = ctx.run_primitive(function, args, kwargs)
        return value, tree_map(find_error, shadow, value)

    return rule


def find_error(made: Any, value: Any) -> Error:
    """The error of one output; none of what torch leaves empty on some devices, and keeps on others."""
    empty = isinstance(value, Tensor) and not value.numel()
    return made.error if isinstance(made, Tracked) and not empty else EXACT


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """½x(1 + tanh(√(2/π)(x + 0.044715x³))), or with erf(x/√2)."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + torch.tanh(inner))
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


def silu_backward(given: Tensor, x: Tensor) -> Tensor:
    """Its slope is s + x·s·(1 − s), where s is the sigmoid and 1 − s that of −x."""
    slope = torch.sigmoid(x)
    return given * (slope + x * slope * torch.sigmoid(-x))


def silu(x: Tensor) -> Tensor:
    """x·σ(x)."""
    return x * torch.sigmoid(x)


def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """scale·(x, or alpha·(e^(input_scale·x) − 1) below 0)."""
    inner = x if input_scale == 1 else x * input_scale
    below = torch.exp(torch.clamp(inner, max=0.0)) - 1
    below = below if alpha == 1 else alpha * below
    made = torch.where(x > 0, x, below)
    return made if scale == 1 else made * scale


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e^(beta·x))/beta, x itself above the threshold; by max(x, 0) + log1p(e^−|x|)."""
    inner = x if beta == 1 else x * beta
    made = torch.clamp(inner, min=0.0) + torch.log1p(torch.exp(-inner.abs()))
    return torch.where(inner > threshold, x, made if beta == 1 else made / beta)


def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """Log σ(x) = min(x, 0) − log1p(e^−|x|); torch also returns a buffer for its gradient."""
    kept = torch.exp(-x.abs())
    return torch.clamp(x, max=0.0) - torch.log1p(kept), kept


def hardsigmoid(x: Tensor) -> Tensor:
    """clamp(x + 3, 0, 6)/6."""
    return torch.clamp(x + 3, 0.0, 6.0) / 6


def hardswish(x: Tensor) -> Tensor:
    """x·clamp(x + 3, 0, 6)/6."""
    return x * torch.clamp(x + 3, 0.0, 6.0) / 6


def mish(x: Tensor) -> Tensor:
    """x·tanh(softplus(x))."""
    return x * torch.tanh(softplus(x))


def mish_backward(given: Tensor, x: Tensor) -> Tensor:
    """Its slope is t + x·s·(1 − t²), where t is tanh(softplus) and s the sigmoid; 1 − t² is cosh⁻²."""
    inner = softplus(x)
    flat = torch.reciprocal(torch.cosh(inner))
    return given * (torch.tanh(inner) + x * torch.sigmoid(x) * (flat * flat))


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """First half times σ of the second."""
    first, second = x.chunk(2, dim)
    made: Tensor = first * torch.sigmoid(second)
    return made


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Elu of width alpha."""
    return elu(x, alpha, 1.0, 1 / alpha)


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """log(x/(1 − x))."""
    inner = x if eps is None else torch.clamp(x, eps, 1 - eps)
    return torch.log(inner / (1 - inner))


def lerp(start: Tensor, end: Tensor, weight: Any) -> Tensor:
    """Start + weight·(end − start)."""
    made: Tensor = start + weight * (end - start)
    return made


def addcmul(base: Tensor, first: Tensor, second: Tensor, *, value: float = 1) -> Tensor:
    """Compute base + value·first·second."""
    product = first * second
    return base + (product if value == 1 else product * value)


def addcdiv(base: Tensor, first: Tensor, second: Tensor, *, value: float = 1) -> Tensor:
    """Compute base + value·first/second."""
    quotient = first / second
    return base + (quotient if value == 1 else quotient * value)


def xlogy(x: Any, y: Any) -> Tensor:
    """x·log(y), 0 where x is 0."""
    y = torch.as_tensor(y, dtype=torch.float64) if not isinstance(y, Tensor) else y
    return torch.where(torch.as_tensor(x == 0), torch.zeros((), dtype=torch.float64), x * torch.log(y))


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """√(x² + y²)."""
    return torch.sqrt(x * x + y * y)


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """log(e^x + e^y) by the larger of the two."""
    return torch.maximum(x, y) + torch.log1p(torch.exp(-(x - y).abs()))


PRIMITIVES: dict[str, Callable[..., Any]] = {
    "aten.gelu": gelu,
    "aten.silu": silu,
    "aten.silu_backward": silu_backward,
    "aten.elu": elu,
    "aten.celu": celu,
    "aten.softplus": softplus,
    "aten.log_sigmoid_forward": log_sigmoid,
    "aten.hardsigmoid": hardsigmoid,
    "aten.hardswish": hardswish,
    "aten.mish": mish,
    "aten.mish_backward": mish_backward,
    "aten.glu": glu,
    "aten.logit": logit,
    "aten.lerp": lerp,
    "aten.addcmul": addcmul,
    "aten.addcdiv": addcdiv,
    "aten.xlogy": xlogy,
    "aten.hypot": hypot,
    "aten.logaddexp": logaddexp,
}

ACTIVATIONS: dict[str, Rule] = {name: primitive_rule(function) for name, function in PRIMITIVES.items()}
