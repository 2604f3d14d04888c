"""An output and what is known of its case → the measured columns of a record."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import torch

from gonogo.execution.reference import Reference
from gonogo.formats import get_format
from gonogo.instrument.gauges import Gauge, gauge
from gonogo.instrument.host_copies import fetch
from gonogo.instrument.readings import read
from gonogo.instrument.running_error.mode import WIDE
from gonogo.instrument.stats import measure
from gonogo.ops import Op
from gonogo.policies import Twin, read_unscaled
from gonogo.schema import Measured, Outcome, Record

NEAR_OVERFLOW = 8.0
"""How far from the overflow threshold a correct result may still round either way, in units of u_c·S.

Controls that accumulate in float32 read at most 5.7 of them in the committed records; 8 is the next power of two.
"""

UNDEFINED = "the reference is NaN everywhere"
NO_BOUND = "no finite bound is known of what rounding does there"


def read_bounds(output: torch.Tensor, reference: Reference, settled: float = -math.inf) -> Measured:
    """The readings a verdict is made from; up to `settled` the bound alone decides, and no more is read."""
    output = reference.take_judged(output)
    bound = _open_bound(reference.contract.accumulate)
    reading = read(output, reference.expected, gauge=bound, scale=reference.scale)
    at = None if reading.index is None else ",".join(map(str, reading.index))
    deterministic, blind = None, None
    if not reading.worst <= settled:
        longest = reading
        if reference.sequential_scale is not reference.scale:
            longest = read(output, reference.expected, gauge=bound, scale=reference.sequential_scale)
        deterministic, blind = longest.worst, reference.deterministic_blind_from
    return Measured(
        bound=reading.worst, bound_at=at, bias=reading.bias, deterministic=deterministic,
        blind_from=reference.blind_from, deterministic_blind_from=blind,
    )  # fmt: skip


@cache
def _open_bound(accumulate: str) -> Gauge:
    return gauge("bound", accumulate=accumulate)


def measure_output(
    record: Record, op: Op, dtype: str, output: torch.Tensor, reference: Reference, reduced_length: int,
    atol: float | None, inputs: list[torch.Tensor], twin: Twin | None,
) -> Record:  # fmt: skip
    """With ErrorStats and all readings that need no scale."""
    expected = reference.expected
    output = output.to(expected.device)
    unscaled = read_unscaled(
        output, expected, op=op.name, dtype=dtype, reduced_length=reduced_length, twin=twin
    )  # fmt: skip
    return replace(
        record, stats=measure(output, expected, atol=atol), absolute=unscaled.absolute,
        magnitude=unscaled.magnitude, ulp=unscaled.ulp, rmse=unscaled.rmse,
        v_abft=_read_v_abft(op, dtype, output, reference, inputs), policies=unscaled.policies,
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
    a, b = fetch([x.double() for x in inputs]) if output.device.type == "cpu" else [x.double() for x in inputs]
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
    judged = reference.take_judged(output)
    return 0 if _are_ordinary(judged, reference, dtype) else int(_find_odd(judged, reference, dtype).sum())


def _are_ordinary(judged: torch.Tensor, reference: Reference, dtype: str) -> bool:
    """Whether all elements are finite, and their references below the format's overflow threshold."""
    if not reference.is_below(get_format(dtype).overflow_start):
        return False
    if judged.dtype.itemsize > 4:
        return bool(judged.isfinite().all())
    narrow = judged if judged.dtype.itemsize > 1 else judged.double()  # torch adds up no eight bits
    return math.isfinite(float(narrow.sum(dtype=torch.float64)))  # whose range no sum of narrower ones leaves


def find_non_finite(output: torch.Tensor, reference: Reference, dtype: str) -> torch.Tensor:
    """Where one side is NaN or infinite and the other is not the same.

    An infinity stands for everything past the format's overflow threshold. A correct kernel may come out on the
    other side of it if the reference is within its error of there; how far it is off is for the reading to say.
    """
    judged = reference.take_judged(output)
    if _are_ordinary(judged, reference, dtype):
        return torch.zeros_like(judged, dtype=torch.bool)
    return _find_odd(judged, reference, dtype)


def _find_odd(judged: torch.Tensor, reference: Reference, dtype: str) -> torch.Tensor:
    wide = judged.double()
    expected, threshold = reference.expected, get_format(dtype).overflow_start
    near = NEAR_OVERFLOW * reference.unit_roundoff * reference.scale
    may_overflow = expected.abs() + near >= threshold
    may_stay = expected.abs() - near < threshold
    agrees = torch.where(
        wide.isnan() | expected.isnan(),
        wide.isnan() & expected.isnan(),
        torch.where(wide.isinf(), may_overflow & (wide.sign() == expected.sign()), may_stay),
    )
    return ~agrees
