"""Runs → the plain data of a page: what `gonogo evaluate` finds, in groups that a browser can sum again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from gonogo.errors import InputError
from gonogo.evaluate import evaluate, rank
from gonogo.evaluate.drift import find_drift
from gonogo.evaluate.folds import HOLDOUTS
from gonogo.evaluate.groups import MANIFEST, Mask, Rows
from gonogo.evaluate.paper_tables import CURVE, find_tightening
from gonogo.evaluate.score import calibrate, calibrate_with_universal, default_methods, score_methods
from gonogo.evaluate.sweep import list_methods
from gonogo.limits import EVERY_OP, Limit
from gonogo.records import Columns, find_distinct_runs, load_columns, read_description
from gonogo.records.columns import EVERYTHING
from gonogo.records.parts import list_parts
from gonogo.report.counts import CONTROL, FIRST_BIN, IDENTICAL, UNKNOWN, classify, encode_scores

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


def collect(paths: Sequence[Path], *, holdout: str = "", limits: Sequence[Limit] | None = None) -> dict[str, Any]:
    """All that a page says of some runs; limits are drawn as given, or as the runs justify them."""
    columns = load_columns(paths, wanted=set(EVERYTHING))
    rows = Rows(columns)
    holdout = holdout or ("run" if len(columns.runs) > 1 else "none")
    evaluation = evaluate(columns, holdout)
    ours = next(score for score in evaluation.scores if score.name == "gonogo")
    devices, device = _number_devices(columns)
    classes = classify(rows)
    dimensions = {name: columns.codes[name] for name in ("op", "dtype", "distribution")} | {"device": device}
    scores = sorted(evaluation.scores, key=rank)
    groups, encoded = encode_scores(
        dimensions | {"kernel": columns.codes["kernel"], "class": classes}, scores, ROOM
    )
    justified = calibrate_with_universal(rows, default_methods()[0])
    drawn = justified if limits is None else limits
    return {
        "evaluation": evaluation.to_dict(), "how": evaluation.how,
        "names": {name: columns.names[name] for name in ("op", "dtype", "distribution", "kernel", "role")}
        | {"device": devices},
        "classes": {
            "control": CONTROL, "identical": IDENTICAL, "unknown": UNKNOWN, "first_bin": FIRST_BIN,
            "edges": [None if math.isinf(edge) else edge for edge in CURVE],
            "manifest": FIRST_BIN + CURVE.index(MANIFEST),
        },
        "groups": groups.to_dict(), "merged": list(groups.merged),
        "methods": [
            {"name": score.name, "gauge": score.gauge, "rule": score.rule} | decided
            for score, decided in zip(scores, encoded, strict=True)
        ],
        "coarse": _collect_coarse(rows, holdout, dimensions | {"class": _merge_classes(classes)}),
        "vacuous": [_tell_limit(limit) for limit in justified if limit.is_vacuous],
        "kernels": _list_kernels(rows), "tightening": _list_tightening(rows),
        "limits": [_tell_limit(limit) for limit in drawn if not limit.is_vacuous]
        + [_tell_limit(limit) for limit in calibrate(rows, default_methods()[1])],
        "readings": _sample(rows, device), "drift": _list_drift(rows, devices, device),
        "cases": _list_cases(paths, rows, ours.flagged, device), "gauges": list(GAUGES), "every_op": EVERY_OP,
        "runs": _list_runs(paths, columns), "refused": _list_refused(paths),
    }  # fmt: skip


def _number_devices(columns: Columns) -> tuple[list[str], npt.NDArray[np.int16]]:
    names = sorted(set(columns.devices))
    return names, np.array([names.index(name) for name in columns.devices], np.int16)[columns.run]


def _merge_classes(classes: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Controls and manifest faults alone: what a sweep is drawn of."""
    manifest = classes >= FIRST_BIN + CURVE.index(MANIFEST)
    return np.where(manifest, np.int8(1), np.where(classes == CONTROL, np.int8(0), np.int8(-1)))


