"""A tolerance → what it is worth for an op and dtype: whether it is vacuous or too tight, and what it catches.

Probes that are plainly wrong (zeros, a constant, the mean, the input itself) must not pass it, and the exact
result, rounded correctly, must. How often correct kernels fail it, and which known faults do, is counted in records
where these decide it, and by running the op's own kernels on small cases on the CPU where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gonogo.audit.counts import Judged, count_judged, count_records, run_kernels
from gonogo.audit.evidence import NEEDED
from gonogo.audit.finding import COLUMNS, FINDINGS, PROBES, ROUNDED, Audit, Probe, make_table
from gonogo.audit.probes import probe_case
from gonogo.audit.tolerance import Tolerance
from gonogo.cases import FINITE, INTERPRETER, plan_cases
from gonogo.limits.shipped import find_limit
from gonogo.ops import Op
from gonogo.records import Columns
from gonogo.schema import Contract

__all__ = ["CASES", "COLUMNS", "FINDINGS", "NEEDED", "Audit", "Tolerance", "audit_tolerance", "make_table"]

CASES = 24
"""Live cases of an op and dtype: each finite distribution four times."""


def audit_tolerance(
    tolerance: Tolerance,
    ops: Sequence[Op],
    dtypes: Sequence[str],
    columns: Columns | None,
    *,
    cases: int = CASES,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Audit]:
    """One audit per op and dtype. Without `columns` of records that decide it, kernels are run instead.

    `report` is told how many cases of how many are done.
    """
    from gonogo.execution.precision import configure_torch
    from gonogo.runners.device import set_switches

    set_switches("cpu")  # for good: only the command line comes here
    configure_torch()
    total, done = len(ops) * len(dtypes) * cases, 0
    for op in ops:
        for dtype in dtypes:
            audit = Audit(op.name, dtype, tolerance.name, {name: Probe(name) for name in (*PROBES, ROUNDED)})
            chosen = find_limit(op.name, Contract())
            audit.limit, audit.limit_from = None if chosen.limit is None else chosen.limit.value, chosen.told
            audit.silent = tolerance.policy.find_numbers(op.name, dtype) is None
            if not audit.silent:
                live = columns is None or not count_records(audit, tolerance, columns)
                judged: list[Judged] = []
                for number, on_case in enumerate(_probe_cases(audit, tolerance, op, cases, live=live)):
                    judged += on_case
                    report(done + number + 1, total)
                if live:
                    count_judged(audit, judged)
            done += cases
            report(done, total)
            yield audit


def _probe_cases(audit: Audit, tolerance: Tolerance, op: Op, cases: int, *, live: bool) -> Iterator[list[Judged]]:
    """Probe every case; where they are to be counted `live`, run the op's kernels too, and give what they did."""
    from gonogo.execution.bench import prepare
    from gonogo.execution.execute import find_twin
    from gonogo.execution.job import Job

    kernels = tuple(kernel for kernel in op.kernels if audit.dtype in kernel.dtypes)
    planned = plan_cases(op, audit.dtype, cases, 0, distributions=FINITE, limit=INTERPRETER)
    for number, (case, strategy) in enumerate(planned):
        bench = prepare(Job(number, case, strategy, op, kernels, "cpu"))
        twin = find_twin(bench, bench.op.kernels[0])
        probe_case(audit, tolerance, bench, twin)
        yield list(run_kernels(tolerance, bench, twin)) if live else []
