"""Rows → the tables of the paper, made from our records, beside the published figures where there are any."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from gonogo.evaluate.figure import Cell
from gonogo.evaluate.groups import Mask, Rows, pack
from gonogo.evaluate.policies import score_policies
from gonogo.evaluate.published import Recall, load_published
from gonogo.evaluate.score import calibrate, default_methods, score_methods
from gonogo.evaluate.tally import Score
from gonogo.ops import Kernel, find_ops
from gonogo.table import Share, Shown, Table


def paper_pairs() -> dict[str, str]:
    """The seven faulty kernels of the paper's headline, and their controls."""
    return dict(load_published().pairs)


def all_pairs() -> dict[str, str]:
    """Every faulty kernel and its control."""
    return {k.name: str(k.calibrate_against) for op in find_ops() for k in op.kernels if k.role == "faulty"}


def make_headline(rows: Rows) -> Table:
    """Table 1: what the hand-picked tolerances flag and what the calibrated ones do, in-sample as in the paper."""
    lines: list[tuple[object, ...]] = []
    scores = {
        score.name: score for score in [*score_policies(rows), *score_methods(rows, "none", default_methods())]
    }
    for title, pairs in (("the paper's seven pairs", paper_pairs()), ("all pairs", all_pairs())):
        faulty = rows.faulty & _of_kernels(rows, pairs)
        controls = rows.controls & _of_kernels(rows, set(pairs.values()))
        for what, mask in (("faulty flagged", faulty), ("false positives on controls", controls)):
            cells = [_share(scores[name], mask) for name in ("current", "paper", "gonogo")]
            lines.append((f"{what}, {title}", *cells, *_published(what, title)))
    columns = ("counted", "current", "paper's rule", "gonogo", "published, current", "published, paper's rule")
    note = (
        "In-sample, as the paper counts: limits are judged on the rows they were made from. Current: hand-picked."
    )
    return Table("Headline", columns, lines, note, ("counted", "current", "paper's rule", "gonogo"))


def _published(what: str, title: str) -> tuple[Share | None, Share | None]:
    paper = load_published().paper
    if title != "the paper's seven pairs":
        return None, None
    if what.startswith("faulty"):
        return Share(paper.flagged_current, paper.buggy_cases), Share(paper.flagged_calibrated, paper.buggy_cases)
    return Share(paper.fp_current or 0, paper.control_cases), Share(paper.fp_calibrated, paper.control_cases)


def _of_kernels(rows: Rows, names: Iterable[str]) -> Mask:
    return rows.columns.equals("kernel", *names)


def _share(score: Score, mask: Mask) -> Share:
    assert score.flagged is not None
    assert score.judged is not None
    here = mask & score.judged
    return Share(int((here & score.flagged).sum()), int(here.sum()))


def _share_no_go(score: Score, mask: Mask) -> Share:
    caught = score.count_within(pack(mask))
    return Share(caught.no_go, caught.cases)


def find_tightening(rows: Rows) -> list[tuple[Cell, int]]:
    """Per control and dtype: the hand-picked atol, the paper's rule on its readings, and the number of these."""
    kernels = {k.name: k for op in find_ops() for k in op.kernels}
    paper = default_methods()[1]
    cells = []
    for limit in calibrate(rows, paper):
        kernel: Kernel | None = kernels.get(str(limit.kernel))  # a control of a user's op has no tolerance
        current = None if kernel is None else kernel.current.get(str(limit.dtype))
        if kernel is not None and current is not None:
            cells.append((Cell(kernel.name, str(limit.dtype), current, limit.value), limit.cases))
    return sorted(cells, key=lambda pair: (pair[0].kernel, pair[0].dtype))


def make_tightening(rows: Rows) -> Table:
    """Table 2, all cells."""
    published = {(cell.kernel, cell.dtype): cell for cell in load_published().tightening}
    lines = []
    for cell, cases in find_tightening(rows):
        there = published.get((cell.kernel, cell.dtype))
        lines.append((
            cell.kernel, cell.dtype, cases, cell.current, cell.calibrated,
            "exact" if cell.calibrated == 0 else _show_factor(cell.factor),
            None if there is None else there.calibrated,
            None if there is None else _show_factor(there.factor),
        ))  # fmt: skip
    columns = (
        "control", "dtype", "cases", "current atol", "p95 × 1.5", "tightening", "published", "published tightening",
    )  # fmt: skip
    note = "By how much the paper's rule tightens the hand-picked atol."
    essential = ("control", "dtype", "current atol", "p95 × 1.5", "tightening", "published tightening")
    return Table("Tightening per control and dtype", columns, lines, note, essential)


def _show_factor(factor: float) -> Shown:
    return Shown(factor, f"{factor:,.0f} ×")


def make_recall(rows: Rows, scores: dict[str, Score]) -> Table:
    """Table 3, all faulty kernels: cases by bin, and what each method catches of those that differ."""
    published = {(cell.kernel, cell.dtype): cell for cell in load_published().recall}
    columns = rows.columns
    lines = []
    for kernel in sorted(all_pairs()):
        for dtype in columns.names["dtype"]:
            here = rows.faulty & columns.equals("kernel", kernel) & columns.equals("dtype", dtype)
            if not here.any():
                continue
            identical, differing = here & ~rows.differing, here & rows.differing
            manifest = here & rows.manifest
            there = published.get((kernel, dtype))
            said = None if there is None else _show_published(there)
            lines.append((
                kernel, dtype, int(here.sum()), int(identical.sum()), int((differing & ~manifest).sum()),
                int(manifest.sum()), *(_share(scores[name], differing) for name in ("current", "paper", "gonogo")),
                _share(scores["gonogo"], manifest), _share_no_go(scores["gonogo"], manifest), said,
            ))  # fmt: skip
    names = (
        "faulty kernel", "dtype", "cases", "identical", "sub-rounding", "manifest", "current of differing",
        "paper's rule of differing", "gonogo of differing", "gonogo of manifest", "gonogo no-go of manifest",
        "published: current/rule of all",
    )  # fmt: skip
    essential = ("faulty kernel", "dtype", "manifest", "paper's rule of differing", "gonogo of differing")
    return Table("Recall per faulty kernel", names, lines, essential=essential)


def _show_published(cell: Recall) -> Shown:
    counts = {"current": cell.current, "rule": cell.calibrated, "cases": cell.cases}
    return Shown(counts, f"{cell.current}/{cell.calibrated} of {cell.cases}")


CURVE = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0, np.inf)


def make_curve(rows: Rows, scores: dict[str, Score]) -> Table:
    """Recall over the signal: how far beyond rounding a fault must be before a method sees it."""
    names = ("gonogo", "paper", "current", "torch_testing", "kernelbench", "flash_attention")
    signal = rows.columns.signal
    lines = []
    for low, high in pairwise(CURVE):
        with np.errstate(invalid="ignore"):
            here = rows.differing & rows.sound & (signal >= low) & (signal < high)
        if high == np.inf:
            here = rows.differing & ((signal >= low) | ~rows.sound)
        lines.append((f"{low:g} … {high:g}", int(here.sum()), *(_share(scores[name], here) for name in names)))
    note = "Cases whose bits differ from the control's."
    essential = ("signal", "cases", "gonogo", "paper", "torch_testing")
    return Table("Recall over the signal", ("signal", "cases", *names), lines, note, essential)
