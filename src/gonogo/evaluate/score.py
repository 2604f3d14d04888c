"""Methods and folds → limits, how often each method cries wolf, and what share of the faults it catches, by bin.

Runs are gone through twice: for the readings that limits are made from, and to judge every row by the limit of its
fold. Neither keeps rows, so memory is the same for a thousand of them and for a billion.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gonogo.errors import TooFewCases
from gonogo.evaluate.beside_controls import NEEDED, CaseErrors
from gonogo.evaluate.cells import Cells
from gonogo.evaluate.folds import NOBODY, Fold
from gonogo.evaluate.readings import Gathered, Group, Kind, OfKeys, gather
from gonogo.evaluate.rows import Mask, Rows
from gonogo.evaluate.strata import Strata
from gonogo.evaluate.tally import UNJUDGED, Decisions, Score, Tally
from gonogo.limits import DTYPE_FREE, EVERY_OP, GroupOfReadings, Limit, make_limit
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

    def is_vacuous(self, op: str, contract: str, value: float) -> bool:
        """Whether a limit of this value lets errors pass that are no rounding."""
        limit = Limit(op, contract, None, None, self.gauge, self.rule.name, value=value)
        return not np.isnan(value) and limit.is_vacuous


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
        limits = find_limits(gathered, methods, across=holdout == "implementation")
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
            decisions[find_unjudged(limit, sound, limits)] = UNJUDGED
            yield decisions


def find_unjudged(limit: npt.NDArray[np.float64], sound: Mask, limits: npt.NDArray[np.float64]) -> Mask:
    """Rows without a limit: sound ones, and all where none of the `limits` of a method could be made."""
    return np.isnan(limit) & (sound | np.isnan(limits).all())


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
    numbering: Cells | None = None,
) -> list[Score]:  # fmt: skip
    """Go through all rows once, and count by strata what every method of every judge, and every policy, says.

    All judges have one numbering of cells. `watch` sees every block, with what is `needed` beside.
    """
    cells = judges[0].gathered.numbering if judges else Cells() if numbering is None else numbering
    assert all(judge.gathered.numbering is cells for judge in judges)

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
        block = Block(Rows(columns), cells.number(columns))
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


def find_limits(
    gathered: Gathered, methods: Sequence[Method], *, across: bool = False
) -> list[npt.NDArray[np.float64]]:
    """Of each method, the limit of each fold and cell; NaN where there is none."""
    limits = [np.full((len(gathered.folds) + 1, len(gathered.cells)), np.nan) for _ in methods]
    keys = gathered.holdout.find_keys_of_cells(gathered.cells)
    # Methods that differ by rank or factor alone have the same groups: each is read and sorted once for all.
    alike: dict[tuple[Kind, str], list[int]] = {}
    for number, method in enumerate(methods):
        alike.setdefault((method.kind, method.rule.pools), []).append(number)

    def fill(numbers: Sequence[int], cells: Numbers, op: str, contract: str) -> None:
        by_op = open_groups(gathered, methods[numbers[0]], cells)
        for number in numbers:
            pool = Pooled(methods[number], contract, by_op)
            for at, fold in enumerate(gathered.folds, start=1):
                here = cells if keys is None else cells[fold.judge[keys[cells]]]
                if here.size:
                    limits[number][at, here] = _find_limit(gathered, pool, op, fold)

    with ThreadPoolExecutor(pa.cpu_count()) as threads:  # sorting leaves the interpreter free
        for numbers in alike.values():
            method = methods[numbers[0]]
            groups, names = gathered.cells.group(method.rule, method.gauge, across_kernels=across)
            members = [np.flatnonzero(groups == group) for group in range(len(names))]
            ops, contracts = [name[0] for name in names], [name[1] for name in names]
            list(threads.map(partial(fill, numbers), members, ops, contracts))
    return limits


def _find_limit(gathered: Gathered, pool: Pooled, op: str, fold: Fold) -> float:
    """A limit's value; where it is vacuous, that of all ops, if the method says so."""
    value, method = pool.find_value(fold.calibrate), pool.method
    if method.otherwise is None or not method.is_vacuous(op, pool.contract, value):
        return value
    spare = replace(method, rule=method.otherwise)
    groups, names = gathered.cells.group(spare.rule, spare.gauge)
    cells = np.flatnonzero(groups == [name[1] for name in names].index(pool.contract))
    return Pooled(spare, pool.contract, open_groups(gathered, spare, cells)).find_value(fold.calibrate)


