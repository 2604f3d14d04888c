"""Scores → recall over every bin of faulty cases, flagged and no-go."""

from __future__ import annotations

from collections.abc import Sequence

from gonogo.evaluate.beside_controls import EVIDENT, GROSS
from gonogo.evaluate.rows import MANIFEST
from gonogo.evaluate.tally import BINS_BESIDE_CONTROLS, Score
from gonogo.table import Table, percent

SHOWN = ("differing", "manifest", *BINS_BESIDE_CONTROLS)


def make_recall_by_bin(scores: Sequence[Score], how: str) -> Table:
    """One line per method, in the order given; the bins beside controls must have been counted."""
    lines = []
    for score in scores:
        caught = [score.bins[name] for name in SHOWN]
        shares = [
            percent(part / cases.cases, 2) if cases.cases else None
            for cases in caught
            for part in (cases.flagged, cases.no_go)
        ]
        lines.append((score.name, *shares))
    columns = ("method", *(f"{name} {kind}" for name in SHOWN for kind in ("flagged", "no-go")))
    sizes = ", ".join(f"{scores[0].bins[name].cases:,} {name}" for name in SHOWN)
    note = (
        f"Faulty cases that {scores[0].name} judges: {sizes}. Differing: bits are not the control's. Manifest: "
        f"signal ≥ {MANIFEST:g}, in units of the error scale. Evident and gross need no scale: the largest "
        f"absolute error is more than {EVIDENT:g} and {GROSS:g} times that of the worst control on the same case. "
        "Where an outcome is not ok, a case is in all of them."
    )
    essential = ("method", *(f"{name} flagged" for name in SHOWN))
    return Table(f"Recall by bin, {how}", columns, lines, note, essential)
