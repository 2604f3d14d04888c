"""Decisions on rows → how many of each bin were flagged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.evaluate.groups import Bits, Mask, Rows, pack, split_blocks, unpack
from gonogo.intervals import clopper_pearson, upper_bound
from gonogo.judge import GO, SUSPECT

Decisions = npt.NDArray[np.int8]

UNJUDGED = -1
"""Beside GO, SUSPECT and NO_GO: no limit could be made, or nothing was read."""


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
    all: int = 0
    caught_all: int = 0
    differing: int = 0
    caught_differing: int = 0
    manifest: int = 0
    caught_manifest: int = 0
    suspect_manifest: int = 0
    """Among the manifest cases caught, those that are only suspect: `verify` and `gonogo check` let them pass."""
    unjudged: int = 0
    """Rows for which no limit could be made: too few cases, or nothing left to calibrate on."""
    rows: int = field(default=0, repr=False)
    judged_bits: Bits | None = field(default=None, repr=False)
    flagged_bits: Bits | None = field(default=None, repr=False)

    def count(self, rows: Rows, candidates: Mask, decide_block: Callable[[slice], Decisions]) -> None:
        """Count what is decided of the candidates: GO, SUSPECT, NO_GO or UNJUDGED."""
        packed = []
        for block in split_blocks(len(candidates)):
            decisions = decide_block(block)
            judged = candidates[block] & (decisions != UNJUDGED)
            masks = judged, judged & (decisions != GO), judged & (decisions == SUSPECT)
            packed.append([pack(mask) for mask in masks])
        judged, flagged, suspect = (np.concatenate(blocks) for blocks in zip(*packed, strict=True))
        self.rows, self.judged_bits, self.flagged_bits = len(candidates), judged, flagged
        self.unjudged = int(np.count_nonzero(candidates)) - _count(judged)
        controls, faulty, differing, manifest = rows.bits
        self.control_cases, self.false_positives = _count(judged & controls), _count(flagged & controls)
        self.suspects = _count(suspect & controls)
        self.all, self.caught_all = _count(judged & faulty), _count(flagged & faulty)
        self.differing, self.caught_differing = _count(judged & differing), _count(flagged & differing)
        self.manifest, self.caught_manifest = _count(judged & manifest), _count(flagged & manifest)
        self.suspect_manifest = _count(suspect & manifest)

    @property
    def judged(self) -> Mask | None:
        """Rows that were counted; None before any were."""
        return None if self.judged_bits is None else unpack(self.judged_bits, self.rows)

    @property
    def flagged(self) -> Mask | None:
        """Among these, the ones that are not go."""
        return None if self.flagged_bits is None else unpack(self.flagged_bits, self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Counts, rates and exact 95 % intervals."""
        found: dict[str, Any] = {
            "name": self.name, "gauge": self.gauge, "rule": self.rule,
            "false_positives": self.false_positives, "control_cases": self.control_cases,
            "fp_rate": _divide(self.false_positives, self.control_cases),
            "fp_upper95": _upper(self.false_positives, self.control_cases) if self.control_cases else None,
            "suspects": self.suspects, "suspect_manifest": self.suspect_manifest, "unjudged": self.unjudged,
        }  # fmt: skip
        for name in ("all", "differing", "manifest"):
            caught, total = getattr(self, f"caught_{name}"), getattr(self, name)
            found |= {name: total, f"caught_{name}": caught, f"recall_{name}": _divide(caught, total)}
            found[f"recall_{name}_interval"] = list(_interval(caught, total)) if total else None
        return found


_interval, _upper = cache(clopper_pearson), cache(upper_bound)  # both are asked for by every table


def _count(bits: Bits) -> int:
    return int(np.bitwise_count(bits).sum())


def _divide(part: int, whole: int) -> float | None:
    return part / whole if whole else None
