"""Kernels of known role → how many controls fail a tolerance, and what faults it catches, by bin.

Counted in records where these decide it, and by running the kernels of the op where they do not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gonogo.audit.finding import Audit
from gonogo.audit.tolerance import Tolerance
from gonogo.evaluate import filter_columns
from gonogo.evaluate.groups import MANIFEST, Rows
from gonogo.evaluate.score import ALWAYS_SEEN, UNJUDGED, Score, score_policies
from gonogo.judge import GO, NO_GO
from gonogo.policies import Twin
from gonogo.records import MEASURED, Columns, Row
from gonogo.schema import Contract

if TYPE_CHECKING:
    from gonogo.campaign.bench import Bench


def decides(tolerance: Tolerance) -> bool:
    """Whether records decide it: they hold the largest error and every policy's reading, no |expected|."""
    return tolerance.policy is not None or tolerance.rtol == 0.0


def count_records(audit: Audit, tolerance: Tolerance, columns: Columns) -> None:
    """In records of the op and dtype; nothing is counted where there are none."""
    for name, wanted in (("op", audit.op), ("dtype", audit.dtype)):
        if not columns.equals(name, wanted).any():
            return
    rows = Rows(filter_columns(columns, op=audit.op, dtype=audit.dtype))
    audit.counted_in = "records"
    if tolerance.policy is not None:
        scores = {score.name: score for score in score_policies(rows)}
        audit.score = scores[tolerance.policy.name]
    else:
        audit.score = _score_atol(rows, tolerance.atol)


def _score_atol(rows: Rows, atol: float) -> Score:
    """As a policy is scored, by the largest error of a record."""
    seen, largest = rows.columns.equals("outcome", *ALWAYS_SEEN), rows.columns.readings["absolute"]

    def decide_block(block: slice) -> npt.NDArray[np.int8]:
        decisions = np.where(largest[block] > atol, np.int8(NO_GO), np.int8(GO))
        decisions[np.isnan(largest[block])] = UNJUDGED
        decisions[seen[block]] = NO_GO
        return decisions

    score = Score("", "", "")
    score.count(rows, rows.counted, decide_block)
    return score


def count_kernels(audit: Audit, tolerance: Tolerance, bench: Bench, twin: Twin | None) -> None:
    """As records are counted, by running the op's kernels; the fault bins are those of gonogo.evaluate."""
    from gonogo.campaign.execute import order_kernels, run_kernel

    audit.counted_in = "live"
    expected = bench.reference(Contract()).expected
    for name in order_kernels(bench.op, audit.dtype):
        kernel = bench.op.kernel(name)
        with np.errstate(all="ignore"):  # Triton's interpreter computes by NumPy, and faults overflow
            row = run_kernel(bench, kernel)
        sound, output = row["outcome"] == "ok", bench.outputs[name]
        if row["outcome"] == "refused" or (sound and math.isinf(row["absolute"])):
            continue
        reading = None if output is None else tolerance.read(bench, output, expected, twin)
        flagged = row["outcome"] in ALWAYS_SEEN or (reading is not None and reading > 1)
        _add(audit.score, row, flagged, sound)


def _add(score: Score, row: Row, flagged: bool, sound: bool) -> None:
    if row["role"] == "control":
        if row["outcome"] in MEASURED:
            score.control_cases += 1
            score.false_positives += flagged
        return
    if sound and row.get("bits_equal") is None:
        return
    differs = not sound or not row["bits_equal"]
    manifest = differs and (not sound or row["signal"] >= MANIFEST)
    score.all += 1
    score.caught_all += flagged
    score.differing += differs
    score.caught_differing += differs and flagged
    score.manifest += manifest
    score.caught_manifest += manifest and flagged
