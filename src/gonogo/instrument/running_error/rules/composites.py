"""Softmax, norms, variances and attention torch has as one op → their primitive form's error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gonogo.errors import BadReference
from gonogo.instrument.running_error import allow
from gonogo.instrument.running_error.companion import EPSILON_PROBLEM, Tracked
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.rules.activations import primitive_rule

Dims = list[int] | int | None


def softmax(x: Tensor, dim: int, half_to_float: bool | None = None) -> Tensor:
    """e^(x−m) / Σe^(x−m)."""
    shifted = torch.exp(x - find_top(x, [dim]))
    return shifted / shifted.sum(dim, keepdim=True)


def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """(x − m) − log Σe^(x−m)."""
    shifted = x - find_top(x, [dim])
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """M + log Σe^(x−m)."""
    dims = list_dims(x, dim)
    top = find_top(x, dims)
    summed = top + torch.log(torch.exp(x - top).sum(dims, keepdim=True))
    return summed if keepdim else drop_dims(summed, dims)


def find_top(x: Tensor, dims: list[int]) -> Tensor:
    """The largest along `dims`, which stay; −∞ where there is nothing to choose from."""
    if x.numel():
        return x.amax(dims, keepdim=True)
    reduced = list_dims(x, dims)
    shape = [1 if position in reduced else size for position, size in enumerate(x.shape)]
    return torch.full(shape, -math.inf, dtype=torch.float64, device=x.device)


def list_dims(x: Tensor, dim: Dims) -> list[int]:
    """Dimensions as non-negative numbers; None and [] mean all."""
    if dim is None or dim == []:
        return list(range(x.dim()))
    return [one % max(x.dim(), 1) for one in (dim if isinstance(dim, (list, tuple)) else [dim])]


def drop_dims(x: Tensor, dims: list[int]) -> Tensor:
    """X without the given dimensions, all of size 1."""
    return x.reshape([size for position, size in enumerate(x.shape) if position not in dims])


def center(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """Mean over dims, kept, and x − mean."""
    mean = x.mean(dims, keepdim=True)
    return mean, x - mean


def variance_mean(
    x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Two-pass variance and mean."""
    dims = list_dims(x, dim)
    length = math.prod(x.shape[position] for position in dims) if x.dim() else 1
    mean, centered = center(x, dims)
    divisor = max(length - (1 if correction is None else correction), 0)
    spread = (centered * centered).sum(dims, keepdim=True) / divisor
    return (spread, mean) if keepdim else (drop_dims(spread, dims), drop_dims(mean, dims))


def variance(x: Tensor, dim: Dims = None, **settings: Any) -> Tensor:
    """Two-pass variance."""
    return variance_mean(x, dim, **settings)[0]


def deviation(x: Tensor, dim: Dims = None, **settings: Any) -> Tensor:
    """Its square root."""
    return torch.sqrt(variance_mean(x, dim, **settings)[0])


def deviation_mean(x: Tensor, dim: Dims = None, **settings: Any) -> tuple[Tensor, Tensor]:
    """Its square root, and the mean."""
    spread, mean = variance_mean(x, dim, **settings)
    return torch.sqrt(spread), mean


def trace(x: Tensor) -> Tensor:
    """Sum of the diagonal."""
    return x.diagonal().sum()