def _collect_coarse(rows: Rows, holdout: str, dimensions: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Sweeps and hold-outs, without kernels."""
    swept, kept, skipped = score_methods(rows, holdout, list_methods(*SWEPT)), [], {}
    for name in HOLDOUTS:
        try:
            kept += [(name, score) for score in score_methods(rows, name, default_methods(name))]
        except InputError as error:
            skipped[name] = str(error).partition(";")[0]
    groups, encoded = encode_scores(dimensions, [*swept, *(score for _, score in kept)], ROOM)
    sweep = [
        {"name": score.name, "gauge": score.gauge} | decided
        for score, decided in zip(swept, encoded[: len(swept)], strict=True)
    ]
    holdouts = [
        {"holdout": name, "name": score.name} | decided
        for (name, score), decided in zip(kept, encoded[len(swept) :], strict=True)
    ]
    return {"groups": groups.to_dict(), "merged": list(groups.merged), "sweep": sweep, "holdouts": holdouts,
            "skipped": skipped}  # fmt: skip


def _list_kernels(rows: Rows) -> list[dict[str, Any]]:
    """Each kernel of each op: its role, and what it is held against."""
    columns, cells = rows.columns, rows.cells.codes
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for at in range(len(rows.cells)):
        words = {
            name: columns.names[name][cells[name][at]] if cells[name][at] >= 0 else ""
            for name in ("op", "dtype", "role", "kernel", "contract", "calibrate_against")
        }
        kernel = found.setdefault(
            (words["op"], words["kernel"]),
            {"name": words["kernel"], "op": words["op"], "role": words["role"],
             "against": words["calibrate_against"], "contracts": {}},
        )  # fmt: skip
        kernel["contracts"][words["dtype"]] = words["contract"]
    return list(found.values())


def _list_tightening(rows: Rows) -> list[dict[str, Any]]:
    return [asdict(cell) | {"cases": cases} for cell, cases in find_tightening(rows)]


def _tell_limit(limit: Limit) -> dict[str, Any]:
    return {
        "op": limit.op, "contract": limit.contract, "kernel": limit.kernel, "dtype": limit.dtype,
        "gauge": limit.gauge, "rule": limit.rule, "value": limit.value, "cases": limit.cases,
        "fp_upper95": limit.fp_upper95, "worst": limit.worst,
    }  # fmt: skip


def _sample(rows: Rows, device: npt.NDArray[np.int16]) -> dict[str, Any]:
    """Readings of a few rows of each kernel, dtype and device: the largest, and some at random."""
    columns = rows.columns
    there = np.flatnonzero(rows.counted & rows.sound & np.isfinite(columns.readings["bound"]))
    stratum = rows.cells.of_row[there].astype(np.int64) * (int(device.max(initial=0)) + 1) + device[there]
    each = max(1, POINTS // max(1, len(np.unique(stratum))) - 1)
    shuffled = np.random.default_rng(0).permutation(len(there))
    largest = np.argsort(-columns.readings["bound"][there], kind="stable")
    chosen = np.unique(np.concatenate([_take_first(shuffled, stratum, each), _take_first(largest, stratum, 1)]))
    at = there[chosen]
    values = {gauge: [_round(x) for x in columns.readings[gauge][at].tolist()] for gauge in GAUGES}
    codes = {name: columns.codes[name][at].tolist() for name in ("op", "dtype", "distribution", "kernel")}
    return codes | {"device": device[at].tolist(), "of": len(there)} | values


def _take_first(order: npt.NDArray[np.int64], stratum: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """The first few of each stratum, in an order."""
    by_stratum = order[np.argsort(stratum[order], kind="stable")]
    starts = np.r_[0, np.flatnonzero(np.diff(stratum[by_stratum])) + 1]
    ranks = np.arange(len(by_stratum)) - np.repeat(starts, np.diff(np.r_[starts, len(by_stratum)]))
    first: npt.NDArray[np.int64] = by_stratum[ranks < count]
    return first


def _round(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.3g}")


def _list_drift(rows: Rows, devices: Sequence[str], device: npt.NDArray[np.int16]) -> list[dict[str, Any]]:
    """Whether limits of one device hold on the others."""
    method, sides = default_methods()[0], [Rows(rows.columns.select(device == at)) for at in range(len(devices))]
    return [
        {"from": devices[one], "to": devices[other], "group": " ".join(drift.group),
         "before": asdict(drift.before), "after": asdict(drift.after), "limit": drift.limit, "above": drift.above}
        for one in range(len(devices)) for other in range(len(devices)) if one != other
        for drift in find_drift(sides[one], sides[other], method)
    ]  # fmt: skip


def _list_cases(
    paths: Sequence[Path], rows: Rows, flagged: Mask | None, device: npt.NDArray[np.int16]
) -> list[dict[str, Any]]:
    """The worst cases of controls, and the faulty ones with the largest faults that gonogo does not flag."""
    columns = rows.columns
    bound, signal = columns.readings["bound"], columns.signal
    missed = rows.differing & rows.sound & ~(np.zeros(len(columns), bool) if flagged is None else flagged)
    chosen = [
        ("control", at) for at in _rank(rows, rows.controls & rows.sound & np.isfinite(bound), bound, WORST)
    ] + [("missed", at) for at in _rank(rows, missed & np.isfinite(signal), signal, MISSED)]  # fmt: skip
    texts = _read_texts(paths, [at for _, at in chosen])
    return [
        texts[at] | {
            "kind": kind, "device": int(device[at]),
            "op": int(columns.codes["op"][at]), "dtype": int(columns.codes["dtype"][at]),
            "distribution": int(columns.codes["distribution"][at]), "kernel": int(columns.codes["kernel"][at]),
            "run": columns.runs[columns.run[at]], "signal": _round(float(signal[at])),
            "readings": {gauge: _round(float(columns.readings[gauge][at])) for gauge in GAUGES},
        }
        for kind, at in chosen
    ]  # fmt: skip


def _rank(rows: Rows, mask: Mask, by: npt.NDArray[np.float32], most: int) -> list[int]:
    """Rows with the largest values, few of them of one cell."""
    there = np.flatnonzero(mask)
    largest = np.argsort(-by[there], kind="stable")
    kept = np.sort(_take_rank(largest, rows.cells.of_row[there], ALIKE))
    return [int(there[largest[place]]) for place in kept[:most]]


def _take_rank(order: npt.NDArray[np.int64], stratum: npt.NDArray[Any], count: int) -> npt.NDArray[np.int64]:
    """Places in an order of the first few of each stratum."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[_take_first(order, stratum.astype(np.int64), count)]


def _read_texts(paths: Sequence[Path], wanted: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The case of some rows, as load_columns numbers them."""
    found: dict[int, dict[str, Any]] = {}
    ordered, start = np.unique(np.asarray(wanted, np.int64)), 0
    for folder in find_distinct_runs(paths):
        for part in list_parts(folder):
            here = ordered[(ordered >= start) & (ordered < start + part.rows)]
            if here.size:
                lines = part.read(["case"]).take(here - start).to_pylist()
                found |= dict(zip(here.tolist(), lines, strict=True))
            start += part.rows
    return found


def _list_runs(paths: Sequence[Path], columns: Columns) -> list[dict[str, Any]]:
    """What is known of each run: machine, versions, plan."""
    counts = np.bincount(columns.run, minlength=len(columns.runs))
    told = []
    for at, folder in enumerate(find_distinct_runs(paths)):
        described = read_description(folder)
        environment = described.get("environment") or {}
        plan = described.get("plan") or {}
        told.append({
            "name": folder.name, "device": columns.devices[at], "records": int(counts[at]),
            "is_cuda": environment.get("device") == "cuda",
            "environment": {name: str(value) for name, value in environment.items() if _is_plain(value)},
            "plan": {name: value for name, value in plan.items() if _is_plain(value)},
        })  # fmt: skip
    return told


def _list_refused(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Why cases were refused, by op and dtype, the most frequent reasons first."""
    found: Counter[tuple[str, str, str]] = Counter()
    for folder in find_distinct_runs(paths):
        for part in list_parts(folder):
            table = part.read(["op", "dtype", "outcome", "detail"])
            refused = table.filter(pc.equal(table["outcome"], "refused"))
            for row in refused.select(["op", "dtype", "detail"]).to_pylist():
                found[row["op"], row["dtype"], str(row["detail"] or "")[:LONGEST]] += 1
    return [
        {"op": op, "dtype": dtype, "why": why, "records": count}
        for (op, dtype, why), count in found.most_common(REASONS)
    ]


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
