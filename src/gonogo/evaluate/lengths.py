"""Scores → false positives and recall by how many terms the sums of a case have.

Long sums are where correct kernels read most, and where what is only suspect hides most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.evaluate.strata import LENGTHS
from gonogo.evaluate.tally import Caught, Score
from gonogo.table import Share, Table

METHODS = ("gonogo", "paper")


@dataclass(frozen=True)
class LengthCount:
    """What one method made of the cases whose sums are of some length."""

    method: str
    terms: str
    controls: Caught
    manifest: Caught

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for --json."""
        return {
            "method": self.method, "terms": self.terms,
            "control_cases": self.controls.cases, "false_positives": self.controls.flagged,
            "manifest": self.manifest.cases, "caught_manifest": self.manifest.flagged,
            "caught_no_go_manifest": self.manifest.no_go,
        }  # fmt: skip


def count_lengths(scores: Sequence[Score]) -> tuple[LengthCount, ...]:
    """Ours and the paper's rule, length by length; nothing where rows are not told apart by it."""
    counts = []
    for at, terms in enumerate(LENGTHS):
        for score in scores:
            strata = score.strata
            if score.name in METHODS and strata is not None and strata.has("length"):
                here = strata.codes["length"] == at
                controls = score.count_within(strata.controls & here)
                manifest = score.count_within(strata.bins["manifest"] & here)
                counts.append(LengthCount(score.name, terms, controls, manifest))
    return tuple(counts)


def make_length_table(counts: Sequence[LengthCount], how: str) -> Table:
    """One line per length; the paper's rule knows no suspect."""
    by_terms_and_method = {(count.terms, count.method): count for count in counts}
    lines = []
    for terms in dict.fromkeys(count.terms for count in counts):
        ours, paper = (by_terms_and_method[terms, method] for method in METHODS)
        lines.append((
            terms, Share(ours.controls.flagged, ours.controls.cases, 3),
            Share(ours.manifest.flagged, ours.manifest.cases, 2),
            Share(ours.manifest.no_go, ours.manifest.cases, 2),
            Share(paper.controls.flagged, paper.controls.cases, 3),
            Share(paper.manifest.flagged, paper.manifest.cases, 2),
        ))  # fmt: skip
    columns = (
        "terms", "gonogo: false positives", "gonogo: manifest flagged", "gonogo: manifest no-go",
        "paper: false positives", "paper: manifest",
    )  # fmt: skip
    note = "An op that sums nothing has one term."
    essential = (columns[0], columns[1], columns[2], columns[4])
    return Table(f"By length of sums, {how}", columns, lines, note, essential)
