"""An op and a contract → a limit, measured here and now on what is held to be correct.

That is the given controls; else the torch controls of an op gonogo knows; else the op's reference, computed in the
format the contract accumulates in. `Limit.kernel` says which. The first and the last are held to the
deterministic bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gonogo.cases import FINITE, NON_FINITE, ON_CPU, ON_GPU, USUAL
from gonogo.errors import ControlFailed, InputError
from gonogo.formats import get_format
from gonogo.limits import Limit, make_limit
from gonogo.limits.calibrating import calibrates
from gonogo.limits.rules import rule
from gonogo.limits.shipped import FoundLimit, check_limit
from gonogo.ops import DTYPES, AtHand, Kernel, Op
from gonogo.schema import Contract, Record, name_device
from gonogo.user.kernels import compute_in, make_controls, name_function
from gonogo.user.planning import Choice
from gonogo.words import find_op, need_torch

RUN = "{machine}, seed {seed}, {cases} cases per dtype"
"""What a lock file calls the measurement of a limit; it has no run directory."""
PER_DTYPE = re.compile(r", (\d+) cases per dtype$")
GIVE_CONTROLS = "Give correct kernels to measure it on: controls=[...]"


def measure_limit(
    op: str | Op,
    contract: Contract,
    *,
    controls: Sequence[Callable[..., Any]] = (),
    cases: int,
    seed: int = 0,
    device: str = "auto",
) -> tuple[Limit, str]:
    """The pooled limit of the gauge `bound` over `cases` cases of every dtype; and the machine it is from.

    Refused where a control is wrong on some case, and where the limit would let anything pass.
    """
    need_torch("a limit of your own")
    from gonogo.guest import flags

    with flags.known():
        return _measure_limit(op, contract, controls, cases, seed, device)


def _measure_limit(
    op: str | Op,
    contract: Contract,
    controls: Sequence[Callable[..., Any]],
    cases: int,
    seed: int,
    device: str,
) -> tuple[Limit, str]:
    from gonogo.runners.device import find_device
    from gonogo.runners.environment import describe_environment
    from gonogo.runners.in_process import InProcess

    where = find_device(device)
    source, kernels, made_from = _find_controls(op, contract, controls)
    # The package's own are known from its records, where some read above the first-order bound.
    checked = [kernel for kernel in kernels if isinstance(kernel.source, AtHand)]
    missing = f"no limit for {source.name}, contract {contract.describe()}"
    runner, size = InProcess(source, where, bounds_only=True), ON_GPU if where == "cuda" else ON_CPU
    distributions = FINITE if source.draw is None else USUAL  # what is drawn by the op is what it is
    readings: list[float] = []
    for dtype in DTYPES:
        usable = [k for k in kernels if dtype in k.dtypes and k.contract_for(dtype) == contract]
        planned = Choice(source, dtype, cases, seed, distributions).plan(size) if usable else []
        for records in runner.run_each(planned, usable):
            try:
                check_controls(records, checked)
            except ControlFailed as error:
                if controls:
                    raise
                problem = f"{error.control} {error.problem}, on {error.case}"
                raise InputError(f"{missing}: {problem}. {GIVE_CONTROLS}") from None
            readings += list_calibrating(records, kernels)
    if not readings:
        raise InputError(f"{missing}: {made_from} gave no sound output. {GIVE_CONTROLS}")
    machine = name_device(describe_environment(where))
    limit = make_limit(
        rule("pooled"), "bound", np.array(readings), op=source.name, contract=contract.describe(), kernel=made_from,
        runs=(RUN.format(machine=machine, seed=seed, cases=cases),),
    )  # fmt: skip
    return check_limit(limit, made_from), machine


def count_per_dtype(limit: Limit) -> int | None:
    """On how many cases of every dtype a limit was measured; None where it was not measured here, but from runs."""
    counts = [PER_DTYPE.search(run) for run in limit.runs]
    return max((int(count[1]) for count in counts if count), default=None)


def list_calibrating(records: Sequence[Record], controls: Sequence[Kernel]) -> list[float]:
    """The bound readings of controls that a limit is made from."""
    names = [kernel.name for kernel in controls]
    chosen = [record for record in records if record.kernel in names and calibrates(record)]
    return [record.bound for record in chosen if record.bound is not None]


def check_controls(records: Sequence[Record], controls: Sequence[Kernel]) -> None:
    """Refuse a given control that is wrong: what is beyond the deterministic bound no order of sums explains."""
    names = [kernel.name for kernel in controls]
    for record in records:
        if record.kernel not in names or record.distribution in NON_FINITE or record.outcome == "refused":
            continue
        problem = ""
        if record.outcome != "ok":
            verb = "" if record.outcome in ("raised", "timed-out", "crashed") else "is "
            problem = f"{verb}{record.outcome}" + (f": {record.detail}" if record.detail else "")
        elif record.deterministic is None or not record.deterministic <= 1.0:
            problem = f"reads {record.deterministic:.4g} deterministic, above the bound 1"
        if problem:
            raise ControlFailed(record.kernel, record.case, problem)


def pool_controls(records: Sequence[Record], controls: Sequence[Kernel], op: Op, contract: Contract) -> FoundLimit:
    """One limit from the readings of all controls on all of their cases."""
    readings = np.array(list_calibrating(records, controls))
    if not readings.size:
        raise InputError(f"op {op.name}: no control gave a finite reading. Give other distributions, or controls")
    limit = make_limit(rule("pooled"), "bound", readings, op=op.name, contract=contract.describe())
    check_limit(limit, "controls")
    names = [kernel.name for kernel in controls]
    cases = {record.case for record in records if record.kernel in names and calibrates(record)}
    return FoundLimit(limit, "controls", controls=len(controls), cases=len(cases))


def _find_controls(
    op: str | Op, contract: Contract, controls: Sequence[Callable[..., Any]]
) -> tuple[Op, list[Kernel], str]:
    """The op, those of its kernels to measure, and what they are in words."""
    known, names = find_op(op), [name_function(control) for control in controls]
    if not controls:
        ours = [k for k in known.kernels if k.role == "control" and k.framework == "torch"]
        ours = [k for k in ours if any(k.contract_for(dtype) == contract for dtype in DTYPES)]
        # An own op's one kernel is its reference in the dtype of the inputs: no contract says what that promises.
        if ours and not known.is_own:
            return known, ours, ", ".join(kernel.name for kernel in ours)
        return _take_reference(known, contract)
    return known, list(make_controls(known, controls, contract)), ", ".join(names)


def _take_reference(op: Op, contract: Contract) -> tuple[Op, list[Kernel], str]:
    """The op's reference in the accumulate format, on the dtypes whose values that holds.

    Inputs of any other are rounded on the way in, for which the error scale has no term.
    """
    accumulate = contract.accumulate
    dtypes = tuple(dtype for dtype in DTYPES if _holds(accumulate, dtype))
    if not dtypes:
        raise InputError(
            f"no limit for {op.name}, contract {contract.describe()}: no dtype fits into {accumulate}, so the "
            f"reference computed in it is no control. {GIVE_CONTROLS}"
        )
    name, source = f"reference in {accumulate}", AtHand(compute_in(accumulate, op))
    return op, [Kernel(name, "torch", contract=contract, dtypes=dtypes, source=source)], name


def _holds(wide: str, narrow: str) -> bool:
    """Whether every value of a format is one of another."""
    outer, inner = get_format(wide), get_format(narrow)
    return (
        outer.precision >= inner.precision
        and outer.largest >= inner.largest
        and outer.smallest_subnormal <= inner.smallest_subnormal
    )
