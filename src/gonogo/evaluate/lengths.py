"""Rows and scores → false positives and recall by how many terms the sums of a case have.

Long sums are where correct kernels read most, and where what is only suspect hides most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gonogo.evaluate.groups import Bits, Rows, pack
from gonogo.evaluate.tally import Caught, Score
from gonogo.table import Share, Table

EDGES = (0, 64, 300, 1_100)
"""Where bins begin. Chains and trees are apart by n/log2(n + 1): up to 10, 36 and 109 in the first three."""
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


def split_lengths(rows: Rows) -> dict[str, Bits]:
    """Rows by the length of their sums; none where that was not loaded."""
    lengths = rows.columns.reduced_length
    if len(lengths) != len(rows.columns):
        return {}
    names = [f"< {EDGES[1]}", *(f"{low:,} to {high - 1:,}" for low, high in pairwise(EDGES[1:]))]
    bins = [pack((lengths >= low) & (lengths < high)) for low, high in pairwise(EDGES)]
    return dict(zip(names, bins, strict=True)) | {f"{EDGES[-1]:,} or more": pack(lengths >= EDGES[-1])}


def count_lengths(rows: Rows, scores: Sequence[Score]) -> tuple[LengthCount, ...]:
    """Ours and the paper's rule, bin by bin."""
    return tuple(
        LengthCount(
            score.name, terms, score.count_within(rows.control_bits & bits),
            score.count_within(rows.bins["manifest"] & bits),
        )
        for terms, bits in split_lengths(rows).items()
        for score in scores if score.name in METHODS
    )  # fmt: skip


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
