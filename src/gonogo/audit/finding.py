"""What a tolerance is worth for one op and dtype: plain counts, as a line of a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gonogo.evaluate.tally import BINS as COUNTED_BINS
from gonogo.evaluate.tally import Score
from gonogo.table import Share, Shown, Table, percent

PROBES = ("zeros", "constant", "mean", "input")
"""Plainly wrong: all 0, all 1, the mean of the expected output everywhere, the first input as it is."""
HIDDEN = ("name", "gauge", "rule", "suspects", "suspect_manifest", "unjudged")
"""Of a score, beside what it says of no-go: a tolerance says yes or no, never suspect."""
ROUNDED = "rounded"
"""The exact result, rounded correctly."""
BINS = ("identical", "sub-rounding", "manifest")
"""Cases of faulty kernels: no bit differs from the control's; it differs by what two roundings may; by more."""


FINDINGS = ("vacuous", "too-tight", "false-positives", "says-nothing")
"""What may be wrong with a tolerance, in words for a program."""
COLUMNS = (
    "op", "dtype", "finding", *(f"{name} passes" for name in PROBES), "below ½ ULP", "controls that fail",
    "at most (95 %)", *(f"{name} faults caught" for name in BINS), "not decided", "counted in", "gonogo's limit",
)  # fmt: skip


@dataclass
class Probe:
    """How a stand-in for a kernel fared."""

    name: str
    cases: int = 0
    """Where gonogo says no-go; all, for the exact result rounded correctly."""
    passed: int = 0


@dataclass
class Audit:
    """What a tolerance is worth for one op and dtype."""

    op: str
    dtype: str
    tolerance: str
    probes: dict[str, Probe]
    probed: int = 0
    """Cases that a plainly wrong probe was tried on."""
    fooled: int = 0
    """Probed cases where a plainly wrong probe passes."""
    elements: int = 0
    """Elements looked at for how tight it is: finite, and normal in the format."""
    too_tight: int = 0
    """Elements looked at that may be off by less than half a unit in the last place."""
    score: Score = field(default_factory=lambda: Score("", "", ""))
    counted_in: Literal["records", "live", "nothing"] = "nothing"
    limit: float | None = None
    """gonogo's, for kernels that accumulate in float32."""
    limit_from: str = ""
    silent: bool = False
    """Whether the policy says nothing of the op and dtype."""

    @property
    def vacuous(self) -> bool:
        """Whether something plainly wrong passes."""
        return self.fooled > 0

    @property
    def tight(self) -> bool:
        """Whether it asks for more than rounding the exact result gives."""
        rounded = self.probes[ROUNDED]
        return rounded.passed < rounded.cases or self.too_tight > 0

    @property
    def undecided(self) -> int:
        """Cases of controls and faults that do not decide it: records hold no expected values."""
        return self.score.unjudged

    @property
    def bins(self) -> dict[str, Share]:
        """Faults caught, by how much they change: no bit, less than rounding may, more."""
        every, differing, manifest = (self.score.bins[name] for name in COUNTED_BINS)
        shares = (
            Share(every.flagged - differing.flagged, every.cases - differing.cases),
            Share(differing.flagged - manifest.flagged, differing.cases - manifest.cases),
            Share(manifest.flagged, manifest.cases),
        )
        return dict(zip(BINS, shares, strict=True))

    @property
    def findings(self) -> tuple[str, ...]:
        """What is wrong with it, of FINDINGS."""
        holds = (self.vacuous, self.tight, self.score.false_positives > 0, self.silent)
        return tuple(word for word, is_so in zip(FINDINGS, holds, strict=True) if is_so)

    @property
    def finding(self) -> str:
        """What the tolerance is worth, in a few words."""
        if self.silent:
            return "says nothing"
        words = [f"vacuous {self.fooled}/{self.probed}"] if self.vacuous else []
        words += ["too tight"] if self.tight else []
        words += ["fails correct kernels"] if self.score.false_positives else []
        return ", ".join(words) or "no finding"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for --json."""
        counts = self.score.to_dict()
        return {
            "op": self.op, "dtype": self.dtype, "tolerance": self.tolerance, "says_nothing": self.silent,
            "vacuous": self.vacuous, "too_tight": self.tight,
            "probed_cases": self.probed, "vacuous_cases": self.fooled,
            "probes": {name: {"cases": probe.cases, "passed": probe.passed} for name, probe in self.probes.items()},
            "elements": self.elements, "elements_below_half_ulp": self.too_tight, "counted_in": self.counted_in,
            **{name: counts[name] for name in counts if name not in HIDDEN and "no_go" not in name},
            "bins": {name: {"caught": share.part, "faults": share.whole} for name, share in self.bins.items()},
            "undecided": self.undecided, "finding": self.finding, "findings": list(self.findings),
            "gonogo_limit": self.limit, "gonogo_limit_from": self.limit_from,
        }  # fmt: skip


def make_table(audits: Sequence[Audit], told: str) -> Table:
    """One line per op and dtype."""
    lines = []
    for audit in audits:
        score = audit.score
        lines.append((
            audit.op, audit.dtype, audit.finding,
            *(_tell_probe(audit.probes[name]) for name in PROBES),
            percent(audit.too_tight / audit.elements if audit.elements else None),
            Share(score.false_positives, score.control_cases, 2),
            percent(score.to_dict()["fp_upper95"], 2),
            *audit.bins.values(), audit.undecided, audit.counted_in,
            "none" if audit.limit is None else Shown(audit.limit, f"{audit.limit:.3g} bound"),
        ))  # fmt: skip
    essential = ("op", "dtype", "finding", "controls that fail", "manifest faults caught")
    return Table(f"Tolerance {audits[0].tolerance}", COLUMNS, lines, told, essential)


def _tell_probe(probe: Probe) -> Shown | None:
    counts = {"passed": probe.passed, "cases": probe.cases}
    return Shown(counts, f"{probe.passed}/{probe.cases}") if probe.cases else None
