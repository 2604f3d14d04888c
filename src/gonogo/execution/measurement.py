"""An output and what is known of its case → the measured columns of a record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch

from gonogo.errors import BadReference
from gonogo.formats import get_format
from gonogo.instrument.gauges import gauge
from gonogo.instrument.readings import read
from gonogo.instrument.running_error.mode import WIDE
from gonogo.instrument.running_error.subnormals import keep_subnormals
from gonogo.instrument.running_error.trace import trace_reference
from gonogo.instrument.stats import measure
from gonogo.ops import Op
from gonogo.policies import Twin, read_policies, rmse
from gonogo.schema import Contract, Measured, Outcome, Record

ON_HOST = 2**16
"""Outputs up to this size are measured in host memory: a dozen readings cost less there than their launches."""

NEAR_OVERFLOW = 8.0
"""How far from the overflow threshold a correct result may still round either way, in units of u_c·S.

Controls that accumulate in float32 read at most 5.7 of them in the committed records; 8 is the next power of two.
"""

UNDEFINED = "the reference is NaN everywhere"
LOOKED_AT = 4096
"""Elements, evenly spaced, by which it is decided whether a scale says anything of most of an output."""

NO_BOUND = "no finite bound is known of what rounding does there"


@dataclass(frozen=True)
class Reference:
    """What a case's outputs are held against, for kernels of one contract."""

    expected: torch.Tensor
    scale: torch.Tensor
    contract: Contract
    make_sequential_scale: Callable[[], torch.Tensor]
    from_finite: bool = False
    """Whether all inputs are finite; looked at where the expected output is NaN everywhere."""

    @property
    def unit_roundoff(self) -> float:
        """u_c."""
        return get_format(self.contract.accumulate).unit_roundoff

    @cached_property
    def sequential_scale(self) -> torch.Tensor:
        """The scale with every sum taken for one long chain; the same tensor where that changes nothing."""
        return self.make_sequential_scale()

    @cached_property
    def is_undefined(self) -> bool:
        """Whether it is NaN everywhere: an output that agrees has shown nothing."""
        return self.expected.numel() > 0 and bool(self.expected.isnan().all())

    @cached_property
    def unjudged(self) -> torch.Tensor | None:
        """Where there is a value and an infinite scale: a correct kernel may return anything there.

        The accumulate format may overflow on the way, or a function is too steep for any first-order bound.
        """
        places = self.scale.isinf() & self.expected.isfinite()
        return places if bool(places.any()) else None

    @cached_property
    def blind_from(self) -> float | None:
        """The limit above which an output of zeros would pass on more than half of what the scale speaks of."""
        return self._find_blind_from(self.scale)

    @cached_property
    def deterministic_blind_from(self) -> float | None:
        """The same with every sum taken for one long chain."""
        return self._find_blind_from(self.sequential_scale)

    def _find_blind_from(self, scale: torch.Tensor) -> float | None:
        """The upper median of |expected| / (u_c·S) over elements that are judged and not 0; None where none is.

        More than half of the elements have limit·u_c·S > |expected| exactly where the limit is above this one, so
        that one number serves whatever limit a row will be held against. What is below the accumulate format's
        normal range counts as 0: a kernel may flush it, and the scale says no more. Of a large output LOOKED_AT
        elements stand for all.
        """
        every = slice(None, None, max(1, scale.numel() // LOOKED_AT))
        sizes, allowed = self.expected.reshape(-1)[every].abs(), self.unit_roundoff * scale.reshape(-1)[every]
        normal = get_format(self.contract.accumulate).smallest_normal
        spoken_of = (sizes >= normal) & sizes.isfinite() & allowed.isfinite()
        ratios = (sizes / allowed)[spoken_of].cpu().numpy()
        middle = ratios.size // 2
        return float(np.partition(ratios, middle)[middle]) if ratios.size else None

    def take_judged(self, output: torch.Tensor) -> torch.Tensor:
        """The output beside the expected one, with the expected value where nothing is judged, not even a NaN."""
        output = output.to(self.expected.device)
        return (
            output if self.unjudged is None else torch.where(self.unjudged, self.expected.to(output.dtype), output)
        )


def make_reference(op: Op, inputs: list[torch.Tensor], contract: Contract, shape: tuple[int, ...]) -> Reference:
    """Run the float64 reference with its error scale carried along; its output must have `shape`."""
    with keep_subnormals():
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
    reference = op.load_reference()
    # A kernel with a narrow accumulator rounds wider inputs as it loads them.
    held = get_format(contract.accumulate).unit_roundoff
    floating = [x.dtype for x in inputs if x.is_floating_point()]
    rounded = any(get_format(str(dtype).removeprefix("torch.")).unit_roundoff < held for dtype in floating)
    load_ulps = 1.0 if rounded else 0.0
    expected, scale, summed = _run_reference(reference, wide, contract, load_ulps)
    if tuple(expected.shape) != shape:
        raise BadReference(f"returns shape {tuple(expected.shape)}; the op's output has {shape} here")
    where = "cpu" if expected.numel() <= ON_HOST else expected.device
    scale = _forgive(scale).to(where)

    def make_sequential_scale() -> torch.Tensor:
        if not summed or contract.summation == "sequential":
            return scale
        _, longest, _ = _run_reference(reference, wide, replace(contract, summation="sequential"), load_ulps)
        return _forgive(longest).to(where)

    undefined = expected.numel() > 0 and bool(expected.isnan().all())
    from_finite = undefined and all(bool(x.isfinite().all()) for x in inputs)
    return Reference(expected.to(where), scale, contract, make_sequential_scale, from_finite)


def _run_reference(
    reference: Callable[..., Any], inputs: list[torch.Tensor], contract: Contract, load_ulps: float
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    expected, scale, summed = trace_reference(reference, inputs, contract, {}, load_ulps)
    if not isinstance(expected, torch.Tensor) or not isinstance(scale, torch.Tensor):
        raise BadReference(f"returns {type(expected).__name__}; an op has one output, a tensor")
    return expected, scale, summed


def _forgive(scale: torch.Tensor) -> torch.Tensor:
    """Where the reference is not finite no scale is defined: agreement there is an outcome of its own."""
    return scale.nan_to_num(nan=math.inf, posinf=math.inf)


Subject = TypeVar("Subject", bound=Measured)


def read_bounds(
    subject: Subject, output: torch.Tensor, reference: Reference, settled: float = -math.inf
) -> Subject:
    """With the readings a verdict is made from; up to `settled` the bound alone decides, and no more is read."""
    output = reference.take_judged(output)
    bound = gauge("bound", accumulate=reference.contract.accumulate)
    reading = read(output, reference.expected, gauge=bound, scale=reference.scale)
    at = None if reading.index is None else ",".join(map(str, reading.index))
    subject = replace(subject, bound=reading.worst, bound_at=at, bias=reading.bias, blind_from=reference.blind_from)
    if reading.worst <= settled:
        return subject
    longest = reading
    if reference.sequential_scale is not reference.scale:
        longest = read(output, reference.expected, gauge=bound, scale=reference.sequential_scale)
    return replace(
        subject, deterministic=longest.worst, deterministic_blind_from=reference.deterministic_blind_from
    )


def measure_output(
    record: Record, op: Op, dtype: str, output: torch.Tensor, reference: Reference, reduced_length: int,
    atol: float | None, inputs: list[torch.Tensor], twin: Twin | None,
) -> Record:  # fmt: skip
    """With ErrorStats and all readings that need no scale."""
    expected = reference.expected
    output = output.to(expected.device)
    absolute, magnitude, ulp = (
        read(output, expected, gauge=name).worst for name in ("absolute", "magnitude", "ulp")
    )
    return replace(
        record, stats=measure(output, expected, atol=atol), absolute=absolute, magnitude=magnitude, ulp=ulp,
        rmse=rmse(output, expected), v_abft=_read_v_abft(op, dtype, output, reference, inputs),
        policies=read_policies(
            output, expected, op=op.name, dtype=dtype, reduced_length=reduced_length, twin=twin
        ),
    )  # fmt: skip


def _read_v_abft(
    op: Op, dtype: str, output: torch.Tensor, reference: Reference, inputs: list[torch.Tensor]
) -> float | None:
    """A variance-based bound on a matrix product: in units of u_c·K/√2·rms(row of a)·rms(column of b).

    None where an output is infinite by right, since its product is past the format's range: no finite unit fits.
    """
    if not op.is_matrix_product:
        return None
    wide, expected = output.double(), reference.expected
    past = expected.isfinite() & (expected.abs() >= get_format(dtype).overflow_start)
    if bool((past & wide.isinf() & (wide.sign() == expected.sign())).any()):
        return None
    a, b = (x.double().to(output.device) for x in inputs)
    length = a.shape[1]
    unit = reference.unit_roundoff * length / math.sqrt(2)
    size = unit * torch.outer(a.square().mean(1).sqrt(), b.square().mean(0).sqrt())
    return worst_ratio(_differ(wide, expected), size)


def worst_ratio(error: torch.Tensor, size: torch.Tensor) -> float:
    """Largest error / size; no error is 0 of anything, NaN counts as infinite."""
    if not error.numel():
        return 0.0
    ratio = torch.where(error == 0, 0.0, error / size)
    return float(ratio.nan_to_num(nan=math.inf, posinf=math.inf).max())


def _differ(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """|first − second|; agreement on NaN and on infinities is no difference."""
    agree = (first == second) | (first.isnan() & second.isnan())
    return torch.where(agree, 0.0, (first - second).abs())


def compare_outputs(
    output: torch.Tensor, control: torch.Tensor, reference: Reference, dtype: str
) -> tuple[bool, float]:
    """Whether a kernel's bits are its control's, and how far beyond rounding the two are apart."""
    integer = torch.int16 if output.dtype.itemsize == 2 else torch.int32
    equal = torch.equal(output.view(integer), control.view(integer))
    if equal:
        return True, 0.0
    first, second = (x.to(reference.expected.device).double() for x in (output, control))
    difference = _differ(first, second)
    fmt = get_format(dtype)
    # Among subnormals the step, and so the rounding, is that of the smallest normal value.
    rounding = fmt.unit_roundoff * reference.expected.abs().clamp(min=fmt.smallest_normal)
    size = (rounding + reference.unit_roundoff * reference.scale).nan_to_num(nan=0.0)
    return False, worst_ratio(difference, size)


def settle_outcome(output: torch.Tensor, reference: Reference, dtype: str) -> Outcome:
    """The outcome of an output that is sound but for its numbers, and what there is to add."""
    mismatched = count_non_finite(output, reference, dtype)
    # Of NaN among the inputs NaN may well be all that comes out, and a kernel that loses it is wrong.
    if reference.is_undefined and (not mismatched or reference.from_finite):
        return Outcome("refused", UNDEFINED)
    if mismatched:
        return Outcome("non-finite", f"{mismatched} elements")
    if reference.unjudged is None:
        return Outcome("ok")
    narrow = reference.contract.accumulate
    why = f"{narrow} may overflow on the way there" if get_format(narrow).largest < WIDE else NO_BOUND
    count = int(reference.unjudged.sum())
    if count == output.numel():
        return Outcome("refused", f"no element can be judged: {why}")
    return Outcome("ok", f"{count} of {output.numel()} elements are not judged: {why}", unjudged=why)


def count_non_finite(output: torch.Tensor, reference: Reference, dtype: str) -> int:
    """Elements where one side is NaN or infinite and the other is not the same."""
    return int(find_non_finite(output, reference, dtype).sum())


def find_non_finite(output: torch.Tensor, reference: Reference, dtype: str) -> torch.Tensor:
    """Where one side is NaN or infinite and the other is not the same.

    An infinity stands for everything past the format's overflow threshold. A correct kernel may come out on the
    other side of it if the reference is within its error of there; how far it is off is for the reading to say.
    """
    expected = reference.expected
    wide = reference.take_judged(output).double()
    threshold = get_format(dtype).overflow_start
    if bool((wide.isfinite() & (expected.abs() < threshold)).all()):
        return torch.zeros_like(wide, dtype=torch.bool)
    near = NEAR_OVERFLOW * reference.unit_roundoff * reference.scale
    may_overflow = expected.abs() + near >= threshold
    may_stay = expected.abs() - near < threshold
    agrees = torch.where(
        wide.isnan() | expected.isnan(),
        wide.isnan() & expected.isnan(),
        torch.where(wide.isinf(), may_overflow & (wide.sign() == expected.sign()), may_stay),
    )
    return ~agrees
