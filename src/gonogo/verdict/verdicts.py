"""Records of a kernel and the limit they are held against → verdicts, and what they say to people."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gonogo.errors import InputError
from gonogo.limits.shipped import FoundLimit
from gonogo.ops import Op
from gonogo.plain import to_plain
from gonogo.schema import ULP_SATURATED, Element, ErrorMap, LeafReading, Measured, Record
from gonogo.verdict.judge import Verdict, judge
from gonogo.verdict.setting import INTERPRETED, Setting

if TYPE_CHECKING:
    from gonogo.records import Appended

SCHEMA = 2
"""Of the plain data of a verification."""
SHOWN_LINES = 6
"""Of a traceback, or of what a kernel printed; all of it is in the plain data."""


@dataclass(frozen=True)
class CaseVerdict:
    """What a kernel did on one case."""

    case: str
    sizes: dict[str, int]
    verdict: Verdict
    record: Record = field(repr=False)

    @property
    def badness(self) -> float:
        """For sorting: a case without a reading is worse than any with one."""
        reading = self.verdict.reading
        return math.inf if not self.verdict.is_by_reading or reading is None else reading

    @property
    def described(self) -> str:
        """Shape, dtype, values and layout in words."""
        sizes, record = ", ".join(f"{axis} {size}" for axis, size in self.sizes.items()), self.record
        facts = [sizes, record.dtype, f"{record.distribution} values", record.layout]
        return "; ".join(fact for fact in facts if fact)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: NaN is null, an infinity "inf" or "-inf".

        `error` is the message and traceback of a kernel that raised, `printed` the last of what it printed where
        workers ran it; `stats` are its ErrorStats, where they were taken; else all are null.
        """
        facts = {
            name: getattr(self.record, name) for name in ("dtype", "distribution", "layout", "error", "printed")
        }
        stats = None if self.record.stats is None else self.record.stats.to_dict()
        return {"case": self.case, "sizes": dict(self.sizes)} | facts | {"stats": stats} | self.verdict.to_dict()


@dataclass(frozen=True)
class Unjudged:
    """A case of which nothing is known, and why."""

    case: str
    kind: Literal["refused", "blind"]
    why: str

    def to_dict(self) -> dict[str, str]:
        """Plain data, for JSON."""
        return asdict(self)


BLIND = "blind: the scale allows more than the value itself on more than half of the elements"
BLIND_FROM = {"bound": "blind_from", "deterministic": "deterministic_blind_from"}
"""By gauge, the field of a record that says above which limit its case is blind."""


def is_blind(measured: Measured, limit: FoundLimit) -> bool:
    """Whether the limit would let zeros pass for most of the output: then a reading within it says nothing."""
    blind_from: float | None = getattr(measured, BLIND_FROM.get(limit.gauge, ""), None)
    return blind_from is not None and limit.value > blind_from


def judge_measured(measured: Measured, limit: FoundLimit) -> Verdict:
    """The verdict on an output, by what became of it and what it reads."""
    return judge(
        measured.outcome, measured.read(limit.gauge), limit.value, gauge=limit.gauge, limit_from=limit.told,
        deterministic=measured.deterministic if limit.gauge == "bound" else None, detail=measured.detail,
        leaf=measured.leaf,
    )  # fmt: skip


def judge_record(record: Record, op: Op, limit: FoundLimit) -> CaseVerdict:
    """The verdict on one record; `op` is the one whose axes its shape is in."""
    sizes = [int(size) for size in record.shape.split("x") if size]
    return CaseVerdict(record.case, dict(zip(op.axes, sizes, strict=True)), judge_measured(record, limit), record)


