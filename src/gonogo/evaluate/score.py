"""Methods and folds → limits, how often each method cries wolf, and what share of the faults it catches, by bin."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from gonogo.errors import TooFewCases
from gonogo.evaluate.folds import make_folds
from gonogo.evaluate.groups import Mask, Rows
from gonogo.evaluate.tally import UNJUDGED, Decisions, Score
from gonogo.limits import DTYPE_FREE, EVERY_OP, Limit, make_limit
from gonogo.limits.rules import Rule, rule, rule_names
from gonogo.verdict.judge import decide

FEWEST_OPS = 2
"""That a universal limit is made from: one op's readings say nothing of another."""


@dataclass(frozen=True)
class Method:
    """A gauge with a rule: limits are made from controls."""

    name: str
    gauge: str
    rule: Rule
    passing_only: bool = False
    """Whether rows that fail the hand-picked atol are kept out of the calibration, as the paper does."""


def default_methods(holdout: str = "run") -> list[Method]:
    """Ours and the paper's. Ours holds an op that has no limit of its own to the one for all ops."""
    return [
        Method("gonogo", "bound", rule("universal" if holdout == "op" else "pooled")),
        Method("paper", "absolute", rule("paper"), passing_only=True),
    ]


def all_methods(holdout: str = "run") -> list[Method]:
    """Every gauge with every rule; `analytic` needs no calibration, and so only the deterministic gauge.

    Readings of different ops are of one kind only in a gauge whose unit is the op's own.
    """
    crossed = [
        Method(f"{gauge} × {name}", gauge, rule(name))
        for gauge in ("absolute", "magnitude", "ulp", "bound")
        for name in rule_names()
        if name != "analytic" and (gauge in DTYPE_FREE or rule(name).pools != "contract")
    ]  # fmt: skip
    return [*default_methods(holdout), *crossed, Method("analytic", "deterministic", rule("analytic"))]


def list_needed(methods: Sequence[Method], holdout: str, *, beside_controls: bool = False) -> set[str]:
    """What to load for scores of these methods and of all policies; with the bins beside controls, if so said."""
    needed = {"absolute", "deterministic", "v_abft", "signal", "bits_equal", "reduced_length", "exceeds"}
    needed |= {"number", "ulp"} if beside_controls else set()
    return needed | {method.gauge for method in methods} | ({"size"} if holdout == "shape" else set())


def score_methods(rows: Rows, holdout: str, methods: Sequence[Method]) -> list[Score]:
    """Calibrate fold by fold, then judge: no row is in more than one fold."""
    grouped = [rows.group_cells(m.rule, m.gauge, across_kernels=holdout == "implementation") for m in methods]
    sorted_readings = {key: Readings.sort(rows, *key) for key in {(m.gauge, m.passing_only) for m in methods}}
    held_out = np.zeros(len(rows.columns), np.int16)  # 0: in no fold, where there are no limits
    limits = [[np.full(len(rows.cells), np.nan)] for _ in methods]
    with ThreadPoolExecutor() as pool:  # most of the time goes into sorting, which leaves the interpreter free
        for number, fold in enumerate(make_folds(rows, holdout), start=1):
            held_out[fold.judge] = number
            cells = np.unique(rows.cells.of_row[fold.judge & rows.counted])
            calibrate = fold.calibrate[rows.calibrating_by_cell[0]]
            for method, (groups, names), by_fold in zip(methods, grouped, limits, strict=True):
                readings = sorted_readings[method.gauge, method.passing_only].restrict(calibrate)
                judged_groups = np.unique(groups[cells])
                members = [np.flatnonzero(groups == group) for group in judged_groups]
                contracts = [names[group][1] for group in judged_groups]
                values = pool.map(partial(_find_value, method, readings), contracts, members)
                by_fold.append(np.full(len(groups), np.nan))
                for here, value in zip(members, values, strict=True):
                    by_fold[-1][here] = value
        candidates = rows.counted & (held_out > 0)
        judge = partial(_score_method, rows, candidates, held_out)
        return list(pool.map(judge, methods, [np.stack(by_fold) for by_fold in limits]))


