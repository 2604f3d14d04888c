"""Runs → the plain data of a page: what `gonogo evaluate` finds, in groups that a browser can sum again."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gonogo.errors import NoSuchHoldout
from gonogo.evaluate import evaluate_by, rank, train_judge
from gonogo.evaluate.cells import PARTS, Cells, CellTable
from gonogo.evaluate.drift import find_drift
from gonogo.evaluate.folds import HOLDOUTS
from gonogo.evaluate.paper_tables import compare_with_current
from gonogo.evaluate.policies import NEEDED, list_policies
from gonogo.evaluate.readings import gather
from gonogo.evaluate.score import Block, Judge, Method, default_methods, make_limits, open_strata, tally_rows
from gonogo.evaluate.strata import (
    CONTROL,
    CONTROLS,
    CURVE,
    FIRST_BIN,
    IDENTICAL,
    MANIFEST_CLASS,
    MANIFESTS,
    UNKNOWN,
    StrataTable,
)  # fmt: skip
from gonogo.evaluate.sweep import list_methods
from gonogo.evaluate.tally import Score
from gonogo.limits import EVERY_OP, Limit
from gonogo.limits.rules import rule
from gonogo.records import StreamedRuns, open_runs, read_description
from gonogo.records.places import Place
from gonogo.report.best import Best, take_first
from gonogo.report.counts import encode_scores
from gonogo.verdict.judge import GO

Numbers = npt.NDArray[np.int64]

SWEPT = ("absolute", "bound"), (95, 100)
"""Gauges and percentiles whose factors are shown; `gonogo evaluate --sweep` has all."""
GAUGES = ("absolute", "magnitude", "ulp", "bound", "deterministic")
POINTS = 6_000
"""Readings that are shown one by one."""
WORST, MISSED, ALIKE = 120, 240, 4
"""Cases that are listed, and at most so many of one kernel in one dtype."""
ROOM = 800_000
"""Characters for what was decided by each method, and as many for sweeps and hold-outs: a page has 3 MB at most."""
REASONS, LONGEST = 60, 200
"""Why cases were refused: so many reasons, of so many letters."""


def collect(paths: Sequence[Place], *, holdout: str = "", limits: Sequence[Limit] | None = None) -> dict[str, Any]:
    """All that a page says of some runs; limits are drawn as given, or as the runs justify them."""
    source, numbering = open_runs(paths), Cells()
    holdout = holdout or ("run" if len(source.runs) > 1 else "none")
    judge = train_judge(source, holdout, numbering=numbering)
    chosen = Chosen(judge, source.devices)
    evaluation = evaluate_by(source, judge, look=chosen.look, needed=GAUGES)
    names = Names(source, judge.gathered.cells)
    fine = open_strata(source, ("cell", "class", "distribution", "device"), beside_controls=False)
    scores = sorted(tally_rows(source, fine, [judge], list_policies(), NEEDED), key=rank)
    rows = next(score for score in scores if score.name == "current").counts.sum(1)
    strata = fine.close()
    dimensions = names.list_codes(strata, ("op", "dtype", "kernel")) | {"class": strata.codes["class"]}
    groups, encoded = encode_scores(dimensions, rows, scores, ROOM)
    in_sample = Judge.train(source, "none", default_methods(), numbering)
    ours, papers = default_methods()
    justified = make_limits(in_sample.gathered, ours, source.runs)
    justified += make_limits(in_sample.gathered, replace(ours, rule=rule("universal")), source.runs)
    by_paper = make_limits(in_sample.gathered, papers, source.runs)
    drawn = justified if limits is None else limits
    return {
        "evaluation": evaluation.to_dict(), "how": evaluation.how,
        "names": names.listed | {"device": sorted(set(source.devices))},
        "classes": {
            "control": CONTROL, "identical": IDENTICAL, "unknown": UNKNOWN, "first_bin": FIRST_BIN,
            "edges": [None if math.isinf(edge) else edge for edge in CURVE], "manifest": MANIFEST_CLASS,
        },
        "groups": groups.to_dict(), "merged": list(groups.merged),
        "methods": [
            {"name": score.name, "gauge": score.gauge, "rule": score.rule} | decided
            for score, decided in zip(scores, encoded, strict=True)
        ],
        "coarse": _collect_coarse(source, holdout, [judge, in_sample], names),
        "vacuous": [_tell_limit(limit) for limit in justified if limit.is_vacuous],
        "kernels": _list_kernels(judge.gathered.cells),
        "tightening": [asdict(cell) | {"cases": cases} for cell, cases in compare_with_current(by_paper)],
        "limits": [_tell_limit(limit) for limit in drawn if not limit.is_vacuous]
        + [_tell_limit(limit) for limit in by_paper],
        "readings": chosen.list_readings(names), "drift": _list_drift(source, ours),
        "cases": chosen.list_cases(source, names), "gauges": list(GAUGES), "every_op": EVERY_OP,
        "runs": _list_runs(source), "incomplete": source.incomplete, "refused": _list_refused(source),
    }  # fmt: skip


class Names:
    """Names in their order on a page, by code: while runs are read, codes are given as names come."""

    def __init__(self, source: StreamedRuns, cells: CellTable) -> None:
        self._cells = cells
        self.listed = {
            name: sorted(source.names[name]) for name in ("op", "dtype", "distribution", "kernel", "role")
        }
        self._places = {
            name: np.array([*(self.listed[name].index(word) for word in source.names[name]), -1], np.int64)
            for name in self.listed
        }

    def place(self, column: str, codes: npt.NDArray[np.integer]) -> Numbers:
        """Places of some codes; −1 stays."""
        places: Numbers = self._places[column][codes]
        return places

    def place_cells(self, column: str, cells: Numbers) -> Numbers:
        """Places of what some cells have."""
        return self.place(column, self._cells.codes[column][cells])

    def list_codes(self, strata: StrataTable, columns: Sequence[str]) -> dict[str, Numbers]:
        """By dimension of a page, where each stratum is; distributions and devices beside what cells have."""
        codes = {name: self.place_cells(name, strata.codes["cell"]) for name in columns}
        codes["distribution"] = self.place("distribution", strata.codes["distribution"] - 1)
        return codes | {"device": strata.codes["device"]}


def _collect_coarse(source: StreamedRuns, holdout: str, judges: Sequence[Judge], names: Names) -> dict[str, Any]:
    """Sweeps and hold-outs, without kernels."""
    numbering = judges[0].gathered.numbering
    sweep = Judge.train(source, holdout, list_methods(*SWEPT), numbering)
    there = {judge.gathered.holdout.name: judge for judge in judges}
    by_holdout: dict[str, Judge] = {}
    skipped = {}
    for name in HOLDOUTS:
        try:
            by_holdout[name] = there.get(name) or Judge.train(source, name, default_methods(name), numbering)
        except NoSuchHoldout as error:
            skipped[name] = str(error).partition(";")[0]
    counting = open_strata(source, ("cell", "bin", "distribution", "device"), beside_controls=False)
    everything = Score("", "", "")  # that says of every row that it is go, for their number
    scores = tally_rows(
        source, counting, [sweep, *by_holdout.values()],
        [(everything, lambda block: np.full(len(block.columns), np.int8(GO)))],
    )  # fmt: skip
    strata = counting.close()
    bins = strata.codes["bin"]
    drawn = np.where(bins == MANIFESTS, 1, np.where(bins == CONTROLS, 0, -1))  # what a sweep is drawn of
    dimensions = names.list_codes(strata, ("op", "dtype")) | {"class": drawn}
    groups, encoded = encode_scores(dimensions, everything.counts.sum(1), scores[:-1], ROOM)
    swept = [
        {"name": score.name, "gauge": score.gauge} | decided
        for score, decided in zip(scores[: len(sweep.methods)], encoded, strict=False)
    ]
    of_holdouts = [(name, method.name) for name, judge in by_holdout.items() for method in judge.methods]
    holdouts = [
        {"holdout": name, "name": method} | decided
        for (name, method), decided in zip(of_holdouts, encoded[len(sweep.methods) :], strict=True)
    ]
    return {"groups": groups.to_dict(), "merged": list(groups.merged), "sweep": swept, "holdouts": holdouts,
            "skipped": skipped}  # fmt: skip


def _list_kernels(cells: CellTable) -> list[dict[str, Any]]:
    """Each kernel of each op: its role, and what it is held against."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    every = [{name: cells.name(name, at) for name in PARTS} for at in range(len(cells))]
    for words in sorted(every, key=lambda words: tuple(words.values())):
        kernel = found.setdefault(
            (words["op"], words["kernel"]),
            {"name": words["kernel"], "op": words["op"], "role": words["role"],
             "against": words["calibrate_against"], "contracts": {}},
        )  # fmt: skip
        kernel["contracts"][words["dtype"]] = words["contract"]
    return [found[key] for key in sorted(found)]


