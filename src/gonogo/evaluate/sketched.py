"""A sketch → limits, and scores held out by folds of runs: what runs give, as far as counts know it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.errors import InputError, NoSuchHoldout
from gonogo.evaluate import Evaluation
from gonogo.evaluate.cells import PARTS, Cells, CellTable, number_cells
from gonogo.evaluate.folds import Fold, Holdout
from gonogo.evaluate.policies import list_policies
from gonogo.evaluate.readings import Gathered, Group, Kind, round_down
from gonogo.evaluate.rows import Mask
from gonogo.evaluate.score import (
    Method,
    default_methods,
    find_limits,
    find_unjudged,
    make_all_limits,
)
from gonogo.evaluate.sketch import (
    INFINITE,
    READ,
    SUFFIX,
    TEXT,
    UNSOUND,
    Sketch,
    find_steps,
    find_upper_end,
    list_words,
    name_kind,
    read_sketches,
    split_sketches,
    take_codes,
)  # fmt: skip
from gonogo.evaluate.strata import CONTROLS, FOLDS, StrataTable
from gonogo.evaluate.tally import KINDS, UNJUDGED, Counts, Score
from gonogo.limits import Limit
from gonogo.records.places import Place
from gonogo.verdict.judge import GO, NO_GO

Numbers = npt.NDArray[np.int64]


def open_sketches(paths: Sequence[Place]) -> OpenSketch | None:
    """Sketches as one; None where runs are given. Both together are refused: gonogo sketch makes one of both."""
    files, others = split_sketches(paths)
    if not files:
        return None
    if others:
        raise InputError(
            f"{files[0]} is a sketch, and {others[0]} is not. Make one of both: "
            f"{shlex.join(['gonogo', 'sketch', *map(str, paths), '-o', f'all{SUFFIX}'])}"
        )
    sketches = read_sketches(files)
    return OpenSketch(sketches[0] if len(sketches) == 1 else Sketch.merge(sketches))


@dataclass(frozen=True)
class SketchedGroup(Group):
    """Readings of some cells, by key and step."""

    steps: Numbers
    """Those that occur, ascending."""
    rows: Numbers
    """Of each key and step."""

    def pick(self, keys: Mask, rank: int) -> float:
        """The upper end of the step that the reading of a rank is in; the largest is exact."""
        ends = np.cumsum(self.rows[keys].sum(0))
        largest = float(self.largests[keys].max(initial=0.0))
        if rank == ends[-1] - 1:
            return largest
        step = int(self.steps[np.searchsorted(ends, rank, side="right")])
        return min(find_upper_end(step), largest) if step else 0.0

    def count_above(self, keys: Mask, value: float) -> int:
        """How many are of a higher step: those of the step itself are held to be within."""
        limit = find_steps(round_down(np.array([value])), np.array([True]))[0]
        return int(self.rows[keys][:, self.steps > limit].sum())


class SketchedReadings:
    """Readings of one kind that limits are made from."""

    def __init__(
        self, cells: Numbers, keys: Numbers, steps: Numbers, rows: Numbers, largest: Any, count: int
    ) -> None:
        self._cells, self._keys, self._steps, self._rows, self._largest = cells, keys, steps, rows, largest
        self.counts = np.zeros((count, FOLDS), np.int64)
        np.add.at(self.counts, (cells, keys), rows)

    def group(self, cells: Numbers) -> Group:
        """The readings of some cells, by key."""
        here = np.isin(self._cells, cells)
        steps, place = np.unique(self._steps[here], return_inverse=True)
        rows = np.zeros((FOLDS, len(steps)), np.int64)
        np.add.at(rows, (self._keys[here], place), self._rows[here])
        largest = np.zeros(FOLDS, np.float32)
        np.fmax.at(largest, self._keys[here], self._largest[here])
        return SketchedGroup(self.counts[cells].sum(0), largest, np.zeros(FOLDS, np.int64), steps, rows)


class OpenSketch:
    """A sketch whose cells are numbered, to calibrate from and to judge."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        table = sketch.table.unify_dictionaries().combine_chunks()
        words = {name: list_words(table, name) for name in TEXT}
        names = {name: [word for word in words[name] if word] for name in PARTS}
        codes = {}
        for name in PARTS:
            known = {word: at for at, word in enumerate(names[name])}
            to_known = np.array([*(known.get(word, -1) for word in words[name]), -1], np.int16)
            codes[name] = to_known[take_codes(table, name)]
        self._cell, distinct = number_cells(codes)
        self.cells = CellTable(distinct, names)
        self._kinds, self._kind = words["kind"], take_codes(table, "kind")
        self._bin, self._fold, self._step, self._rows = (
            table[name].to_numpy() for name in ("bin", "fold", "step", "rows")
        )
        self._largest = table["largest"].to_numpy(zero_copy_only=False)

    def _is_of(self, kind: str) -> Mask:
        """Rows of a kind."""
        is_of: Mask = self._kind == (self._kinds.index(kind) if kind in self._kinds else -1)
        return is_of

    def __len__(self) -> int:
        return self.sketch.records

    @property
    def runs(self) -> list[str]:
        """Their names."""
        return [name for name, _ in self.sketch.runs.values()]

    @property
    def devices(self) -> list[str]:
        """Of each run."""
        return [device for _, device in self.sketch.runs.values()]

    @property
    def names(self) -> dict[str, list[str]]:
        """What the codes of cells stand for."""
        return self.cells.names

    def gather(self, *, held_out: bool) -> Gathered:
        """What limits are made from: by folds of runs, or in-sample."""
        readings = {kind: self._open_readings(kind) for kind in READ}
        every = np.ones(FOLDS, bool)
        there = np.unique(self._fold)
        folds = [Fold(f"fold {key}", ~(at := np.arange(FOLDS) == key), at) for key in there] if held_out else []
        if held_out and len(folds) < 2:
            raise NoSuchHoldout(
                f"all {len(self.runs)} runs of this sketch are in one of its {FOLDS} folds, so none can be held "
                "out. Add sketches of other runs"
            )
        holdout = Holdout("run" if held_out else "none", (), ())
        rows = int(readings[READ[0]].counts.sum())
        return Gathered(holdout, Cells(), self.cells, readings, folds, FOLDS, rows, every)  # type: ignore[arg-type]

    def _open_readings(self, kind: Kind) -> SketchedReadings:
        here = self._is_of(name_kind(kind)) & (self._bin == CONTROLS) & (self._step < INFINITE)
        cells, keys, steps, rows = (values[here] for values in (self._cell, self._fold, self._step, self._rows))
        return SketchedReadings(cells, keys, steps, rows, self._largest[here], len(self.cells))

    @cached_property
    def _strata(self) -> tuple[StrataTable, npt.NDArray[np.int32]]:
        """Cell, bin and fold of each stratum, and the stratum of each row of the sketch."""
        packed = (self._cell * np.int32(4) + self._bin) * np.int32(FOLDS) + self._fold
        occurs = np.zeros(int(packed.max(initial=-1)) + 1, bool)
        occurs[packed] = True
        of_cell, folds = np.divmod(np.flatnonzero(occurs), FOLDS)
        cells, bins = np.divmod(of_cell, 4)
        place = (np.cumsum(occurs, dtype=np.int32) - np.int32(1))[packed]
        return StrataTable({"cell": cells, "bin": bins, "fold": folds}), place

    def evaluate(self) -> Evaluation:
        """Score the default methods, held out by folds of runs, and every policy."""
        gathered = self.gather(held_out=True)
        scores = [self._score_method(gathered, method) for method in default_methods()]
        for score, _ in list_policies():
            score.count(self._strata[0], self._count_policy(score.name))
            scores.append(score)
        sketch = self.sketch
        return Evaluation(
            "folds of runs", sketch.records, tuple(self.devices), tuple(self.runs), tuple(scores), sketch.left_out,
            told="From a sketch: of what gonogo flags, suspect and no-go are not told apart. ",
        )  # fmt: skip

    def calibrate(self, method: Method) -> list[Limit]:
        """The limits of a method, and beside those of the rule `pooled` one for all ops of each contract."""
        if method.kind not in READ:
            known = ", ".join(dict.fromkeys(kind.gauge for kind in READ))
            raise InputError(f"a sketch has readings in {known}, and none in {method.gauge}. Calibrate from runs")
        return make_all_limits(self.gather(held_out=False), method, self.runs)

    def _score_method(self, gathered: Gathered, method: Method) -> Score:
        strata, stratum = self._strata
        (limits,) = find_limits(gathered, [method])
        fold_of_key = gathered.number_folds()
        here = np.flatnonzero(self._is_of(name_kind(replace(method.kind, passing_only=False))))
        limit = limits[fold_of_key[self._fold[here]], self._cell[here]]
        unsound = self._step[here] == UNSOUND
        steps = find_steps(round_down(limit), np.ones(len(here), bool))
        above = unsound | (self._step[here] > steps)
        unjudged = find_unjudged(limit, ~unsound, limits)
        decisions = np.where(unjudged, UNJUDGED, np.where(above, NO_GO, GO))
        counts: Counts = np.zeros((len(strata), KINDS), np.int64)
        np.add.at(counts, (stratum[here], decisions + 1), self._rows[here])
        score = Score(method.name, method.gauge, method.rule.name)
        score.count(strata, counts)
        return score

    def _count_policy(self, name: str) -> Counts:
        strata, stratum = self._strata
        here = np.flatnonzero(self._is_of(f"policy {name}"))
        counts: Counts = np.zeros((len(strata), KINDS), np.int64)
        np.add.at(counts, (stratum[here], self._step[here]), self._rows[here])
        return counts
