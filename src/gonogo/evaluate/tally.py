"""Decisions on rows → how many of each bin were flagged, and how many of these are no-go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.evaluate.groups import BINS, Bits, Mask, Rows, pack, split_blocks, unpack
from gonogo.limits.intervals import clopper_pearson, upper_bound
from gonogo.verdict.judge import GO, NO_GO

Decisions = npt.NDArray[np.int8]

UNJUDGED = -1
"""Beside GO, SUSPECT and NO_GO: no limit could be made, or nothing was read."""


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
    """By how much the fault shows, as in Rows.bins."""
    unjudged: int = 0
    """Rows for which no limit could be made: too few cases, or nothing left to calibrate on."""
    rows: int = field(default=0, repr=False)
    decided: tuple[Bits, ...] = field(default=(), repr=False)
    """Rows that were judged, those of them that are flagged and those that are no-go."""

    def count(self, rows: Rows, candidates: Mask, decide_block: Callable[[slice], Decisions]) -> None:
        """Count what is decided of the candidates: GO, SUSPECT, NO_GO or UNJUDGED."""
        packed = []
        for block in split_blocks(len(candidates)):
            decisions = decide_block(block)
            judged = candidates[block] & (decisions != UNJUDGED)
            masks = judged, judged & (decisions != GO), judged & (decisions == NO_GO)
            packed.append([pack(mask) for mask in masks])
        self.rows = len(candidates)
        self.decided = tuple(np.concatenate(blocks) for blocks in zip(*packed, strict=True))
        self.unjudged = int(np.count_nonzero(candidates)) - count_bits(self.decided[0])
        controls = self.count_within(rows.control_bits)
        self.control_cases, self.false_positives = controls.cases, controls.flagged
        self.suspects = controls.flagged - controls.no_go
        self.bins = {name: self.count_within(bits) for name, bits in rows.bins.items()}

    def count_within(self, bits: Bits) -> Caught:
        """What was decided of some rows."""
        return Caught(*(count_bits(bits & of_kind) for of_kind in self.decided))

    @property
    def judged(self) -> Mask | None:
        """Rows that were counted; None before any were."""
        return unpack(self.decided[0], self.rows) if self.decided else None

    @property
    def flagged(self) -> Mask | None:
        """Rows that were counted and are not go; None before any were."""
        return unpack(self.decided[1], self.rows) if self.decided else None

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


def count_bits(bits: Bits) -> int:
    """How many bits are set."""
    return int(np.bitwise_count(bits).sum())


def _divide(part: int, whole: int) -> float | None:
    return part / whole if whole else None
