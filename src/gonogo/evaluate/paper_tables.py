"""Rows → the tables of the paper, made from our records, beside the published figures where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from gonogo.evaluate.cells import CellTable
from gonogo.evaluate.figure import Cell
from gonogo.evaluate.policies import NEEDED, list_policies
from gonogo.evaluate.published import Recall, load_published
from gonogo.evaluate.rows import Mask
from gonogo.evaluate.score import Judge, calibrate, default_methods, open_strata, tally_rows
from gonogo.evaluate.strata import CURVE, FIRST_BIN, IDENTICAL, MANIFEST_CLASS, UNKNOWN
from gonogo.evaluate.tally import Score
from gonogo.limits import Limit
from gonogo.ops import DTYPES, Kernel, find_ops
from gonogo.records import Source
from gonogo.table import Share, Shown, Table

TELLS_APART = ("cell", "class", "length")
"""What strata must have dimensions for, that these tables are made from their scores."""


def paper_pairs() -> dict[str, str]:
    """The seven faulty kernels of the paper's headline, and their controls."""
    return dict(load_published().pairs)


def all_pairs() -> dict[str, str]:
    """Every faulty kernel and its control."""
    return {k.name: str(k.calibrate_against) for op in find_ops() for k in op.kernels if k.role == "faulty"}


def make_headline(source: Source) -> Table:
    """Table 1: what the hand-picked tolerances flag and what the calibrated ones do, in-sample as in the paper."""
    lines: list[tuple[object, ...]] = []
    judge = Judge.train(source, "none", default_methods())
    strata = open_strata(source, ("cell", "bin"))
    scores = {score.name: score for score in tally_rows(source, strata, [judge], list_policies(), NEEDED)}
    for title, pairs in (("the paper's seven pairs", paper_pairs()), ("all pairs", all_pairs())):
        for what, role, kernels in (
            ("faulty flagged", "all", {*pairs}), ("false positives on controls", "controls", {*pairs.values()}),
        ):  # fmt: skip
            of_kernels = _of_kernels(scores["gonogo"], judge.gathered.cells, kernels)
            shown = [_share(score, of_kernels & _of_role(score, role)) for score in _pick(scores)]
            lines.append((f"{what}, {title}", *shown, *_published(what, title)))
    columns = ("counted", "current", "paper's rule", "gonogo", "published, current", "published, paper's rule")
    note = (
        "In-sample, as the paper counts: limits are judged on the rows they were made from. Current: hand-picked."
    )
    return Table("Headline", columns, lines, note, ("counted", "current", "paper's rule", "gonogo"))


def _pick(scores: Mapping[str, Score]) -> list[Score]:
    return [scores[name] for name in ("current", "paper", "gonogo")]


def _of_role(score: Score, role: str) -> Mask:
    assert score.strata is not None
    return score.strata.controls if role == "controls" else score.strata.bins[role]


def _of_kernels(score: Score, cells: CellTable, names: Iterable[str]) -> Mask:
    """Strata of kernels with one of these names."""
    assert score.strata is not None
    wanted = {code for code, name in enumerate(cells.names["kernel"]) if name in {*names}}
    return np.isin(cells.codes["kernel"][score.strata.codes["cell"]], list(wanted))


def _published(what: str, title: str) -> tuple[Share | None, Share | None]:
    paper = load_published().paper
    if title != "the paper's seven pairs":
        return None, None
    if what.startswith("faulty"):
        return Share(paper.flagged_current, paper.buggy_cases), Share(paper.flagged_calibrated, paper.buggy_cases)
    return Share(paper.fp_current or 0, paper.control_cases), Share(paper.fp_calibrated, paper.control_cases)


def _share(score: Score, mask: Mask) -> Share:
    caught = score.count_within(mask)
    return Share(caught.flagged, caught.cases)


def _share_no_go(score: Score, mask: Mask) -> Share:
    caught = score.count_within(mask)
    return Share(caught.no_go, caught.cases)


def find_tightening(source: Source) -> list[tuple[Cell, int]]:
    """Per control and dtype: the hand-picked atol, the paper's rule on its readings, and the number of these."""
    return compare_with_current(calibrate(source, default_methods()[1]))


