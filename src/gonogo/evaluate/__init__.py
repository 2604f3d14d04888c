"""Records → recall, false positives, sweeps, hold-outs, drift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gonogo.cases import NON_FINITE
from gonogo.errors import InputError
from gonogo.evaluate.groups import MANIFEST, Rows
from gonogo.evaluate.lengths import LengthCount, count_lengths, make_length_table
from gonogo.evaluate.policies import score_policies
from gonogo.evaluate.recall import make_recall_by_bin
from gonogo.evaluate.score import all_methods, default_methods, score_methods
from gonogo.evaluate.tally import Caught, Score
from gonogo.records import Columns
from gonogo.table import Share, Shown, Table, percent

__all__ = ["Evaluation", "Rows", "evaluate", "filter_columns"]


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
            f"{self.records:,} records of {len(self.runs)} runs on {machines}. Recall of all faulty cases, "
            f"of those whose bits differ from the control's, of the manifest ones (signal ≥ {MANIFEST:g}). "
            f"Flagged are suspect and no-go. {_tell_suspects(self.scores)}"
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


def evaluate(columns: Columns, holdout: str = "run", *, every_method: bool = False) -> Evaluation:
    """Score ours, the paper's rule and every policy; with `every_method`, every gauge with every rule too."""
    rows = Rows(columns)
    if not rows.calibrating.any():
        raise InputError("no sound control record among these: there is nothing to calibrate from")
    methods = all_methods(holdout) if every_method else default_methods(holdout)
    scores = [*score_methods(rows, holdout, methods), *score_policies(rows)]
    return Evaluation(
        holdout, len(columns), tuple(columns.devices), tuple(columns.runs), tuple(scores), count_left_out(rows),
        count_lengths(rows, scores),
    )  # fmt: skip


def count_left_out(rows: Rows) -> dict[str, int]:
    """Why rows are in no score."""
    columns = rows.columns
    counted = rows.controls | rows.faulty
    reasons: Counter[str] = Counter()
    candidate = columns.equals("role", "candidate")
    reasons["of kernels under test"] = int(candidate.sum())
    reasons["with NaN or infinite inputs"] = int((~rows.finite & ~candidate).sum())
    reasons["past the format's largest value"] = int((rows.overflowed & rows.finite & ~candidate).sum())
    control = columns.equals("role", "control")
    left = rows.finite & ~counted & ~rows.overflowed & ~candidate
    for name in columns.names["outcome"]:
        here = columns.equals("outcome", name) & left
        reasons[f"controls with outcome {name}"] = int((here & control).sum())
        label = "faulty without a control to compare with" if name == "ok" else f"faulty with outcome {name}"
        reasons[label] = int((here & ~control).sum())
    return {reason: count for reason, count in reasons.items() if count}


def make_non_finite_table(rows: Rows) -> Table:
    """Outcomes on inputs with NaN and infinities, which are verdicts of their own."""
    columns = rows.columns
    lines = []
    for distribution in NON_FINITE:
        for role in ("control", "faulty"):
            here = columns.equals("distribution", distribution) & columns.equals("role", role)
            counts = np.bincount(columns.codes["outcome"][here], minlength=len(columns.names["outcome"]))
            tally = {name: int(count) for name, count in zip(columns.names["outcome"], counts, strict=False)}
            lines.append((f"{distribution}, {role}", int(here.sum()), *(tally.get(n, 0) for n in SHOWN_OUTCOMES)))
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
