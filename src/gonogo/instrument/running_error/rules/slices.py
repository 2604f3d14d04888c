"""Ops that treat slices of their tensors apart (rows, images, channels) → their rules, a slice at a time.

Of a large tensor a rule makes many of its size; of a slice they are small, and only value and error remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gonogo.instrument.running_error.companion import Error, Tracked, spread_out
from gonogo.instrument.running_error.facts import name_ops
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.origins import Shift, Total
from gonogo.instrument.running_error.pieces import DEVICE_PIECE, cut_slice, find_axis


@dataclass(frozen=True, slots=True)
class Slicing:
    """Along which axis, counted from the end, each tensor of a call is cut; those not named are not."""

    args: Mapping[int, int]
    """By place among the arguments; the first one has as many slices as there are."""
    outputs: Sequence[int | None]
    """By place among what is returned, the last for all that follow; None for what is not cut."""
    largest: int
    """Elements of the largest tensor that is taken or given."""
    counts: Sequence[int] = field(default=())
    """Places of arguments that are the number of slices."""


Plan = Callable[[Any], Slicing | None]
"""Arguments → how to cut them, None where they cannot be."""


def slice_rule(rule: Rule, plan: Plan) -> Rule:
    """The same rule, a slice at a time where the tensors are large."""

    def sliced(ctx: RunningErrorMode, op: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        slicing = plan(args)
        if slicing is None or slicing.largest <= DEVICE_PIECE:
            return rule(ctx, op, args, kwargs)
        place, axis = next(iter(slicing.args.items()))
        count = args[place].shape[axis]
        step = max(1, count * DEVICE_PIECE // slicing.largest)
        made = Assembly(count, slicing.outputs)
        for start in range(0, count, step):
            stop = min(start + step, count)
            made.add(start, *rule(ctx, op, cut_args(args, slicing, count, start, stop), kwargs))
        return made.values, made.find_errors()

    return sliced


def cut_args(args: Any, slicing: Slicing, count: int, start: int, stop: int) -> list[Any]:
    """Arguments of the slices from `start` to `stop`."""
    cut = list(args)
    for place, axis in slicing.args.items():
        if place < len(cut) and isinstance(cut[place], Tensor):
            cut[place] = cut_tracked(cut[place], axis, count, start, stop)
    for place in slicing.counts:
        cut[place] = stop - start
    return cut


def cut_tracked(x: Tensor, axis: int, count: int, start: int, stop: int) -> Tensor:
    """A slice of a tensor, with that of its error, in memory as torch's kernels want it."""
    if not isinstance(x, Tracked):
        return cut_slice(x, axis=axis, size=count, start=start, stop=stop).contiguous()
    value = cut_slice(x.value, axis=axis, size=count, start=start, stop=stop).contiguous()
    extra = x.error.extra
    if extra is not None:
        extra = cut_slice(spread_out(extra, x.shape), axis=axis, size=count, start=start, stop=stop)
    return Tracked(value, Error(extra, x.error.ulps, whole=x.error.whole), aliased=True)


class Assembly:
    """Outputs and errors of slices, put together as they come."""

    def __init__(self, count: int, axes: Sequence[int | None]) -> None:
        self.count, self.axes = count, axes
        self.values: Any = None
        self._extras: list[Tensor | None] = []
        self._ulps: list[float] = []

    def add(self, start: int, value: Any, error: Any) -> None:
        """Take in what a rule made of slices from `start` on."""
        nested = isinstance(value, (tuple, list))
        values = list(value) if nested else [value]
        errors = list(error) if isinstance(error, (tuple, list)) else [error] * len(values)
        errors = [one if isinstance(one, Error) else Error(one) for one in errors]
        if self.values is None:
            self._outs = [self._make_room(at, one) for at, one in enumerate(values)]
            self.values = type(value)(self._outs) if nested else self._outs[0]
            self._extras, self._ulps = [None] * len(values), [0.0] * len(values)
        for at, (one, its) in enumerate(zip(values, errors, strict=True)):
            self._put(self._outs[at], at, start, one)
            # Slices differ in this only where their data do: the most holds for all.
            self._ulps[at] = max(self._ulps[at], its.ulps)
            if its.extra is not None:
                if self._extras[at] is None:
                    self._extras[at] = self._outs[at].new_zeros(self._outs[at].shape, dtype=its.extra.dtype)
                self._put(self._extras[at], at, start, spread_out(its.extra, one.shape))

    def find_errors(self) -> Any:
        """The errors of all outputs, in the form of these."""
        errors = [Error(extra, ulps) for extra, ulps in zip(self._extras, self._ulps, strict=True)]
        return tuple(errors) if isinstance(self.values, (tuple, list)) else errors[0]

    def _find_axis(self, at: int, output: Tensor) -> int | None:
        """The axis of an output that is cut; none of a buffer that torch keeps for its gradient, or left empty."""
        axis = self.axes[min(at, len(self.axes) - 1)]
        return None if axis is None or output.dim() < -axis or not output.numel() else axis

    def _make_room(self, at: int, output: Tensor) -> Tensor:
        axis = self._find_axis(at, output)
        if axis is None:
            return output
        shape = list(output.shape)
        shape[axis] = self.count
        return output.new_empty(shape)

    def _put(self, whole: Tensor | None, at: int, start: int, part: Tensor) -> None:
        axis = None if whole is None else self._find_axis(at, whole)
        if whole is not None and axis is not None:
            whole.narrow(axis, start, part.shape[axis]).copy_(part)


