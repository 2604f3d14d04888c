"""Failures of a kernel → the weaker contract that would explain them, where they look like rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path

from gonogo.cases import Planned, parse_case
from gonogo.errors import InputError
from gonogo.formats import get_format
from gonogo.limits import Limit
from gonogo.limits.shipped import FoundLimit, choose_limit
from gonogo.ops import Kernel, Op
from gonogo.schema import Contract, Element, Record
from gonogo.verdict.referee import Referee, Runner
from gonogo.verdict.verdicts import Verification, is_blind, judge_record, list_worst
from gonogo.words import CONTRACTS, name_contract

WEAKER = {
    word: CONTRACTS[word] for word in ("atomics", "float32", "fast-math", "backward", "tf32", "float16", "bfloat16")
}
"""Contracts that a candidate is tried under, by their words; the first that fits is told.

The stricter first; but a fast exponential is as a rounding of its input, too: the word for its cause is before
`backward`.
"""
ONE_BY_ONE = 12
"""Failing cases that a weaker contract is tried on one after the other: most are refuted by the first."""
LOWEST_LIMIT = 2.0
"""The floor of the rule that limits are made by."""
OF_PRECISION = ("reading", "repeated", "non-finite", "not-repeatable")
"""Reasons that a weaker contract can explain."""
FEWEST_ELEMENTS = 8
"""Below which nothing is said of the signs of errors: eight roundings all err to one side once in 128 times."""
LEAST_MINORITY = 1 / 8
"""Share of wrong elements on the rarer side: of 64 roundings fewer err to it less than once in 10^9 times."""


def find_weaker(
    referee: Referee,
    verification: Verification,
    elements: Mapping[str, Sequence[Element]],
    planned: Sequence[Planned],
    declared: Contract,
    lock: str | Path | None,
    *,
    with_controls: bool,
) -> str | None:
    """The first weaker contract under which the same cases are go, by the limit that they would meet there.

    `elements` are the worst elements of failing cases: errors of rounding have both signs.
    """
    runner = referee.runner
    failed = [case.case for case in list_worst(verification.failed)]
    reasons = {case.verdict.reason for case in verification.failed}
    rounded = reasons == {"not-repeatable"} or looks_like_rounding(elements, referee.limit.value)
    if not reasons <= set(OF_PRECISION) or not rounded:
        return None
    run = [case.case for case in verification.verdicts] + [case.id for case, _ in planned]
    cases: list[Planned] = [(parse_case(case, runner.op), "replay") for case in dict.fromkeys([*failed, *run])]
    for contract in WEAKER.values():
        if not _allows_more(contract, declared, reasons):
            continue
        try:
            weaker = _find_weaker_limit(runner.op, contract, lock, with_controls=with_controls)
        except InputError:  # its lock has no limit that verdicts can use
            continue
        if _holds(runner, replace(referee.candidate, contract=contract), weaker, cases, failed):
            return name_contract(contract)
    return None


def looks_like_rounding(elements: Mapping[str, Sequence[Element]], limit: float) -> bool:
    """Whether elements beyond the limit err to both sides of what is expected, in more than one row.

    A wrong epsilon, a padded lane or a wrong count shifts all of them one way; roundings know no direction.
    """
    sides: list[bool] = []
    rows: set[tuple[str, tuple[int, ...]]] = set()
    has_rows = False
    for case, worst in elements.items():
        for element in worst:
            error = (element.actual - element.expected) * (1 if element.expected >= 0 else -1)
            if isfinite(error) and error != 0 and element.bound > limit:
                sides.append(error > 0)
                rows.add((case, element.index[:-1]))
                has_rows |= len(element.index) > 1
    minority = min(sum(sides), len(sides) - sum(sides))
    return (
        len(sides) >= FEWEST_ELEMENTS
        and minority >= LEAST_MINORITY * len(sides)
        and (len(rows) > 1 or not has_rows)
    )


def _holds(
    runner: Runner, kernel: Kernel, limit: FoundLimit, cases: Sequence[Planned], failed: Sequence[str]
) -> bool:
    """Whether all cases are go under another contract, most that failed are judged there, and one of them whole."""
    batches = [[case] for case in cases[:ONE_BY_ONE]] + [list(cases[ONE_BY_ONE:])]
    whole, judged = False, 0
    for records in (records for batch in batches if batch for records in runner.run(batch, [kernel])):
        if not all(record.outcome == "refused" or _is_within(record, runner.op, limit) for record in records):
            return False
        judged += sum(
            record.case in failed and record.outcome == "ok" and not is_blind(record, limit) for record in records
        )
        # What overflow or a scale beyond the values keeps a contract from judging, it does not explain.
        whole |= any(
            record.case in failed and record.outcome == "ok" and record.unjudged is None
            and not is_blind(record, limit) for record in records
        )  # fmt: skip
    # Else a test would be green because the contract leaves out what fails.
    return whole and judged >= len(failed) / 2


def _allows_more(contract: Contract, declared: Contract, reasons: set[str]) -> bool:
    """Whether a contract allows what the declared one does not, and what failed could be that."""
    if contract.backward:
        return contract != declared and contract.accumulate == declared.accumulate
    if contract.atomics:  # allows other bits in a second call, and errors no larger than its base
        return replace(declared, atomics=True) == contract and reasons == {"not-repeatable"}
    formats = get_format(contract.accumulate), get_format(declared.accumulate)
    return (
        formats[0].unit_roundoff > formats[1].unit_roundoff
        or (contract.products == "tf32" and declared.products != "tf32")
        or (contract.fast_math and not declared.fast_math)
    )


def _find_weaker_limit(op: Op, contract: Contract, lock: str | Path | None, *, with_controls: bool) -> FoundLimit:
    """What the same call would hold cases to under another contract."""
    if with_controls:
        # They would be run again. What they would read is not known; no limit is made lower than this.
        lowest = Limit(op.name, contract.describe(), None, None, "bound", "pooled", value=LOWEST_LIMIT)
        return FoundLimit(lowest, "lowest")
    return choose_limit(op, contract, lock=lock)


def _is_within(record: Record, op: Op, limit: FoundLimit) -> bool:
    """Whether a record is go; by the deterministic bound alone, only if a limit as low as any would say so, too.

    That bound of a long sum in bfloat16 allows an error as large as the output.
    """
    if record.outcome == "ok" and record.deterministic is None:
        # Not read where the declared contract's limit settles it. It is no larger: its scale is not smaller.
        record = replace(record, deterministic=record.bound)
    if judge_record(record, op, limit).verdict.decision != "go":
        return False
    return limit.limit is not None or (record.bound is not None and record.bound <= LOWEST_LIMIT)
