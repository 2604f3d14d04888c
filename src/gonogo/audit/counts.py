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
from gonogo.evaluate.rows import Rows
from gonogo.evaluate.score import ALWAYS_SEEN, count_rows
from gonogo.evaluate.tally import UNJUDGED
from gonogo.policies import Twin
from gonogo.records import Columns
from gonogo.schema import Contract, Record
from gonogo.verdict.judge import GO, NO_GO

if TYPE_CHECKING:
    from gonogo.execution.bench import Bench


MOST_UNDECIDED = 0.05
"""Share of records from which rates of the rest say too little: what is decided is mostly of one kind."""


def count_records(audit: Audit, tolerance: Tolerance, columns: Columns) -> bool:
    """Count in records of the op and dtype, as far as these decide; False: they do not, and nothing was counted."""
    for name, wanted in (("op", audit.op), ("dtype", audit.dtype)):
        if not columns.equals(name, wanted).any():
            return True
    rows = Rows(filter_columns(columns, op=audit.op, dtype=audit.dtype))
    decisions = decide_rows(tolerance.policy, audit.op, audit.dtype, rows.columns)
    if (decisions[rows.counted] == UNJUDGED).mean() > MOST_UNDECIDED:
        return False
    audit.counted_in = "records"
    count_rows(audit.score, rows.columns, decisions)
    return True


Judged = tuple[Record, int]
"""A record, and what the tolerance makes of it: GO, NO_GO or UNJUDGED."""


def run_kernels(tolerance: Tolerance, bench: Bench, twin: Twin | None) -> Iterator[Judged]:
    """The op's kernels on one case, each held to the tolerance."""
    from gonogo.execution.execute import run_kernel
    from gonogo.execution.job import order_kernels

    expected = bench.reference(Contract()).expected
    case = bench.job.case
    for kernel in order_kernels(bench.op, case.dtype, case.axis_sizes(bench.op)):
        with np.errstate(all="ignore"):  # Triton's interpreter computes by NumPy, and faults overflow
            record = run_kernel(bench, kernel)
        output = bench.output(kernel.name)
        reading = None if output is None else tolerance.read(bench, output, expected, twin)
        decision = UNJUDGED if reading is None else NO_GO if reading > 1 else GO
        yield record, NO_GO if record.outcome in ALWAYS_SEEN else decision


def count_judged(audit: Audit, judged: Sequence[Judged]) -> None:
    """Count kernels that were run live, by the bins that records are counted by."""
    audit.counted_in = "live"
    decisions = np.array([decision for _, decision in judged], np.int8)
    count_rows(audit.score, _to_columns([record for record, _ in judged]), decisions)


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
