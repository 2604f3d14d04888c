"""An op and a contract → a limit, measured here and now on what is held to be correct.

That is the given controls; else the torch controls of an op gonogo knows; else the op's reference, computed in the
format the contract accumulates in. `Limit.kernel` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gonogo.cases import FINITE, INTERPRETER, NO_LIMIT, plan_case
from gonogo.errors import InputError
from gonogo.limits import Limit, make_limit
from gonogo.ops import DTYPES, Kernel, Op, get_op
from gonogo.rules import rule
from gonogo.schema import Contract
from gonogo.verification import OwnOp, with_candidate

if TYPE_CHECKING:
    import torch


def measure_limit(
    op: str | OwnOp,
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

    place = find_device(device)
    set_switches(place)
    source, kernels, made_from = _find_controls(op, contract, controls)
    size = NO_LIMIT if place == "cuda" else INTERPRETER
    readings: list[float] = []
    for dtype in DTYPES:
        usable = [k for k in kernels if dtype in k.dtypes and k.contract_for(dtype) == contract]
        for number in range(cases if usable else 0):
            case, _ = plan_case(source, dtype, number, seed, distributions=FINITE, limit=size)
            bench = prepare(Job(0, case, "verify", tuple(k.name for k in usable), place), op=source)
            rows = [run_kernel(bench, kernel) for kernel in usable]
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


def _find_controls(
    op: str | OwnOp, contract: Contract, controls: Sequence[Callable[..., Any]]
) -> tuple[Op, list[Kernel], str]:
    """The op, those of its kernels to measure, and what they are in words."""
    names = [getattr(one, "__qualname__", type(one).__name__) for one in controls]
    if not controls:
        plain = get_op(op) if isinstance(op, str) else op
        ours = [k for k in plain.kernels if k.role == "control" and k.framework == "torch"]
        ours = [k for k in ours if any(k.contract_for(dtype) == contract for dtype in DTYPES)]
        # An own op's one kernel is its reference in the dtype of the inputs: no contract says what that promises.
        if ours and not isinstance(plain, OwnOp):
            return plain, ours, ", ".join(kernel.name for kernel in ours)
        controls, names = [_compute_in(contract.accumulate, plain)], [f"reference in {contract.accumulate}"]
    source = with_candidate(op, controls[0], contract, controls)
    return source, [k for k in source.kernels if k.name.startswith("control_")], ", ".join(names)


def _compute_in(accumulate: str, op: Op) -> Callable[..., Any]:
    """A kernel that takes its inputs to a format, calls the reference and rounds once."""
    reference = op.load_reference()
    valued = next(place for place, given in enumerate(op.inputs) if given.kind == "values")

    def compute(*inputs: torch.Tensor) -> torch.Tensor:
        import torch

        format_ = getattr(torch, accumulate)
        output: torch.Tensor = reference(*(x.to(format_) if x.is_floating_point() else x for x in inputs))
        return output.to(inputs[valued].dtype)

    return compute
