"""Scores → how many rows of every group were judged, flagged and no-go, small enough to be summed in a browser.

A group is of rows alike in op, dtype, distribution, device, kernel and class: a control, or a faulty kernel by how
far beyond rounding its fault is. All figures of the page are sums over groups, whatever is filtered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.evaluate.groups import Mask, Rows, unpack
from gonogo.evaluate.paper_tables import CURVE
from gonogo.evaluate.tally import Score

Numbers = npt.NDArray[np.int64]

CONTROL, IDENTICAL, UNKNOWN, FIRST_BIN = 0, 1, 2, 3
"""Classes of rows. UNKNOWN ones differ by a signal that is not known; from FIRST_BIN on there are bins of it."""
CLASSES = FIRST_BIN + len(CURVE) - 1
MOST = 30_000
"""Groups that a page has; where there are more, distributions, devices and then kernels are merged."""
NONE, ALL, NOBODY = ".", "#", "-"


def classify(rows: Rows) -> npt.NDArray[np.int8]:
    """The class of every row that a score counts, −1 for all others."""
    signal = rows.columns.signal
    classes = np.full(len(signal), -1, np.int8)
    classes[rows.controls] = CONTROL
    classes[rows.faulty & ~rows.differing] = IDENTICAL
    bins = np.searchsorted(np.asarray(CURVE[1:-1]), signal, side="right") + FIRST_BIN
    known = np.where(np.isnan(signal), UNKNOWN, bins)
    failed = ~rows.sound  # beyond any bin, as in the curve
    return np.where(rows.differing, np.where(failed, CLASSES - 1, known), classes).astype(np.int8)


@dataclass(frozen=True)
class Groups:
    """Rows by all that a page tells apart."""

    of_row: npt.NDArray[np.int32]
    """−1 for rows that no score counts."""
    codes: Mapping[str, Numbers]
    """Of each group, by dimension."""
    rows: Numbers
    merged: tuple[str, ...] = ()
    """Dimensions that are not told apart, for there would be too many groups."""

    def __len__(self) -> int:
        return len(self.rows)

    def count(self, mask: Mask) -> Numbers:
        """How many of some rows are in each group."""
        here = self.of_row[mask]
        return np.bincount(here[here >= 0], minlength=len(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, a list for each dimension."""
        return {name: codes.tolist() for name, codes in self.codes.items()} | {"rows": self.rows.tolist()}


def make_groups(dimensions: Mapping[str, npt.NDArray[Any]]) -> Groups:
    """Number the combinations that occur; rows with a negative code are in none."""
    combination = np.zeros(len(next(iter(dimensions.values()))), np.int64)
    outside = np.zeros(len(combination), bool)
    for codes in dimensions.values():
        outside |= codes < 0
        combination = combination * (int(codes.max(initial=0)) + 1) + codes
    _, first, of_row, rows = np.unique(
        combination[~outside], return_index=True, return_inverse=True, return_counts=True
    )
    places = np.flatnonzero(~outside)[first]
    numbered = np.full(len(combination), -1, np.int32)
    numbered[~outside] = of_row
    return Groups(numbered, {name: codes[places].astype(np.int64) for name, codes in dimensions.items()}, rows)


def group_rows(dimensions: Mapping[str, npt.NDArray[Any]], most: int = MOST) -> Groups:
    """Groups by all dimensions, or by as many as there is room for."""
    merged: list[str] = []
    kept = dict(dimensions)
    while True:
        groups = make_groups(kept)
        left = [name for name in ("distribution", "device", "kernel") if name in kept and kept[name].any()]
        if len(groups) <= most or not left:
            return replace(groups, merged=tuple(merged))
        merged.append(left[0])
        kept[left[0]] = np.zeros_like(kept[left[0]])


def encode_scores(
    dimensions: Mapping[str, npt.NDArray[Any]], scores: Sequence[Score], room: int
) -> tuple[Groups, list[dict[str, str]]]:
    """What each score decided, by groups of as many dimensions as there is room for, in characters."""
    most = MOST
    while True:
        groups = group_rows(dimensions, most)
        encoded = [encode_score(score, groups) for score in scores]
        taken = sum(len(text) for each in encoded for text in each.values())
        if taken <= room or len(groups) > most:  # nothing is left to be merged
            return groups, encoded
        most = len(groups) - 1


def encode_score(score: Score, groups: Groups) -> dict[str, str]:
    """What was decided in each group, flagged and no-go."""
    judged, flagged, no_go = (groups.count(unpack(bits, score.rows)) for bits in score.decided)
    told = {"flagged": encode(flagged, judged, groups.rows)}
    return told if (no_go == flagged).all() else told | {"no_go": encode(no_go, judged, groups.rows)}


def encode(parts: Sequence[int] | Numbers, judged: Sequence[int] | Numbers, rows: Sequence[int] | Numbers) -> str:
    """A character for each group of which none or all of the rows are counted, or else part/judged between commas.

    >>> encode([0, 3, 2, 0], [3, 3, 4, 0], [3, 3, 5, 7])
    '.#,2/4,-'
    """
    words = []
    for part, known, count in zip(parts, judged, rows, strict=True):
        whole = known == count
        words.append(
            NOBODY if not known else NONE if whole and not part else ALL if whole and part == count
            else f",{part}/{known},"
        )  # fmt: skip
    return "".join(words)
