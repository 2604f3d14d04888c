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

from gonogo.evaluate.tally import Score

Numbers = npt.NDArray[np.int64]

MOST = 30_000
"""Groups that a page has; where there are more, distributions, devices and then kernels are merged."""
NONE, ALL, NOBODY = ".", "#", "-"


@dataclass(frozen=True)
class Groups:
    """Strata by all that a page tells apart."""

    of_stratum: npt.NDArray[np.int64]
    """−1 for those that are on no page."""
    codes: Mapping[str, Numbers]
    """Of each group, by dimension."""
    rows: Numbers
    merged: tuple[str, ...] = ()
    """Dimensions that are not told apart, for there would be too many groups."""

    def __len__(self) -> int:
        return len(self.rows)

    def count(self, rows: Numbers) -> Numbers:
        """What some counts of strata come to in each group."""
        here = self.of_stratum >= 0
        counts = np.zeros(len(self), np.int64)
        np.add.at(counts, self.of_stratum[here], rows[here])
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Plain data, a list for each dimension."""
        return {name: codes.tolist() for name, codes in self.codes.items()} | {"rows": self.rows.tolist()}


def make_groups(dimensions: Mapping[str, Numbers], rows: Numbers) -> Groups:
    """Number the combinations that occur; strata with a negative code are in none."""
    stacked = np.stack([np.asarray(codes, np.int64) for codes in dimensions.values()])
    inside = (stacked >= 0).all(0) & (rows > 0)
    distinct, of_inside = np.unique(stacked[:, inside], axis=1, return_inverse=True)
    of_stratum = np.full(len(rows), -1, np.int64)
    of_stratum[inside] = of_inside.ravel()
    groups = Groups(of_stratum, dict(zip(dimensions, distinct, strict=True)), np.zeros(distinct.shape[1], np.int64))
    return replace(groups, rows=groups.count(rows))


def group_strata(dimensions: Mapping[str, Numbers], rows: Numbers, most: int = MOST) -> Groups:
    """Groups by all dimensions, or by as many as there is room for."""
    merged: list[str] = []
    kept = dict(dimensions)
    while True:
        groups = make_groups(kept, rows)
        left = [name for name in ("distribution", "device", "kernel") if name in kept and kept[name].any()]
        if len(groups) <= most or not left:
            return replace(groups, merged=tuple(merged))
        merged.append(left[0])
        kept[left[0]] = np.zeros_like(kept[left[0]])


def encode_scores(
    dimensions: Mapping[str, Numbers], rows: Numbers, scores: Sequence[Score], room: int
) -> tuple[Groups, list[dict[str, str]]]:
    """What each score decided, by groups of as many dimensions as there is room for, in characters.

    All scores are of the same strata, whose codes `dimensions` has; `rows` are how many each stratum has.
    """
    most = MOST
    while True:
        groups = group_strata(dimensions, rows, most)
        encoded = [encode_score(score, groups) for score in scores]
        taken = sum(len(text) for each in encoded for text in each.values())
        if taken <= room or len(groups) > most:  # nothing is left to be merged
            return groups, encoded
        most = len(groups) - 1


def encode_score(score: Score, groups: Groups) -> dict[str, str]:
    """What was decided in each group, flagged and no-go."""
    judged, flagged, no_go = (groups.count(rows) for rows in score.decided)
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