def along(x: Tensor, dims: Collection[int] = ()) -> Slicing | None:
    """Along the longest axis of x that is not among `dims`."""
    axis = find_axis(x, dims) if x.numel() > DEVICE_PIECE else None
    return None if axis is None else Slicing({0: axis}, [axis], x.numel())


def elementwise(args: Any) -> Slicing | None:
    """Along any axis; not what has an origin to pass on: exponents that share an error, sums to divide by."""
    passed_on = isinstance(args[0], Tracked) and isinstance(args[0].error.origin, (Shift, Total))
    return None if passed_on else along(args[0])


def beside_dim(args: Any) -> Slicing | None:
    """Along any axis but that which the second argument names."""
    return along(args[0], (args[1] % max(args[0].dim(), 1),))


def before_last(args: Any) -> Slicing | None:
    """Along an axis before those of a shape, the second argument."""
    rank = args[0].dim()
    return along(args[0], range(rank - len(args[1]), rank))


def along_channels(args: Any) -> Slicing:
    """Batch norm: along axis 1 of what it takes and gives, and all of its parameters and moments.

    What cuDNN reserves for the gradient is not cut: a gradient of slices would need it of each.
    """
    axis = 1 - args[0].dim()
    return Slicing({0: axis, 1: -1, 2: -1, 3: -1, 4: -1}, [axis, -1, -1, None], args[0].numel())


def along_groups(args: Any) -> Slicing:
    """Group norm: along the batch, which it is told the size of."""
    return Slicing({0: -args[0].dim()}, [-args[0].dim(), -2], args[0].numel(), counts=(3,))


def along_rows(first: int) -> Plan:
    """Products of matrices, or of batches of them: rows or matrices of the first, and of a second that has them."""

    def plan(args: Any) -> Slicing:
        a, b = args[first], args[first + 1]
        batched = a.dim() == 3
        made = a.numel() // max(a.shape[-1], 1) * b.shape[-1]
        cut = {first: -a.dim()} | ({first + 1: -3} if batched else {})
        cut |= {0: -a.dim()} if first else {}
        return Slicing(cut, [-a.dim()], max(a.numel(), b.numel() if batched else 0, made))

    return plan


def along_batch(rank: int) -> Plan:
    """Along the first axis of images that have one."""

    def plan(args: Any) -> Slicing | None:
        x = args[0]
        return Slicing({0: -x.dim()}, [-x.dim()], x.numel()) if x.dim() == rank + 2 else None

    return plan


def along_images(args: Any) -> Slicing:
    """Convolutions: along the batch; what is returned is as large as strides and paddings make it, about."""
    x, weight, (stride, padding, _, transposed, _, groups) = args[0], args[1], args[3:9]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    sides = zip(x.shape[2:], spread(stride, x), spread(padding, x), strict=True)
    plane = math.prod(side * step if transposed else (side + 2 * pad) // step for side, step, pad in sides)
    return Slicing({0: -x.dim()}, [-x.dim()], max(x.numel(), x.shape[0] * channels * plane))


def spread(numbers: Sequence[int], x: Tensor) -> Sequence[int]:
    """One number for each side of an image; torch takes one for all."""
    return numbers if len(numbers) == x.dim() - 2 else [numbers[0]] * (x.dim() - 2)


PLANS: dict[str, Plan] = {
    **dict.fromkeys(
        name_ops(
            "gelu", "silu", "elu", "softplus", "hardsigmoid", "hardswish", "mish", "sigmoid", "tanh", "exp", "exp2",
            "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "erf", "erfc", "sqrt", "rsqrt", "reciprocal",
            "hardtanh", "leaky_relu",
        ),
        elementwise,
    ),
    **dict.fromkeys(name_ops("_softmax", "_safe_softmax", "_log_softmax"), beside_dim),
    **dict.fromkeys(name_ops("native_layer_norm", "_fused_rms_norm"), before_last),
    **dict.fromkeys(name_ops("native_batch_norm", "cudnn_batch_norm"), along_channels),
    "aten.native_group_norm": along_groups,
    **dict.fromkeys(name_ops("mm", "bmm"), along_rows(0)),
    **dict.fromkeys(name_ops("addmm", "baddbmm"), along_rows(1)),
    "aten.convolution": along_images,
    **dict.fromkeys(name_ops("avg_pool2d", "_adaptive_avg_pool2d", "max_pool2d_with_indices"), along_batch(2)),
    **dict.fromkeys(name_ops("avg_pool3d", "_adaptive_avg_pool3d", "max_pool3d_with_indices"), along_batch(3)),
}  # fmt: skip


def slice_rules(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """All rules, those of PLANS a slice at a time."""
    return {name: slice_rule(rule, PLANS[name]) if name in PLANS else rule for name, rule in rules.items()}
