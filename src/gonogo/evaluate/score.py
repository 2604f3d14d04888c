"""Methods and folds → limits, how often each method cries wolf, and what share of the faults it catches, by bin.

Runs are gone through twice: for the readings that limits are made from, and to judge every row by the limit of its
fold. Neither keeps rows, so memory is the same for a thousand of them and for a billion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gonogo.errors import TooFewCases
from gonogo.evaluate.beside_controls import NEEDED, CaseErrors
from gonogo.evaluate.cells import Cells, CellTable
from gonogo.evaluate.folds import NOBODY
from gonogo.evaluate.readings import Gathered, Kind, Readings, gather
from gonogo.evaluate.rows import Mask, Rows
from gonogo.evaluate.strata import Strata
from gonogo.evaluate.tally import UNJUDGED, Decisions, Score, Tally
from gonogo.limits import DTYPE_FREE, EVERY_OP, Limit, make_limit, make_limit_of_largest
from gonogo.limits.rules import Rule, rule, rule_names
from gonogo.records import Columns, Source
from gonogo.verdict.judge import NO_GO, decide

FEWEST_OPS = 2
"""That a universal limit is made from: one op's readings say nothing of another."""
ALWAYS_SEEN = ("raised", "crashed", "timed-out", "out-of-memory", "no-output", "wrong-shape", "wrong-dtype")
"""Outcomes that any harness notices, whatever its tolerance."""
USUAL = ("bin", "length")
"""What tables tell rows apart by, unless they ask for more."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Method:
    """A gauge with a rule: limits are made from controls."""

    name: str
    gauge: str
    rule: Rule
    passing_only: bool = False
    """Whether rows that fail the hand-picked atol are kept out of the calibration, as the paper does."""
    otherwise: Rule | None = None
    """The rule of the limit that a group is held to where its own is vacuous, as `calibrate` leaves that out."""

    @property
    def kind(self) -> Kind:
        """Of its readings."""
        return Kind(self.gauge, self.passing_only)


def default_methods(holdout: str = "run") -> list[Method]:
    """Ours and the paper's. Ours holds an op that has no limit of its own to the one for all ops."""
    universal = rule("universal")
    ours = universal if holdout == "op" else rule("pooled")
    return [
        Method("gonogo", "bound", ours, otherwise=None if holdout == "op" else universal),
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
    needed |= {*NEEDED} if beside_controls else set()
    return needed | {method.gauge for method in methods} | ({"size"} if holdout == "shape" else set())


@dataclass(frozen=True)
class Block:
    """Some rows, and what is worked out of them once for all methods."""

    rows: Rows
    cells: npt.NDArray[np.int32]

    @property
    def columns(self) -> Columns:
        """Of the rows."""
        return self.rows.columns

    @cached_property
    def at_least(self) -> Decisions:
        """What any harness decides, whatever its tolerance: NO_GO of what it cannot fail to notice."""
        seen = self.columns.equals("outcome", *ALWAYS_SEEN)
        return np.where(seen, np.int8(NO_GO), np.int8(UNJUDGED))


@dataclass(frozen=True)
class Judge:
    """Limits of some methods, fold by fold, and how they decide."""

    gathered: Gathered
    methods: Sequence[Method]
    limits: Sequence[npt.NDArray[np.float64]]
    """Of each method: by fold and cell; of fold NOBODY there are none."""
    fold_of_key: npt.NDArray[np.int16] = field(repr=False)

    @classmethod
    def train(
        cls, source: Source, holdout: str, methods: Sequence[Method], numbering: Cells | None = None
    ) -> Judge:
        """Go through the controls of some runs, and make the limits of every fold."""
        gathered = gather(source, list_kinds(methods), holdout, numbering=numbering)
        limits = [_find_limits(gathered, method, across=holdout == "implementation") for method in methods]
        return cls(gathered, methods, limits, gathered.number_folds())

    @property
    def needed(self) -> set[str]:
        """What is read to judge by."""
        gauges = {method.gauge for method in self.methods}
        return gauges | {"absolute", "deterministic", "bits_equal"} | self.gathered.holdout.needed

    def find_folds(self, block: Block) -> npt.NDArray[np.int16]:
        """By which fold each row is judged."""
        keys = self.gathered.holdout.find_keys(block.columns, block.cells, self.gathered.cells)
        return self.fold_of_key[keys]

    def decide(self, block: Block, folds: npt.NDArray[np.int16]) -> Iterator[Decisions]:
        """What each method says of every row; of none, not even of a crash, where no limit could be made at all."""
        for method, limits in zip(self.methods, self.limits, strict=True):
            at = folds * np.int32(limits.shape[1]) + block.cells
            limit, sound = limits.ravel().take(at), block.rows.sound
            readings = block.columns.readings
            explained = readings["deterministic"] if method.gauge == "bound" else np.nan
            decisions = decide(sound, readings[method.gauge], limit, explained)
            decisions[np.isnan(limit) & (sound | np.isnan(limits).all())] = UNJUDGED
            yield decisions


def list_kinds(methods: Sequence[Method]) -> dict[Kind, bool]:
    """The readings that methods make limits from, and whether of each kind all are needed, or the largest alone."""
    kinds: dict[Kind, bool] = {}
    for method in methods:
        kinds[method.kind] = kinds.get(method.kind, False) or not method.rule.looks_at_largest
    return kinds


Policy = Callable[[Block], Decisions]
"""What a tolerance says of every row that a score counts."""


def tally_rows(
    source: Source, strata: Strata, judges: Sequence[Judge] = (), policies: Sequence[tuple[Score, Policy]] = (),
    needed: Collection[str] = (), watch: Callable[[Block], None] = lambda block: None,
) -> list[Score]:  # fmt: skip
    """Go through all rows once, and count by strata what every method of every judge, and every policy, says.

    All judges have one numbering of cells. `watch` sees every block, with what is `needed` beside.
    """
    numbering = judges[0].gathered.numbering if judges else Cells()
    assert all(judge.gathered.numbering is numbering for judge in judges)

    scores = [Score(method.name, method.gauge, method.rule.name) for judge in judges for method in judge.methods]
    scores += [score for score, _ in policies]
    counts = Tally(len(scores))

    def decide_all(block: Block) -> Iterator[tuple[Decisions, Mask | None]]:
        for judge in judges:
            folds = judge.find_folds(block)
            held_out = folds != NOBODY
            mask = None if held_out.all() else held_out
            yield from ((decisions, mask) for decisions in judge.decide(block, folds))
        yield from ((policy(block), None) for _, policy in policies)

    def count(columns: Columns) -> None:
        block = Block(Rows(columns), numbering.number(columns))
        watch(block)
        counts.add(strata.number(block.rows, block.cells), decide_all(block))

    wanted = strata.needed.union(needed, *(judge.needed for judge in judges))
    for _ in source.map_blocks(count, {name for name in wanted if source.has(name)}):
        pass
    table = strata.close()
    for score, of_score in zip(scores, counts.close(len(table)), strict=True):
        score.count(table, of_score)
    return scores


def count_rows(score: Score, columns: Columns, decisions: Decisions) -> None:
    """Count what somebody has decided of some rows, by bin alone."""
    strata, counts = Strata(("bin",)), Tally(1)
    counts.add(strata.number(Rows(columns), np.zeros(len(columns), np.int32)), [(decisions, None)])
    score.count(strata.close(), counts.close(len(strata))[0])


def open_strata(source: Source, dimensions: Sequence[str] = USUAL, *, beside_controls: bool = True) -> Strata:
    """Strata of these dimensions, as far as there is what they take; bins beside controls too, unless said."""
    lacking = {"length": "reduced_length"}
    kept = [name for name in dimensions if name not in lacking or source.has(lacking[name])]
    errors = CaseErrors.find(source) if beside_controls and source.has(*NEEDED) else None
    return Strata([*kept, *(["beside"] if errors else [])], errors=errors, devices=source.devices)


def score_methods(
    source: Source, holdout: str, methods: Sequence[Method], dimensions: Sequence[str] = USUAL
) -> list[Score]:
    """Calibrate fold by fold, then judge: no row is in more than one fold."""
    return tally_rows(source, open_strata(source, dimensions), [Judge.train(source, holdout, methods)])


def _find_limits(gathered: Gathered, method: Method, *, across: bool) -> npt.NDArray[np.float64]:
    """The limit of each fold and cell; NaN where there is none."""
    groups, names = gathered.cells.group(method.rule, method.gauge, across_kernels=across)
    limits = np.full((len(gathered.folds) + 1, len(gathered.cells)), np.nan)
    readings = gathered.readings[method.kind]
    keys = gathered.holdout.find_keys_of_cells(gathered.cells)
    for number, fold in enumerate(gathered.folds, start=1):
        spare: dict[str, float] = {}
        judged = np.unique(groups if keys is None else groups[fold.judge[keys]])
        for group in judged.tolist():
            op, contract, *_ = names[group]
            here = np.flatnonzero(groups == group)
            value = _find_value(method, gathered.cells, readings, contract, here, fold.calibrate)
            if method.otherwise is not None and _is_vacuous(method, op, contract, value):
                if contract not in spare:
                    spare[contract] = _find_spare(gathered, method, contract, fold.calibrate)
                value = spare[contract]
            limits[number, here if keys is None else here[fold.judge[keys[here]]]] = value
    return limits


def _find_spare(gathered: Gathered, method: Method, contract: str, keys: Mask) -> float:
    """The limit for all ops of a contract."""
    assert method.otherwise is not None
    instead = replace(method, rule=method.otherwise)
    groups, names = gathered.cells.group(instead.rule, instead.gauge)
    here = np.flatnonzero(groups == [name[1] for name in names].index(contract))
    return _find_value(instead, gathered.cells, gathered.readings[method.kind], contract, here, keys)


def _is_vacuous(method: Method, op: str, contract: str, value: float) -> bool:
    if np.isnan(value):
        return False
    return Limit(op, contract, None, None, method.gauge, method.rule.name, value=value).is_vacuous


def _find_value(
    method: Method, cells: CellTable, readings: Readings, contract: str, members: Numbers, keys: Mask
) -> float:
    """A limit's value alone, NaN where there is none: what a limit is worth takes longer to find."""
    try:
        if not method.rule.looks_at_largest:
            return method.rule.limit(readings.fetch(members, keys))
        count, largest = _sum_up(method, cells, readings, contract, members, keys)[:2]
        return method.rule.limit_of_largest(largest, count)
    except TooFewCases:
        return np.nan


def _sum_up(
    method: Method, cells: CellTable, readings: Readings, contract: str, members: Numbers, keys: Mask
) -> tuple[int, float, int]:
    """How many readings one limit is made from, the largest, and of how many ops; none where these are too few.

    A limit for all ops is made without an op whose own would be vacuous: a wrong control would loosen it for all.
    """
    if method.rule.pools != "contract":
        return *readings.sum_up(members, keys), 1
    ops = cells.codes["op"][members]
    by_op = [readings.sum_up(members[ops == op], keys) for op in np.unique(ops)]
    kept = [
        (count, largest) for count, largest in by_op
        if count and not _is_vacuous(method, EVERY_OP, contract, method.rule.limit_of_largest(largest, count))
    ]  # fmt: skip
    if len(kept) < FEWEST_OPS:
        return 0, 0.0, 0
    return sum(count for count, _ in kept), max(largest for _, largest in kept), len(kept)


def calibrate(source: Source, method: Method) -> list[Limit]:
    """The limits of all controls of some runs."""
    return make_limits(gather(source, list_kinds([method])), method, source.runs)


def make_limits(gathered: Gathered, method: Method, runs: Sequence[str]) -> list[Limit]:
    """The limits of all groups that there are readings of, by name."""
    cells, readings, keys = gathered.cells, gathered.readings[method.kind], gathered.everywhere
    groups, names = cells.group(method.rule, method.gauge)
    limits = []
    for group in np.unique(groups[readings.counts[:, keys].sum(1) > 0]):
        op, contract, kernel, dtype = names[group]
        members = np.flatnonzero(groups == group)
        name = {"op": op, "contract": contract, "kernel": kernel or None, "dtype": dtype or None, "runs": runs}
        try:
            if method.rule.looks_at_largest:
                count, largest, ops = _sum_up(method, cells, readings, contract, members, keys)
                name |= {"kernel": f"{ops} ops"} if op == EVERY_OP else {}
                limits.append(make_limit_of_largest(method.rule, method.gauge, largest, count, **name))
            else:
                limits.append(make_limit(method.rule, method.gauge, readings.fetch(members, keys), **name))
        except TooFewCases:
            continue
    return sorted(limits, key=lambda limit: (limit.op, limit.contract, limit.kernel or "", limit.dtype or ""))


def calibrate_with_universal(source: Source, method: Method) -> list[Limit]:
    """The limits of a method, and beside those of the rule `pooled` one for all ops of each contract."""
    gathered = gather(source, list_kinds([method]))
    limits = make_limits(gathered, method, source.runs)
    if method.rule.name == "pooled" and method.gauge in DTYPE_FREE:
        limits += make_limits(gathered, replace(method, rule=rule("universal")), source.runs)
    return limits