def open_groups(gathered: Gathered, method: Method, cells: Numbers) -> list[Group]:
    """The readings that one limit is made from: of one group, or for all ops op by op."""
    readings, ops = gathered.readings[method.kind], gathered.cells.codes["op"][cells]
    if method.rule.pools != "contract":
        return [readings.group(cells)]
    return [readings.group(cells[ops == op]) for op in np.unique(ops)]


@dataclass(frozen=True)
class Pooled:
    """A method, and the readings that one limit is made from: of one group, or for all ops op by op."""

    method: Method
    contract: str
    by_op: Sequence[Group]

    def find_value(self, keys: Mask) -> float:
        """A limit's value alone, NaN where there is none: what a limit is worth takes longer to find."""
        try:
            readings = self.of_keys(keys)
            return self.method.rule.limit_at(readings.count, readings.pick)
        except TooFewCases:
            return np.nan

    def of_keys(self, keys: Mask) -> GroupOfReadings:
        """What a limit is made from, of some keys; nothing where a limit for all ops has too few of them.

        It is made without an op whose own would be vacuous: a wrong control would loosen it for all.
        """
        if self.method.rule.pools != "contract":
            return self.by_op[0].of_keys(keys)
        return OfOps(
            [readings for readings in (group.of_keys(keys) for group in self.by_op) if self._takes(readings)]
        )

    def _takes(self, readings: OfKeys) -> bool:
        if not readings.count:
            return False
        value = self.method.rule.limit_at(readings.count, readings.pick)
        return not self.method.is_vacuous(EVERY_OP, self.contract, value)


@dataclass(frozen=True)
class OfOps:
    """Readings of several ops, of which the largest counts."""

    ops: Sequence[OfKeys]

    @property
    def count(self) -> int:
        """How many; none, where they are of too few ops."""
        return sum(op.count for op in self.ops) if len(self.ops) >= FEWEST_OPS else 0

    @property
    def largest(self) -> float:
        """Of all ops."""
        return max((op.largest for op in self.ops), default=0.0)

    def pick(self, rank: int) -> float:
        """The largest: a rule for all ops looks at no other."""
        assert rank == self.count - 1
        return self.largest

    def count_above(self, value: float) -> int:
        """How many are larger."""
        return sum(op.count_above(value) for op in self.ops)


def calibrate(source: Source, method: Method) -> list[Limit]:
    """The limits of all controls of some runs."""
    return make_limits(gather(source, list_kinds([method])), method, source.runs)


def make_limits(gathered: Gathered, method: Method, runs: Sequence[str]) -> list[Limit]:
    """The limits of all groups that there are readings of, by name."""
    keys, counts = gathered.everywhere, gathered.readings[method.kind].counts
    groups, names = gathered.cells.group(method.rule, method.gauge)
    limits = []
    for group in np.unique(groups[counts[:, keys].sum(1) > 0]):
        op, contract, kernel, dtype = names[group]
        by_op = open_groups(gathered, method, np.flatnonzero(groups == group))
        readings = Pooled(method, contract, by_op).of_keys(keys)
        made_from = f"{len(readings.ops)} ops" if isinstance(readings, OfOps) else kernel or None
        try:
            limits.append(make_limit(
                method.rule, method.gauge, readings,
                op=op, contract=contract, kernel=made_from, dtype=dtype or None, runs=runs,
            ))  # fmt: skip
        except TooFewCases:
            continue
    return sorted(limits, key=lambda limit: (limit.op, limit.contract, limit.kernel or "", limit.dtype or ""))


def calibrate_with_universal(source: Source, method: Method) -> list[Limit]:
    """The limits of a method, and beside those of the rule `pooled` one for all ops of each contract."""
    return make_all_limits(gather(source, list_kinds([method])), method, source.runs)


def make_all_limits(gathered: Gathered, method: Method, runs: Sequence[str]) -> list[Limit]:
    """The same from what is gathered."""
    limits = make_limits(gathered, method, runs)
    if method.rule.name == "pooled" and method.gauge in DTYPE_FREE:
        limits += make_limits(gathered, replace(method, rule=rule("universal")), runs)
    return limits
