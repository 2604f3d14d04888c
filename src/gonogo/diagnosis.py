"""A verification that failed → the same, with its worst element, smallest failing case, pattern and contract.

Cases are run by whoever ran the first ones: in this process, or isolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gonogo.cases import Case, Planned, parse_case
from gonogo.choices import name_contract
from gonogo.errors import InputError, ReferenceFailed
from gonogo.explain import ENOUGH, Pattern, Trial, list_patterns
from gonogo.formats import get_format
from gonogo.limits import Limit
from gonogo.ops import Op, get_op
from gonogo.own_op import CANDIDATE, WEAKER, OwnOp
from gonogo.referee import Referee, Runner
from gonogo.schema import Contract
from gonogo.shipped import FoundLimit, choose_limit
from gonogo.verdicts import CaseVerdict, Row, Verification, is_blind, judge_row, list_worst

MAX_SHRINKS = 60
ONE_BY_ONE = 12
"""Failing cases that a weaker contract is tried on one after the other: most are refuted by the first."""
LOWEST_LIMIT = 2.0
"""The floor of the rule that limits are made by."""
LOOKED_AT = 64
"""Elements of a failing case from which its pattern is guessed."""
OF_PRECISION = ("reading", "repeated", "non-finite", "not-repeatable")
"""Reasons that a weaker contract can explain."""


def explain_failure(
    verification: Verification,
    referee: Referee,
    contract: Contract,
    *,
    planned: Sequence[Planned] = (),
    lock: str | Path | None = None,
) -> Verification:
    """Say all there is to say of the failing cases.

    `planned` are all cases that were run, where some have no verdict; `lock` is the lock file that was given.
    """
    runner, failed = referee.runner, list_worst(verification.failed)
    if not failed:
        return verification
    elements = {one.case: _find_elements(runner, one) for one in failed[:ENOUGH]}
    smallest = _shrink(referee, failed[0])
    trials = [_make_trial(one, runner.op, elements.get(one.case, [])) for one in verification.verdicts]
    return replace(
        verification,
        worst=next(iter(elements[failed[0].case]), None),
        smallest=smallest.case,
        pattern=_find_pattern(referee, trials, failed[0], smallest),
        holds_under=_find_weaker(runner, verification, planned, contract, lock),
    )


def _find_elements(runner: Runner, one: CaseVerdict) -> list[Row]:
    if one.verdict.reason == "timed-out":
        return []  # it would again
    ((row,),) = runner.run([(parse_case(one.case, runner.op), "replay")], [CANDIDATE], worst=LOOKED_AT)
    elements: list[Row] = row.get("worst", [])
    return elements


def _shrink(referee: Referee, worst: CaseVerdict) -> CaseVerdict:
    """Smaller and smaller sizes, axis by axis, as long as the case still fails."""
    runner = referee.runner
    case, smallest = parse_case(worst.case, runner.op), worst
    if worst.verdict.reason == "timed-out":  # every try would cost another time-out
        return smallest
    tries, improved = 0, True
    while improved:
        improved = False
        for axis in range(len(case.sizes)):
            for size in _list_smaller(runner.op, axis, case.sizes[axis]):
                if tries == MAX_SHRINKS:
                    return smallest
                tries += 1
                smaller = replace(case, sizes=(*case.sizes[:axis], size, *case.sizes[axis + 1 :]))
                try:
                    judged = referee.run_case(smaller, "shrunk")
                except ReferenceFailed:  # the op has no such sizes: a filter wider than its input, say
                    continue
                if judged is None:
                    continue
                if judged.verdict.reason == "timed-out":
                    return smallest
                if judged.verdict.decision == "no-go":
                    case, smallest, improved = smaller, judged, True
                    break
    return smallest


def _find_pattern(
    referee: Referee, trials: Sequence[Trial], worst: CaseVerdict, smallest: CaseVerdict
) -> str | None:
    """The first pattern that is not refuted by a case that should escape it and fails all the same."""
    runner = referee.runner
    shrunk = _make_trial(smallest, runner.op, [])
    for pattern in list_patterns(trials, runner.op.main, shrunk, summed=_list_summed(runner.op)):
        case = _escape(runner.op, parse_case(worst.case, runner.op), pattern)
        if case is None or worst.verdict.reason == "timed-out":
            return pattern.told
        try:
            escaped = referee.run_case(case, "escape")
        except ReferenceFailed:  # the op has no such sizes
            return pattern.told
        if escaped is None or escaped.verdict.decision != "no-go":
            return pattern.told
    return None


def _list_summed(op: Op) -> tuple[str, ...]:
    """Axes that are summed over: those it names; else those the output lacks and no index points into.

    Never an axis of the output that is not named, on however many sizes: the more elements an output has, the
    larger is the worst of them, whatever is wrong. That an error grows with it would be true and say nothing.
    """
    kept = {*op.output.split(), *(one.below for one in op.inputs)}
    return op.reduced or tuple(axis for axis in op.axes if axis not in kept)


def _escape(op: Op, case: Case, pattern: Pattern) -> Case | None:
    """The case changed as the pattern says; None where it says nothing, or the op has no such size."""
    if pattern.escape is None:
        return None
    if "size" not in pattern.escape:
        return replace(case, **pattern.escape)
    place = op.axes.index(op.main)
    size = pattern.escape["size"](case.sizes[place])
    if size < 1 or (op.keeps_listed(op.main) and size not in op.sizes[op.main]):
        return None
    return replace(case, sizes=(*case.sizes[:place], size, *case.sizes[place + 1 :]))


def _list_smaller(op: Op, axis: int, size: int) -> list[int]:
    """Sizes of an axis to try instead of a larger one."""
    tried = op.sizes[op.axes[axis]] if op.keeps_listed(op.axes[axis]) else (1, 2, 3, size // 2, size - 1)
    return sorted({one for one in tried if 1 <= one < size})


def _make_trial(one: CaseVerdict, op: Op, elements: Sequence[Row]) -> Trial:
    at = one.record.get("bound_at")
    reading = one.verdict.reading
    return Trial(
        one.sizes, one.record["layout"], one.record["distribution"], one.verdict.decision == "no-go",
        math.inf if reading is None else reading, tuple(int(i) for i in at.split(",")) if at else None,
        tuple(one.sizes[axis] for axis in op.output.split()), _find_ratios(elements),
    )  # fmt: skip


def _find_ratios(elements: Sequence[Row]) -> tuple[float, float] | None:
    """Least and largest of actual / expected."""
    ratios = [one["actual"] / one["expected"] for one in elements if one["bound"] > 0 and one["expected"]]
    return (min(ratios), max(ratios)) if ratios and all(map(math.isfinite, ratios)) else None


def _find_weaker(
    runner: Runner,
    verification: Verification,
    planned: Sequence[Planned],
    declared: Contract,
    lock: str | Path | None,
) -> str | None:
    """The first weaker contract under which the same cases are go, by the limit that they would meet there."""
    failed = [one.case for one in list_worst(verification.failed)]
    reasons = {one.verdict.reason for one in verification.failed}
    if not reasons <= set(OF_PRECISION):
        return None
    run = [one.case for one in verification.verdicts] + [case.id for case, _ in planned]
    cases: list[Planned] = [(parse_case(case, runner.op), "replay") for case in dict.fromkeys([*failed, *run])]
    for kernel, contract in WEAKER.items():
        if not _allows_more(contract, declared, reasons):
            continue
        try:
            found = _find_weaker_limit(runner.op, contract, lock)
        except InputError:  # its lock has no limit that verdicts can use
            continue
        batches = [[one] for one in cases[:ONE_BY_ONE]] + [cases[ONE_BY_ONE:]]
        whole = False
        for rows in (row for batch in batches for row in runner.run(batch, [kernel])):
            if not all(row["outcome"] == "refused" or _is_within(row, runner.op, found) for row in rows):
                break
            # What overflow or a scale beyond the values keeps a contract from judging, it does not explain.
            whole |= any(
                row["case"] in failed and row["outcome"] == "ok" and row["detail"] is None
                and not is_blind(row, found) for row in rows
            )  # fmt: skip
        else:
            if whole:
                return name_contract(contract)
    return None


def _allows_more(contract: Contract, declared: Contract, reasons: set[str]) -> bool:
    """Whether a contract allows what the declared one does not, and what failed could be that."""
    if contract.atomics:  # allows other bits in a second call, and errors no larger than its base
        return replace(declared, atomics=True) == contract and reasons == {"not-repeatable"}
    formats = get_format(contract.accumulate), get_format(declared.accumulate)
    return (
        formats[0].unit_roundoff > formats[1].unit_roundoff
        or (contract.products == "tf32" and declared.products != "tf32")
        or (contract.fast_math and not declared.fast_math)
    )


def _find_weaker_limit(op: Op, contract: Contract, lock: str | Path | None) -> FoundLimit:
    """What the same call would hold cases to under another contract."""
    own = isinstance(op, OwnOp) and "reference" in op.functions
    if isinstance(op, OwnOp) and any(name.startswith("control:") for name in op.functions):
        # They would be run again. What they would read is not known; no limit is made lower than this.
        lowest = Limit(op.name, contract.describe(), None, None, "bound", "pooled", value=LOWEST_LIMIT)
        return FoundLimit(lowest, "the lowest that is made")
    return choose_limit(op if own else get_op(op.name), contract, lock=lock)


def _is_within(row: Row, op: Op, found: FoundLimit) -> bool:
    """Whether a row is go; by the deterministic bound alone, only if a limit as low as any would say so, too.

    That bound of a long sum in bfloat16 allows an error as large as the output.
    """
    if row["outcome"] == "ok" and row["deterministic"] is None:
        # Not read where the declared contract's limit settles it. It is no larger: its scale is not smaller.
        row = row | {"deterministic": row["bound"]}
    if judge_row(row, op, found).verdict.decision != "go":
        return False
    return found.limit is not None or float(row["bound"]) <= LOWEST_LIMIT
