"""Decisions on rows → how many of each bin were flagged, and how many of these are no-go."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.evaluate.rows import Mask
from gonogo.evaluate.strata import StrataTable
from gonogo.limits.intervals import clopper_pearson, upper_bound
from gonogo.verdict.judge import NO_GO, SUSPECT

Decisions = npt.NDArray[np.int8]
Counts = npt.NDArray[np.int64]
"""Of each stratum: rows that are UNJUDGED, GO, SUSPECT and NO_GO; of several scores, one after another."""

BINS = ("all", "differing", "manifest")
"""Of faulty rows: all; those whose bits are not the control's; those whose fault is beyond rounding."""
BINS_BESIDE_CONTROLS = ("evident", "gross")
"""Of faulty rows: those whose worst error is more than 2 times, and 10 times, the worst control's on the case."""
UNJUDGED = -1
"""Beside GO, SUSPECT and NO_GO: no limit could be made, or nothing was read."""
KINDS = 4


class Tally:
    """Counts of strata for some scores; blocks of rows may come from several threads."""

    def __init__(self, scores: int) -> None:
        self._counts = np.zeros((scores, 0, KINDS), np.int64)
        self._lock = threading.Lock()

    def add(self, strata: npt.NDArray[np.int32], decided: Iterable[tuple[Decisions, Mask | None]]) -> None:
        """Take what each score decided of a block, or of its rows in a mask; rows of stratum −1 are not counted."""
        most = int(strata.max(initial=-1)) + 2
        occurs = np.zeros(most, bool)
        occurs[strata + 1] = True  # the first is nowhere
        occurs[0] = True
        here = np.flatnonzero(occurs)
        local = ((np.cumsum(occurs) - 1) * KINDS + 1).astype(np.int32)[strata + 1]
        counts = [
            np.bincount(
                (local if mask is None else np.where(mask, local, 1)) + decisions, minlength=KINDS * len(here)
            )
            for decisions, mask in decided
        ]
        with self._lock:
            if most - 1 > self._counts.shape[1]:  # by half more: growing copies all
                self._counts = _widen(self._counts, most - 1 + most // 2)
            for total, more in zip(self._counts, counts, strict=True):
                total[here[1:] - 1] += more.reshape(-1, KINDS)[1:]

    def close(self, strata: int) -> Counts:
        """Of each score and stratum."""
        return _widen(self._counts, strata)


def _widen(counts: Counts, strata: int) -> Counts:
    return np.pad(counts[:, :strata], ((0, 0), (0, max(0, strata - counts.shape[1])), (0, 0)))


@dataclass(frozen=True)
class Caught:
    """Cases of faulty kernels in one bin, and what was decided of them."""

    cases: int = 0
    """That were judged."""
    flagged: int = 0
    """Suspect or no-go."""
    no_go: int = 0
    """What `verify` and `gonogo check` fail a kernel for; they let pass what is only suspect."""


@dataclass
class Score:
    """Counts of one method or policy over all folds."""

    name: str
    gauge: str
    rule: str
    false_positives: int = 0
    control_cases: int = 0
    suspects: int = 0
    """Among the false positives, those a rerun is due before they fail."""
    bins: dict[str, Caught] = field(default_factory=lambda: dict.fromkeys(BINS, Caught()))
    """By how much the fault shows, as in StrataTable.bins."""
    unjudged: int = 0
    """Rows for which no limit could be made: too few cases, or nothing left to calibrate on."""
    strata: StrataTable | None = field(default=None, repr=False)
    counts: Counts = field(default_factory=lambda: np.zeros((0, KINDS), np.int64), repr=False)

    def count(self, strata: StrataTable, counts: Counts) -> None:
        """Take what was decided of each stratum."""
        self.strata, self.counts = strata, counts
        self.unjudged = int(self.counts[:, UNJUDGED + 1].sum())
        controls = self.count_within(strata.controls)
        self.control_cases, self.false_positives = controls.cases, controls.flagged
        self.suspects = controls.flagged - controls.no_go
        self.bins = {name: self.count_within(mask) for name, mask in strata.bins.items()}

    def count_within(self, mask: Mask) -> Caught:
        """What was decided of some strata."""
        return Caught(*(int(of_kind[mask].sum()) for of_kind in self.decided))

    @property
    def decided(self) -> tuple[Counts, Counts, Counts]:
        """Of each stratum: rows that were judged, those of them that are flagged and those that are no-go."""
        judged = self.counts[:, UNJUDGED + 2 :].sum(1)
        return judged, self.counts[:, SUSPECT + 1 :].sum(1), self.counts[:, NO_GO + 1]

    def to_dict(self) -> dict[str, Any]:
        """Counts, rates and exact 95 % intervals."""
        manifest = self.bins["manifest"]
        counts: dict[str, Any] = {
            "name": self.name, "gauge": self.gauge, "rule": self.rule,
            "false_positives": self.false_positives, "control_cases": self.control_cases,
            "fp_rate": _divide(self.false_positives, self.control_cases),
            "fp_upper95": _upper(self.false_positives, self.control_cases) if self.control_cases else None,
            "suspects": self.suspects, "suspect_manifest": manifest.flagged - manifest.no_go,
            "unjudged": self.unjudged,
        }  # fmt: skip
        for name, caught in self.bins.items():
            counts[name] = caught.cases
            for kind, part in (("", caught.flagged), ("no_go_", caught.no_go)):
                counts[f"caught_{kind}{name}"] = part
                counts[f"recall_{kind}{name}"] = _divide(part, caught.cases)
                interval = list(_interval(part, caught.cases)) if caught.cases else None
                counts[f"recall_{kind}{name}_interval"] = interval
        return counts


_interval, _upper = cache(clopper_pearson), cache(upper_bound)  # both are asked for by every table


def _divide(part: int, whole: int) -> float | None:
    return part / whole if whole else None
