"""Records of a candidate → verdicts by one limit; what one run leaves open is run again on fresh seeds.

The one law for all who judge a kernel on cases: `gonogo.verify`, `gonogo check` and the pytest fixture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from gonogo.cases import DRAWN_SEED_BITS, SEED_BITS, Case, Planned, parse_case, pick
from gonogo.errors import NothingJudged, UnknownWord
from gonogo.limits.shipped import FoundLimit
from gonogo.ops import Kernel, Op
from gonogo.schema import Contract, Record
from gonogo.verdict.verdicts import (
    BLIND,
    CaseVerdict,
    Unjudged,
    Verification,
    is_blind,
    judge_record,
    tell_leaves,
    tell_unjudged,
)

FRESH_SEEDS = 3
"""On which a case is run again: a correct kernel's rare reading does not come back on any of them."""
MOST_SUSPECTS = 4
"""Suspect cases that are run again, the worst first: one that repeats is enough."""

Suspects = Literal["rerun", "fail"]
SUSPECTS: tuple[Suspects, ...] = ("rerun", "fail")
"""What becomes of a suspect case: it is run again on fresh seeds; or it is no-go at once."""


class Runner(Protocol):
    """Runs kernels of an op on cases, somewhere."""

    @property
    def op(self) -> Op:
        """Whose axes the cases are in."""

    def run(self, planned: Sequence[Planned], kernels: Sequence[Kernel], *, worst: int = 0) -> list[list[Record]]:
        """Records of each case, kernel by kernel; with `worst`, each has so many of its worst elements."""


@dataclass(frozen=True)
class Referee:
    """A limit, and a way to run the candidate again where one run does not settle it."""

    runner: Runner
    candidate: Kernel
    limit: FoundLimit
    suspects: Suspects = "rerun"

    def __post_init__(self) -> None:
        if self.suspects not in SUSPECTS:
            raise UnknownWord("choice of suspects", self.suspects, SUSPECTS)

    def judge_record(self, record: Record) -> CaseVerdict:
        """The verdict on one record, which may be suspect, unless suspects are to fail."""
        judged = judge_record(record, self.runner.op, self.limit)
        if self.suspects == "fail" and judged.verdict.decision == "suspect":
            return replace(judged, verdict=replace(judged.verdict, decision="no-go"))
        return judged

    def run_case(self, case: Case, strategy: str) -> CaseVerdict | None:
        """The settled verdict on a case; None where it has none."""
        ((record,),) = self.runner.run([(case, strategy)], [self.candidate])
        if record.outcome == "refused":
            return None
        (judged,) = self.settle_suspects([self.judge_record(record)])
        return None if self._is_blind(judged) else judged

    def settle_suspects(self, verdicts: Sequence[CaseVerdict]) -> list[CaseVerdict]:
        """Verdicts, the suspect cases run again on fresh seeds: no-go if one is above its limit there too."""
        if self.runner.op.is_given:  # there are no fresh seeds of inputs at hand
            return list(verdicts)
        suspect = [case for case in verdicts if case.verdict.decision == "suspect"]
        furthest = sorted(suspect, key=lambda case: -case.badness)[:MOST_SUSPECTS]
        fresh = [draw_again(self._parse(case), attempt) for case in furthest for attempt in range(FRESH_SEEDS)]
        records = iter(self.runner.run([(case, "again") for case in fresh], [self.candidate]) if fresh else [])
        settled = {
            case.case: self._settle(case, [next(records)[0] for _ in range(FRESH_SEEDS)]) for case in furthest
        }
        return [settled.get(case.case, case) for case in verdicts]

    def _settle(self, suspect: CaseVerdict, records: Sequence[Record]) -> CaseVerdict:
        again = [self.judge_record(record) for record in records if record.outcome != "refused"]
        verdict = replace(suspect.verdict, again=tuple(_read(case) for case in again))
        if any(case.verdict.decision != "go" for case in again):
            verdict = replace(verdict, decision="no-go", reason="repeated")
        return replace(suspect, verdict=verdict)

    def replace_blind(self, verdicts: Sequence[CaseVerdict]) -> list[CaseVerdict]:
        """Verdicts, with another case of its kind in the place of each blind one, where a fresh seed has it."""
        current = list(verdicts)
        if self.runner.op.is_given:
            return current
        for attempt in range(FRESH_SEEDS):
            blind = [at for at, case in enumerate(current) if self._is_blind(case)]
            if not blind:
                break
            fresh: list[Planned] = [(draw_again(self._parse(verdicts[at]), attempt), "again") for at in blind]
            for at, (record,) in zip(blind, self.runner.run(fresh, [self.candidate]), strict=True):
                if record.outcome != "refused":
                    current[at] = self.judge_record(record)
        return [verdicts[at] if self._is_blind(case) else case for at, case in enumerate(current)]

    def split_blind(self, verdicts: Sequence[CaseVerdict]) -> tuple[list[CaseVerdict], list[Unjudged]]:
        """Verdicts that say something, and the cases whose verdict does not."""
        judged = [case for case in verdicts if not self._is_blind(case)]
        return judged, [Unjudged(case.case, "blind", BLIND) for case in verdicts if self._is_blind(case)]

    def _is_blind(self, judged: CaseVerdict) -> bool:
        """Whether a verdict of go says nothing: what is above a limit as wide as that is wrong all the same."""
        return judged.verdict.decision == "go" and is_blind(judged.record, self.limit)

    def _parse(self, judged: CaseVerdict) -> Case:
        return parse_case(judged.case, self.runner.op)


def draw_again(case: Case, attempt: int) -> Case:
    """Another case of the same kind, fixed by the first one's id and the number of the try."""
    bits = SEED_BITS if case.sizes else DRAWN_SEED_BITS
    return replace(case, seed=pick(f"{case.id}/again/{attempt}", 2**bits))


def judge_candidate(
    referee: Referee,
    records: Sequence[Record],
    contract: Contract,
    *,
    notes: tuple[str, ...] = (),
    redraw: bool = True,
) -> Verification:
    """Settled verdicts on those of a candidate's records that can be judged; of how many others there are, a note.

    `redraw` is whether another case may take the place of a blind one.
    """
    op, ours = referee.runner.op, [record for record in records if record.role == "candidate"]
    verdicts = [referee.judge_record(record) for record in ours if record.outcome != "refused"]
    if redraw:
        verdicts = referee.replace_blind(verdicts)
    judged, blind = referee.split_blind(referee.settle_suspects(verdicts))
    unjudged = [*_list_refused(ours), *blind]
    if unjudged and not judged:
        raise NothingJudged(op.name, unjudged[0].why)
    return Verification(
        op.name, contract.describe(), referee.limit.told, tuple(judged), tuple(unjudged),
        notes=(*notes, *tell_unjudged(judged, unjudged), *tell_leaves(judged, referee.limit)),
    )  # fmt: skip


def _list_refused(records: Sequence[Record]) -> Iterator[Unjudged]:
    for record in records:
        if record.outcome == "refused":
            yield Unjudged(record.case, "refused", record.detail or "")


def _read(judged: CaseVerdict) -> float:
    reading = judged.verdict.reading
    return math.inf if not judged.verdict.is_by_reading or reading is None else reading
