"""Methods and folds → how often each cries wolf, and what share of the faults it catches, by bin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.errors import TooFewCases
from gonogo.evaluate.folds import make_folds
from gonogo.evaluate.groups import Mask, Rows
from gonogo.intervals import clopper_pearson, upper_bound
from gonogo.judge import GO, NO_GO, SUSPECT, decide
from gonogo.limits import Limit, make_limit
from gonogo.policies import load_policies
from gonogo.rules import Rule, rule, rule_names

ALWAYS_SEEN = ("raised", "crashed", "timed-out", "out-of-memory", "no-output", "wrong-shape", "wrong-dtype")
"""Outcomes that any harness notices, whatever its tolerance."""


V_ABFT_LAMBDA = 1.0
"""The bound as it stands; its authors report it 7 to 20 times above the errors of correct products in float32."""


@dataclass(frozen=True)
class Method:
    """A gauge with a rule: limits are made from controls."""

    name: str
    gauge: str
    rule: Rule
    passing_only: bool = False
    """Whether rows that fail the hand-picked atol are kept out of the calibration, as the paper does."""


def default_methods() -> list[Method]:
    """Ours and the paper's."""
    return [
        Method("gonogo", "bound", rule("pooled")),
        Method("paper", "absolute", rule("paper"), passing_only=True),
    ]


def all_methods() -> list[Method]:
    """Every gauge with every rule; `analytic` needs no calibration, and so only the deterministic gauge."""
    crossed = [
        Method(f"{gauge} × {name}", gauge, rule(name))
        for gauge in ("absolute", "magnitude", "ulp", "bound")
        for name in rule_names() if name != "analytic"
    ]  # fmt: skip
    return [*default_methods(), *crossed, Method("analytic", "deterministic", rule("analytic"))]


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
    unjudged: int = 0
    """Rows for which no limit could be made: too few cases, or nothing left to calibrate on."""
    flagged: Mask | None = field(default=None, repr=False)
    judged: Mask | None = field(default=None, repr=False)

    def count(self, rows: Rows, judged: Mask, decisions: npt.NDArray[np.int8]) -> None:
        """Add the rows of one fold."""
        flagged = decisions != GO
        controls = judged & rows.controls
        self.false_positives += int((controls & flagged).sum())
        self.suspects += int((controls & (decisions == SUSPECT)).sum())
        self.control_cases += int(controls.sum())
        for name, mask in (("all", rows.faulty), ("differing", rows.differing), ("manifest", rows.manifest)):
            here = judged & mask
            setattr(self, name, getattr(self, name) + int(here.sum()))
            setattr(self, f"caught_{name}", getattr(self, f"caught_{name}") + int((here & flagged).sum()))
        if self.flagged is None or self.judged is None:
            self.flagged, self.judged = np.zeros(len(judged), bool), np.zeros(len(judged), bool)
        self.flagged |= judged & flagged
        self.judged |= judged

    def to_dict(self) -> dict[str, Any]:
        """Counts, rates and exact 95 % intervals."""
        found: dict[str, Any] = {
            "name": self.name, "gauge": self.gauge, "rule": self.rule,
            "false_positives": self.false_positives, "control_cases": self.control_cases,
            "fp_rate": _divide(self.false_positives, self.control_cases),
            "fp_upper95": upper_bound(self.false_positives, self.control_cases),
            "suspects": self.suspects, "unjudged": self.unjudged,
        }  # fmt: skip
        for name in ("all", "differing", "manifest"):
            caught, total = getattr(self, f"caught_{name}"), getattr(self, name)
            found |= {name: total, f"caught_{name}": caught, f"recall_{name}": _divide(caught, total)}
            found[f"recall_{name}_interval"] = list(clopper_pearson(caught, total)) if total else None
        return found


