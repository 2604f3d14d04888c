"""Records → recall, false positives, sweeps, hold-outs, drift."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gonogo.cases import NON_FINITE
from gonogo.errors import InputError
from gonogo.evaluate.cells import Cells
from gonogo.evaluate.lengths import LengthCount, count_lengths, make_length_table
from gonogo.evaluate.policies import NEEDED, list_policies
from gonogo.evaluate.recall import make_recall_by_bin
from gonogo.evaluate.rows import MANIFEST, Rows
from gonogo.evaluate.score import USUAL, Block, Judge, all_methods, default_methods, open_strata, tally_rows
from gonogo.evaluate.tally import Caught, Score
from gonogo.records import OUTCOMES, Columns, Source
from gonogo.table import Share, Shown, Table, percent

__all__ = ["Evaluation", "Rows", "evaluate", "evaluate_by", "filter_columns", "train_judge"]


@dataclass(frozen=True)
class Evaluation:
    """Scores of all methods and policies under one hold-out, and what was left out of them."""

    holdout: str
    records: int
    devices: tuple[str, ...]
    runs: tuple[str, ...]
    scores: tuple[Score, ...]
    left_out: dict[str, int]
    """Rows that no score counts, by reason."""
    by_length: tuple[LengthCount, ...] = ()
    """Empty where lengths were not loaded."""
    told: str = ""
    """What else is to be said of the scores."""

    @property
    def how(self) -> str:
        """The hold-out, as titles have it."""
        return "in-sample" if self.holdout == "none" else f"held out by {self.holdout}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for --json."""
        return {
            "schema": 1, "holdout": self.holdout, "in_sample": self.holdout == "none", "records": self.records,
            "runs": list(self.runs), "devices": sorted(set(self.devices)), "manifest_signal": MANIFEST,
            "left_out": self.left_out, "policies": [score.to_dict() for score in self.scores],
            "by_length": [count.to_dict() for count in self.by_length],
        }  # fmt: skip

    def to_tables(self) -> list[Table]:
        """All methods, and the sums of each length."""
        return [self.to_table(), *([make_length_table(self.by_length, self.how)] if self.by_length else [])]

    def to_recall_table(self) -> Table:
        """Recall over every bin, of methods with a name of their own: a table of all crossed ones is too long."""
        named = [score for score in self.scores if "×" not in score.name]
        return make_recall_by_bin(sorted(named, key=rank), self.how)

    def to_table(self) -> Table:
        """All methods side by side: those with few false positives first, then by recall of what differs."""
        lines = [_make_line(score) for score in sorted(self.scores, key=rank)]
        machines = ", ".join(sorted(set(self.devices)))
        columns = (
            "method", "gauge × rule", "false positives", "rate", "at most (95 %)", "all", "differing",
            "manifest flagged", "manifest no-go", "not judged",
        )  # fmt: skip
        note = (
            f"{self.records:,} records of {len(self.runs)} run{'s' * (len(self.runs) != 1)} on {machines}. "
            "Recall of all faulty cases, "
            f"of those whose bits differ from the control's, of the manifest ones (signal ≥ {MANIFEST:g}). "
            f"Flagged are suspect and no-go. {self.told or _tell_suspects(self.scores)}"
        )
        essential = ("method", "false positives", "at most (95 %)", "differing", "manifest flagged")
        return Table(f"All methods, {self.how}", columns, lines, note + _tell_left_out(self.left_out), essential)


def _make_line(score: Score) -> tuple[object, ...]:
    counts = score.to_dict()
    return (
        score.name, score.gauge if score.gauge == "policy" else f"{score.gauge} × {score.rule}",
        _show_false_positives(score),
        percent(counts["fp_rate"], 3), percent(counts["fp_upper95"], 3), percent(counts["recall_all"]),
        percent(counts["recall_differing"]), percent(counts["recall_manifest"], 2),
        percent(counts["recall_no_go_manifest"], 2), score.unjudged,
    )  # fmt: skip


def _show_false_positives(score: Score) -> Shown:
    share = Share(score.false_positives, score.control_cases)
    return Shown(share.to_dict(), f"{share.part:,}/{share.whole:,}")


USABLE_RATE = 0.01
"""False-positive rate above which a test suite of a few hundred cases fails at every run."""


def rank(score: Score) -> tuple[bool, bool, float]:
    """Order of a table: what judges few of the cases is not to be compared with what judges all, and comes last."""
    rate = score.false_positives / max(score.control_cases, 1)
    every, differing = score.bins["all"], score.bins["differing"]
    partial = score.unjudged > score.control_cases + every.cases
    return rate > USABLE_RATE, partial, -differing.flagged / max(differing.cases, 1)


def _tell_suspects(scores: Sequence[Score]) -> str:
    """What recall counts as flagged and a strict check lets pass."""
    ours = next((score.bins["manifest"] for score in scores if score.name == "gonogo"), Caught())
    if not ours.flagged:
        return ""
    suspect = ours.flagged - ours.no_go
    return (
        f"Of {ours.flagged:,} manifest cases that gonogo flags, {suspect:,} ({100 * suspect / ours.flagged:.1f} %) "
        "are suspect only: verify and gonogo check run these again on fresh seeds. "
    )


def _tell_left_out(left_out: dict[str, int]) -> str:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    return f"Left out: {reasons}." if reasons else ""