def _tell_limit(limit: Limit) -> dict[str, Any]:
    return {
        "op": limit.op, "contract": limit.contract, "kernel": limit.kernel, "dtype": limit.dtype,
        "gauge": limit.gauge, "rule": limit.rule, "value": limit.value, "cases": limit.cases,
        "fp_upper95": limit.fp_upper95, "worst": limit.worst,
    }  # fmt: skip


class Chosen:
    """Rows that are shown one by one: readings of a few of each kernel, dtype and device, and cases to look at."""

    def __init__(self, judge: Judge, devices: Sequence[str]) -> None:
        self._judge = judge
        self._kinds = len(set(devices))
        self._device_of_run = np.array([sorted(set(devices)).index(device) for device in devices])
        self._some, self._largest = Best(max(1, POINTS // max(1, len(judge.gathered.cells)) - 1)), Best(1)
        self._controls, self._missed = Best(ALIKE), Best(ALIKE)
        self._readings, self._lock = 0, threading.Lock()

    def look(self, block: Block) -> None:
        """Take what is worth showing of a block."""
        rows, columns = block.rows, block.columns
        bound, signal = columns.readings["bound"], columns.signal
        there = np.flatnonzero(rows.counted & rows.sound & np.isfinite(bound))
        places = columns.start + np.arange(len(columns))
        device = self._device_of_run[columns.run]
        strata = block.cells.astype(np.int64) * self._kinds + device
        told: dict[str, npt.NDArray[Any]] = {
            "cell": block.cells, "device": device, "distribution": columns.codes["distribution"],
            "run": columns.run, "signal": signal, **{gauge: columns.readings[gauge] for gauge in GAUGES},
        }  # fmt: skip

        def offer(best: Best, here: Numbers, values: npt.NDArray[Any], of: npt.NDArray[Any]) -> None:
            best.offer(of[here].astype(np.int64), values[here], places[here],
                       {name: column[here] for name, column in told.items()})  # fmt: skip

        offer(self._some, there, draw_numbers(places), strata)
        offer(self._largest, there, bound, strata)
        ours = next(self._judge.decide(block, self._judge.find_folds(block)))
        missed = np.flatnonzero(rows.differing & rows.sound & (ours <= GO) & np.isfinite(signal))
        controls = np.flatnonzero(rows.controls & rows.sound & np.isfinite(bound))
        offer(self._controls, controls, bound, block.cells)
        offer(self._missed, missed, signal, block.cells)
        with self._lock:
            self._readings += len(there)

    def list_readings(self, names: Names) -> dict[str, Any]:
        """Readings of a few rows: the largest of each kernel, dtype and device, and some at random."""
        some = self._some
        each = max(1, POINTS // max(1, len(np.unique(some.strata))) - 1)  # of strata that there are
        few = take_first(some.strata, some.values, some.rows, each)
        kept = np.unique(np.concatenate([some.rows[few], self._largest.rows]), return_index=True)[1]
        told = {
            name: np.concatenate([values[few], self._largest.told[name]])[kept]
            for name, values in some.told.items()
        }
        cells = told["cell"].astype(np.int64)
        codes = {name: names.place_cells(name, cells).tolist() for name in ("op", "dtype", "kernel")}
        codes["distribution"] = names.place("distribution", told["distribution"].astype(np.int64)).tolist()
        values = {gauge: [_round(x) for x in told[gauge].tolist()] for gauge in GAUGES}
        return codes | {"device": told["device"].astype(int).tolist(), "of": self._readings} | values

    def list_cases(self, source: StreamedRuns, names: Names) -> list[dict[str, Any]]:
        """The worst cases of controls, and the faulty ones with the largest faults that gonogo does not flag."""
        chosen = [
            (kind, best, at)
            for kind, best, most in (("control", self._controls, WORST), ("missed", self._missed, MISSED))
            for at in np.lexsort((best.rows, -best.values))[:most].tolist()
        ]  # fmt: skip
        cases = source.fetch("case", [int(best.rows[at]) for _, best, at in chosen])
        told = []
        for kind, best, at in chosen:
            facts = {name: float(values[at]) for name, values in best.told.items()}
            cell = np.array([int(facts["cell"])])
            told.append({
                "case": cases[int(best.rows[at])], "kind": kind, "device": int(facts["device"]),
                **{name: int(names.place_cells(name, cell)[0]) for name in ("op", "dtype", "kernel")},
                "distribution": int(names.place("distribution", np.array([int(facts["distribution"])]))[0]),
                "run": source.runs[int(facts["run"])], "signal": _round(facts["signal"]),
                "readings": {gauge: _round(facts[gauge]) for gauge in GAUGES},
            })  # fmt: skip
        return told


def draw_numbers(places: Numbers) -> npt.NDArray[np.float64]:
    """A number for each place that looks drawn at random, the same in every run: its bits, stirred well."""
    bits = places.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return (bits ^ (bits >> np.uint64(31))).astype(np.float64)


def _round(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.3g}")


def _list_drift(source: StreamedRuns, method: Method) -> list[dict[str, Any]]:
    """Whether limits of one device hold on the others."""
    devices = sorted(set(source.devices))
    if len(devices) < 2:
        return []
    gathered = gather(source, {method.kind: True}, "device")
    sides = [replace(gathered, everywhere=np.arange(gathered.keys) == at) for at in range(len(devices))]
    return [
        {"from": devices[one], "to": devices[other], "group": " ".join(drift.group),
         "before": asdict(drift.before), "after": asdict(drift.after), "limit": drift.limit, "above": drift.above}
        for one in range(len(devices)) for other in range(len(devices)) if one != other
        for drift in find_drift(sides[one], sides[other], method)
    ]  # fmt: skip


def _list_runs(source: StreamedRuns) -> list[dict[str, Any]]:
    """What is known of each run: machine, versions, plan."""
    told = []
    for at, folder in enumerate(source.folders):
        described = read_description(folder)
        environment = described.get("environment") or {}
        plan = described.get("plan") or {}
        told.append({
            "name": folder.name, "device": source.devices[at], "records": source.rows_of_runs[at],
            "is_cuda": environment.get("device") == "cuda",
            "environment": {name: str(value) for name, value in environment.items() if _is_plain(value)},
            "plan": {name: value for name, value in plan.items() if _is_plain(value)},
        })  # fmt: skip
    return told


def _list_refused(source: StreamedRuns) -> list[dict[str, Any]]:
    """Why cases were refused, by op and dtype, the most frequent reasons first."""

    def count(table: pa.Table) -> Counter[tuple[str, str, str]]:
        refused = table.filter(pc.equal(table["outcome"], "refused")).select(["op", "dtype", "detail"])
        return Counter((row["op"], row["dtype"], str(row["detail"] or "")[:LONGEST]) for row in refused.to_pylist())

    found = sum(source.map_tables(count, ["op", "dtype", "outcome", "detail"]), Counter[tuple[str, str, str]]())
    return [
        {"op": op, "dtype": dtype, "why": why, "records": count}
        for (op, dtype, why), count in found.most_common(REASONS)
    ]


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
