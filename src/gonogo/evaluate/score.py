"""Methods and folds → how often each cries wolf, and what share of the faults it catches, by bin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.errors import TooFewCases
from gonogo.evaluate.folds import make_folds
from gonogo.evaluate.groups import Bits, Mask, Rows, pack, split_blocks, unpack
from gonogo.intervals import clopper_pearson, upper_bound
from gonogo.judge import GO, NO_GO, SUSPECT, decide
from gonogo.limits import Limit, make_limit
from gonogo.policies import load_policies
from gonogo.rules import Rule, rule, rule_names

Decisions = npt.NDArray[np.int8]

ALWAYS_SEEN = ("raised", "crashed", "timed-out", "out-of-memory", "no-output", "wrong-shape", "wrong-dtype")
"""Outcomes that any harness notices, whatever its tolerance."""
UNJUDGED = -1
"""Beside GO, SUSPECT and NO_GO: no limit could be made, or nothing was read."""

V_ABFT_LAMBDA = 16.0
"""The least power of two that fewer than 1 in 100 correct float32 products of the committed records exceed."""


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


def list_needed(methods: Sequence[Method], holdout: str) -> set[str]:
    """What to load for scores of these methods and of all policies."""
    needed = {"absolute", "deterministic", "v_abft", "signal", "bits_equal", "exceeds"}
    return needed | {method.gauge for method in methods} | ({"size"} if holdout == "shape" else set())


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


def score_methods(rows: Rows, holdout: str, methods: Sequence[Method]) -> list[Score]:
    """Calibrate fold by fold, then judge: no row is in more than one fold."""
    grouped = [rows.group_cells(m.rule, m.gauge, across_kernels=holdout == "implementation")[0] for m in methods]
    sorted_readings = {key: Readings.sort(rows, *key) for key in {(m.gauge, m.passing_only) for m in methods}}
    held_out = np.zeros(len(rows.columns), np.int16)  # 0: in no fold, where there are no limits
    limits = [[np.full(len(rows.cells), np.nan)] for _ in methods]
    with ThreadPoolExecutor() as pool:  # most of the time goes into sorting, which leaves the interpreter free
        for number, fold in enumerate(make_folds(rows, holdout), start=1):
            held_out[fold.judge] = number
            cells = np.unique(rows.cells.of_row[fold.judge & rows.counted])
            calibrate = fold.calibrate[rows.calibrating_by_cell[0]]
            for method, groups, found in zip(methods, grouped, limits, strict=True):
                readings = sorted_readings[method.gauge, method.passing_only].restrict(calibrate)
                members = [np.flatnonzero(groups == group) for group in np.unique(groups[cells])]
                found.append(np.full(len(groups), np.nan))
                for here, value in zip(
                    members, pool.map(partial(_find_value, method, readings), members), strict=True
                ):
                    found[-1][here] = value
        candidates = rows.counted & (held_out > 0)
        judge = partial(_score_method, rows, candidates, held_out)
        return list(pool.map(judge, methods, [np.stack(found) for found in limits]))


def _score_method(
    rows: Rows, candidates: Mask, held_out: npt.NDArray[np.int16], method: Method, limits: npt.NDArray[np.float64]
) -> Score:
    """Judge every row by the limit of its fold and cell."""

    def decide_block(block: slice) -> Decisions:
        place = held_out[block] * np.int32(limits.shape[1]) + rows.cells.of_row[block]
        limit, sound = limits.ravel().take(place), rows.sound[block]
        explained = rows.columns.readings["deterministic"][block] if method.gauge == "bound" else np.nan
        decisions = decide(sound, rows.columns.readings[method.gauge][block], limit, explained)
        decisions[np.isnan(limit) & sound] = UNJUDGED
        return decisions

    score = Score(method.name, method.gauge, method.rule.name)
    score.count(rows, candidates, decide_block)
    return score


@dataclass(frozen=True)
class Readings:
    """Readings that limits are made from, cell by cell."""

    values: npt.NDArray[np.float32]
    usable: Mask
    starts: npt.NDArray[np.int64]

    @classmethod
    def sort(cls, rows: Rows, gauge: str, passing_only: bool) -> Readings:
        """Usable are finite ones, or those of them that pass the hand-picked atol."""
        order, starts = rows.calibrating_by_cell
        values = rows.columns.readings[gauge][order]
        usable = np.isfinite(values)
        if passing_only:
            usable &= rows.columns.exceeds["current"][order] != 1
        return cls(values, usable, starts)

    def restrict(self, calibrate: Mask) -> Readings:
        """Of some of the rows alone."""
        return replace(self, usable=self.usable & calibrate)

    def of_cells(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The usable ones of some cells."""
        slices = [slice(self.starts[cell], self.starts[cell + 1]) for cell in cells]
        return np.concatenate([self.values[here][self.usable[here]] for here in slices]).astype(np.float64)


def _find_value(method: Method, readings: Readings, cells: npt.NDArray[np.int64]) -> float:
    """A limit's value alone, NaN where there is none: what a limit is worth takes longer to find."""
    try:
        return method.rule.limit(readings.of_cells(cells))
    except TooFewCases:
        return np.nan


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
    at_least = np.where(seen, np.int8(NO_GO), np.int8(UNJUDGED))
    names = "current", *(policy.name for policy in load_policies())
    scores = [_score_policy(rows, name, at_least) for name in names]
    return [*scores, score_v_abft(rows)]


def _score_policy(rows: Rows, name: str, at_least: Decisions) -> Score:
    exceeds = rows.columns.exceeds[name]

    def decide_block(block: slice) -> Decisions:
        decisions: Decisions = np.maximum(exceeds[block] * np.int8(NO_GO), at_least[block])  # of 1, 0 or −1
        return decisions

    score = Score(name, "policy", "limit 1")
    score.count(rows, rows.counted, decide_block)
    return score


def score_v_abft(rows: Rows) -> Score:
    """A variance-based bound on matrix products: λ·u_c·K/√2·rms(row of a)·rms(column of b), for float32 outputs.

    It bounds the sum, not the rounding of the output, and so says nothing of shorter formats.
    """
    readings, shown = rows.columns.readings["v_abft"], rows.columns.equals("dtype", "float32")

    def decide_block(block: slice) -> Decisions:
        known = np.isfinite(readings[block]) & shown[block]
        decisions = np.where(readings[block] > V_ABFT_LAMBDA, np.int8(NO_GO), np.int8(GO))
        decisions[~known] = UNJUDGED
        return decisions

    score = Score("v_abft", "policy", f"λ = {V_ABFT_LAMBDA:g}")
    score.count(rows, rows.counted, decide_block)
    return score


def calibrate(rows: Rows, method: Method) -> list[Limit]:
    """The limits of all controls of some runs."""
    groups, names = rows.group_cells(method.rule, method.gauge)
    readings = Readings.sort(rows, method.gauge, method.passing_only)
    found = [
        find_limit(method, names[group], readings.of_cells(np.flatnonzero(groups == group)), rows.columns.runs)
        for group in np.unique(groups[np.diff(readings.starts) > 0])
    ]
    return [limit for limit in found if limit is not None]
