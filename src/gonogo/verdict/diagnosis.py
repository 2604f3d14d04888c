"""A verification that failed → one with its worst element, smallest failing case, pattern and contract.

Cases are run by whoever ran the first ones: in this process, or isolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gonogo.cases import Case, Planned, parse_case
from gonogo.errors import ReferenceFailed
from gonogo.ops import Op
from gonogo.schema import Contract, Element, Record
from gonogo.verdict.explain import ENOUGH, Pattern, Trial, list_patterns
from gonogo.verdict.referee import FRESH_SEEDS, Referee, draw_again
from gonogo.verdict.shrinking import allowed_sizes, resize, shrink
from gonogo.verdict.verdicts import CaseVerdict, Verification, list_worst
from gonogo.verdict.weaker import find_weaker

LOOKED_AT = 64
"""Elements of a failing case from which its pattern is guessed."""


def explain_failure(
    verification: Verification,
    referee: Referee,
    contract: Contract,
    *,
    planned: Sequence[Planned] = (),
    lock: str | Path | None = None,
    with_controls: bool = False,
) -> Verification:
    """Say all there is to say of the failing cases.

    `planned` are all cases that were run, where some have no verdict; `lock` is the lock file that was given, and
    `with_controls` whether there were controls.
    """
    runner, failed = referee.runner, list_worst(verification.failed)
    if not failed:
        return verification
    looked_at = {case.case: _look_at(referee, case) for case in failed[:ENOUGH]}
    elements = {case: () if record is None else record.worst for case, record in looked_at.items()}
    first = looked_at[failed[0].case]
    smallest = shrink(referee, failed[0])
    # A suspect case has neither passed nor failed.
    settled = [case for case in verification.verdicts if case.verdict.decision != "suspect"]
    trials = [_make_trial(case, runner.op, elements.get(case.case, ())) for case in settled]
    return replace(
        verification,
        worst=next(iter(elements[failed[0].case]), None),
        error_map=None if first is None else first.error_map,
        smallest=smallest.case,
        pattern=_find_pattern(referee, trials, failed[0], smallest),
        holds_under=find_weaker(
            referee, verification, elements, planned, contract, lock, with_controls=with_controls
        ),
    )


def _look_at(referee: Referee, failed: CaseVerdict) -> Record | None:
    if failed.verdict.reason == "timed-out":
        return None  # it would again
    case = parse_case(failed.case, referee.runner.op)
    ((record,),) = referee.runner.run([(case, "replay")], [referee.candidate], worst=LOOKED_AT)
    return record


def _find_pattern(
    referee: Referee, trials: Sequence[Trial], worst: CaseVerdict, smallest: CaseVerdict
) -> str | None:
    """The first pattern that is not refuted by a case that should escape it and fails all the same."""
    op = referee.runner.op
    shrunk = _make_trial(smallest, op, ())
    for pattern in list_patterns(trials, op.main, shrunk, summed=_list_summed(op)):
        case = _escape(op, parse_case(worst.case, op), pattern)
        if case is None or worst.verdict.reason == "timed-out" or not _fails(referee, case):
            return pattern.told
    return None


def _fails(referee: Referee, case: Case) -> bool:
    """Whether a case is no-go, on its own seed or a fresh one: a change of a case changes its values, too."""
    for fresh in (case, *(draw_again(case, attempt) for attempt in range(FRESH_SEEDS))):
        try:
            judged = referee.run_case(fresh, "escape")
        except ReferenceFailed:  # the op has no such sizes
            return False
        if judged is not None and judged.verdict.decision == "no-go":
            return True
    return False


def _list_summed(op: Op) -> tuple[str, ...]:
    """Axes that are summed over: those it names; else those the output lacks and no index points into.

    Never an axis of the output that is not named, on however many sizes: the more elements an output has, the
    larger is the worst of them, whatever is wrong. That an error grows with it would be true and say nothing.
    """
    if op.is_nest:
        return op.reduced
    named = [*op.output.split(), *(described.below for described in op.inputs if described.below is not None)]
    kept = {base for axis in named for base in op.list_bases(axis)}
    return op.reduced or tuple(axis for axis in op.axes if axis not in kept)


def _escape(op: Op, case: Case, pattern: Pattern) -> Case | None:
    """The case changed as the pattern says; None where it says nothing, or the op has no such size."""
    escape = pattern.escape
    if escape is None:
        return None
    if escape.resize is None:
        change: dict[str, Any] = {escape.field: escape.value}
        return replace(case, **change)
    size, allowed = escape.resize(case.axis_sizes(op)[escape.axis]), allowed_sizes(op, escape.axis)
    if size < 1 or (allowed is not None and size not in allowed):
        return None
    return resize(op, case, escape.axis, size)


def _make_trial(judged: CaseVerdict, op: Op, elements: Sequence[Element]) -> Trial:
    record, reading = judged.record, judged.verdict.reading
    at, sizes = record.bound_at, op.find_sizes(judged.sizes)
    return Trial(
        judged.sizes, record.layout, record.distribution, judged.verdict.decision == "no-go",
        math.inf if reading is None else reading, tuple(int(i) for i in at.split(",")) if at else None,
        tuple(sizes[axis] for axis in op.output.split()), _find_ratios(elements), record.dtype,
    )  # fmt: skip


def _find_ratios(elements: Sequence[Element]) -> tuple[float, float] | None:
    """Least and largest of actual / expected."""
    ratios = [element.actual / element.expected for element in elements if element.bound > 0 and element.expected]
    return (min(ratios), max(ratios)) if ratios and all(map(math.isfinite, ratios)) else None