@dataclass(frozen=True)
class Verification:
    """All verdicts on a kernel, and what they have in common."""

    op: str
    contract: str
    limit_from: str
    verdicts: tuple[CaseVerdict, ...]
    unjudged: tuple[Unjudged, ...] = ()
    """Cases that have no verdict."""
    smallest: str | None = None
    """Id of the smallest failing case found."""
    worst: Element | None = None
    """The worst element of the worst failing case."""
    error_map: ErrorMap | None = None
    """Where in the output of the worst failing case the error lies."""
    pattern: str | None = None
    holds_under: str | None = None
    """A weaker contract that the same cases are go under, where there is one."""
    replay: str | None = None
    """The call or command that runs the smallest failing case again."""
    notes: tuple[str, ...] = ()
    """What a user should know of the op, beside the verdicts."""
    recorded: Appended | None = None
    """What was added to a run directory."""
    setting: Setting | None = None
    """Machine, versions and seed."""
    planned: int | None = None
    """Cases that were to be run, where that is known: fewer have an outcome where it was stopped."""

    def __post_init__(self) -> None:
        if not self.verdicts:
            raise InputError(f"op {self.op}: no case was run, and nothing is go for lack of cases")

    @property
    def failed(self) -> tuple[CaseVerdict, ...]:
        """Cases that are no-go."""
        return tuple(case for case in self.verdicts if case.verdict.decision == "no-go")

    @property
    def suspect(self) -> tuple[CaseVerdict, ...]:
        """Cases above the limit once, and not again on fresh seeds."""
        return tuple(case for case in self.verdicts if case.verdict.decision == "suspect")

    @property
    def decision(self) -> str:
        """No-go if any case is; else suspect if any is."""
        return "no-go" if self.failed else "suspect" if self.suspect else "go"

    @property
    def worst_case(self) -> CaseVerdict | None:
        """The failed case that is furthest off."""
        return max(self.failed, key=lambda case: case.badness, default=None)

    @property
    def largest(self) -> CaseVerdict | None:
        """The case with the largest reading, whatever its decision."""
        read = [case for case in self.verdicts if case.verdict.share is not None]
        return max(read, key=lambda case: case.verdict.share or 0.0, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: NaN is null, an infinity "inf" or "-inf".

        `cases` counts those judged; `planned` counts all, and `unjudged` lists those refused or blind, with the
        reason. `largest` is the case with the largest reading, with its `share` of the limit. `worst` is the failed
        case that is furthest off, with its `element`. `setting` has device, machine, versions and seed.
        """
        worst, largest = self.worst_case, self.largest
        return {
            "schema": SCHEMA, "op": self.op, "decision": self.decision, "contract": self.contract,
            "limit_from": self.limit_from, "cases": len(self.verdicts), "failed": len(self.failed),
            "suspect": len(self.suspect), "smallest": self.smallest,
            "worst": None if worst is None else worst.to_dict() | {"element": _make_plain_element(self.worst)},
            "pattern": self.pattern, "holds_under": self.holds_under, "replay": self.replay,
            "notes": list(self.notes), "recorded": str(self.recorded) if self.recorded else None,
            "largest": None if largest is None else largest.to_dict(), "planned": self._count_planned(),
            "setting": None if self.setting is None else self.setting.to_dict(),
            "unjudged": [case.to_dict() for case in self.unjudged],
            "verdicts": [case.to_dict() for case in self.verdicts],
        }  # fmt: skip

    def __repr__(self) -> str:
        head = (
            f"{self.op}: {self.decision}, {len(self.failed)} of {len(self.verdicts)} cases failed"
            + (f", {len(self.suspect)} suspect" if self.suspect else "")
            + f" (contract {self.contract}; limit: {self.limit_from})"
        )
        return "\n".join([head, *tell_verification(self)])

    def tell_judged(self) -> str:
        """Of how many cases the verdict is, and where it was made."""
        counted = f"{len(self.verdicts)} of {self._count_planned()} cases"
        return counted if self.setting is None else f"{counted}; {self.setting}"

    def _count_planned(self) -> int:
        return len(self.verdicts) + len(self.unjudged) if self.planned is None else self.planned

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def tell_verification(verification: Verification) -> list[str]:
    """What a user needs to find the fault, and to know what the verdict is worth, in lines."""
    return [f"  {name:<11} {text}" for name, text in list_facts(verification)]


def list_facts(verification: Verification) -> list[tuple[str, str]]:
    """The same, each fact with what it is called; without a name it goes on with the one before."""
    worst, largest = verification.worst_case, verification.largest
    lines = _tell_failure(verification, worst) if worst is not None else _tell_suspect(verification)
    if largest is not None and largest is not worst:
        lines.append(("largest", f"{largest.verdict.tell_share()}, on {largest.case}"))
    lines.append(("judged", verification.tell_judged()))
    if verification.setting is not None and verification.setting.interpreted:
        lines.append(("note", INTERPRETED))
    lines += [("note", note) for note in verification.notes]
    lines.append(("recorded", str(verification.recorded or "")))
    return [(name, text) for name, text in lines if text]


def _tell_failure(verification: Verification, worst: CaseVerdict) -> list[tuple[str, str]]:
    lines = [
        ("worst case", f"{worst.case}: {worst.verdict.message}"),
        ("", worst.described),
        *_tell_last("raised", worst.record.error),
        *_tell_last("printed", worst.record.printed),
        ("element", tell_element(verification.worst) if verification.worst else ""),
        ("smallest", verification.smallest or ""),
        ("replay", verification.replay or ""),
        ("pattern", verification.pattern or ""),
    ]
    holds_under = verification.holds_under
    if holds_under:
        article = "an" if holds_under[0] in "aeiou" else "a"
        lines.append((
            "contract", f"within {article} {holds_under} contract; the one declared is {verification.contract}"
        ))  # fmt: skip
    return lines


def _tell_suspect(verification: Verification) -> list[tuple[str, str]]:
    if not verification.suspect:
        return []
    furthest = max(verification.suspect, key=lambda case: case.badness)
    passes = f"{furthest.described}. It passes: the deterministic bound explains one such reading"
    return [("suspect", f"{furthest.case}: {furthest.verdict.message}"), ("", passes)]


def _tell_last(name: str, text: str | None) -> list[tuple[str, str]]:
    """The last lines of a text, the first of them under a name."""
    shown = [line for line in (text or "").splitlines() if line.strip()][-SHOWN_LINES:]
    return [(name if at == 0 else "", line) for at, line in enumerate(shown)]


def tell_unjudged(verdicts: Sequence[CaseVerdict], unjudged: Sequence[Unjudged]) -> tuple[str, ...]:
    """Of how many cases nothing is known, or not all, and why."""
    total = len(verdicts) + len(unjudged)
    notes = [
        f"{count} of {total} cases {'is' if count == 1 else 'are'} not judged: {why}"
        for why, count in Counter(case.why for case in unjudged).items()
    ]
    partly = [case.record.unjudged for case in verdicts if case.record.unjudged is not None]
    if partly:
        notes.append(f"on {len(partly)} of {total} cases some elements are not judged: {partly[0]}")
    return tuple(notes)


def tell_leaves(verdicts: Sequence[CaseVerdict], limit: FoundLimit) -> tuple[str, ...]:
    """Of which leaves nothing is known on any case; and which are integers that stand for floating values."""
    by_path: dict[str, list[LeafReading]] = {}
    for case in verdicts:
        for leaf in case.record.leaves:
            by_path.setdefault(leaf.path, []).append(leaf)
    notes = []
    for path, leaves in by_path.items():
        named = f"leaf {path}" if path else "the output"
        blind = [leaf.blind_from is not None and limit.value > leaf.blind_from for leaf in leaves]
        if limit.gauge == "bound" and path and all(blind):
            notes.append(f"{named} is not judged: {BLIND}")
        if any(leaf.is_sampled for leaf in leaves):
            notes.append(
                f"the scale of {named} is from runs with roundings drawn at random: the reference is too deep for "
                "a bound"
            )
        if leaves[0].codes:
            notes.append(
                f"{named} is {leaves[0].codes} where the reference has floating values: each is judged as the code "
                "of all that rounds to it"
            )
    return tuple(notes)


def tell_element(element: Element) -> str:
    """One element of an output."""
    where = f"leaf {element.leaf} {element.index}" if element.leaf else f"{element.index}"
    values = f"{where}: expected {element.expected!r}, actual {element.actual!r}"
    if element.ulp == ULP_SATURATED:
        return values  # no number of them leads to or from a NaN
    return f"{values}, {element.ulp} ULP{'' if element.ulp == 1 else 's'} apart"


def _make_plain_element(element: Element | None) -> dict[str, Any] | None:
    if element is None:
        return None
    ulp = None if element.ulp == ULP_SATURATED else element.ulp
    data: dict[str, Any] = to_plain(asdict(replace(element, index=list(element.index), ulp=ulp)))  # type: ignore[arg-type]
    return data


def list_worst(failed: Sequence[CaseVerdict]) -> list[CaseVerdict]:
    """Failed cases, those furthest off first."""
    return sorted(failed, key=lambda case: -case.badness)
