"""A user's kernel → verdicts: the entry for people who have a kernel and want to know.

A kernel of an op gonogo knows is held to the limits that come with the package. For an op it does not know, the
error scale comes from the reference itself, and the limit is the deterministic bound, or made from given controls.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.cases import USUAL, Planned, parse_case
from gonogo.errors import InputError, NoGo, check_type
from gonogo.limits import Limit
from gonogo.limits.shipped import FoundLimit, choose_limit
from gonogo.ops import DTYPES, AtHand, Kernel, Op
from gonogo.runners.in_process import InProcess
from gonogo.schema import Contract, Record
from gonogo.user.arguments import check_arguments
from gonogo.user.calibration import check_controls, pool_controls
from gonogo.user.kernels import find_module, find_recorded_control, make_candidate, make_controls, name_function
from gonogo.user.planning import DEFAULT_CASES, choose_depth, choose_size_limit, tell_unrun, try_small
from gonogo.user.recording import open_record
from gonogo.user.request import Request, tell_replay
from gonogo.verdict.diagnosis import explain_failure
from gonogo.verdict.referee import Referee, Suspects, judge_candidate
from gonogo.verdict.setting import Setting, describe_setting
from gonogo.verdict.verdicts import Verification
from gonogo.words import need_torch

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
    isolated: bool = False,
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
    An `isolated` kernel runs in a process of its own, which imports it, with 60 s and 8 GiB a case: what crashes or
    hangs is an outcome of its case, and the next case has a fresh process.
    """
    check_type("strict", strict, bool, "True or False")
    check_type("isolated", isolated, bool, "True or False")
    request = Request(
        kernel, op, reference, inputs, outputs, mutates, grads, dtypes, cases, seed, contract, controls,
        distributions, device, lock, limit, suspects, only, record, name, isolated,
    )  # fmt: skip
    verification, error = answer(request)
    if strict and verification.failed:
        raise NoGo(verification) from error
    return verification


def answer(request: Request) -> tuple[Verification, BaseException | None]:
    """All verdicts on a kernel, explained where some are no-go; and what it raised first, where it did."""
    need_torch("gonogo.verify")
    if "GONOGO_GUEST" in os.environ:  # it would start a process that imports the file again, and so on
        raise InputError(
            "gonogo.verify is called where its kernel is imported by a process of its own. Have it stand under: "
            'if __name__ == "__main__":'
        )
    from gonogo.guest import flags

    with flags.known():
        return _answer(request)


def _answer(request: Request) -> tuple[Verification, BaseException | None]:
    from gonogo.runners.device import find_device
    from gonogo.runners.guests import open_guests

    op, contract, where = request.known, request.keeps, find_device(request.device)
    request.check()
    limit = None
    if not request.used_controls or request.limit is not None:
        limit = choose_limit(op, contract, lock=request.lock, limit=request.limit)
    source = find_module(request.kernel) if request.isolated else AtHand(request.kernel)
    candidate = make_candidate(op, source, contract)
    controls = make_controls(op, request.used_controls, contract)
    depth = choose_depth(limit, recorded=request.record is not None)
    if request.isolated:
        with open_guests(where) as guests:
            return _judge(request, candidate, controls, limit, InProcess(op, where, guests=guests, **depth))
    return _judge(request, candidate, controls, limit, InProcess(op, where, **depth))


def _judge(
    request: Request,
    candidate: Kernel,
    controls: tuple[Kernel, ...],
    limit: FoundLimit | None,
    runner: InProcess,
) -> tuple[Verification, BaseException | None]:
    """Verdicts on a kernel where all it needs is at hand."""
    from gonogo.guest import flags

    op, contract, where = request.known, request.keeps, runner.device
    tried = try_small(request.choice, where, runner, candidate)
    size_limit = choose_size_limit(where, tried)
    if runner.guests is not None:
        runner.guests.close()  # what the first case found is in no verdict: the others begin anew
    planned = request.choice.plan(size_limit)
    target = planned if request.only is None else [(parse_case(request.only, op), "replay")]
    check_arguments(request.kernel, op, target[0][0].seed, target[0][0].dtype)
    with flags.outside():  # a record tells what the user has set
        recorder = open_record(request.record, where, isolated=False) if request.record is not None else None
    extra = () if recorder is None or op.is_nest else (find_recorded_control(op, contract),)
    records = _run_kernels(runner, planned, target, candidate, controls, extra)
    referee = Referee(runner, candidate, limit or pool_controls(records, controls, op, contract), request.suspects)
    notes = (*_find_notes(runner, target), *tell_unrun(op, planned, size_limit)) if op.is_own else ()
    judged = partial(judge_candidate, referee, contract=contract, notes=notes, redraw=request.only is None)
    verification, count = judged(records), len(target)
    if tried is not None and not verification.failed and request.only is None and _is_wrong(referee, tried):
        # It has failed in its first calls alone: that counts, though the case is none of those asked for.
        verification, count = judged([tried, *records]), count + 1
    verification = replace(
        verification, planned=count, setting=_describe_setting(request, where, verification)
    )  # fmt: skip
    if recorder is not None:
        label = request.name or name_function(request.kernel)
        verification = replace(verification, recorded=recorder.append(records, label))
    if verification.failed:
        verification = replace(verification, notes=(*verification.notes, *_tell_decoyed(runner, verification)))
        verification = explain_failure(
            verification, referee, contract, planned=target, lock=request.lock, with_controls=bool(controls)
        )
        verification = replace(verification, replay=tell_replay(request, str(verification.smallest)))
    return verification, next(iter(runner.raised), None)


def _is_wrong(referee: Referee, record: Record) -> bool:
    return record.outcome != "refused" and referee.judge_record(record).verdict.decision != "go"


def _describe_setting(request: Request, where: str, verification: Verification) -> Setting:
    seed = None if request.only else request.seed
    return describe_setting(request.device, where, seed, [case.record for case in verification.verdicts])


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


def _tell_decoyed(runner: InProcess, verification: Verification) -> tuple[str, ...]:
    """That a kernel fails on the cases alone before which it was called on other values, where others pass."""
    judged, failed = ({case.case for case in some} for some in (verification.verdicts, verification.failed))
    decoyed = judged & set(runner.decoyed)  # without those of fresh seeds
    values = all(case.verdict.is_by_reading or case.record.outcome == "non-finite" for case in verification.failed)
    if runner.guests is not None or not failed <= decoyed < judged or not values:
        return ()
    return (
        f"it fails on {len(failed)} of the {len(decoyed)} cases before which it was called on other values in the "
        "same memory, and on no other: it may keep something by shape, address or tensor",
    )


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
