"""One output at hand → a verdict: by its op and inputs, or against an expected array where there are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gonogo.cases import Call, draw_arguments, take_arguments
from gonogo.errors import (
    BadArguments,
    InputError,
    NothingJudged,
    ReferenceFailed,
    UnsupportedArray,
    UnsupportedDtype,
    check_path,
    suggest,
)
from gonogo.formats import FORMATS
from gonogo.guest.nests import list_leaves
from gonogo.limits import Limit
from gonogo.limits.shipped import FoundLimit, choose_limit
from gonogo.ops import Op
from gonogo.schema import Contract, Measured, Outcome
from gonogo.user import own_op
from gonogo.user.arguments import check_nest
from gonogo.user.own_op import choose_contract, name_op
from gonogo.verdict.judge import Verdict
from gonogo.verdict.verdicts import BLIND, is_blind, judge_measured
from gonogo.words import find_contract, find_op, need_torch

if TYPE_CHECKING:
    import torch

    from gonogo.execution.judging import Judged
    from gonogo.execution.reference import Reference

ONE_ULP = Limit("", "", None, None, "ulp", "one rounding", value=1.0)


def check(
    actual: Any,
    op: str | Op | None = None,
    *,
    reference: Callable[..., Any] | None = None,
    inputs: Any = None,
    outputs: Any = None,
    expected: Any = None,
    contract: Contract | str | None = None,
    lock: str | Path | None = None,
    limit: Limit | None = None,
) -> Verdict:
    """Judge one output at hand: by its op or reference and inputs, or against an expected array alone.

    `inputs` of an op are by name; those of a `reference` are its arguments, by place or by name, and `outputs` says
    what it cannot: dtypes of leaves, indices. Against `expected` alone nothing is known of the op: the reading is
    in ULPs, and the limit is 1. An output of the wrong shape or dtype, or not finite where it should be, is no-go
    for that reason. One output cannot be had on fresh seeds: a suspect one stays suspect.
    """
    if expected is not None and (op is not None or inputs is not None or reference is not None):
        raise InputError("check takes op= and inputs=, or expected= alone: leave one of them out")
    if op is not None and reference is not None:
        raise InputError("check takes op= or reference=: leave one of them out")
    if expected is not None:
        find_contract(contract)
        return judge_measured(_compare(actual, expected), FoundLimit(ONE_ULP, "one ulp"))
    if (op is None and reference is None) or inputs is None:
        raise InputError("check needs op= and inputs=, or expected=, or reference= and inputs=")
    need_torch("gonogo.check by op and inputs")
    check_nest("actual", actual)
    from gonogo.guest import flags

    with flags.known():
        return _check_by_reference(actual, op, reference, inputs, outputs, contract, lock, limit)


def _check_by_reference(
    actual: Any,
    op: str | Op | None,
    reference: Callable[..., Any] | None,
    inputs: Any,
    outputs: Any,
    contract: Contract | str | None,
    lock: str | Path | None,
    limit: Limit | None,
) -> Verdict:
    if reference is not None:
        if callable(inputs) and not hasattr(inputs, "__array__"):
            raise InputError("check takes the inputs that the output was made from, not a generator of them")
        known = own_op.Op(name_op(reference), reference=reference, inputs=inputs, outputs=outputs)
        call = take_arguments(known, draw_arguments(known, 0, known.dtypes[0]))
    else:
        assert op is not None
        known = find_op(op)
        call = take_arguments(known, inputs) if known.draw is not None else _take_inputs(known, inputs)
    keeps = find_contract(choose_contract(known) if contract is None else contract)
    if lock is not None:
        check_path("lock", lock)
    chosen = choose_limit(known, keeps, lock=lock, limit=limit)
    known = replace(known, grads=False)  # an output at hand has none
    measured = _measure(actual, known, call, keeps, chosen.gauge)
    verdict = judge_measured(measured, chosen)
    if verdict.decision == "go" and is_blind(measured, chosen):
        raise NothingJudged(known.name, BLIND)
    return verdict


def _compare(actual: Any, expected: Any) -> Measured:
    """Outcome and ULPs of an output beside what it should be."""
    from gonogo.instrument.readings import read

    shapes = _read_shape(actual, "actual"), _read_shape(expected, "expected")
    if shapes[0] != shapes[1]:
        return Measured().end(Outcome("wrong-shape", f"{shapes[0]}, not {shapes[1]}"))
    if 0 in shapes[0]:
        raise InputError("actual and expected have no elements: nothing was judged")
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


def _read_shape(array: Any, role: str) -> tuple[int, ...]:
    try:
        return tuple(np.shape(array))
    except Exception as error:  # whatever stands behind __array__, and lists that are no arrays
        raise UnsupportedArray(role, f"{type(array).__name__}, which NumPy cannot read: {error}") from error


def _overflow_as(actual: Any, expected: Any) -> np.ndarray[Any, Any]:
    """The expected values, infinite where they round to the infinity that the output has."""
    from gonogo.instrument.operands import as_operand

    output, wide = (
        array.detach().cpu().double().numpy() if hasattr(array, "detach") else np.asarray(array, dtype=np.float64)
        for array in (actual, expected)
    )
    threshold = as_operand(actual, "actual").format.overflow_start
    return np.where(
        np.isinf(output) & (np.abs(wide) >= threshold) & (np.sign(output) == np.sign(wide)), output, wide
    )


def _measure(actual: Any, op: Op, call: Call, contract: Contract, gauge: str) -> Measured:
    """Outcome and readings of an output, as a run would record them, one in `gauge` among them."""
    from gonogo.execution.call import take_leaves
    from gonogo.execution.judging import judge_leaves, read_leaves, settle_leaves
    from gonogo.execution.leaves import find_wrong_kind, pair_leaves

    outputs: dict[str, Any] = take_leaves(dict(list_leaves(actual))) if op.is_nest else {"": _to_tensor(actual)}
    if not op.is_nest and outputs[""] is None:
        return Measured().end(Outcome("no-output", f"{type(actual).__name__} is no array"))
    try:
        references = _make_references(op, call, contract)
    except BadArguments:
        raise
    except Exception as error:  # whatever the code of an own op raises
        raise ReferenceFailed(op.name, "the given inputs", error) from error
    pairs = pair_leaves(list(outputs), op, references)
    if isinstance(pairs, Outcome):
        return Measured().end(pairs)
    for pair in pairs:
        wrong = find_wrong_kind(outputs[pair.path], pair, "cuda")
        if wrong is not None:
            return Measured().end(wrong)
    leaves = judge_leaves(pairs, outputs, dict(call.tensors))
    measured = read_leaves(leaves)
    if measured.read(gauge) is None:
        measured = _read_other(measured, leaves, gauge)
    outcome = settle_leaves(leaves)
    if outcome.word == "refused":
        raise NothingJudged(op.name, str(outcome.detail))
    return measured.end(outcome)


def _read_other(measured: Measured, leaves: Sequence[Judged], gauge: str) -> Measured:
    """With the worst reading of floating leaves in a gauge that needs no scale."""
    from gonogo.instrument.readings import read

    worst = [
        read(leaf.output.to(leaf.reference.expected.device), leaf.reference.expected, gauge=gauge).worst
        for leaf in leaves if leaf.dtype in FORMATS and not leaf.reference.is_discrete
    ]  # fmt: skip
    readings: dict[str, Any] = {gauge: max(worst, default=0.0)}
    return replace(measured, **readings)


def _make_references(op: Op, call: Call, contract: Contract) -> tuple[Reference, ...]:
    from gonogo.execution.reference import make_reference, make_references

    if op.is_nest:
        return make_references(op, call, contract, "")
    shape, dtype = _find_shape(op, call), contract.output or _find_dtype(op, call)
    return (make_reference(op, call, contract, shape, dtype),)


def _take_inputs(op: Op, inputs: Any) -> Call:
    """The op's inputs, in order, as tensors."""
    names = [described.name for described in op.inputs]
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"inputs of op {op.name} are by name: inputs={{{names[0]!r}: ...}}, not {type(inputs).__name__}"
        )
    missing = [name for name in names if name not in inputs]
    unknown = [name for name in inputs if name not in names]
    if missing or unknown:
        problems = [f"missing: {', '.join(missing)}"] if missing else []
        problems += [f"unknown: {', '.join(unknown)}"] if unknown else []
        near = suggest(unknown[0], missing) if unknown and missing else ""
        raise InputError(f"op {op.name} takes the inputs {', '.join(names)}; {'; '.join(problems)}{near}")
    arguments: list[Any] = []
    for described in op.inputs:
        value = inputs[described.name]
        tensor = value if described.kind == "constant" else _to_tensor(value)
        if tensor is None and described.kind != "constant":
            raise InputError(f"input {described.name} of op {op.name} is {type(value).__name__}; give an array")
        arguments.append(tensor)
    return Call(tuple(arguments), {}, tuple(names))


