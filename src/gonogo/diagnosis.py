"""A verification that failed → the same, with its worst element, smallest failing case, pattern and contract.

Cases are run by whoever ran the first ones: in this process, or isolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from gonogo.cases import Case, parse_case
from gonogo.choices import name_contract
from gonogo.errors import ReferenceFailed
from gonogo.explain import ENOUGH, Pattern, Trial, list_patterns
from gonogo.ops import Op
from gonogo.own_op import CANDIDATE, WEAKER
from gonogo.schema import Contract
from gonogo.shipped import FoundLimit
from gonogo.verdicts import CaseVerdict, Row, Verification, judge_row, list_worst

MAX_SHRINKS = 60
MAX_WEAKER = 12
"""Failing cases that a weaker contract is tried on."""
LOWEST_LIMIT = 2.0
"""The floor of the rule that limits are made by."""
LOOKED_AT = 64
"""Elements of a failing case from which its pattern is guessed."""
OF_PRECISION = ("reading", "non-finite", "not-repeatable")
"""Reasons that a weaker contract can explain."""

Planned = tuple[Case, str]
"""A case and the strategy its shape is from."""


class Runner(Protocol):
    """Runs kernels of an op on cases, somewhere."""

    @property
    def op(self) -> Op:
        """Whose axes the cases are in."""

    def run(self, planned: Sequence[Planned], kernels: Sequence[str], *, worst: int = 0) -> list[list[Row]]:
        """Rows of each case, kernel by kernel; with `worst`, each has so many of its worst elements."""


def explain_failure(
    verification: Verification, runner: Runner, found: FoundLimit, contract: Contract
) -> Verification:
    """Say all there is to say of the failing cases."""
    failed = list_worst(verification.failed)
    if not failed:
        return verification
    elements = {one.case: _find_elements(runner, one) for one in failed[:ENOUGH]}
    smallest = _shrink(runner, found, failed[0])
    trials = [_make_trial(one, runner.op, elements.get(one.case, [])) for one in verification.verdicts]
    return replace(
        verification,
        worst=next(iter(elements[failed[0].case]), None),
        smallest=smallest.case,
        pattern=_find_pattern(runner, found, trials, failed[0], smallest),
        holds_under=_find_weaker(runner, failed, contract),
    )


def _find_elements(runner: Runner, one: CaseVerdict) -> list[Row]:
    if one.verdict.reason == "timed-out":
        return []  # it would again
    ((row,),) = runner.run([(parse_case(one.case, runner.op), "replay")], [CANDIDATE], worst=LOOKED_AT)
    elements: list[Row] = row.get("worst", [])
    return elements


def _shrink(runner: Runner, found: FoundLimit, worst: CaseVerdict) -> CaseVerdict:
    """Smaller and smaller sizes, axis by axis, as long as the case still fails."""
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
                    ((row,),) = runner.run([(smaller, "shrunk")], [CANDIDATE])
                except ReferenceFailed:  # the op has no such sizes: a filter wider than its input, say
                    continue
                if row["outcome"] == "timed-out":
                    return smallest
                if row["outcome"] == "refused":
                    continue
                judged = judge_row(row, runner.op, found)
                if judged.verdict.decision == "no-go":
                    case, smallest, improved = smaller, judged, True
                    break
    return smallest


def _find_pattern(
    runner: Runner, found: FoundLimit, trials: Sequence[Trial], worst: CaseVerdict, smallest: CaseVerdict
) -> str | None:
    """The first pattern that is not refuted by a case that should escape it and fails all the same."""
    for pattern in list_patterns(trials, runner.op.main, _make_trial(smallest, runner.op, [])):
        case = _escape(runner.op, parse_case(worst.case, runner.op), pattern)
        if case is None or worst.verdict.reason == "timed-out":
            return pattern.told
        try:
            ((row,),) = runner.run([(case, "escape")], [CANDIDATE])
        except ReferenceFailed:  # the op has no such sizes
            return pattern.told
        if row["outcome"] == "refused" or judge_row(row, runner.op, found).verdict.decision != "no-go":
            return pattern.told
    return None


def _escape(op: Op, case: Case, pattern: Pattern) -> Case | None:
    """The case changed as the pattern says; None where it says nothing, or the op has no such size."""
    if pattern.escape is None:
        return None
    if "size" not in pattern.escape:
        return replace(case, **pattern.escape)
    place = op.axes.index(op.main)
    size = pattern.escape["size"](case.sizes[place])
    if size < 1 or (op.only_listed and size not in op.sizes[op.main]):
        return None
    return replace(case, sizes=(*case.sizes[:place], size, *case.sizes[place + 1 :]))


def _list_smaller(op: Op, axis: int, size: int) -> list[int]:
    """Sizes of an axis to try instead of a larger one."""
    tried = op.sizes[op.axes[axis]] if op.only_listed else (1, 2, 3, size // 2, size - 1)
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


def _find_weaker(runner: Runner, failed: Sequence[CaseVerdict], declared: Contract) -> str | None:
    """A contract other than the declared one that every failing case is within, by a limit as low as any has.

    Not by the deterministic bound: that of a long sum in bfloat16 allows an error as large as the output.
    """
    if any(one.verdict.reason not in OF_PRECISION for one in failed):
        return None
    cases = [parse_case(one.case, runner.op) for one in failed[:MAX_WEAKER]]

    for kernel, contract in WEAKER.items():
        if contract == declared:
            continue
        whole = 0
        for case in cases:
            ((row,),) = runner.run([(case, "replay")], [kernel])
            if row["outcome"] == "refused":
                continue
            if row["outcome"] != "ok" or float(row["bound"]) > LOWEST_LIMIT:
                break
            whole += row["detail"] is None
        else:
            if whole:  # what overflow keeps a contract from judging, it does not explain
                return name_contract(contract)
    return None