def evaluate(
    source: Source, holdout: str = "run", *, every_method: bool = False, dimensions: Sequence[str] = USUAL
) -> Evaluation:
    """Score ours, the paper's rule and every policy; with `every_method`, every gauge with every rule too.

    `dimensions` are what strata of the scores tell rows apart by.
    """
    judge = train_judge(source, holdout, every_method=every_method)
    return evaluate_by(source, judge, dimensions)


def train_judge(
    source: Source, holdout: str, *, every_method: bool = False, numbering: Cells | None = None
) -> Judge:
    """Limits of ours and of the paper's rule, or of every method, under a hold-out."""
    methods = all_methods(holdout) if every_method else default_methods(holdout)
    judge = Judge.train(source, holdout, methods, numbering)
    if not judge.gathered.rows:
        raise InputError("no sound control record among these: there is nothing to calibrate from")
    return judge


def evaluate_by(
    source: Source, judge: Judge, dimensions: Sequence[str] = USUAL,
    look: Callable[[Block], None] = lambda block: None, needed: Collection[str] = (),
) -> Evaluation:  # fmt: skip
    """The same by limits that are there; `look` sees every block on the way, with what is `needed` beside."""
    left_out: Counter[str] = Counter()
    lock = threading.Lock()

    def watch(block: Block) -> None:
        look(block)
        counted = count_left_out(block.rows)
        with lock:
            left_out.update(counted)

    strata = open_strata(source, dimensions)
    scores = tally_rows(source, strata, [judge], list_policies(), {*NEEDED, *needed}, watch)
    return Evaluation(
        judge.gathered.holdout.name, len(source), tuple(source.devices), tuple(source.runs), tuple(scores),
        order_reasons(left_out), count_lengths(scores),
    )  # fmt: skip


UNDER_TEST, NOT_FINITE, OVERFLOWED = (
    "of kernels under test", "with NaN or infinite inputs", "past the format's largest value"
)  # fmt: skip


def order_reasons(left_out: Mapping[str, int]) -> dict[str, int]:
    """Reasons that hold for some rows, in an order that does not depend on these."""
    known = [
        UNDER_TEST, NOT_FINITE, OVERFLOWED,
        *(_tell_reason(role, outcome) for outcome in OUTCOMES for role in ("control", "faulty")),
    ]  # fmt: skip
    return {reason: left_out[reason] for reason in known if left_out.get(reason)}


def _tell_reason(role: str, outcome: str) -> str:
    if role == "control":
        return f"controls with outcome {outcome}"
    return "faulty without a control to compare with" if outcome == "ok" else f"faulty with outcome {outcome}"


def count_left_out(rows: Rows) -> dict[str, int]:
    """Why rows are in no score."""
    columns = rows.columns
    candidate = columns.equals("role", "candidate")
    reasons = {
        UNDER_TEST: int(candidate.sum()),
        NOT_FINITE: int((~rows.finite & ~candidate).sum()),
        OVERFLOWED: int((rows.overflowed & rows.finite & ~candidate).sum()),
    }
    left = rows.finite & ~rows.counted & ~rows.overflowed & ~candidate
    outcomes, control = columns.codes["outcome"][left].astype(np.intp), rows.control[left]
    for role, here in (("control", control), ("faulty", ~control)):
        counts = np.bincount(outcomes[here])
        reasons |= {
            _tell_reason(role, columns.names["outcome"][code]): int(counts[code]) for code in np.flatnonzero(counts)
        }
    return reasons


def make_non_finite_table(source: Source) -> Table:
    """Outcomes on inputs with NaN and infinities, which are verdicts of their own."""
    parts = ("distribution", "role", "outcome")

    def count(columns: Columns) -> Counter[tuple[str, str, str]]:
        here = np.flatnonzero(columns.equals("distribution", *NON_FINITE))
        codes, rows = np.unique(np.stack([columns.codes[name][here] for name in parts]), axis=1, return_counts=True)
        return Counter({
            (columns.names[parts[0]][first], columns.names[parts[1]][second], columns.names[parts[2]][third]): count
            for (first, second, third), count in zip(codes.T.tolist(), rows.tolist(), strict=True)
        })  # fmt: skip

    tally = sum(source.map_blocks(count), Counter[tuple[str, str, str]]())
    lines = []
    for distribution in NON_FINITE:
        for role in ("control", "faulty"):
            cases = sum(rows for (*where, _), rows in tally.items() if where == [distribution, role])
            shown = (tally[distribution, role, name] for name in SHOWN_OUTCOMES)
            lines.append((f"{distribution}, {role}", cases, *shown))
    names = ("rows", "cases", *SHOWN_OUTCOMES)
    return Table("Inputs with NaN and infinities", names, lines, essential=("rows", "cases", "ok", "non-finite"))


SHOWN_OUTCOMES = ("ok", "non-finite", "unwritten", "not-repeatable", "raised", "refused")


def filter_columns(
    columns: Columns, *, op: str | Sequence[str] = (), dtype: str | Sequence[str] = (),
    distribution: str | Sequence[str] = (),
) -> Columns:  # fmt: skip
    """Only rows of some ops, dtypes or distributions; of all where none is named."""
    mask = np.ones(len(columns), bool)
    for name, given in (("op", op), ("dtype", dtype), ("distribution", distribution)):
        words = [given] if isinstance(given, str) else given
        for word in filter(None, words):
            if word not in columns.names[name]:
                known = ", ".join(sorted(columns.names[name]))
                raise InputError(f"no record has {name} {word!r}; there are: {known}")
        if any(words):
            mask &= columns.equals(name, *words)
    return columns if mask.all() else columns.select(mask)