def _find_dtype(op: Op, call: Call) -> str:
    """The dtype that the output must have: the one of the inputs."""
    valued = [
        _name_dtype(x) for described, x in zip(op.inputs, call.args, strict=True) if described.kind == "values"
    ]
    if len(set(valued)) > 1:
        raise InputError(f"inputs of op {op.name} have dtypes {', '.join(valued)}; give all of them in one")
    if valued[0] not in FORMATS:
        raise InputError(f"inputs of op {op.name} have dtype {valued[0]}; give floating point")
    return valued[0]


def _find_shape(op: Op, call: Call) -> tuple[int, ...]:
    """The shape that the output must have, by the op's axes; by its reference for inputs of another rank.

    A softmax is one of a matrix, too.
    """
    sizes: dict[str, int] = {}
    for described, tensor in zip(op.inputs, call.args, strict=True):
        axes = described.axes.split()
        if described.kind == "constant":
            continue
        if len(axes) != tensor.ndim:
            return _ask_reference(op, call)
        for axis, size in zip(axes, tensor.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise InputError(
                    f"inputs of op {op.name} do not match: axis {axis} is {size} in {described.name} and "
                    f"{sizes[axis]} in one before it"
                )
    wanted = op.output.split()
    return tuple(sizes[axis] for axis in wanted) if sizes.keys() >= set(wanted) else _ask_reference(op, call)


def _ask_reference(op: Op, call: Call) -> tuple[int, ...]:
    wide = call.map(lambda path, x: x.double() if x.is_floating_point() else x)
    try:
        output = op.load_reference()(*wide.args)
        return tuple(output.shape)
    except Exception as error:
        raise ReferenceFailed(op.name, "the given inputs", error) from error


def _to_tensor(array: Any) -> torch.Tensor | None:
    """A tensor over the same memory where it can be; None of what is no array."""
    import torch

    from gonogo.execution.call import to_torch

    if isinstance(array, torch.Tensor):
        return array
    tensor = to_torch(np.asarray(array)) if hasattr(array, "__array__") else None
    return tensor if isinstance(tensor, torch.Tensor) else None


def _name_dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