def _score_method(
    rows: Rows, candidates: Mask, held_out: npt.NDArray[np.int16], method: Method, limits: npt.NDArray[np.float64]
) -> Score:
    """Judge every row by the limit of its fold and cell; no row, not even a crash, where no limit could be made."""
    is_silent = bool(np.isnan(limits).all())

    def decide_block(block: slice) -> Decisions:
        at = held_out[block] * np.int32(limits.shape[1]) + rows.cells.of_row[block]
        limit, sound = limits.ravel().take(at), rows.sound[block]
        explained = rows.columns.readings["deterministic"][block] if method.gauge == "bound" else np.nan
        decisions = decide(sound, rows.columns.readings[method.gauge][block], limit, explained)
        decisions[np.isnan(limit) & (sound | is_silent)] = UNJUDGED
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
    ops: npt.NDArray[np.int16]
    """Code of each cell's op."""

    @classmethod
    def sort(cls, rows: Rows, gauge: str, passing_only: bool) -> Readings:
        """Usable are finite ones, or those of them that pass the hand-picked atol."""
        order, starts = rows.calibrating_by_cell
        values = rows.columns.readings[gauge][order]
        usable = np.isfinite(values)
        if passing_only:
            usable &= rows.columns.exceeds["current"][order] != 1
        return cls(values, usable, starts, rows.cells.codes["op"])

    def restrict(self, calibrate: Mask) -> Readings:
        """The readings of which only those of some rows are usable."""
        return replace(self, usable=self.usable & calibrate)

    def of_cells(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The usable readings of some cells."""
        slices = [slice(self.starts[cell], self.starts[cell + 1]) for cell in cells]
        return np.concatenate([self.values[here][self.usable[here]] for here in slices]).astype(np.float64)


def gather_by_op(
    method: Method, readings: Readings, contract: str, cells: npt.NDArray[np.int64]
) -> list[npt.NDArray[np.float64]]:
    """The readings that one limit is made from, op by op; of all ops, none where too few are left.

    A limit for all ops is made without an op whose own would be vacuous: a wrong control would loosen it for all.
    """
    if method.rule.pools != "contract":
        return [readings.of_cells(cells)]
    by_op = [readings.of_cells(cells[readings.ops[cells] == op]) for op in np.unique(readings.ops[cells])]
    limit = Limit(EVERY_OP, contract, None, None, method.gauge, method.rule.name)
    kept = [
        values for values in by_op
        if values.size and not replace(limit, value=method.rule.limit(values)).is_vacuous
    ]  # fmt: skip
    return kept if len(kept) >= FEWEST_OPS else [np.empty(0)]


def _find_value(method: Method, readings: Readings, contract: str, cells: npt.NDArray[np.int64]) -> float:
    """A limit's value alone, NaN where there is none: what a limit is worth takes longer to find."""
    try:
        return method.rule.limit(np.concatenate(gather_by_op(method, readings, contract, cells)))
    except TooFewCases:
        return np.nan


def try_limit(
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


def calibrate(rows: Rows, method: Method) -> list[Limit]:
    """The limits of all controls of some runs."""
    groups, names = rows.group_cells(method.rule, method.gauge)
    readings = Readings.sort(rows, method.gauge, method.passing_only)
    limits = []
    for group in np.unique(groups[np.diff(readings.starts) > 0]):
        op, contract, kernel, dtype = names[group]
        by_op = gather_by_op(method, readings, contract, np.flatnonzero(groups == group))
        made_from = f"{len(by_op)} ops" if op == EVERY_OP else kernel
        name = op, contract, made_from, dtype
        limits.append(try_limit(method, name, np.concatenate(by_op), rows.columns.runs))
    return [limit for limit in limits if limit is not None]


def calibrate_with_universal(rows: Rows, method: Method) -> list[Limit]:
    """The limits of a method, and beside those of the rule `pooled` one for all ops of each contract."""
    limits = calibrate(rows, method)
    if method.rule.name == "pooled" and method.gauge in DTYPE_FREE:
        limits += calibrate(rows, replace(method, rule=rule("universal")))
    return limits
