"""Sums whose terms the data choose (scatter_add, index_add, segments, bags) → value, error op(E) + g(n)·Σ|term|.

n is each element's own count of terms, found by scattering ones. Beside them: products, means, extremes of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gonogo.errors import NoErrorRule
from gonogo.instrument.running_error.companion import EXACT, Error, widen_error
from gonogo.instrument.running_error.facts import find_tensors
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.rules.movement import place_cast
from gonogo.instrument.running_error.rules.selections import masked_fill
from gonogo.instrument.running_error.summation import bound_growth, bound_orders, find_chains

Scatter = Callable[[Tensor, Tensor], Tensor]
"""What a target holds and what is added to it → what it holds then."""


def grow(ctx: RunningErrorMode, counts: Tensor) -> Tensor:
    """g(n) of the contract's summation, of many lengths at once."""
    ctx.summed |= bool((counts > 1).any())
    counts = counts.clamp(min=1.0)
    if ctx.contract.summation == "sequential":
        return counts
    return (
        counts.sqrt() if ctx.contract.summation == "probabilistic" else bound_growth(find_chains(counts, ctx.unit))
    )


def scatter_sums(
    ctx: RunningErrorMode, scatter: Scatter, target: tuple[Tensor, Error], source: tuple[Tensor, Error]
) -> tuple[Tensor, Error]:
    """Error of scatter(target, source), in which every element is a sum of some of both."""
    (x, err_x), (y, err_y) = target, source
    value = scatter(x, y)
    counts = scatter(torch.ones_like(x), torch.ones_like(y))
    absolute = scatter(x.abs(), y.abs())
    own = absolute * grow(ctx, counts)
    if ctx.contract.summation == "blocked":
        squares = scatter(x * x, y * y)
        own = torch.minimum(own, bound_orders(find_chains(counts.clamp(min=1.0), ctx.unit), squares, value))
    lost = ctx.lose_overflow(lambda: absolute, float(counts.max()) if counts.numel() else 0.0)
    own = torch.where(counts > 1, own, 0.0)
    own = own if lost is None else own + lost
    return value, Error(own + scatter(widen_error(x, err_x), widen_error(y, err_y)))


def lose_positions(ctx: RunningErrorMode, args: Any, made: tuple[Tensor, Error]) -> tuple[Tensor, Error]:
    """With an infinite error everywhere, where a kernel may have other positions."""
    if any(ctx.doubts.find(index) is not None for index in find_tensors(args)):
        return made[0], Error(torch.full_like(made[0], torch.inf))
    return made


