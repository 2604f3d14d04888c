"""Kernels of known role → how many controls fail a tolerance, and what faults it catches, by bin.

Counted in records where these decide it, and by running the kernels of the op where they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gonogo.audit.evidence import decide_rows
from gonogo.audit.finding import Audit
from gonogo.audit.tolerance import Tolerance
from gonogo.evaluate import filter_columns
from gonogo.evaluate.groups import Rows
from gonogo.evaluate.policies import ALWAYS_SEEN
from gonogo.policies import Twin
from gonogo.records import Columns
from gonogo.schema import Contract, Record
from gonogo.verdict.judge import GO, NO_GO

if TYPE_CHECKING:
    from gonogo.execution.bench import Bench


def count_records(audit: Audit, tolerance: Tolerance, columns: Columns) -> None:
    """Count in records of the op and dtype, as far as these decide; nothing where there are none."""
    for name, wanted in (("op", audit.op), ("dtype", audit.dtype)):
        if not columns.equals(name, wanted).any():
            return
    rows = Rows(filter_columns(columns, op=audit.op, dtype=audit.dtype))
    audit.counted_in = "records"
    decisions = decide_rows(tolerance.policy, audit.op, audit.dtype, rows.columns)
    audit.score.count(rows, rows.counted, lambda block: decisions[block])


Judged = tuple[Record, bool]
"""A record, and whether the tolerance flags it."""


def run_kernels(tolerance: Tolerance, bench: Bench, twin: Twin | None) -> Iterator[Judged]:
    """The op's kernels on one case, each held to the tolerance."""
    from gonogo.execution.execute import order_kernels, run_kernel

    expected = bench.reference(Contract()).expected
    case = bench.job.case
    for kernel in order_kernels(bench.op, case.dtype, case.axis_sizes(bench.op)):
        with np.errstate(all="ignore"):  # Triton's interpreter computes by NumPy, and faults overflow
            record = run_kernel(bench, kernel)
        output = bench.output(kernel.name)
        reading = None if output is None else tolerance.read(bench, output, expected, twin)
        yield record, record.outcome in ALWAYS_SEEN or (reading is not None and reading > 1)


def count_judged(audit: Audit, judged: Sequence[Judged]) -> None:
    """Count kernels that were run live, by the bins that records are counted by."""
    audit.counted_in = "live"
    rows = Rows(_to_columns([record for record, _ in judged]))
    decisions = np.where([flagged for _, flagged in judged], np.int8(NO_GO), np.int8(GO))
    audit.score.count(rows, rows.counted, lambda block: decisions[block])


def _to_columns(records: Sequence[Record]) -> Columns:
    """Records as columns, with only what tells the bins apart."""
    columns = Columns(run=np.zeros(len(records), np.int16))
    for name in ("role", "distribution", "outcome"):
        words = [getattr(record, name) for record in records]
        columns.names[name] = sorted(set(words))
        columns.codes[name] = np.searchsorted(columns.names[name], words).astype(np.int16)
    columns.readings["absolute"] = np.array([record.absolute for record in records], np.float32)  # None is NaN
    columns.signal = np.array([record.signal for record in records], np.float32)
    equal = [record.bits_equal for record in records]
    columns.bits_equal = np.array([-1 if same is None else same for same in equal], np.int8)
    return columns
