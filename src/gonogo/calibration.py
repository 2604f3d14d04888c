"""An op and a contract → a limit, measured here and now on what is held to be correct.

That is the given controls; else the torch controls of an op gonogo knows; else the op's reference, computed in the
format the contract accumulates in. `Limit.kernel` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from gonogo.cases import FINITE, INTERPRETER, NO_LIMIT, NON_FINITE, plan_case
from gonogo.choices import find_op
from gonogo.errors import ControlFailed, InputError
from gonogo.limits import Limit, make_limit
from gonogo.ops import DTYPES, Kernel, Op
from gonogo.own_op import OwnOp, add_candidate, compute_in, name_controls, name_function
from gonogo.rules import rule
from gonogo.schema import Contract
from gonogo.shipped import FoundLimit
from gonogo.verdicts import Row


def measure_limit(
    op: str | Op,
    contract: Contract,
    *,
    controls: Sequence[Callable[..., Any]] = (),
    cases: int,
    seed: int = 0,
    device: str = "auto",
) -> tuple[Limit, str]:
    """The pooled limit of the gauge `bound` over `cases` cases of every dtype; and the machine it is from."""
    from gonogo.campaign import find_device, set_switches
    from gonogo.campaign.bench import Job, prepare
    from gonogo.campaign.environment import describe_environment
    from gonogo.campaign.execute import run_kernel
    from gonogo.campaign.worker import keep_precision

    place = find_device(device)
    set_switches(place)
    source, kernels, made_from = _find_controls(op, contract, controls)
    given = [kernel.name for kernel in kernels] if controls else []
    size = NO_LIMIT if place == "cuda" else INTERPRETER
    readings: list[float] = []
    for dtype in DTYPES:
        usable = [k for k in kernels if dtype in k.dtypes and k.contract_for(dtype) == contract]
        for number in range(cases if usable else 0):
            case, _ = plan_case(source, dtype, number, seed, distributions=FINITE, limit=size)
            job = Job(0, case, "verify", tuple(k.name for k in usable), place, bounds_only=True)
            bench = prepare(job, op=source)
            # Given controls run as their owner has torch set; ours must keep the contract they are here for.
            with nullcontext() if controls else keep_precision():
                rows = [run_kernel(bench, kernel) for kernel in usable]
            check_controls(rows, given)
            readings += [row["bound"] for row in rows if row["outcome"] == "ok" and np.isfinite(row["bound"])]
    if not readings:
        raise InputError(
            f"no limit for {source.name}, contract {contract.describe()}: {made_from} gave no sound output. "
            "Give others with controls=[...]"
        )
    facts = describe_environment(place)
    machine = str(facts.get("gpu") or facts["processor"] or facts["platform"])
    limit = make_limit(
        rule("pooled"), "bound", np.array(readings), op=source.name, contract=contract.describe(), kernel=made_from,
        runs=(f"{machine}, seed {seed}, {cases} cases per dtype",),
    )  # fmt: skip
    return limit, machine


def check_controls(rows: Sequence[Row], controls: Sequence[str]) -> None:
    """Refuse a given control that is wrong: what is beyond the deterministic bound no order of sums explains."""
    for row in rows:
        name = row["kernel"]
        if name not in controls or row["distribution"] in NON_FINITE or row["outcome"] == "refused":
            continue
        problem = ""
        if row["outcome"] != "ok":
            verb = "" if row["outcome"] in ("raised", "timed-out", "crashed") else "is "
            problem = f"{verb}{row['outcome']}" + (f": {row['detail']}" if row.get("detail") else "")
        elif not row["deterministic"] <= 1.0:
            problem = f"reads {row['deterministic']:.4g} deterministic, above the bound 1"
        if problem:
            raise ControlFailed(name.removeprefix("control:"), row["case"], problem)


def pool_controls(rows: Sequence[Row], controls: Sequence[str], op: Op, contract: Contract) -> FoundLimit:
    """One limit from the readings of all controls on all of their cases."""
    ours = [row for row in rows if row["kernel"] in controls and row["outcome"] != "refused"]
    chosen = [row for row in ours if row["distribution"] not in NON_FINITE]
    readings = np.array([row["bound"] for row in chosen], float)
    readings = readings[np.isfinite(readings)]
    if not readings.size:
        raise InputError(f"op {op.name}: no control gave a finite reading. Give other distributions, or controls")
    limit = make_limit(rule("pooled"), "bound", readings, op=op.name, contract=contract.describe())
    cases = _count(len({row["case"] for row in chosen}), "case")
    told = (
        f"pooled, {_count(limit.cases, 'reading')} of {_count(len(controls), 'control')} on {cases}; "
        f"at most {100 * limit.fp_upper95:.2g} % false positives, with 95 % confidence"
    )
    return FoundLimit(limit, told)


def _find_controls(
    op: str | Op, contract: Contract, controls: Sequence[Callable[..., Any]]
) -> tuple[Op, list[Kernel], str]:
    """The op, those of its kernels to measure, and what they are in words."""
    plain, names = find_op(op), [name_function(one) for one in controls]
    if not controls:
        ours = [k for k in plain.kernels if k.role == "control" and k.framework == "torch"]
        ours = [k for k in ours if any(k.contract_for(dtype) == contract for dtype in DTYPES)]
        # An own op's one kernel is its reference in the dtype of the inputs: no contract says what that promises.
        if ours and not isinstance(plain, OwnOp):
            return plain, ours, ", ".join(kernel.name for kernel in ours)
        controls, names = [compute_in(contract.accumulate, plain)], [f"reference in {contract.accumulate}"]
    source = add_candidate(plain, controls[0], contract, controls)
    return source, [source.kernel(name) for name in name_controls(controls)], ", ".join(names)


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"