def scatter_add(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """scatter_add, index_add (by alpha): sums of the target and all that meets there."""
    (x, err_x), (y, err_y) = ctx.split(args[0]), ctx.split(args[3])
    made = scatter_sums(ctx, lambda x, y: op(x, args[1], args[2], y, **kwargs_of(kwargs)), (x, err_x), (y, err_y))
    if (alpha := kwargs.get("alpha", 1)) != 1:
        scaled = Error(None if err_y.extra is None else err_y.extra * abs(alpha), err_y.ulps + 1)
        made = scatter_sums(ctx, lambda x, y: op(x, args[1], args[2], y), (x, err_x), (y * alpha, scaled))
        made = op(x, args[1], args[2], y, **kwargs), made[1]
    return lose_positions(ctx, args, made)


def kwargs_of(kwargs: Any) -> Any:
    """Without a factor, which is multiplied by beforehand."""
    return {name: given for name, given in kwargs.items() if name != "alpha"}


def put_adding(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """index_put and put with accumulate: values are broadcast, and added where indices meet."""
    accumulated = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    x, err_x = ctx.split(args[0])
    y, err_y = ctx.split(args[2])
    y = y.to(torch.float64)

    def scatter(x: Tensor, y: Tensor) -> Tensor:
        written: Tensor = op(x, args[1], y, accumulated)
        return written

    if not accumulated and is_fill(args[1], x, y):  # y[mask] = c: a doubtful mask loses what it may choose, no more
        return masked_fill(ctx, torch.masked_fill, (args[0], args[1][0], args[2].reshape(())), {})
    if accumulated:
        return lose_positions(ctx, args, scatter_sums(ctx, scatter, (x, err_x), (y, err_y)))
    error = place_cast(
        [err_x, err_y], lambda choose: scatter(widen_error(x, choose(err_x)), widen_error(y, choose(err_y)))
    )
    return lose_positions(ctx, args, (scatter(x, y), error))


def is_fill(indices: Any, x: Tensor, y: Tensor) -> bool:
    """Whether one value is written wherever a mask of the target's own shape is set."""
    mask = indices[0] if len(indices) == 1 else None
    return mask is not None and mask.dtype == torch.bool and mask.shape == x.shape and y.numel() == 1


def reduce_groups(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """scatter_reduce, index_reduce: sums, means, products and extremes of groups that an index makes."""
    (x, err_x), (y, err_y) = ctx.split(args[0]), ctx.split(args[3])
    kind = args[4]
    included = kwargs.get("include_self", args[5] if len(args) > 5 else True)

    def reduce(kind: str) -> Scatter:
        return lambda x, y: op(x, args[1], args[2], y, kind, include_self=included)

    value = reduce(kind)(x, y)
    counts = _count(reduce, op, x, y, args, included)
    if kind in ("sum", "mean"):
        made = _reduce_sums(ctx, reduce, kind, value, counts, (x, err_x), (y, err_y))
    elif kind == "prod":
        made = _multiply_groups(ctx, reduce(kind), value, counts, (x, err_x), (y, err_y))
    else:
        # The largest error of a group covers whichever of it comes out on top.
        errors = widen_error(x, err_x), widen_error(y, err_y)
        exact = err_x.exact and err_y.exact
        made = value, EXACT if exact else Error(reduce("amax")(*errors))
    return lose_positions(ctx, args, made)


def _count(reduce: Callable[[str], Scatter], op: Any, x: Tensor, y: Tensor, args: Any, included: bool) -> Tensor:
    """Terms of each group."""
    ones = torch.ones_like(y)
    if op._schema.name == "aten::scatter_reduce":
        return reduce("sum")(torch.ones_like(x), ones)
    counted = torch.index_add(torch.zeros_like(x), args[1], args[2], ones)
    return counted + 1 if included else torch.where(counted > 0, counted, 1.0)


def _reduce_sums(
    ctx: RunningErrorMode, reduce: Callable[[str], Scatter], kind: str, value: Tensor, counts: Tensor,
    target: tuple[Tensor, Error], source: tuple[Tensor, Error],
) -> tuple[Tensor, Error]:  # fmt: skip
    (x, err_x), (y, err_y) = target, source
    absolute = reduce(kind)(x.abs(), y.abs())
    own = torch.where(counts > 1, absolute * grow(ctx, counts), 0.0)
    carried = reduce(kind)(widen_error(x, err_x), widen_error(y, err_y))
    divided = ctx.accuracy("div").relative if kind == "mean" else 0.0
    return value, Error(own + carried, divided)


def _multiply_groups(
    ctx: RunningErrorMode, reduce: Scatter, value: Tensor, counts: Tensor,
    target: tuple[Tensor, Error], source: tuple[Tensor, Error],
) -> tuple[Tensor, Error]:  # fmt: skip
    """Π(|x| + u·E) − Π|x|, and a rounding for each factor."""
    (x, err_x), (y, err_y) = target, source
    grown = reduce(x.abs() + ctx.unit * widen_error(x, err_x), y.abs() + ctx.unit * widen_error(y, err_y))
    spread = (grown - value.abs()).clamp_(min=0.0).div_(ctx.unit)
    return value, Error(value.abs() * (counts - 1).clamp(min=0.0) + spread)


def reduce_segments(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """segment_reduce: the same of stretches of an axis."""
    x, err = ctx.split(args[0])
    kind, named = args[1], {name: given for name, given in kwargs.items() if name != "initial"}
    value = op(x, kind, **ctx.values(kwargs))
    errors = widen_error(x, err)
    counts = op(torch.ones_like(x), "sum", **named, initial=0)
    carried = op(errors, "sum", **named, initial=0)
    if kind in ("max", "min"):
        return value, EXACT if err.exact else Error(carried)
    if kind == "prod":
        grown = op(x.abs() + ctx.unit * errors, "prod", **named, initial=1)
        spread = (grown - op(x.abs(), "prod", **named, initial=1)).clamp_(min=0.0).div_(ctx.unit)
        return value, Error(value.abs() * counts + spread)
    own = op(x.abs(), "sum", **named, initial=0) * grow(ctx, counts) + carried
    if kind == "mean":
        own = own / counts.clamp(min=1.0)
    return value, Error(own.nan_to_num(nan=0.0), 1 + ctx.accuracy("div").relative)


def add_bags(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """embedding_bag: sums, means or extremes of rows that indices choose, weighed where weights are given."""
    names = [declared.name for declared in op._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    plain = ctx.values(given)
    made = op(**plain)
    mode = plain.get("mode", 0)
    (weight, err), factors = ctx.split(given["weight"]), given.get("per_sample_weights")
    if mode == 2:
        extra = None if err.exact else torch.full_like(made[0], float(widen_error(weight, err).max()))
        return made, (Error(extra), *[EXACT] * (len(made) - 1))
    fitted = {**plain, "mode": 0}
    counts = op(**{**fitted, "weight": torch.ones_like(weight), "per_sample_weights": None})[0]
    scales, err_scales = (None, EXACT) if factors is None else ctx.split(factors)
    weights = {**fitted, "per_sample_weights": None if scales is None else scales.abs()}
    absolute = op(**{**weights, "weight": weight.abs()})[0]
    carried = op(**{**weights, "weight": widen_error(weight, err)})[0]
    if scales is not None:
        spread = op(**{**fitted, "weight": weight.abs(), "per_sample_weights": widen_error(scales, err_scales)})[0]
        carried = carried + spread + absolute
    own = torch.where(counts > 1, absolute * grow(ctx, counts), 0.0) + carried
    if mode == 1:
        own = own / counts.clamp(min=1.0) + made[0].abs() * ctx.accuracy("div").relative
    return made, (Error(own), *[EXACT] * (len(made) - 1))


def count_weights(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Tensor, Error]:
    """Sums of weights, bin by bin: bincount."""
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    if weights is None:
        return op(*args, **kwargs), EXACT
    w, err = ctx.split(weights)
    least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)

    def add(terms: Tensor) -> Tensor:
        summed: Tensor = op(args[0], terms, least)
        return summed

    value, counts = add(w), add(torch.ones_like(w))
    own = torch.where(counts > 1, add(w.abs()) * grow(ctx, counts), 0.0)
    return lose_positions(ctx, args[:1], (value, Error(own + add(widen_error(w, err)))))


def count_histogram(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """histc: whole counts, of values that are exact; others may fall into the next bin."""
    if not ctx.split(args[0])[1].exact:
        raise NoErrorRule(op._schema.name.replace("::", "."), "computed values may fall into the next bin")
    value = op(*ctx.values(args), **ctx.values(kwargs))
    # A value on an edge, which a kernel's own division finds on its other side, moves one count.
    return value, tuple(EXACT for _ in value) if isinstance(value, tuple) else EXACT


SCATTERS: dict[str, Rule] = {
    "aten.scatter_add": scatter_add,
    "aten.index_add": scatter_add,
    "aten.index_put": put_adding,
    "aten._unsafe_index_put": put_adding,
    "aten.put": put_adding,
    "aten.scatter_reduce": reduce_groups,
    "aten.index_reduce": reduce_groups,
    "aten.segment_reduce": reduce_segments,
    "aten._embedding_bag": add_bags,
    "aten._embedding_bag_forward_only": add_bags,
    "aten.bincount": count_weights,
    "aten.histc": count_histogram,
    "aten.histogram": count_histogram,
    "aten._histogramdd_from_bin_tensors": count_histogram,
    "aten._histogramdd_from_bin_cts": count_histogram,
}