def _divide(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def score_methods(rows: Rows, holdout: str, methods: Sequence[Method]) -> list[Score]:
    """Calibrate and judge, fold by fold."""
    folds = list(make_folds(rows, holdout))
    candidates = rows.controls | rows.faulty
    sorted_readings: dict[tuple[object, ...], Readings] = {}
    scores = []
    for method in methods:
        score = Score(method.name, method.gauge, method.rule.name)
        codes, names = rows.group(method.rule, method.gauge, across_kernels=holdout == "implementation")
        readings = rows.columns.readings[method.gauge].astype(np.float64)
        explained = rows.columns.readings["deterministic"] if method.gauge == "bound" else np.nan
        for fold in folds:
            key = (method.gauge, method.rule.pooled, method.passing_only, fold.name)
            if key not in sorted_readings:
                calibrate = fold.calibrate & _passing(rows, method)
                sorted_readings[key] = Readings.sort(readings, codes, len(names), calibrate)
            judged = fold.judge & candidates
            limits = np.full(len(names), np.nan)
            for group in np.unique(codes[judged]):
                limit = find_limit(method, names[group], sorted_readings[key].of_group(group))
                limits[group] = np.nan if limit is None else limit.value
            limit_of = limits[codes]
            known = ~np.isnan(limit_of)
            score.unjudged += int((judged & ~known & rows.sound).sum())
            judged &= known | ~rows.sound
            score.count(rows, judged, decide(rows.sound, readings, limit_of, explained))
        scores.append(score)
    return scores


@dataclass(frozen=True)
class Readings:
    """Readings to calibrate from, group by group."""

    values: npt.NDArray[np.float64]
    starts: npt.NDArray[np.int64]

    @classmethod
    def sort(
        cls, readings: npt.NDArray[np.float64], codes: npt.NDArray[np.int32], groups: int, calibrate: Mask
    ) -> Readings:
        """Finite readings of the rows to calibrate on."""
        usable = calibrate & np.isfinite(readings)
        order = np.argsort(codes[usable], kind="stable")
        starts = np.searchsorted(codes[usable][order], np.arange(groups + 1))
        return cls(readings[usable][order], starts)

    def of_group(self, group: int) -> npt.NDArray[np.float64]:
        """The readings of one group."""
        return self.values[self.starts[group] : self.starts[group + 1]]


def _passing(rows: Rows, method: Method) -> Mask | bool:
    return rows.columns.exceeds["current"] != 1 if method.passing_only else True


def find_limit(
    method: Method, name: tuple[str, ...], readings: npt.NDArray[np.float64], runs: Sequence[str] = ()
) -> Limit | None:
    """The limit of one group; None where it has too few readings for the rule."""
    op, contract, kernel, dtype = name
    try:
        return make_limit(
            method.rule, method.gauge, readings,
            op=op, contract=contract, kernel=kernel or None, dtype=dtype or None, runs=runs,
        )  # fmt: skip
    except TooFewCases:
        return None


def score_policies(rows: Rows) -> list[Score]:
    """Hand-picked tolerances: nothing is calibrated, so every row is held out."""
    seen = rows.columns.equals("outcome", *ALWAYS_SEEN)
    scores = []
    for name in ("current", *(policy.name for policy in load_policies())):
        exceeds = rows.columns.exceeds[name]
        judged = (rows.controls | rows.faulty) & ((exceeds >= 0) | seen)
        score = Score(name, "policy", "limit 1")
        score.unjudged = int(((rows.controls | rows.faulty) & ~judged).sum())
        score.count(rows, judged, np.where((exceeds == 1) | seen, NO_GO, GO).astype(np.int8))
        scores.append(score)
    return [*scores, score_v_abft(rows)]


def score_v_abft(rows: Rows) -> Score:
    """A variance-based bound on matrix products: λ·u_c·K/√2·rms(row of a)·rms(column of b), for float32 outputs.

    It bounds the sum, not the rounding of the output, and so says nothing of shorter formats.
    """
    readings = rows.columns.readings["v_abft"]
    known = np.isfinite(readings) & rows.columns.equals("dtype", "float32")
    judged = (rows.controls | rows.faulty) & known
    score = Score("v_abft", "policy", f"λ = {V_ABFT_LAMBDA:g}")
    score.unjudged = int(((rows.controls | rows.faulty) & ~judged).sum())
    score.count(rows, judged, np.where(readings > V_ABFT_LAMBDA, NO_GO, GO).astype(np.int8))
    return score


def calibrate(rows: Rows, method: Method) -> list[Limit]:
    """The limits of all controls of some runs."""
    codes, names = rows.group(method.rule, method.gauge)
    readings = rows.columns.readings[method.gauge].astype(np.float64)
    grouped = Readings.sort(readings, codes, len(names), rows.calibrating & _passing(rows, method))
    groups = np.unique(codes[rows.calibrating])
    found = [find_limit(method, names[group], grouped.of_group(group), rows.columns.runs) for group in groups]
    return [limit for limit in found if limit is not None]