def vector_norm(
    x: Tensor, order: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """(Σ|x|^p)^(1/p); the largest or smallest |x| for p = ±inf, how many are not 0 for p = 0."""
    dims = list_dims(x, dim)
    if order == 0:
        return (x != 0).to(torch.float64).sum(dims, keepdim)
    if order in (math.inf, -math.inf):
        return x.abs().amax(dims, keepdim) if order > 0 else x.abs().amin(dims, keepdim)
    if order == 1:
        return x.abs().sum(dims, keepdim)
    if order == 2:
        return torch.sqrt((x * x).sum(dims, keepdim))
    return (x.abs() ** order).sum(dims, keepdim) ** (1 / order)


def normalize_last(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm: (x − μ)·rsqrt(v + eps)·w + b, and the μ and rsqrt torch keeps."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    mean, centered = center(x, dims)
    inverse = torch.rsqrt((centered * centered).mean(dims, keepdim=True) + eps)
    return scale_shift(centered * inverse, weight, bias), mean, inverse


def scale_shift(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x·weight + bias, each where given."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def normalize_groups(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """group_norm: layer_norm over each group of channels."""
    mean, centered = center(x.reshape(n, groups, c // groups * hxw), [2])
    inverse = torch.rsqrt((centered * centered).mean(2, keepdim=True) + eps)
    column = [1, c, *[1] * (x.dim() - 2)]
    weight = None if weight is None else weight.reshape(column)
    bias = None if bias is None else bias.reshape(column)
    made = scale_shift((centered * inverse).reshape(x.shape), weight, bias)
    return made, mean.reshape(n, groups), inverse.reshape(n, groups)


def normalize_batch(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm, by the batch's own moments or by the running ones."""
    column = [1, x.shape[1], *[1] * (x.dim() - 2)]
    if training or running_mean is None or running_var is None:
        dims = [position for position in range(x.dim()) if position != 1]
        mean, centered = center(x, dims)
        inverse = torch.rsqrt((centered * centered).mean(dims, keepdim=True) + eps)
    else:
        mean, inverse = running_mean, torch.rsqrt(running_var + eps).reshape(column)
        # As good as every kernel folds the running moments into one factor and one summand beforehand.
        shift = running_mean.reshape(column)
        centered = allow(x - shift, absolute=x.abs() + 2 * shift.abs())
    made = scale_shift(
        centered * inverse,
        None if weight is None else weight.reshape(column),
        None if bias is None else bias.reshape(column),
    )
    return made, mean.reshape(-1), inverse.reshape(-1)


def normalize_batch_cudnn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """The same as cuDNN has it, and the bytes it reserves."""
    made = normalize_batch(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return *made, torch.zeros(0, dtype=torch.uint8, device=x.device)


def normalize_square(
    x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """rms_norm: x·rsqrt(mean(x²) + eps)·w, and the rsqrt."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    if eps is None:
        raise BadReference(EPSILON_PROBLEM)
    inverse = torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)
    return scale_shift(x * inverse, weight, None), inverse


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Softmax(QKᵀ·scale + mask)·V, and the log of the softmax's sum."""
    usual = max(query.shape[-1], 1) ** -0.5  # of no features all scores are 0
    scores = query @ key.transpose(-2, -1) * (usual if scale is None else scale)
    if is_causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril() == 0
        scores = scores.masked_fill(ahead, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    return softmax(scores, -1) @ value, logsumexp(scores, -1)


def attend_backward(
    given: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, dropout_p: float,
    is_causal: bool, *, attn_mask: Tensor | None = None, scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of attention, from what forward has kept: P = e^(S − lse), dV = Pᵀ·G, dS = P·(G·Vᵀ − Σ G·out)."""
    factor = max(query.shape[-1], 1) ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril() == 0
        scores = scores.masked_fill(ahead, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    flowing = given @ value.transpose(-2, -1)
    back = weights * (flowing - (given * out).sum(-1, keepdim=True)) * factor
    return back @ key, back.transpose(-2, -1) @ query, weights.transpose(-2, -1) @ given


def measure_distances(first: Tensor, second: Tensor, p: float, mode: int | None = None) -> Tensor:
    """cdist: norms of all differences; of many points by ‖x‖² + ‖y‖² − 2x·y, which loses small ones."""
    apart = vector_norm(first.unsqueeze(-2) - second.unsqueeze(-3), p, -1)
    multiplied = mode != 2 and p == 2 and (mode == 1 or max(first.shape[-2], second.shape[-2]) > 25)
    if not multiplied:
        return apart
    squares = (first * first).sum(-1).unsqueeze(-1) + (second * second).sum(-1).unsqueeze(-2)
    return torch.sqrt(torch.clamp(squares - 2 * (first @ second.mT), min=0.0))


def measure_pairs(x: Tensor, p: float = 2) -> Tensor:
    """pdist: the distances above the diagonal."""
    rows, columns = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return vector_norm(x[rows] - x[columns], p, -1)


def add_products(base: Tensor, first: Tensor, second: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """addbmm: beta·base + alpha·Σ A·B over the batch, which is one long product."""
    joined = first.permute(1, 0, 2).reshape(first.shape[1], -1) @ second.reshape(-1, second.shape[2])
    return base * beta + joined * alpha


def multiply_three(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: list[int], expand2: list[int], expand3: list[int],
    sumdim: list[int], unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    """_trilinear, of bilinear layers: Σ of products of three."""
    for dims, which in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for dim in dims:
            i1, i2, i3 = (x.unsqueeze(dim) if at == which else x for at, x in enumerate((i1, i2, i3)))
    product = i1 * i2 * i3
    return product.sum(sumdim) if sumdim else product


def limit_rows(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """embedding_renorm: rows that are looked up, scaled down to a norm where theirs is larger."""
    rows = torch.unique(indices)
    chosen = weight[rows]
    norms = vector_norm(chosen, norm_type, 1, keepdim=True)
    scaled = torch.where(norms > max_norm, chosen * (max_norm / (norms + 1e-7)), chosen)
    return weight.index_copy(0, rows, scaled)


def add_exponentials(x: Tensor, dim: int) -> Tensor:
    """logcumsumexp: m + log Σe^(x−m) of each prefix, m its largest."""
    if not x.dim() or not x.numel():
        return x
    parts = [logsumexp(x.narrow(dim, 0, end), dim, keepdim=True) for end in range(1, x.shape[dim] + 1)]
    return torch.cat(parts, dim)


PRIMITIVES: dict[str, Callable[..., Any]] = {
    "aten._cdist_forward": measure_distances,
    "aten._pdist_forward": measure_pairs,
    "aten.addbmm": add_products,
    "aten._trilinear": multiply_three,
    "aten.logcumsumexp": add_exponentials,
    "aten.embedding_renorm": limit_rows,
    "aten._softmax": softmax,
    "aten._safe_softmax": softmax,
    "aten._log_softmax": log_softmax,
    "aten.logsumexp": logsumexp,
    "aten.var": variance,
    "aten.var_mean": variance_mean,
    "aten.std": deviation,
    "aten.std_mean": deviation_mean,
    "aten.trace": trace,
    "aten.linalg_vector_norm": vector_norm,
    "aten.native_layer_norm": normalize_last,
    "aten.native_group_norm": normalize_groups,
    "aten.native_batch_norm": normalize_batch,
    "aten.cudnn_batch_norm": normalize_batch_cudnn,
    "aten._fused_rms_norm": normalize_square,
    "aten._scaled_dot_product_flash_attention_for_cpu": attend,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": attend_backward,
}

COMPOSITES: dict[str, Rule] = {name: primitive_rule(function) for name, function in PRIMITIVES.items()}


def is_plain(x: Any) -> bool:
    """Whether x is a tensor without an error."""
    return isinstance(x, Tensor) and not isinstance(x, Tracked)


def keep_moments(rule: Rule) -> Rule:
    """Batch norm moves running moments along, and does not say that it writes: it gets copies of them."""

    def kept(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        moments = (
            one.clone() if isinstance(one, Tensor) and not isinstance(one, Tracked) else one for one in args[3:5]
        )
        return rule(ctx, op, (*args[:3], *moments, *args[5:]), kwargs)

    return kept


for _name in ("aten.native_batch_norm", "aten.cudnn_batch_norm"):
    COMPOSITES[_name] = keep_moments(COMPOSITES[_name])
