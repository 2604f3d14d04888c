"""Nine ordinary kernels, right and subtly wrong: beside kernel and reference, what `gonogo.verify` must be told."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as functional

import gonogo

Case = dict[str, Any]


def rand(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Two outputs.


def norm(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    return x * rstd, rstd.squeeze(-1)


def norm_kernel(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y, rstd = norm(x.float())
    return y.to(x.dtype), rstd.to(x.dtype)


def norm_wrong(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.float()
    rstd = torch.rsqrt((wide * wide).sum(-1, keepdim=True) / (x.shape[-1] - 1) + 1e-6)
    return norm_kernel(x)[0], rstd.squeeze(-1).to(x.dtype)


NORM: Case = {"reference": norm, "inputs": lambda seed, dtype: (rand(seed, 9, 130).to(dtype),)}

# Top-k.


def topk(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.topk(x, 4)
    return values, indices


def topk_kernel(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    order = x.argsort(dim=-1, descending=True, stable=True)[..., :4]  # of equal ones the first, unlike torch.topk
    return x.gather(-1, order), order.to(torch.int32)


def topk_wrong(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, order = topk_kernel(x)
    return values, torch.where(values[..., 1:2] == values[..., :1], order[..., :1], order)  # finds one of two twice


TOPK: Case = {
    "reference": topk,
    "inputs": lambda seed, dtype: ((rand(seed, 40, 60) * 2).round().to(dtype),),  # full of ties
    "outputs": (None, gonogo.Index(of="x", unique=True)),
}

# int8 codes with scales.


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return x / scale, scale


def quantize_kernel(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scale = quantize(x.float())
    return codes.round().clamp(-128, 127).to(torch.int8), scale.to(x.dtype)


def quantize_wrong(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scale = quantize(x.float())
    return (codes + 0.5).trunc().clamp(-128, 127).to(torch.int8), scale.to(x.dtype)  # towards 0 below 0


QUANTIZE: Case = {"reference": quantize, "inputs": NORM["inputs"]}

# Rotary embedding, in place.


def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
    pairs = [x.chunk(2, -1) for x in (q, k)]
    return tuple(torch.cat([a * cos - b * sin, b * cos + a * sin], -1) for a, b in pairs)


def rope_(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    rotated = rope(*(x.float() for x in (q, k, cos, sin)))
    q.copy_(rotated[0])
    k.copy_(rotated[1])


def rope_wrong_(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    rope_(q, k, cos, sin)
    k[:, -1] = rope(*(x.float() for x in (q, k, cos, sin)))[1][:, -1]  # the last position twice


def draw_rope(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    angles = 6 * rand(seed, 7, 16)
    drawn = rand(seed + 1, 2, 7, 32), rand(seed + 2, 2, 7, 32), angles.cos(), angles.sin()
    return tuple(x.to(dtype) for x in drawn)


ROPE: Case = {"reference": rope, "inputs": draw_rope, "mutates": ("q", "k")}

# bfloat16 × float32 → float32.


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def product_kernel(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.float() @ w


def product_wrong(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.float() @ w.to(x.dtype).float()


PRODUCT: Case = {
    "reference": product,
    "inputs": lambda seed: (rand(seed, 33, 65).bfloat16(), rand(seed + 1, 65, 40)),
}

# Scalars and flags.


def scaled_gelu(
    x: torch.Tensor, alpha: float, exact: bool, bias: torch.Tensor | None = None, name: str = ""
) -> torch.Tensor:
    y = alpha * functional.gelu(x, approximate="none" if exact else "tanh")
    return y if bias is None else y + bias


def scaled_gelu_kernel(
    x: torch.Tensor, alpha: float, exact: bool, bias: torch.Tensor | None = None, name: str = ""
) -> torch.Tensor:
    return scaled_gelu(x.float(), alpha, exact, bias).to(x.dtype)


def scaled_gelu_wrong(
    x: torch.Tensor, alpha: float, exact: bool, bias: torch.Tensor | None = None, name: str = ""
) -> torch.Tensor:
    return scaled_gelu_kernel(x, alpha, not exact, bias)


GELU: Case = {
    "reference": scaled_gelu,
    "inputs": lambda seed, dtype: {
        "x": rand(seed, 9, 130).to(dtype), "alpha": 0.7, "exact": True, "bias": None, "name": "gelu",
    },
}  # fmt: skip

# Layer norm, with its backward pass.


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * w + b


def layer_norm_kernel(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    # In float32: torch's own backward pass on a CPU adds up gradients of half-precision weights in half precision.
    return functional.layer_norm(x.float(), (x.shape[-1],), w.float(), b.float(), 1e-5).to(x.dtype)


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return layer_norm_kernel(x, w, b)

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        x, w = (saved.float() for saved in ctx.saved_tensors)
        centred = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
        normal, wide = centred * rstd, given.float()
        scaled = wide * w
        projected = normal * (scaled * normal).sum(-1, keepdim=True) / (x.shape[-1] - 1)  # not n
        gradient = (scaled - scaled.mean(-1, keepdim=True) - projected) * rstd
        return gradient.to(given.dtype), (wide * normal).sum(0).to(given.dtype), wide.sum(0).to(given.dtype)


def layer_norm_wrong(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = WrongBackward.apply(x, w, b)
    return made


LAYER_NORM: Case = {
    "reference": layer_norm,
    "inputs": lambda seed, dtype: tuple(
        x.to(dtype) for x in (rand(seed, 9, 130), rand(seed + 1, 130), rand(seed + 2, 130))
    ),
    "grads": True,
}

# A pair of modules.


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 32)
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.norm(torch.relu(self.linear(x)))
        return made


class ModelNew(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = (x @ self.linear.weight.T + self.linear.bias).clamp(min=0)
        return functional.layer_norm(hidden, (32,), self.norm.weight, self.norm.bias)


class ModelWrong(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = (x @ self.linear.weight.T).clamp(min=0) + self.linear.bias
        return functional.layer_norm(hidden, (32,), self.norm.weight, self.norm.bias)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(17, 64)]


MODULE: Case = {"reference": Model(), "inputs": get_inputs}

# Attention with a mask and lengths.


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    within = torch.arange(k.shape[1], device=q.device) < lengths[:, None, None]
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(~(mask & within), -math.inf), -1) @ v


def attention_kernel(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    return attention(q.float(), k.float(), v.float(), mask, lengths).to(q.dtype)


def attention_wrong(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    return attention_kernel(q, k, v, mask, lengths + 1)


def draw_attention(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    q, k, v = (rand(seed + at, 3, 20, 16).to(dtype) for at in range(3))
    mask = rand(seed + 3, 3, 20, 20) > -1
    mask[..., 0] = True
    lengths = torch.randint(1, 20, (3,), generator=torch.Generator().manual_seed(seed))
    return q, k, v, mask, lengths


ATTENTION: Case = {"reference": attention, "inputs": draw_attention}

NINE: dict[str, tuple[Any, Any, Case]] = {
    "two outputs": (norm_kernel, norm_wrong, NORM),
    "top-k": (topk_kernel, topk_wrong, TOPK),
    "int8 codes": (quantize_kernel, quantize_wrong, QUANTIZE),
    "in place": (rope_, rope_wrong_, ROPE),
    "mixed dtypes": (product_kernel, product_wrong, PRODUCT),
    "scalars": (scaled_gelu_kernel, scaled_gelu_wrong, GELU),
    "backward": (layer_norm_kernel, layer_norm_wrong, LAYER_NORM),
    "modules": (ModelNew(), ModelWrong(), MODULE),
    "mask and lengths": (attention_kernel, attention_wrong, ATTENTION),
}
