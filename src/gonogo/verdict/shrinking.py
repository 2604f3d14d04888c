"""A failing case → a simpler one that fails in the same way: fewer elements, and inputs in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gonogo.cases import LAYOUTS, Case, parse_case
from gonogo.errors import ReferenceFailed
from gonogo.ops import Op
from gonogo.verdict.judge import Verdict
from gonogo.verdict.referee import Referee
from gonogo.verdict.verdicts import CaseVerdict

MAX_SHRINKS = 60


def shrink(referee: Referee, worst: CaseVerdict) -> CaseVerdict:
    """The simplest layout and smaller and smaller sizes, one at a time, as long as the case fails as it did."""
    op, smallest = referee.runner.op, worst
    if worst.verdict.reason == "timed-out":  # every try would cost another time-out
        return smallest
    tries, improved = 0, True
    while improved:
        improved = False
        for step in ("layout", *op.axes):
            for simpler in _list_simpler(op, parse_case(smallest.case, op), step):
                if tries == MAX_SHRINKS:
                    return smallest
                tries += 1
                judged = _run(referee, simpler)
                if judged is not None and judged.verdict.reason == "timed-out":
                    return smallest
                if judged is not None and is_same_failure(judged.verdict, worst.verdict):
                    smallest, improved = judged, True
                    break
    return smallest


def is_same_failure(verdict: Verdict, first: Verdict) -> bool:
    """Whether a case is no-go for the reason that another one is: one that raises explains no wrong number."""
    return verdict.decision == "no-go" and _name_failure(verdict) == _name_failure(first)


def _name_failure(verdict: Verdict) -> str:
    return "reading" if verdict.is_by_reading else verdict.reason


def _run(referee: Referee, case: Case) -> CaseVerdict | None:
    try:
        return referee.run_case(case, "shrunk")
    except ReferenceFailed:  # the op has no such sizes: a filter wider than its input, say
        return None


def _list_simpler(op: Op, case: Case, step: str) -> Iterator[Case]:
    """The case with inputs in order, or with less of one axis, the least first."""
    if step == "layout":
        if case.layout != LAYOUTS[0]:
            yield replace(case, layout=LAYOUTS[0])
        return
    size = case.axis_sizes(op)[step]
    for smaller in _list_smaller(op, step, size):
        yield resize(op, case, step, smaller)


def _list_smaller(op: Op, axis: str, size: int) -> list[int]:
    listed = allowed_sizes(op, axis)
    # Halves first, then a quarter less, an eighth less: an edge at 129 is reached from 255 in few steps.
    choices = (1, 2, 3, size // 2, *(size - (size >> bits) for bits in (2, 3, 5)), size - 1)
    choices = choices if listed is None else listed
    return sorted({choice for choice in choices if 1 <= choice < size})


def allowed_sizes(op: Op, axis: str) -> tuple[int, ...] | None:
    """The sizes that an op takes on an axis, where it takes no others; else None."""
    return op.sizes[axis] if op.keeps_listed(axis) else None


def resize(op: Op, case: Case, axis: str, size: int) -> Case:
    """The case with another size of one axis."""
    at = op.axes.index(axis)
    return replace(case, sizes=(*case.sizes[:at], size, *case.sizes[at + 1 :]))