def compare_with_current(limits: Iterable[Limit]) -> list[tuple[Cell, int]]:
    """The same of limits by the paper's rule that are there."""
    kernels = {k.name: k for op in find_ops() for k in op.kernels}
    cells = []
    for limit in limits:
        kernel: Kernel | None = kernels.get(str(limit.kernel))  # a control of a user's op has no tolerance
        current = None if kernel is None else kernel.current.get(str(limit.dtype))
        if kernel is not None and current is not None:
            cells.append((Cell(kernel.name, str(limit.dtype), current, limit.value), limit.cases))
    return sorted(cells, key=lambda pair: (pair[0].kernel, pair[0].dtype))


def make_tightening(source: Source) -> Table:
    """Table 2, all cells."""
    published = {(cell.kernel, cell.dtype): cell for cell in load_published().tightening}
    lines = []
    for cell, cases in find_tightening(source):
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


def make_recall(scores: Mapping[str, Score], cells: CellTable) -> Table:
    """Table 3, all faulty kernels: cases by bin, and what each method catches of those that differ."""
    published = {(cell.kernel, cell.dtype): cell for cell in load_published().recall}
    ours = scores["gonogo"]
    assert ours.strata is not None
    classes = ours.strata.codes["class"]
    dtype = cells.codes["dtype"][ours.strata.codes["cell"]]
    counted = scores["current"].counts.sum(1)  # of all rows that could be judged, whatever became of them
    lines = []
    for kernel in sorted(all_pairs()):
        of_kernel = _of_kernels(ours, cells, [kernel]) & (classes >= IDENTICAL)
        for code in np.unique(dtype[of_kernel & (counted > 0)]):
            here = of_kernel & (dtype == code)
            identical, differing = here & (classes < UNKNOWN), here & (classes >= UNKNOWN)
            manifest = here & (classes >= MANIFEST_CLASS)
            named = cells.names["dtype"][code]
            there = published.get((kernel, named))
            said = None if there is None else _show_published(there)
            cases = [int(counted[mask].sum()) for mask in (here, identical, differing & ~manifest, manifest)]
            lines.append((
                kernel, named, *cases, *(_share(score, differing) for score in _pick(scores)),
                _share(ours, manifest), _share_no_go(ours, manifest), said,
            ))  # fmt: skip
    names = (
        "faulty kernel", "dtype", "cases", "identical", "sub-rounding", "manifest", "current of differing",
        "paper's rule of differing", "gonogo of differing", "gonogo of manifest", "gonogo no-go of manifest",
        "published: current/rule of all",
    )  # fmt: skip
    essential = ("faulty kernel", "dtype", "manifest", "paper's rule of differing", "gonogo of differing")
    return Table("Recall per faulty kernel", names, sorted(lines, key=_order(cells)), essential=essential)


def _order(cells: CellTable) -> Callable[[tuple[Any, ...]], tuple[str, int]]:
    """By kernel, and dtypes as gonogo lists them."""
    known = {name: at for at, name in enumerate(dict.fromkeys((*DTYPES, *sorted(cells.names["dtype"]))))}
    return lambda line: (line[0], known[line[1]])


def _show_published(cell: Recall) -> Shown:
    counts = {"current": cell.current, "rule": cell.calibrated, "cases": cell.cases}
    return Shown(counts, f"{cell.current}/{cell.calibrated} of {cell.cases}")


def make_curve(scores: Mapping[str, Score]) -> Table:
    """Recall over the signal: how far beyond rounding a fault must be before a method sees it."""
    names = ("gonogo", "paper", "current", "torch_testing", "kernelbench", "flash_attention")
    strata, counted = scores["gonogo"].strata, scores["current"].counts.sum(1)
    assert strata is not None
    lines = []
    for at, (low, high) in enumerate(pairwise(CURVE)):
        here = strata.codes["class"] == FIRST_BIN + at
        lines.append((
            f"{low:g} … {high:g}", int(counted[here].sum()), *(_share(scores[name], here) for name in names)
        ))  # fmt: skip
    note = "Cases whose bits differ from the control's."
    essential = ("signal", "cases", "gonogo", "paper", "torch_testing")
    return Table("Recall over the signal", ("signal", "cases", *names), lines, note, essential)
