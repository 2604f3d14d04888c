"""A user's kernel → verdicts: the entry for people who have a kernel and want to know.

A kernel of an op gonogo knows is held to the limits that come with the package. For an op it does not know, the
error scale comes from the reference itself, and the limit is the deterministic bound, or made from given controls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.cases import USUAL, Planned, parse_case
from gonogo.errors import InputError, NoGo
from gonogo.limits import DTYPE_FREE, Limit
from gonogo.limits.shipped import FoundLimit, choose_limit
from gonogo.ops import DTYPES, AtHand, Kernel, Op
from gonogo.runners.in_process import InProcess
from gonogo.schema import Contract, Record
from gonogo.user import own_op
from gonogo.user.arguments import check_arguments
from gonogo.user.calibration import check_controls, pool_controls
from gonogo.user.kernels import find_recorded_control, make_candidate, make_controls, name_function
from gonogo.user.own_op import choose_contract, name_op
from gonogo.user.planning import DEFAULT_CASES, Choice, choose_size_limit, tell_unrun
from gonogo.user.recording import open_record
from gonogo.verdict.diagnosis import explain_failure
from gonogo.verdict.referee import Referee, Suspects, judge_candidate
from gonogo.verdict.setting import describe_setting
from gonogo.verdict.verdicts import Verification
from gonogo.words import find_contract, find_op, name_contract, need_torch

if TYPE_CHECKING:
    import torch


def verify(
    kernel: Callable[..., Any],
    op: str | Op | None = None,
    *,
    reference: Callable[..., Any] | None = None,
    inputs: Any = None,
    outputs: Any = None,
    mutates: str | Sequence[str] = (),
    grads: bool | str | Sequence[str] = False,
    dtypes: str | Sequence[str | torch.dtype] | torch.dtype = DTYPES,
    cases: int = DEFAULT_CASES,
    seed: int = 0,
    contract: Contract | str | None = None,
    controls: Sequence[Callable[..., Any]] = (),
    distributions: str | Sequence[str] = USUAL,
    device: str = "auto",
    lock: str | Path | None = None,
    limit: Limit | None = None,
    strict: bool = True,
    suspects: Suspects = "rerun",
    only: str | None = None,
    record: str | Path | None = None,
    name: str | None = None,
) -> Verification:
    """Run a kernel on `cases` cases per dtype and judge each; raise NoGo where one is no-go, unless not `strict`.

    The kernel takes the op's arguments and returns its output: torch, NumPy or JAX. An op is named; or a gonogo.Op;
    or told by its `reference`, a function or module, and `inputs`: the arguments as they are, or a generator
    draw(seed, dtype) of them. What `outputs`, `mutates` and `grads` say is as in gonogo.Op.

    A `limit` at hand goes before `controls`, which are run on all cases and make one limit; these before `lock`.
    A suspect case, above its limit and explained by the deterministic bound, is run again on three fresh seeds:
    it is no-go if it is above there too, and passes otherwise; with suspects="fail" it is no-go at once.
    `only` is the id of a single case, to replay it. `record` is a run directory to add all records to, the kernel's
    by `name`; a case that it has of this kernel and contract already stays as it was.
    """
    need_torch("gonogo.verify")
    from gonogo.runners.device import find_device

    known = take_op(op, reference, inputs, outputs=outputs, mutates=mutates, grads=grads)
    keeps, where = find_contract(contract or choose_contract(known)), find_device(device)
    _check_functions(kernel, controls, known)
    given = tuple(controls) if limit is None or record is not None else ()
    chosen = None if given and limit is None else choose_limit(known, keeps, lock=lock, limit=limit)
    candidate = make_candidate(known, AtHand(kernel), keeps)
    beside = make_controls(known, given, keeps)
    runner = _open_runner(known, where, chosen, recorded=record is not None)
    choice = Choice(known, dtypes, cases, seed, distributions)
    planned = choice.plan(choose_size_limit(choice, where, runner, candidate))
    target = [(parse_case(only, known), "replay")] if only else planned
    check_arguments(kernel, known, target[0][0].seed, target[0][0].dtype)
    recorder = open_record(record, where, isolated=False) if record is not None else None
    extra = () if record is None or known.is_nest else (find_recorded_control(known, keeps),)
    records = _run_kernels(runner, planned, target, candidate, beside, extra)
    if chosen is None:
        chosen = pool_controls(records, beside, known, keeps)
    notes = (*_find_notes(runner, target), *tell_unrun(known, planned)) if known.is_own else ()
    referee = Referee(runner, candidate, chosen, suspects)
    verification = judge_candidate(referee, records, keeps, notes=notes, redraw=only is None)
    setting = describe_setting(
        device, where, None if only else seed, [case.record for case in verification.verdicts]
    )
    verification = replace(verification, planned=len(target), setting=setting)
    if recorder is not None:
        verification = replace(verification, recorded=recorder.append(records, name or name_function(kernel)))
    if not verification.failed:
        return verification
    verification = explain_failure(
        verification, referee, keeps, planned=target, lock=lock, with_controls=bool(beside)
    )
    planned_by = f"cases={cases}, seed={seed}, dtypes={dtypes!r}"
    planned_by += f", distributions={distributions!r}" if distributions != USUAL else ""
    judged_by = _tell_judged_by(limit, given, planned_by, lock, device)
    judged_by += f', suspects="{suspects}"' if suspects != "rerun" else ""
    named = _tell_op(op, reference, inputs, outputs=outputs, mutates=mutates, grads=grads)
    replay = _tell_replay(getattr(kernel, "__name__", "kernel"), named, verification, keeps, judged_by)
    explained = replace(verification, replay=replay)
    if strict:
        raise NoGo(explained) from next(iter(runner.raised), None)
    return explained


def take_op(op: str | Op | None, reference: Any = None, inputs: Any = None, **told: Any) -> Op:
    """The op that is named, at hand, or told by its reference."""
    if op is not None and reference is not None:
        raise InputError("verify takes an op, or reference= and inputs=: leave one of them out")
    if reference is not None:
        return own_op.Op(name_op(reference), reference=reference, inputs=inputs, **told)
    if op is None:
        raise InputError("verify needs an op, or reference= and inputs=")
    if inputs is not None or any(value not in (None, (), False) for value in told.values()):
        words = ["inputs", *(word for word, value in told.items() if value not in (None, (), False))]
        words = words if inputs is not None else words[1:]
        raise InputError(f"{words[0]}= goes with reference=; of an op, say it in gonogo.Op(...)")
    return find_op(op)


def _tell_op(op: str | Op | None, reference: Any, inputs: Any, **told: Any) -> str:
    """The arguments that name the op of a replay."""
    if op is not None:
        return f'"{op}"' if isinstance(op, str) else "op"
    shown = getattr(reference, "__name__", "reference")
    drawn = getattr(inputs, "__name__", "inputs")
    words = {"reference": shown, "inputs": drawn}
    words = {name: value if value.isidentifier() else name for name, value in words.items()}
    more = [f"{name}={value!r}" for name, value in told.items() if value not in (None, (), False)]
    return ", ".join([*(f"{name}={value}" for name, value in words.items()), *more])


def _check_functions(kernel: Any, controls: Any, op: Op) -> None:
    """Refuse what cannot be run, before anything is."""
    if not callable(kernel):
        raise InputError(f"kernel is {type(kernel).__name__}, not a function of the inputs of {op.name}")
    if callable(controls):
        raise InputError(f"controls is one function; give a list: controls=[{name_function(controls)}]")


def _open_runner(op: Op, place: str, found: FoundLimit | None, *, recorded: bool) -> InProcess:
    """One that reads no more than the verdict needs, unless it is for a record."""
    # Gauges but these two need no scale, and are not among the bounds.
    bounds_only = not recorded and (found is None or found.gauge in DTYPE_FREE)
    settled = found.value if bounds_only and found is not None and found.gauge == "bound" else -math.inf
    return InProcess(op, place, bounds_only=bounds_only, settled=settled)


def _run_kernels(
    runner: InProcess,
    planned: list[Planned],
    target: list[Planned],
    candidate: Kernel,
    controls: tuple[Kernel, ...],
    extra: tuple[Kernel, ...],
) -> list[Record]:
    """Records of the candidate, of the given controls, which must be right, and of `extra` ones for a record."""
    records: list[Record] = []
    for kernels, chosen in _plan_runs(planned, target, candidate, controls, extra):
        for made in runner.run_each(chosen, kernels):
            check_controls(made, controls)
            records += made
    return records


def _plan_runs(
    planned: list[Planned],
    target: list[Planned],
    candidate: Kernel,
    controls: tuple[Kernel, ...],
    extra: tuple[Kernel, ...],
) -> Iterator[tuple[tuple[Kernel, ...], list[Planned]]]:
    """Which kernels on which cases: controls always on all, so that a replayed case meets the same limit."""
    if target is planned:
        yield (*controls, *extra, candidate), planned
        return
    if controls:
        yield controls, planned
    yield (*extra, candidate), target


def _find_notes(runner: InProcess, planned: Sequence[Planned]) -> tuple[str, ...]:
    """What the reference does that a user may not mean."""
    if runner.lost:
        return ()
    smallest = min((case for case, _ in planned), key=lambda case: math.prod(case.sizes))
    return tuple(
        f"the reference casts to {cast}: its value stays float64, and a rounding to {cast} counts as error that is "
        "allowed. Leave the cast out, unless the op itself rounds there"
        for cast in runner.find_narrow_casts(smallest)
    )


def _tell_judged_by(
    limit: Limit | None,
    controls: Sequence[Callable[..., Any]],
    planned_by: str,
    lock: str | Path | None,
    device: str,
) -> str:
    """The arguments that a replay needs to meet the same limit."""
    where = f', device="{device}"' if device != "auto" else ""
    if limit is not None:
        return f", limit=limit{where}"
    if controls:
        return f", controls=controls, {planned_by}{where}"
    return where if lock is None else f", lock={str(lock)!r}{where}"


def _tell_replay(function: str, named: str, found: Verification, contract: Contract, judged_by: str) -> str:
    """The call that runs the smallest failing case again, by the same limit."""
    word = name_contract(contract)
    promised = "" if contract == Contract() else f', contract="{word}"'
    shown = function if function.isidentifier() else "kernel"
    return f'gonogo.verify({shown}, {named}, only="{found.smallest}"{promised}{judged_by})'
