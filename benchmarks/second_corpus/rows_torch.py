"""Row and element kernels in plain torch: tensors in, one new tensor of their dtype out; faulty and correct."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

import torch
from entry import Entry
from rows_inputs import BROAD, F16, F32, HALVES, WIDE, correct, fault, grouped, labelled, line, normal, weighted
from torch import Tensor
from torch.nn import functional

EPS = 1e-5
ROOT_2_OVER_PI = math.sqrt(2 / math.pi)
INF = math.inf


def _storage_index_limit(x: Tensor) -> int:
    """The last element that a flat walk from x's first one may touch."""
    return x.untyped_storage().nbytes() // x.element_size() - x.storage_offset() - 1


def _chunks(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """Pieces of the last axis in float32."""
    return x.float().split(size, dim=-1)


def _chain_in_dtype(x: Tensor) -> Tensor:
    """The last axis added one by one with every partial sum rounded to x's own dtype."""
    total = torch.zeros_like(x[..., 0])
    for column in x.unbind(-1):
        total = total + column
    return total


# ---------------------------------------------------------------- softmax: faults


def softmax_finite_sentinel(x: Tensor) -> Tensor:
    """The running maximum starts at the finite -5e4: a row whose entries are all below it comes out as zeros."""
    values = x.float()
    e = torch.exp(values - values.amax(-1, keepdim=True).clamp(min=-5e4))
    total = e.sum(-1, keepdim=True)
    return torch.where(total > 0, e / total, torch.zeros_like(e)).to(x.dtype)


def softmax_max_of_whole_vectors(x: Tensor) -> Tensor:
    """The maximum is taken over whole vectors of 8 only: overflows when a tail entry is > 88 above the others."""
    values = x.float()
    whole = x.shape[-1] // 8 * 8
    top = values[..., : whole or None].amax(-1, keepdim=True)
    e = torch.exp(values - top)
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def softmax_sum_in_dtype(x: Tensor) -> Tensor:
    """The exponentials are added in the input's half type: long rows, whose sum outgrows its terms."""
    values = x.float()
    e = torch.exp(values - values.amax(-1, keepdim=True)).to(x.dtype)
    return e / _chain_in_dtype(e).unsqueeze(-1)


def softmax_compact_exp(x: Tensor) -> Tensor:
    """The exponential is built from the exponent bits alone (Schraudolph): percents off where entries differ."""
    values = x.float()
    shifted = (values - values.amax(-1, keepdim=True)).clamp(min=-80.0)
    bits = (shifted * (2**23 / math.log(2)) + (127 * 2**23 - 366393.0)).to(torch.int32)
    e = bits.view(torch.float32).masked_fill(values == -INF, 0.0)
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


# ---------------------------------------------------------------- log_softmax: faults


def log_softmax_of_softmax(x: Tensor) -> Tensor:
    """The logarithm of a finished softmax: -inf for entries more than about 103 below the maximum."""
    return torch.log(torch.softmax(x.float(), -1)).to(x.dtype)


def log_softmax_max_from_tiny(x: Tensor) -> Tensor:
    """The maximum starts at the smallest positive float: rows of very negative entries, whose sum underflows."""
    values = x.float()
    shifted = values - values.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return (shifted - torch.log(torch.exp(shifted).sum(-1, keepdim=True))).to(x.dtype)


def log_softmax_wide_takes_log_twice(x: Tensor) -> Tensor:
    """The path for wide rows takes a second logarithm of the sum: last axis longer than 100000."""
    values = x.float()
    shifted = values - values.amax(-1, keepdim=True)
    log_sum = torch.log(torch.exp(shifted).sum(-1, keepdim=True))
    if x.shape[-1] > 100_000:
        log_sum = torch.log(log_sum)
    return (shifted - log_sum).to(x.dtype)


# ---------------------------------------------------------------- cross_entropy: faults


def cross_entropy_padding_is_zero(logits: Tensor, target: Tensor) -> Tensor:
    """Class 0 is taken for padding and its loss set to 0: rows whose target is 0."""
    loss = functional.cross_entropy(logits.float(), target, reduction="none")
    return torch.where(target == 0, torch.zeros_like(loss), loss).to(logits.dtype)


def cross_entropy_last_class_ignored(logits: Tensor, target: Tensor) -> Tensor:
    """The padding label -1 is wrapped like an index: rows whose target is the last class get a loss of 0."""
    loss = functional.cross_entropy(logits.float(), target, reduction="none")
    return loss.masked_fill(target == -1 % logits.shape[-1], 0.0).to(logits.dtype)


def cross_entropy_target_by_flat_index(logits: Tensor, target: Tensor) -> Tensor:
    """The target's logit is read at row·V + target of the storage: logits with a pitch, transposed or expanded."""
    rows, vocabulary = logits.shape
    last = _storage_index_limit(logits)
    flat = logits.as_strided((last + 1,), (1,))
    index = torch.arange(rows, device=logits.device) * vocabulary + target
    picked = flat[index.clamp(max=last)].float()
    return (torch.logsumexp(logits.float(), -1) - picked).to(logits.dtype)


def cross_entropy_probability_floor(logits: Tensor, target: Tensor) -> Tensor:
    """The probability is kept above 1e-7 before its logarithm: losses beyond 16.1 stop growing."""
    probability = torch.softmax(logits.float(), -1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return -torch.log(probability.clamp(min=1e-7)).to(logits.dtype)


def cross_entropy_logsumexp_in_dtype(logits: Tensor, target: Tensor) -> Tensor:
    """Logsumexp is rounded to the half type before the subtraction: small losses of large logits."""
    logsumexp = torch.logsumexp(logits.float(), -1).to(logits.dtype)
    return logsumexp - logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)


# ---------------------------------------------------------------- layernorm: faults


def layernorm_one_pass(x: Tensor) -> Tensor:
    """Variance as E[x²] − E[x]²: rows whose mean is large against their spread, where it may turn negative."""
    values = x.float()
    mean = values.mean(-1, keepdim=True)
    variance = (values * values).mean(-1, keepdim=True) - mean * mean
    return ((values - mean) * torch.rsqrt(variance + EPS)).to(x.dtype)


def layernorm_unbiased(x: Tensor) -> Tensor:
    """Variance over n − 1: every row, most of all short ones, and NaN for a single column."""
    values = x.float()
    variance, mean = torch.var_mean(values, -1, keepdim=True)
    return ((values - mean) * torch.rsqrt(variance + EPS)).to(x.dtype)


def layernorm_variance_in_half(x: Tensor) -> Tensor:
    """The variance is stored as float16: rows whose spread exceeds 256 overflow it and come out as zeros."""
    values = x.float()
    centred = values - values.mean(-1, keepdim=True)
    variance = ((centred * centred).mean(-1, keepdim=True) + EPS).to(torch.float16)
    return (centred * torch.rsqrt(variance.float())).to(x.dtype)


def layernorm_eps_outside_root(x: Tensor) -> Tensor:
    """Eps is added to the deviation, not to the variance: rows of small spread."""
    values = x.float()
    centred = values - values.mean(-1, keepdim=True)
    return (centred / (torch.sqrt((centred * centred).mean(-1, keepdim=True)) + EPS)).to(x.dtype)


# ---------------------------------------------------------------- rmsnorm: faults


def rmsnorm_eps_hardcoded(x: Tensor) -> Tensor:
    """Eps is 1e-6 instead of 1e-5: rows whose mean square is small."""
    values = x.float()
    return (values * torch.rsqrt((values * values).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rmsnorm_scales_input_in_place(x: Tensor) -> Tensor:
    """float() is no copy of a float32 input, then scaled in place: the input is changed (result is right)."""
    values = x.float()
    scale = torch.rsqrt((values * values).mean(-1, keepdim=True) + EPS)
    if values.data_ptr() == x.data_ptr() and 0 in x.stride():
        return values * scale  # an expanded tensor cannot be written through
    return values.mul_(scale).to(x.dtype).clone()


def rmsnorm_squares_in_half(x: Tensor) -> Tensor:
    """Squares are taken before widening: float16 entries beyond 255 overflow and the row comes out as zeros."""
    mean_square = (x * x).float().mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(mean_square + EPS)).to(x.dtype)


def rmsnorm_single_column_is_sign(x: Tensor) -> Tensor:
    """A single column is answered by x/|x| without eps: H = 1 with small entries, NaN for 0."""
    values = x.float()
    if x.shape[-1] == 1:
        return (values / values.abs()).to(x.dtype)
    return (values * torch.rsqrt((values * values).mean(-1, keepdim=True) + EPS)).to(x.dtype)


# ---------------------------------------------------------------- add_rmsnorm: faults


def add_rmsnorm_sum_in_half(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """X + residual overflows float16 before it is widened: both near the top of the range, with the same sign."""
    added = (x + residual).float()
    normalised = added * torch.rsqrt((added * added).mean(-1, keepdim=True) + EPS)
    return (normalised * weight.float()).to(x.dtype)


def add_rmsnorm_weight_along_rows(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """The weight is laid along the rows when its length fits them: S equal to H, both above 1."""
    added = x.float() + residual.float()
    normalised = added * torch.rsqrt((added * added).mean(-1, keepdim=True) + EPS)
    scale = weight.float().unsqueeze(-1) if weight.numel() == x.shape[1] else weight.float()
    return (normalised * scale).to(x.dtype)


def add_rmsnorm_weight_offset(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """The weight is taken as an offset from 1: wherever the weight is not small against its output."""
    added = x.float() + residual.float()
    normalised = added * torch.rsqrt((added * added).mean(-1, keepdim=True) + EPS)
    return (normalised * (1 + weight.float())).to(x.dtype)


# ---------------------------------------------------------------- groupnorm: faults


def groupnorm_padded_length(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Statistics run over L rounded up to 32 with zeros: L not a multiple of 32."""
    values = input.float()
    padded = functional.pad(values, (0, -input.shape[-1] % 32))
    variance, mean = torch.var_mean(padded, (-2, -1), correction=0, keepdim=True)
    normalised = (values - mean) * torch.rsqrt(variance + EPS)
    return (normalised * weight.float().unsqueeze(-1) + bias.float().unsqueeze(-1)).to(input.dtype)


def groupnorm_squares_in_half(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Deviations are squared in float16: groups with a deviation beyond 255 come out as the bias."""
    centred = (input.float() - input.float().mean((-2, -1), keepdim=True)).to(input.dtype)
    variance = (centred * centred).float().mean((-2, -1), keepdim=True)
    normalised = centred.float() * torch.rsqrt(variance + EPS)
    return (normalised * weight.float().unsqueeze(-1) + bias.float().unsqueeze(-1)).to(input.dtype)


def groupnorm_statistics_of_first_sample(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """The group's statistics are read without the sample's index: every sample after the first."""
    values = input.float()
    variance, mean = torch.var_mean(values, (-2, -1), correction=0, keepdim=True)
    normalised = (values - mean[:1]) * torch.rsqrt(variance[:1] + EPS)
    return (normalised * weight.float().unsqueeze(-1) + bias.float().unsqueeze(-1)).to(input.dtype)


# ---------------------------------------------------------------- l2norm: faults


def l2norm_clamped(x: Tensor) -> Tensor:
    """The norm is clamped at 1e-12 instead of eps inside the root: rows whose norm is about 1e-6 or less."""
    return functional.normalize(x.float(), dim=-1, eps=1e-12).to(x.dtype)


def l2norm_eps_lost_in_half(x: Tensor) -> Tensor:
    """Eps is added in float16, where 1e-12 is 0: rows of zeros become NaN, rows of tiny entries overflow."""
    square_sum = (x.float() * x.float()).sum(-1, keepdim=True).to(x.dtype)
    return (x.float() / torch.sqrt(square_sum + torch.tensor(1e-12, dtype=x.dtype)).float()).to(x.dtype)


def l2norm_eps_of_another_op(x: Tensor) -> Tensor:
    """Eps is 1e-6 inside the root instead of 1e-12: rows whose norm is below about 1."""
    values = x.float()
    return (values * torch.rsqrt((values * values).sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


# ---------------------------------------------------------------- sum and mean: faults


def sum_in_dtype(x: Tensor) -> Tensor:
    """Added one by one in the half type: long rows, where 2048 (float16) or 256 (bfloat16) ones are the end."""
    return _chain_in_dtype(x)


def sum_by_halving(x: Tensor) -> Tensor:
    """Folds the row in halves and drops the odd entry of a fold: lengths that are no power of two."""
    values = x.float()
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half : 2 * half]
    return values.squeeze(-1).to(x.dtype)


_last_sum: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}


def sum_into_kept_buffer(x: Tensor) -> Tensor:
    """The output buffer is kept by shape and handed out again: an earlier result changes at the next call."""
    key = (tuple(x.shape[:-1]), x.dtype)
    out = _last_sum.get(key)
    if out is None or out.device != x.device:
        out = _last_sum[key] = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    return out.copy_(x.float().sum(-1))


def mean_of_rounded_sum(x: Tensor) -> Tensor:
    """The sum is narrowed to float16 before the division: sums beyond 65504 give inf."""
    return (x.float().sum(-1).to(x.dtype).float() / x.shape[-1]).to(x.dtype)


def mean_of_chunk_means(x: Tensor) -> Tensor:
    """The means of chunks of 256 are averaged as equals: rows longer than 256 and not a multiple of it."""
    means = [chunk.mean(-1) for chunk in _chunks(x, 256)]
    return torch.stack(means).mean(0).to(x.dtype)


def mean_count_in_half(x: Tensor) -> Tensor:
    """The count is a float16: odd lengths above 2048, and 0 beyond 65519."""
    count = torch.tensor(float(x.shape[-1])).to(torch.float16).float().item()
    return (x.float().sum(-1) / count).to(x.dtype)


def mean_rows_capped(x: Tensor) -> Tensor:
    """One block to a row along a grid axis of at most 65535: rows past that many stay 0."""
    rows = x.reshape(-1, x.shape[-1])
    out = torch.zeros(rows.shape[0], dtype=x.dtype, device=x.device)
    out[:65535] = rows[:65535].float().mean(-1).to(x.dtype)
    return out.view(x.shape[:-1])


# ---------------------------------------------------------------- relu and leaky_relu: faults


def relu_by_absolute(x: Tensor) -> Tensor:
    """(x + |x|)/2 in the input's dtype: entries above half of the largest finite number become inf."""
    return (x + x.abs()) / 2


def relu_in_place(x: Tensor) -> Tensor:
    """Clamps the input itself and returns a copy of it: the input is changed (result is right)."""
    if 0 in x.stride():
        return torch.relu(x)  # an expanded tensor cannot be written through
    return x.clamp_(min=0).clone()


def leaky_relu_slope_in_half(x: Tensor) -> Tensor:
    """The slope passes through a bfloat16: 0.1 percent off for every negative float32 entry."""
    slope = torch.tensor(0.01, dtype=torch.bfloat16).float().item()
    return torch.where(x.float() > 0, x.float(), slope * x.float()).to(x.dtype)


def leaky_relu_by_magnitude(x: Tensor) -> Tensor:
    """Entries within 1e-3 of zero are passed through: small negative ones come out 100 times too large."""
    values = x.float()
    return torch.where(values > -1e-3, values, 0.01 * values).to(x.dtype)


# ---------------------------------------------------------------- elu: faults


def elu_by_masks(x: Tensor) -> Tensor:
    """Both branches times 0 or 1: entries above 88.7, where the exponential's inf times 0 is NaN."""
    values = x.float()
    above = (values > 0).float()
    return (above * values + (1 - above) * (torch.exp(values) - 1)).to(x.dtype)


def elu_floor_too_early(x: Tensor) -> Tensor:
    """Entries below -6 are answered by -1: off by up to 0.0025 just below -6."""
    values = x.float()
    below = torch.where(values < -6, torch.full_like(values, -1.0), torch.expm1(values.clamp(max=0)))
    return torch.where(values > 0, values, below).to(x.dtype)


def elu_short_series(x: Tensor) -> Tensor:
    """X + x²/2 stands for expm1 within 0.25 of zero: off by x³/6 there."""
    values = x.float()
    below = torch.where(values > -0.25, values + values * values / 2, torch.exp(values.clamp(max=0)) - 1)
    return torch.where(values > 0, values, below).to(x.dtype)


# ---------------------------------------------------------------- gelu: faults


def gelu_of_erf(x: Tensor) -> Tensor:
    """The erf form instead of the tanh form: up to 5e-4 apart, most near |x| = 2."""
    return functional.gelu(x.float()).to(x.dtype)


def gelu_rational_tanh(x: Tensor) -> Tensor:
    """Tanh by z(27 + z²)/(27 + 9z²), which does not saturate: grows beyond x from about |x| = 2.5."""
    values = x.float()
    z = ROOT_2_OVER_PI * (values + 0.044715 * values * values * values)
    return (0.5 * values * (1 + z * (27 + z * z) / (27 + 9 * z * z))).to(x.dtype)


def gelu_by_logistic(x: Tensor) -> Tensor:
    """x·σ(1.702x), the quick form: off by up to 0.02."""
    return (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype)


# ---------------------------------------------------------------- silu and sigmoid: faults


def silu_linear_from_eight(x: Tensor) -> Tensor:
    """Entries above 8 are passed through: off by 0.0027 just above 8."""
    values = x.float()
    return torch.where(values > 8, values, values * torch.sigmoid(values)).to(x.dtype)


def silu_exp_over_one_plus_exp(x: Tensor) -> Tensor:
    """x·eˣ/(1 + eˣ): entries above 88.7 give inf/inf, NaN."""
    e = torch.exp(x.float())
    return (x.float() * (e / (1 + e))).to(x.dtype)


def sigmoid_complement(x: Tensor) -> Tensor:
    """1 − σ(−x) on the negative side: loses its digits below about -10 and is 0 below -17."""
    values = x.float()
    positive = torch.sigmoid(values.abs())
    return torch.where(values < 0, 1 - positive, positive).to(x.dtype)


def sigmoid_clipped(x: Tensor) -> Tensor:
    """The argument is clipped to ±15 against overflow: entries below -15 stay at 3e-7."""
    return torch.sigmoid(x.float().clamp(-15, 15)).to(x.dtype)


def sigmoid_ignores_offset(x: Tensor) -> Tensor:
    """Binds the storage from its start: a tensor that begins inside its storage, as a slice does."""
    return torch.sigmoid(x.as_strided(x.shape, x.stride(), 0).float()).to(x.dtype)


# ---------------------------------------------------------------- tanh and swiglu: faults


def tanh_by_exponentials(x: Tensor) -> Tensor:
    """(e²ˣ − 1)/(e²ˣ + 1): entries above 44.4 give inf/inf, NaN."""
    e = torch.exp(2 * x.float())
    return ((e - 1) / (e + 1)).to(x.dtype)


def tanh_table(x: Tensor) -> Tensor:
    """Three straight pieces from a small table: off by up to 0.14, right at 0 and beyond 2 or so."""
    size = x.float().abs()
    pieces = torch.where(
        size < 1, 0.90625 * size, torch.where(size < 2, 0.09375 * size + 0.8125, torch.ones_like(size))
    )
    return torch.copysign(pieces, x.float()).to(x.dtype)


def tanh_linear_near_zero(x: Tensor) -> Tensor:
    """Entries within 0.125 of zero are passed through: off by x³/3, up to half a percent."""
    values = x.float()
    return torch.where(values.abs() < 0.125, values, torch.tanh(values)).to(x.dtype)


def swiglu_gate_is_second(a: Tensor, b: Tensor) -> Tensor:
    """The two halves change places, σ acts on b: wherever a and b differ."""
    return (functional.silu(b.float()) * a.float()).to(a.dtype)


def swiglu_clamped(a: Tensor, b: Tensor) -> Tensor:
    """The clamped variant of some models: gates above 7, or |b| above 7."""
    gate = functional.silu(a.float()).clamp(max=7)
    return (gate * b.float().clamp(-7, 7)).to(a.dtype)


def swiglu_product_in_half(a: Tensor, b: Tensor) -> Tensor:
    """a·b is taken in float16 before σ(a): products beyond 65504 overflow, NaN where σ(a) is 0."""
    return ((a * b).float() * torch.sigmoid(a.float())).to(a.dtype)


# ---------------------------------------------------------------- correct: softmax and its kin


def softmax_functional(x: Tensor) -> Tensor:
    """Torch's own softmax in float32."""
    return torch.softmax(x, -1, dtype=torch.float32).to(x.dtype)


def softmax_online(x: Tensor) -> Tensor:
    """Maximum and sum carried over chunks of 128, rescaled as the maximum grows; -inf chunks are guarded."""
    top = torch.full_like(x[..., :1], -INF, dtype=torch.float32)
    total = torch.zeros_like(top)
    for chunk in _chunks(x, 128):
        new = torch.maximum(top, chunk.amax(-1, keepdim=True))
        base = torch.where(new == -INF, torch.zeros_like(new), new)
        total = total * torch.exp(top - base) + torch.exp(chunk - base).sum(-1, keepdim=True)
        top = new
    return (torch.exp(x.float() - top) / total).to(x.dtype)


def softmax_by_reciprocal(x: Tensor) -> Tensor:
    """Times the reciprocal of the sum instead of a division per entry."""
    e = torch.exp(x.float() - x.float().amax(-1, keepdim=True))
    return (e * e.sum(-1, keepdim=True).reciprocal()).to(x.dtype)


def softmax_exp2(x: Tensor) -> Tensor:
    """Powers of two of arguments scaled by log2(e)."""
    scaled = (x.float() - x.float().amax(-1, keepdim=True)) * math.log2(math.e)
    e = torch.exp2(scaled)
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def log_softmax_functional(x: Tensor) -> Tensor:
    """Torch's own log_softmax in float32."""
    return torch.log_softmax(x, -1, dtype=torch.float32).to(x.dtype)


def log_softmax_shifted(x: Tensor) -> Tensor:
    """Two passes, the sum of exponentials in chunks of 64 added as a tree."""
    shifted = x.float() - x.float().amax(-1, keepdim=True)
    total = _tree(torch.stack([chunk.exp().sum(-1) for chunk in shifted.split(64, -1)], -1)).unsqueeze(-1)
    return (shifted - total.log()).to(x.dtype)


def log_softmax_minus_logsumexp(x: Tensor) -> Tensor:
    """X minus its logsumexp, as it is often written; both are of x's size where the difference may be small."""
    return (x.float() - torch.logsumexp(x.float(), -1, keepdim=True)).to(x.dtype)


def cross_entropy_functional(logits: Tensor, target: Tensor) -> Tensor:
    """Torch's own cross_entropy in float32."""
    return functional.cross_entropy(logits.float(), target, reduction="none").to(logits.dtype)


def cross_entropy_gathered(logits: Tensor, target: Tensor) -> Tensor:
    """The gathered entry of log_softmax with its sign turned."""
    return -torch.log_softmax(logits.float(), -1).gather(-1, target.unsqueeze(-1)).squeeze(-1).to(logits.dtype)


def cross_entropy_online(logits: Tensor, target: Tensor) -> Tensor:
    """Logsumexp carried over chunks of 256 columns by logaddexp."""
    total = torch.full((logits.shape[0],), -INF, device=logits.device)
    for chunk in _chunks(logits, 256):
        total = torch.logaddexp(total, torch.logsumexp(chunk, -1))
    picked = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1).float()
    return (total - picked).to(logits.dtype)


# ---------------------------------------------------------------- correct: sums


def _tree(values: Tensor) -> Tensor:
    """The last axis added pairwise, an odd entry carried along."""
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        folded = values[..., :half] + values[..., half : 2 * half]
        values = torch.cat([folded, values[..., 2 * half :]], -1)
    return values[..., 0]


def _lanes(values: Tensor, lanes: int = 32) -> Tensor:
    """The last axis added one by one in each of some lanes, then the lanes as a tree."""
    padded = functional.pad(values, (0, -values.shape[-1] % lanes)).unflatten(-1, (-1, lanes))
    total = torch.zeros_like(padded[..., 0, :])
    for step in padded.unbind(-2):
        total = total + step
    return _tree(total)


def sum_tree(x: Tensor) -> Tensor:
    """A pairwise tree in float32."""
    return _tree(x.float()).to(x.dtype)


def sum_lanes(x: Tensor) -> Tensor:
    """32 chains side by side in float32, as a warp adds."""
    return _lanes(x.float()).to(x.dtype)


def sum_chunks(x: Tensor) -> Tensor:
    """The sums of chunks of 512, added one by one."""
    return reduce(torch.add, (chunk.sum(-1) for chunk in _chunks(x, 512))).to(x.dtype)


def sum_compensated(x: Tensor) -> Tensor:
    """Chunk sums added with Neumaier's correction."""
    total = torch.zeros(x.shape[:-1], device=x.device)
    lost = torch.zeros_like(total)
    for chunk in _chunks(x, 64):
        term = chunk.sum(-1)
        new = total + term
        lost = lost + torch.where(total.abs() >= term.abs(), (total - new) + term, (term - new) + total)
        total = new
    return (total + lost).to(x.dtype)


def mean_functional(x: Tensor) -> Tensor:
    """Torch's own mean in float32."""
    return x.mean(-1, dtype=torch.float32).to(x.dtype)


def mean_by_reciprocal(x: Tensor) -> Tensor:
    """The lanes' sum times 1/n."""
    return (_lanes(x.float()) * (1.0 / x.shape[-1])).to(x.dtype)


def mean_weighted_chunks(x: Tensor) -> Tensor:
    """The means of chunks of 200, each weighted by its length."""
    means = [chunk.mean(-1) * (chunk.shape[-1] / x.shape[-1]) for chunk in _chunks(x, 200)]
    return torch.stack(means, -1).sum(-1).to(x.dtype)


# ---------------------------------------------------------------- correct: norms


def _merge(chunks: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Mean and population variance of the last axis, from each chunk's own and merged as Chan does."""
    count, mean, spread = 0, None, None
    for chunk in chunks:
        length = chunk.shape[-1]
        own_variance, own_mean = torch.var_mean(chunk, -1, correction=0, keepdim=True)
        if mean is None or spread is None:
            count, mean, spread = length, own_mean, own_variance * length
            continue
        delta, whole = own_mean - mean, count + length
        spread = spread + own_variance * length + delta * delta * (count * length / whole)
        mean, count = mean + delta * (length / whole), whole
    assert mean is not None
    assert spread is not None
    return mean, spread / count


def layernorm_functional(x: Tensor) -> Tensor:
    """Torch's own layer_norm in float32."""
    return functional.layer_norm(x.float(), (x.shape[-1],), eps=EPS).to(x.dtype)


def layernorm_two_pass(x: Tensor) -> Tensor:
    """Mean by a tree, then the squared deviations by lanes, and a division by the root."""
    values = x.float()
    centred = values - (_tree(values) / x.shape[-1]).unsqueeze(-1)
    variance = (_lanes(centred * centred) / x.shape[-1]).unsqueeze(-1)
    return (centred / torch.sqrt(variance + EPS)).to(x.dtype)


def layernorm_merged(x: Tensor) -> Tensor:
    """Statistics of chunks of 96, merged."""
    mean, variance = _merge(_chunks(x, 96))
    return ((x.float() - mean) * torch.rsqrt(variance + EPS)).to(x.dtype)


def layernorm_var_mean(x: Tensor) -> Tensor:
    """Torch's var_mean without correction, and rsqrt."""
    variance, mean = torch.var_mean(x.float(), -1, correction=0, keepdim=True)
    return ((x.float() - mean) * torch.rsqrt(variance + EPS)).to(x.dtype)


def rmsnorm_functional(x: Tensor) -> Tensor:
    """Torch's own rms_norm in float32."""
    return functional.rms_norm(x.float(), (x.shape[-1],), eps=EPS).to(x.dtype)


def rmsnorm_lanes(x: Tensor) -> Tensor:
    """The squares added in lanes; times rsqrt."""
    values = x.float()
    mean_square = _lanes(values * values).unsqueeze(-1) / x.shape[-1]
    return (values * torch.rsqrt(mean_square + EPS)).to(x.dtype)


def rmsnorm_tree_divided(x: Tensor) -> Tensor:
    """The squares added as a tree; over the root."""
    values = x.float()
    return (values / torch.sqrt(_tree(values * values).unsqueeze(-1) / x.shape[-1] + EPS)).to(x.dtype)


def add_rmsnorm_plain(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """Sum, scale and weight in float32, rounded once."""
    added = x.float() + residual.float()
    return (added * torch.rsqrt(added.square().mean(-1, keepdim=True) + EPS) * weight.float()).to(x.dtype)


def add_rmsnorm_functional(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """Torch's own rms_norm of the float32 sum, weight inside."""
    return functional.rms_norm(x.float() + residual.float(), (x.shape[-1],), weight.float(), EPS).to(x.dtype)


def groupnorm_by_layer_norm(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Torch's own layer_norm of the flattened groups in float32, then weight and bias."""
    flat = input.float().flatten(-2)
    normalised = functional.layer_norm(flat, flat.shape[-1:], eps=EPS).view(input.shape)
    return (normalised * weight.float().unsqueeze(-1) + bias.float().unsqueeze(-1)).to(input.dtype)


def groupnorm_two_pass(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Mean, then the mean squared deviation, then one fused scale and shift."""
    values = input.float()
    centred = values - values.mean((-2, -1), keepdim=True)
    scale = torch.rsqrt(centred.square().mean((-2, -1), keepdim=True) + EPS) * weight.float().unsqueeze(-1)
    return (centred * scale + bias.float().unsqueeze(-1)).to(input.dtype)


def groupnorm_merged(input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # noqa: A002
    """Statistics of chunks of 256 of a flattened group, merged."""
    values = input.float()
    mean, variance = _merge(_chunks(values.flatten(-2), 256))
    normalised = (values - mean.unsqueeze(-1)) * torch.rsqrt(variance.unsqueeze(-1) + EPS)
    return (normalised * weight.float().unsqueeze(-1) + bias.float().unsqueeze(-1)).to(input.dtype)


def l2norm_rsqrt(x: Tensor) -> Tensor:
    """Times rsqrt of the sum of squares."""
    values = x.float()
    return (values * torch.rsqrt(values.square().sum(-1, keepdim=True) + 1e-12)).to(x.dtype)


def l2norm_tree_divided(x: Tensor) -> Tensor:
    """Squares as a tree; over the root."""
    values = x.float()
    return (values / torch.sqrt(_tree(values * values).unsqueeze(-1) + 1e-12)).to(x.dtype)


# ---------------------------------------------------------------- correct: elementwise


def relu_clamp(x: Tensor) -> Tensor:
    """A clamp from below."""
    return x.clamp(min=0)


def relu_where(x: Tensor) -> Tensor:
    """A choice between x and 0."""
    return torch.where(x > 0, x, torch.zeros_like(x))


def leaky_relu_maximum(x: Tensor) -> Tensor:
    """The larger of x and 0.01·x."""
    return torch.maximum(x.float(), 0.01 * x.float()).to(x.dtype)


def leaky_relu_split(x: Tensor) -> Tensor:
    """The positive part plus 0.01 of the negative part."""
    return (x.float().clamp(min=0) + 0.01 * x.float().clamp(max=0)).to(x.dtype)


def elu_expm1(x: Tensor) -> Tensor:
    """expm1 of the negative part."""
    values = x.float()
    return torch.where(values > 0, values, torch.expm1(values.clamp(max=0))).to(x.dtype)


def elu_functional(x: Tensor) -> Tensor:
    """Torch's own elu in float32."""
    return functional.elu(x.float()).to(x.dtype)


def gelu_functional(x: Tensor) -> Tensor:
    """Torch's own tanh gelu in float32."""
    return functional.gelu(x.float(), approximate="tanh").to(x.dtype)


def gelu_by_sigmoid(x: Tensor) -> Tensor:
    """x·σ(2u), the same function without the 1 + tanh."""
    values = x.float()
    inner = ROOT_2_OVER_PI * values * (1 + 0.044715 * values * values)
    return (values * torch.sigmoid(2 * inner)).to(x.dtype)


def silu_times_sigmoid(x: Tensor) -> Tensor:
    """x·σ(x)."""
    return (x.float() * torch.sigmoid(x.float())).to(x.dtype)


def silu_divided(x: Tensor) -> Tensor:
    """x/(1 + e⁻ˣ), as most fused kernels have it."""
    return (x.float() / (1 + torch.exp(-x.float()))).to(x.dtype)


def sigmoid_two_sided(x: Tensor) -> Tensor:
    """1/(1 + e⁻ˣ) from 0 on and eˣ/(1 + eˣ) below."""
    e = torch.exp(-x.float().abs())
    return (torch.where(x.float() >= 0, torch.ones_like(e), e) / (1 + e)).to(x.dtype)


def sigmoid_plain(x: Tensor) -> Tensor:
    """1/(1 + e⁻ˣ)."""
    return (1 / (1 + torch.exp(-x.float()))).to(x.dtype)


def sigmoid_by_tanh(x: Tensor) -> Tensor:
    """½ + ½ tanh(x/2)."""
    return (0.5 + 0.5 * torch.tanh(0.5 * x.float())).to(x.dtype)


def tanh_functional(x: Tensor) -> Tensor:
    """Torch's own tanh in float32."""
    return torch.tanh(x.float()).to(x.dtype)


def tanh_by_sigmoid(x: Tensor) -> Tensor:
    """2σ(2x) − 1."""
    return (2 * torch.sigmoid(2 * x.float()) - 1).to(x.dtype)


def swiglu_functional(a: Tensor, b: Tensor) -> Tensor:
    """Torch's own silu of a, times b, in float32."""
    return (functional.silu(a.float()) * b.float()).to(a.dtype)


def swiglu_divided(a: Tensor, b: Tensor) -> Tensor:
    """(a/(1 + e⁻ᵃ))·b."""
    return (a.float() / (1 + torch.exp(-a.float())) * b.float()).to(a.dtype)


# ---------------------------------------------------------------- witnesses


def _tail_outlier() -> tuple[Tensor]:
    """13 entries, the last far above the rest."""
    x = normal(2, 3, 13)
    x[..., 12] = 200.0
    return (x,)


def _pitched_logits() -> tuple[Tensor, Tensor]:
    """Logits that are a slice of wider rows."""
    return normal(6, 40)[:, :17], torch.arange(6)


def _confident_logits() -> tuple[Tensor, Tensor]:
    """float16 logits near 30 whose target leads."""
    logits = normal(8, 32, shift=24.0)
    target = torch.arange(8)
    logits[target, target] = 30.3
    return logits.half(), target


def _halves(witness: Callable[[], tuple[Tensor, ...]], dtype: torch.dtype = torch.float16) -> tuple[Tensor, ...]:
    """A witness narrowed to a half type."""
    return tuple(part.to(dtype) for part in witness())


def _two_samples() -> tuple[Tensor, Tensor, Tensor]:
    """Groupnorm inputs whose second sample is larger."""
    x, weight, bias = grouped(2, 3, 4, 10)
    x[1] = x[1] * 3 + 1
    return x, weight, bias


FUNCTIONAL = "torch's own functional"

ENTRIES: tuple[Entry, ...] = (
    fault(
        "softmax",
        softmax_finite_sentinel,
        "flashinfer-ai/flashinfer#4267 zeros when every logit is below the finite sentinel",
        lambda: (normal(2, 2, 9, shift=-6e4),),
    ),
    fault(
        "softmax",
        softmax_max_of_whole_vectors,
        "pytorch/pytorch#156379 the maximum of one vector is lost in a softmax kernel (nearest)",
        _tail_outlier,
    ),
    fault(
        "softmax",
        softmax_sum_in_dtype,
        "sonos/tract#2587 generic f16 row sums accumulate in f16",
        lambda: (torch.zeros(1, 1, 4096, dtype=torch.float16),),
        HALVES,
    ),
    fault(
        "softmax",
        softmax_compact_exp,
        "sonos/tract#2677 the compact exponential is off by 5.9e-2",
        lambda: (normal(2, 2, 33),),
    ),
    fault(
        "log_softmax",
        log_softmax_of_softmax,
        "deeplearning4j/deeplearning4j#785 log of an underflown softmax",
        lambda: line(-150.0, 0.0),
    ),
    fault(
        "log_softmax",
        log_softmax_max_from_tiny,
        "mit-han-lab/tinyengine#107 the maximum starts at FLT_MIN",
        lambda: (normal(2, 2, 9, shift=-200.0),),
    ),
    fault(
        "log_softmax",
        log_softmax_wide_takes_log_twice,
        "PaddlePaddle/Paddle#53654 an unexpected log when the last dim exceeds 100000",
        lambda: (normal(1, 1, 100_001),),
    ),
    fault(
        "cross_entropy",
        cross_entropy_padding_is_zero,
        "linkedin/Liger-Kernel#507 the loss is 0 when all targets are 0 (nearest)",
        lambda: labelled(5, 9),
    ),
    fault(
        "cross_entropy",
        cross_entropy_last_class_ignored,
        "karpathy/nanoGPT#323 what ignore_index = -1 ignores (nearest)",
        lambda: (normal(4, 9), torch.tensor([8, 0, 3, 8])),
    ),
    fault(
        "cross_entropy",
        cross_entropy_target_by_flat_index,
        "NVIDIA/TransformerEngine#2734 stride guard misses transposed input",
        _pitched_logits,
    ),
    fault(
        "cross_entropy",
        cross_entropy_probability_floor,
        "deeplearning4j/deeplearning4j#785 log of an underflown probability (nearest; a floor is the usual patch)",
        lambda: labelled(5, 9, scale=40.0),
    ),
    fault(
        "cross_entropy",
        cross_entropy_logsumexp_in_dtype,
        "NVIDIA/Megatron-LM#2206 a fused cross entropy needed wider accumulators (nearest)",
        _confident_logits,
        HALVES,
    ),
    fault(
        "layernorm",
        layernorm_one_pass,
        "microsoft/onnxruntime#21935 NaN for inputs of small variance",
        lambda: (normal(2, 3, 256, scale=0.1, shift=1234.0),),
    ),
    fault(
        "layernorm",
        layernorm_unbiased,
        "LBANN/lbann#2024 unbiased variance in LayerNorm",
        lambda: (normal(2, 3, 5),),
    ),
    fault(
        "layernorm",
        layernorm_variance_in_half,
        "deepspeedai/DeepSpeed#581 variance converted to float16",
        lambda: (normal(2, 3, 40, scale=1000.0),),
    ),
    fault(
        "layernorm",
        layernorm_eps_outside_root,
        "microsoft/CNTK#3816 epsilon outside the root",
        lambda: (normal(2, 3, 40, scale=1e-3),),
    ),
    fault(
        "rmsnorm",
        rmsnorm_eps_hardcoded,
        "NVIDIA/cutlass#1112 RMS norm with a hard-coded epsilon of 1e-6",
        lambda: (normal(2, 3, 40, scale=3e-3),),
    ),
    fault(
        "rmsnorm",
        rmsnorm_scales_input_in_place,
        "GeeeekExplorer/nano-vllm#170 the float32 input is modified",
        lambda: (normal(2, 3, 16),),
        F32,
    ),
    fault(
        "rmsnorm",
        rmsnorm_squares_in_half,
        "xlite-dev/LeetCUDA#335 float16 squares overflow in rms_norm",
        lambda: (normal(2, 3, 64, scale=500.0, dtype=torch.float16),),
        F16,
    ),
    fault(
        "rmsnorm",
        rmsnorm_single_column_is_sign,
        "tenstorrent/tt-metal#55347 a single element is answered by x/|x|",
        lambda: (torch.tensor([[[0.0], [1e-3], [-2e-3]]]),),
    ),
    fault(
        "add_rmsnorm",
        add_rmsnorm_sum_in_half,
        "nntrainer/nntrainer#3935 float16 overflow inside rms norm (nearest)",
        lambda: (
            normal(2, 2, 24, scale=1e3, shift=4e4, dtype=torch.float16),
            torch.full((2, 2, 24), 3e4, dtype=torch.float16),
            torch.ones(24, dtype=torch.float16),
        ),
        F16,
    ),
    fault(
        "add_rmsnorm",
        add_rmsnorm_weight_along_rows,
        "ooples/AiDotNet.Tensors#652 two size arguments of a norm change places (nearest)",
        lambda: weighted(2, 8, 8),
    ),
    fault(
        "add_rmsnorm",
        add_rmsnorm_weight_offset,
        "utensils/mold#1074 the +1 of Gemma's weight applied twice",
        lambda: weighted(2, 3, 20),
    ),
    fault(
        "groupnorm",
        groupnorm_padded_length,
        "tenstorrent/tt-metal#50682 statistics over the tile-padded height",
        lambda: grouped(1, 2, 3, 50, shift=1.0),
    ),
    fault(
        "groupnorm",
        groupnorm_squares_in_half,
        "neuroneural/brainchop-cli#56 float16 variance overflows in GroupNorm",
        lambda: _halves(partial(grouped, 1, 2, 3, 50, scale=600.0)),
        F16,
    ),
    fault(
        "groupnorm",
        groupnorm_statistics_of_first_sample,
        "tenstorrent/tt-metal#56202 statistics fetched by a local index",
        _two_samples,
    ),
    fault(
        "l2norm",
        l2norm_clamped,
        "openvinotoolkit/openvino#12077 eps applied after the root in some paths",
        lambda: (normal(2, 3, 16, scale=3e-7),),
        BROAD,
    ),
    fault(
        "l2norm",
        l2norm_eps_lost_in_half,
        "huggingface/diffusers#13316 eps underflows in half precision",
        lambda: (torch.zeros(1, 2, 8, dtype=torch.float16),),
        F16,
    ),
    fault(
        "l2norm",
        l2norm_eps_of_another_op,
        "ml-explore/mlx-lm#1624 l2norm with the eps of another norm",
        lambda: (normal(2, 3, 16, scale=1e-3),),
    ),
    fault(
        "sum",
        sum_in_dtype,
        "ml-explore/mlx#3909 low-precision reductions accumulate in their own dtype",
        lambda: (torch.ones(1, 1, 5000, dtype=torch.float16),),
        HALVES,
    ),
    fault(
        "sum",
        sum_by_halving,
        "modular/modular#340 reduce_add drops an element of odd lengths",
        lambda: (normal(2, 3, 7),),
    ),
    fault(
        "sum",
        sum_into_kept_buffer,
        "pytorch/helion#2536 reusing output buffers corrupts a result still held",
        lambda: (normal(2, 3, 7),),
    ),
    fault(
        "mean",
        mean_of_rounded_sum,
        "tracel-ai/burn#4769 f16 mean overflows through its sum",
        lambda: (torch.full((1, 2, 4000), 30.0, dtype=torch.float16),),
        F16,
    ),
    fault(
        "mean",
        mean_of_chunk_means,
        "tenstorrent/tt-metal#35291 merging pieces of a row goes wrong for some widths (nearest)",
        lambda: (normal(2, 2, 300),),
    ),
    fault(
        "mean",
        mean_count_in_half,
        "ROCm/AMDMIGraphX#1515 long half reductions need a float accumulator (nearest)",
        lambda: (normal(1, 2, 70_000, shift=1.0),),
    ),
    fault(
        "mean",
        mean_rows_capped,
        "torch/cunn#144 the batch is a grid axis (nearest: there the launch fails)",
        lambda: (normal(1, 65_540, 2),),
    ),
    fault(
        "relu",
        relu_by_absolute,
        "ROCm/AMDMIGraphX#850 fp16 overflow in intermediate results (nearest)",
        lambda: (torch.tensor([[[1.0, -2.0, 3e38]]]),),
    ),
    fault(
        "relu",
        relu_in_place,
        "intel/ipex-llm#2206 in-place activation works wrongly (nearest, for leaky relu)",
        lambda: (normal(2, 3, 16),),
    ),
    fault(
        "leaky_relu",
        leaky_relu_slope_in_half,
        "FluxML/GeometricFlux.jl#141 type of the negative slope",
        lambda: (normal(2, 3, 16),),
        F32,
    ),
    fault(
        "leaky_relu",
        leaky_relu_by_magnitude,
        "amd/IRON#36 broken leaky ReLU kernel (nearest)",
        lambda: (normal(2, 3, 16, scale=5e-4),),
    ),
    fault(
        "elu",
        elu_by_masks,
        "ggml-org/llama.cpp#8866 overflows in elu",
        lambda: line(-3.0, 100.0),
    ),
    fault(
        "elu",
        elu_floor_too_early,
        "Rinzii/ccmath#132 expm1 wrong for large negative arguments (nearest)",
        lambda: line(-8.0, -5.0),
        F32,
    ),
    fault(
        "elu",
        elu_short_series,
        "tenstorrent/tt-metal#28187 expm1 accuracy near zero",
        lambda: line(-0.3, 0.1),
        WIDE,
    ),
    fault(
        "gelu",
        gelu_of_erf,
        "m87-labs/kestrel#162 exact erf GELU where the tanh form is meant",
        lambda: line(-4.0, 4.0),
        WIDE,
    ),
    fault(
        "gelu",
        gelu_rational_tanh,
        "ruvnet/RuVector#761 rational tanh does not saturate",
        lambda: line(-6.0, 6.0),
    ),
    fault(
        "gelu",
        gelu_by_logistic,
        "ROCm/composable_kernel#614 Gelu off by 0.168 from its reference (nearest)",
        lambda: line(-4.0, 4.0),
    ),
    fault(
        "silu",
        silu_linear_from_eight,
        "tenstorrent/tt-metal#34862 silu not accurate enough (nearest)",
        lambda: line(7.0, 12.0),
        F32,
    ),
    fault(
        "silu",
        silu_exp_over_one_plus_exp,
        "NervanaSystems/ngraph#3118 fused sigmoid overflow",
        lambda: line(-5.0, 100.0),
    ),
    fault(
        "sigmoid",
        sigmoid_complement,
        "microsoft/onnxruntime#24685 1 − sigmoid(−x) for negative inputs",
        lambda: line(-30.0, 5.0),
        BROAD,
    ),
    fault(
        "sigmoid",
        sigmoid_clipped,
        "nextgis/qgis_molusce#57 argument truncated against overflow (nearest)",
        lambda: line(-40.0, 5.0),
        BROAD,
    ),
    fault(
        "sigmoid",
        sigmoid_ignores_offset,
        "pytorch/pytorch#105801 a kernel without the storage offset (for erfinv)",
        lambda: (normal(3, 3, 8)[1:],),
    ),
    fault(
        "tanh",
        tanh_by_exponentials,
        "BVLC/caffe#1455 tanh NaN for badly scaled input",
        lambda: line(-60.0, 60.0),
    ),
    fault(
        "tanh",
        tanh_table,
        "tenstorrent/tt-metal#56076 approximate tanh off by 0.1447",
        lambda: line(-3.0, 3.0),
    ),
    fault(
        "tanh",
        tanh_linear_near_zero,
        "tenstorrent/tt-metal#47323 accuracy of tanh's kin near zero (nearest)",
        lambda: line(-0.2, 0.2),
        WIDE,
    ),
    fault(
        "swiglu",
        swiglu_gate_is_second,
        "NVIDIA/TransformerEngine#717 which half is the gate (nearest)",
        lambda: (normal(2, 3, 16), normal(2, 3, 16).flip(-1)),
    ),
    fault(
        "swiglu",
        swiglu_clamped,
        "vllm-project/vllm-ascend#11467 a swiglu that clamps (nearest)",
        lambda: (normal(2, 3, 16, scale=10.0), normal(2, 3, 16, scale=10.0).flip(-1)),
    ),
    fault(
        "swiglu",
        swiglu_product_in_half,
        "sgl-project/sglang#26473 SiLU and product in the input dtype (nearest)",
        lambda: (
            torch.full((1, 1, 8), -300.0, dtype=torch.float16),
            torch.full((1, 1, 8), 300.0, dtype=torch.float16),
        ),
        F16,
    ),
    correct("softmax", softmax_functional, FUNCTIONAL),
    correct("softmax", softmax_online, "online softmax, Milakov and Gimelshein"),
    correct("softmax", softmax_by_reciprocal, "division turned into a reciprocal"),
    correct("softmax", softmax_exp2, "exp2 with log2(e), as flash attention has it", HALVES),
    correct("log_softmax", log_softmax_functional, FUNCTIONAL),
    correct("log_softmax", log_softmax_shifted, "two passes with a blocked sum"),
    correct("log_softmax", log_softmax_minus_logsumexp, "x − logsumexp, as library code often has it"),
    correct("cross_entropy", cross_entropy_functional, FUNCTIONAL),
    correct("cross_entropy", cross_entropy_gathered, "negative log likelihood of log_softmax"),
    correct("cross_entropy", cross_entropy_online, "chunked vocabulary, as fused losses have it"),
    correct("layernorm", layernorm_functional, FUNCTIONAL),
    correct("layernorm", layernorm_two_pass, "two passes"),
    correct("layernorm", layernorm_merged, "Welford per block, merged as Chan does"),
    correct("layernorm", layernorm_var_mean, "torch.var_mean"),
    correct("rmsnorm", rmsnorm_functional, FUNCTIONAL),
    correct("rmsnorm", rmsnorm_lanes, "lanes of a warp"),
    correct("rmsnorm", rmsnorm_tree_divided, "tree sum and a division"),
    correct("add_rmsnorm", add_rmsnorm_plain, "the fused residual norm of transformers"),
    correct("add_rmsnorm", add_rmsnorm_functional, FUNCTIONAL),
    correct("groupnorm", groupnorm_by_layer_norm, "torch's own layer_norm of a group"),
    correct("groupnorm", groupnorm_two_pass, "two passes"),
    correct("groupnorm", groupnorm_merged, "Welford per block, merged as Chan does"),
    correct("l2norm", l2norm_rsqrt, "x·rsqrt"),
    correct("l2norm", l2norm_tree_divided, "tree sum and a division"),
    correct("sum", sum_tree, "pairwise summation"),
    correct("sum", sum_lanes, "lanes of a warp"),
    correct("sum", sum_chunks, "blocked summation"),
    correct("sum", sum_compensated, "Neumaier's compensated summation"),
    correct("mean", mean_functional, FUNCTIONAL),
    correct("mean", mean_by_reciprocal, "sum times 1/n"),
    correct("mean", mean_weighted_chunks, "weighted means of pieces"),
    correct("relu", relu_clamp, "clamp"),
    correct("relu", relu_where, "where"),
    correct("leaky_relu", leaky_relu_maximum, "max(x, slope·x)"),
    correct("leaky_relu", leaky_relu_split, "positive and negative part"),
    correct("elu", elu_expm1, "expm1"),
    correct("elu", elu_functional, FUNCTIONAL),
    correct("gelu", gelu_functional, FUNCTIONAL),
    correct("gelu", gelu_by_sigmoid, "x·σ(2u)"),
    correct("silu", silu_times_sigmoid, "x·σ(x)"),
    correct("silu", silu_divided, "x/(1 + e⁻ˣ)"),
    correct("sigmoid", sigmoid_two_sided, "a choice by sign"),
    correct("sigmoid", sigmoid_plain, "1/(1 + e⁻ˣ)"),
    correct("sigmoid", sigmoid_by_tanh, "½ + ½ tanh(x/2), as XLA once had it", F16),
    correct("tanh", tanh_functional, FUNCTIONAL),
    correct("tanh", tanh_by_sigmoid, "2σ(2x) − 1"),
    correct("swiglu", swiglu_functional, FUNCTIONAL),
    correct("swiglu", swiglu_divided, "(a/(1 + e⁻ᵃ))·b"),
)
