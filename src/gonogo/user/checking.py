"""One output at hand → a verdict: by its op and inputs, or against an expected array where there are none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gonogo.errors import InputError, NothingJudged, ReferenceFailed, UnsupportedDtype, suggest
from gonogo.formats import FORMATS
from gonogo.limits import Limit
from gonogo.limits.shipped import FoundLimit, choose_limit
from gonogo.ops import Op
from gonogo.schema import Contract, Measured, Outcome
from gonogo.verdict.judge import Verdict
from gonogo.verdict.verdicts import BLIND, is_blind, judge_measured
from gonogo.words import find_contract, find_op, need_torch

if TYPE_CHECKING:
    import torch

ONE_ULP = Limit("", "", None, None, "ulp", "one rounding", value=1.0)


def check(
    actual: Any,
    op: str | Op | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    expected: Any = None,
    contract: Contract | str | None = None,
    lock: str | Path | None = None,
    limit: Limit | None = None,
) -> Verdict:
    """Judge one output at hand: by its op and inputs, or against an expected array where there are none.

    Against `expected` alone nothing is known of the op: the reading is in ULPs, and the limit is 1.
    An output of the wrong shape or dtype, or not finite where it should be, is no-go for that reason. One output
    cannot be had on fresh seeds: a suspect one stays suspect.
    """
    promised = find_contract(contract)
    if expected is not None and (op is not None or inputs is not None):
        raise InputError("check takes op= and inputs=, or expected= alone: leave one of them out")
    if expected is not None:
        return judge_measured(
            _compare(actual, expected), FoundLimit(ONE_ULP, "one unit in the last place: no op was named")
        )
    if op is None or inputs is None:
        raise InputError("check needs op= and inputs=, or expected=")
    need_torch("gonogo.check by op and inputs")
    plain = find_op(op)
    tensors = _take_inputs(plain, inputs)
    found = choose_limit(plain, promised, lock=lock, limit=limit)
    measured = _measure(actual, plain, tensors, promised, found.gauge)
    verdict = judge_measured(measured, found)
    if verdict.decision == "go" and is_blind(measured, found):
        raise NothingJudged(plain.name, BLIND)
    return verdict


def _compare(actual: Any, expected: Any) -> Measured:
    """Outcome and ULPs of an output beside what it should be."""
    from gonogo.instrument.readings import read

    shapes = tuple(np.shape(actual)), tuple(np.shape(expected))
    if shapes[0] != shapes[1]:
        return Measured().end(Outcome("wrong-shape", f"{shapes[0]}, not {shapes[1]}"))
    try:
        reading = read(actual, expected, gauge="ulp").worst
        if math.isinf(reading):
            reading = read(actual, _overflow_as(actual, expected), gauge="ulp").worst
    except UnsupportedDtype as error:
        if error.role != "actual":
            raise
        return Measured().end(Outcome("wrong-dtype", f"{error.dtype}, not floating point"))
    # No finite error explains an element: NaN, or an infinity, on one side only.
    return Measured(outcome="non-finite" if math.isinf(reading) else "ok", ulp=reading)


def _overflow_as(actual: Any, expected: Any) -> np.ndarray[Any, Any]:
    """The expected values, infinite where they round to the infinity that the output has."""
    from gonogo.instrument.operands import as_operand

    found, wide = (
        one.detach().cpu().double().numpy() if hasattr(one, "detach") else np.asarray(one, dtype=np.float64)
        for one in (actual, expected)
    )
    threshold = as_operand(actual, "actual").format.overflow_start
    return np.where(np.isinf(found) & (np.abs(wide) >= threshold) & (np.sign(found) == np.sign(wide)), found, wide)


def _measure(actual: Any, op: Op, inputs: list[torch.Tensor], contract: Contract, gauge: str) -> Measured:
    """Outcome and readings of an output, as a run would record them, one in `gauge` among them."""
    from gonogo.execution.measurement import make_reference, read_bounds, settle_outcome
    from gonogo.instrument.readings import read

    shape, dtype = _find_shape(op, inputs), contract.output or _find_dtype(op, inputs)
    output = _to_tensor(actual)
    if output is None:
        return Measured().end(Outcome("no-output", f"{type(actual).__name__} is no array"))
    if tuple(output.shape) != shape:
        return Measured().end(Outcome("wrong-shape", f"{tuple(output.shape)}, not {shape}"))
    if _name_dtype(output) != dtype:
        return Measured().end(Outcome("wrong-dtype", f"{_name_dtype(output)}, not {dtype}"))
    try:
        reference = make_reference(op, inputs, contract, shape)
    except Exception as error:  # whatever the code of an own op raises
        raise ReferenceFailed(op.name, "the given inputs", error) from error
    output = output.detach().to(reference.expected.device)  # small references are kept in host memory
    measured = read_bounds(Measured(), output, reference)
    if measured.read(gauge) is None:
        readings: dict[str, Any] = {gauge: read(output, reference.expected, gauge=gauge).worst}
        measured = replace(measured, **readings)
    outcome = settle_outcome(output, reference, dtype)
    if outcome.word == "refused":
        raise NothingJudged(op.name, str(outcome.detail))
    return measured.end(outcome)


def _take_inputs(op: Op, given: Mapping[str, Any]) -> list[torch.Tensor]:
    """The op's inputs, in order, as tensors."""
    names = [one.name for one in op.inputs]
    if not isinstance(given, Mapping):
        raise InputError(
            f"inputs of op {op.name} are by name: inputs={{{names[0]!r}: ...}}, not {type(given).__name__}"
        )
    missing = [name for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    if missing or unknown:
        told = [f"missing: {', '.join(missing)}"] if missing else []
        told += [f"unknown: {', '.join(unknown)}"] if unknown else []
        near = suggest(unknown[0], missing) if unknown and missing else ""
        raise InputError(f"op {op.name} takes the inputs {', '.join(names)}; {'; '.join(told)}{near}")
    tensors = []
    for name in names:
        tensor = _to_tensor(given[name])
        if tensor is None:
            raise InputError(f"input {name} of op {op.name} is {type(given[name]).__name__}; give an array")
        tensors.append(tensor)
    return tensors


def _find_dtype(op: Op, inputs: list[torch.Tensor]) -> str:
    """The dtype that the output must have: the one of the inputs."""
    valued = [_name_dtype(x) for one, x in zip(op.inputs, inputs, strict=True) if one.kind == "values"]
    if len(set(valued)) > 1:
        raise InputError(f"inputs of op {op.name} have dtypes {', '.join(valued)}; give all of them in one")
    if valued[0] not in FORMATS:
        raise InputError(f"inputs of op {op.name} have dtype {valued[0]}; give floating point")
    return valued[0]


def _find_shape(op: Op, inputs: list[torch.Tensor]) -> tuple[int, ...]:
    """The shape that the output must have, by the op's axes; by its reference for inputs of another rank.

    A softmax is one of a matrix, too.
    """
    sizes: dict[str, int] = {}
    for one, tensor in zip(op.inputs, inputs, strict=True):
        axes = one.axes.split()
        if len(axes) != tensor.ndim:
            return _ask_reference(op, inputs)
        for axis, size in zip(axes, tensor.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise InputError(
                    f"inputs of op {op.name} do not match: axis {axis} is {size} in {one.name} and {sizes[axis]} "
                    "in one before it"
                )
    wanted = op.output.split()
    return tuple(sizes[axis] for axis in wanted) if sizes.keys() >= set(wanted) else _ask_reference(op, inputs)


def _ask_reference(op: Op, inputs: list[torch.Tensor]) -> tuple[int, ...]:
    try:
        output = op.load_reference()(*(x.double() if x.is_floating_point() else x for x in inputs))
        return tuple(output.shape)
    except Exception as error:
        raise ReferenceFailed(op.name, "the given inputs", error) from error


def _to_tensor(array: Any) -> torch.Tensor | None:
    """A tensor over the same memory where it can be; None of what is no array."""
    import torch

    from gonogo.execution.call import to_torch

    if isinstance(array, torch.Tensor):
        return array
    found = to_torch(np.asarray(array)) if hasattr(array, "__array__") else None
    return found if isinstance(found, torch.Tensor) else None


def _name_dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
