"""Losses torch has as one op → their primitive form's error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gonogo.instrument.running_error.mode import Rule
from gonogo.instrument.running_error.rules.activations import primitive_rule

MEAN, SUM = 1, 2  # at::Reduction; 0 is none


def reduce_loss(losses: Tensor, reduction: int) -> Tensor:
    """All losses, their mean or their sum."""
    if reduction == MEAN:
        return losses.mean()
    return losses.sum() if reduction == SUM else losses


def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """−x at the target class, weighed, and the total weight; classes stand in dimension 1 (0 of a vector)."""
    dim = 0 if x.dim() == 1 else 1
    ignored = target == ignore_index
    safe = torch.where(ignored, 0, target)
    losses = -x.gather(dim, safe.unsqueeze(dim)).squeeze(dim)
    weights = torch.ones_like(losses) if weight is None else weight[safe]
    losses = losses if weight is None else losses * weights
    losses = losses.masked_fill(ignored, 0.0)
    heaviness = weights.masked_fill(ignored, 0.0).sum()
    if reduction == MEAN:
        return losses.sum() / heaviness, heaviness
    return reduce_loss(losses, reduction), heaviness


def mse_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """(x − target)²."""
    apart = x - target
    return reduce_loss(apart * apart, reduction)


def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Tensor:
    """½d²/beta below beta, d − ½beta above."""
    apart = (x - target).abs()
    return reduce_loss(
        torch.where(apart < beta, 0.5 * apart * apart / max(beta, math.ulp(0.0)), apart - 0.5 * beta),
        reduction,
    )


def huber_loss(x: Tensor, target: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Tensor:
    """½d² below delta, delta·(d − ½delta) above."""
    apart = (x - target).abs()
    return reduce_loss(torch.where(apart <= delta, 0.5 * apart * apart, delta * (apart - 0.5 * delta)), reduction)


def bce_loss(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    """−(t·log x + (1 − t)·log(1 − x)), logs no less than −100 as torch has them."""
    losses = -(target * torch.log(x).clamp(min=-100) + (1 - target) * torch.log1p(-x).clamp(min=-100))
    return reduce_loss(losses if weight is None else losses * weight, reduction)


def bce_logits_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """(1 − t)·x + log_weight·(log1p(e^−|x|) + max(−x, 0))."""
    log_weight = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    losses = (1 - target) * x + log_weight * (torch.log1p(torch.exp(-x.abs())) + torch.clamp(-x, min=0.0))
    return reduce_loss(losses if weight is None else losses * weight, reduction)


PRIMITIVES: dict[str, Callable[..., Any]] = {
    "aten.nll_loss_forward": nll_loss,
    "aten.nll_loss2d_forward": nll_loss,
    "aten.mse_loss": mse_loss,
    "aten.smooth_l1_loss": smooth_l1_loss,
    "aten.huber_loss": huber_loss,
    "aten.binary_cross_entropy": bce_loss,
    "aten.binary_cross_entropy_with_logits": bce_logits_loss,
}

LOSSES: dict[str, Rule] = {name: primitive_rule(function) for name, function in PRIMITIVES.items()}
