"""Rows → false positives against recall, over safety factors, percentiles and margins, for every gauge."""

from __future__ import annotations

from collections.abc import Sequence

from gonogo.evaluate.score import Method, score_methods
from gonogo.evaluate.tally import BINS
from gonogo.limits.rules import rule
from gonogo.records import Source
from gonogo.table import Share, Table

FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
PERCENTILES = (90, 95, 99, 100)
MARGINS = (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0)
GAUGES = ("absolute", "magnitude", "ulp", "bound")


def list_methods(gauges: Sequence[str] = GAUGES, percentiles: Sequence[float] = PERCENTILES) -> list[Method]:
    """The paper's rule with every factor, and the pooled one with every margin."""
    methods = [
        Method(f"{gauge} × p{share:g} × {factor:g}", gauge, rule("paper", percentile=share, factor=factor))
        for gauge in gauges for share in percentiles for factor in FACTORS
    ]  # fmt: skip
    return methods + [
        Method(f"bound × pooled({floor:g}, {margin:g})", "bound", rule("pooled", floor=floor, margin=margin))
        for floor in (1.0, 2.0) for margin in MARGINS
    ]  # fmt: skip


def make_sweep(source: Source, holdout: str) -> Table:
    """All of them, one line each."""
    lines = []
    for score in score_methods(source, holdout, list_methods()):
        every, differing, manifest = (score.bins[name] for name in BINS)
        lines.append((
            score.name, Share(score.false_positives, score.control_cases, 3),
            Share(every.flagged, every.cases), Share(differing.flagged, differing.cases),
            Share(manifest.flagged, manifest.cases, 2), Share(manifest.no_go, manifest.cases, 2),
        ))  # fmt: skip
    columns = ("gauge × rule", "false positives", "all", "differing", "manifest flagged", "manifest no-go")
    essential = ("gauge × rule", "false positives", "differing", "manifest flagged")
    return Table(f"Sweep, hold-out {holdout}", columns, lines, essential=essential)
