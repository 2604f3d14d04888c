"""Inputs → the error scale S of each op, derived by hand: an independent check of the running-error mode.

The formulas are those of the table of S: float64, in units of u_c, g(n) = max(log2(n + 1), √n) for sums.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

KAPPA = 4.0


def growth(length: int) -> float:
    return max(math.log2(length + 1), math.sqrt(length))


def relu(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


def leaky_relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.01 * x).abs()


def elu(x: Tensor) -> Tensor:
    below = x.exp() * (KAPPA + x.abs()) + 2 * x.expm1().abs()
    return torch.where(x < 0, below, 0.0)


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * (KAPPA + torch.sigmoid(-x) * (1 + x.abs()))


def silu(x: Tensor) -> Tensor:
    return x.abs() * sigmoid(x) + (x * torch.sigmoid(x)).abs()


def tanh(x: Tensor) -> Tensor:
    return KAPPA * x.tanh().abs()


def gelu_tanh(x: Tensor) -> Tensor:
    z = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    t = z.tanh()
    r = 0.5 * x * (1 + t)
    # 1 − t² without its cancellation.
    return 0.5 * x.abs() * (4 * z.abs() / z.cosh() ** 2 + 2 * t.abs() + 1) + 2 * r.abs()


def gelu_erf(x: Tensor) -> Tensor:
    v = x / math.sqrt(2)
    slope = 2 / math.sqrt(math.pi) * torch.exp(-v * v)
    r = 0.5 * x * torch.special.erfc(-v)
    return 0.5 * x.abs() * (KAPPA * v.erf().abs() + 1 + 2 * v.abs() * slope) + 2 * r.abs()


def share(p: Tensor, delta: Tensor) -> Tensor:
    """Error of a softmax whose exponentials are off by `delta`, relative: by its Jacobian, p_i(δ_ij − p_j)."""
    whole = (p * delta).sum(-1, keepdim=True)
    return (1 - p) * p * delta + p * (whole - p * delta) + p * (growth(p.shape[-1]) + 1)


def softmax(x: Tensor) -> Tensor:
    return share(torch.softmax(x, -1), 4 + (x - x.amax(-1, keepdim=True)).abs())


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    m = x.amax(-1)
    p = torch.softmax(x, -1)
    apart = (x - m[:, None]).abs()
    log_sum = torch.logsumexp(x, -1) - m
    at_target = x.gather(-1, target[:, None])[:, 0]
    r = m + log_sum - at_target
    spread = (p * (2 + apart)).sum(-1) + growth(x.shape[-1])
    return m.abs() + KAPPA * log_sum.abs() + spread + at_target.abs() + r.abs()


def rmsnorm(x: Tensor, w: Tensor) -> Tensor:
    r = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
    return r.abs() * (4 + 0.5 * (growth(x.shape[-1]) + 2))


def l2norm(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1).abs() * (3 + 0.5 * (growth(x.shape[-1]) + 1))


def layernorm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    g = growth(x.shape[-1])
    c = x - x.mean(-1, keepdim=True)
    v = (c * c).mean(-1, keepdim=True)
    rho = torch.rsqrt(v + 1e-5)
    e_c = g * x.abs().mean(-1, keepdim=True) + c.abs()
    e_v = (2 * c.abs() * e_c).mean(-1, keepdim=True) + g * v
    inner = e_c * rho + 0.5 * c.abs() * rho**3 * e_v + 3 * c.abs() * rho
    return inner * w.abs() + (c * rho * w + b).abs() + b.abs()


def groupnorm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    rows = x.reshape(x.shape[0], 4, -1)
    wide = [one.repeat_interleave(x.shape[2]).reshape(1, 4, -1) for one in (w, b)]
    return layernorm(rows, *wide).reshape(x.shape)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Rounding of the partial sums of a random order."""
    n = a.shape[-1]
    return 3 * torch.sqrt(n / 6 * (a * a) @ (b * b) + n / 3 * (a @ b) ** 2)


def conv(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return growth(w[0].numel()) * F.conv2d(x.abs(), w.abs()) + b.abs()[:, None, None]


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scale = 1 / math.sqrt(q.shape[-1])
    s = q @ k.mT * scale
    # The error of the row maximum is common to a row and cancels.
    delta = matmul(q, k.mT) * scale + 2 * s.abs() + (s - s.amax(-1, keepdim=True)).abs() + 4
    p = torch.softmax(s, -1)
    return share(p, delta) @ v.abs() + matmul(p, v)


def rope(x: Tensor, position: Tensor, frequency: Tensor) -> Tensor:
    theta = position[:, None] * frequency
    x1, x2 = x.chunk(2, -1)
    # The second half of the output is x2·cos + x1·sin: the same terms with the halves exchanged.
    direct = [3 * ((a * theta.cos()).abs() + (b * theta.sin()).abs()) for a, b in ((x1, x2), (x2, x1))]
    turned = theta.abs() * (x1.abs() + x2.abs())
    return torch.cat([one + turned for one in direct], -1)


def cumsum(x: Tensor) -> Tensor:
    return growth(x.shape[-1]) * x.abs().cumsum(-1)
