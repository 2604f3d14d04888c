"""gonogo audit --benchmark: a benchmark's problems → what its own check lets pass, in a table or a page."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import Interrupted
from gonogo.cli._progress import Reporter
from gonogo.cli._tables import View, print_tables
from gonogo.problems.auditing import JUDGED, Audit
from gonogo.problems.audits import audit_benchmark, check_out
from gonogo.problems.problem import Options
from gonogo.table import Table

COLUMNS = (
    "problem", "torch's kernel", "contract", "reading", "limit", "passes against float64", "vacuous", "constant",
    "ignored", "mutants", "own check passes", "gonogo passes",
)  # fmt: skip
ESSENTIAL = ("problem", "torch's kernel", "vacuous", "mutants", "own check passes", "gonogo passes")
NOTE = (
    "torch's kernel: gonogo's verdict on the reference as torch runs it, by the contract that fits. Vacuous: what "
    "passes the benchmark's own check instead of an answer. Ignored: what can be changed without changing a bit of "
    "the output. Mutants: small faults of the reference, an op dropped, an epsilon × 100, inputs of an op rounded "
    "to bfloat16, its last column left out; without those that change no bit."
)
SHOWN_NAMES = 3


def audit_problems(
    path: Path,
    options: Options,
    *,
    workers: int,
    timeout_s: float,
    mutates: bool,
    runs: bool,
    out: Path | None,
    page: Path | None,
    command: str,
    view: View,
    as_json: bool,
) -> None:
    """Audit, print and exit."""
    check_out(out)
    try:
        with Reporter("problems") as reporter:
            audits = audit_benchmark(
                path, options, workers=workers, timeout_s=timeout_s, mutates=mutates, runs=runs, kept=out,
                report=reporter.report,
            )  # fmt: skip
    except KeyboardInterrupt:
        kept = f"; what is done is in {out}, the same command goes on from there" if out else ""
        raise Interrupted(f"interrupted{kept}") from None
    tables = make_tables(audits)
    if page is not None:
        machines = "; ".join(dict.fromkeys(audit.machine for audit in audits if audit.machine))
        head = f"# {path.name}\n\nBy `{command}`, on {machines}.\n\n{tell_counts(audits)}\n\n"
        page.write_text(head + "\n".join(table.to_markdown() for table in tables), encoding="utf-8")
    if as_json:
        print_json({"schema": SCHEMA, "problems": [audit.to_dict() for audit in audits]})
    else:
        print_tables(tables, view)
        echo(tell_counts(audits))
    sys.exit(0)


def tell_counts(audits: list[Audit]) -> str:
    """The figures of a benchmark, in sentences."""
    judged = [audit for audit in audits if audit.state == JUDGED]
    decisions = Counter(audit.decision for audit in judged)
    mutants = sum(audit.mutants for audit in judged)
    own, ours = (sum(len(getattr(audit, name)) for audit in judged) for name in ("own_passed", "gonogo_passed"))
    both = sum((Counter(audit.own_passed) & Counter(audit.gonogo_passed)).total() for audit in judged)
    wide = [audit.passes_wide for audit in judged if audit.passes_wide is not None]
    told = [
        f"{len(audits)} problems, {len(judged)} judged, {len(audits) - len(judged)} not.",
        f"torch's own kernel: {', '.join(f'{count} {word}' for word, count in decisions.items())}.",
        f"Against float64 it passes the benchmark's own tolerance on {sum(wide)} of {len(wide)}." if wide else "",
        f"A stand-in passes the own check of {sum(bool(audit.vacuous) for audit in judged)},"
        f" {sum(audit.constant for audit in judged)} have a constant output,"
        f" {sum(bool(audit.ignored) for audit in judged)} ignore an input or a weight.",
        f"Of {mutants} mutants {own} pass the own check, {ours} gonogo's, {both} both." if mutants else "",
    ]
    return " ".join(part for part in told if part)


def make_tables(audits: list[Audit]) -> list[Table]:
    """Those judged, and why the others are not."""
    judged = [_make_row(audit) for audit in audits if audit.state == JUDGED]
    refused = [(audit.problem, audit.why) for audit in audits if audit.state != JUDGED]
    tables = [Table("problems", COLUMNS, judged, NOTE, ESSENTIAL)] if judged else []
    return [*tables, *([Table("not judged", ("problem", "why"), refused)] if refused else [])]


def _make_row(audit: Audit) -> tuple[object, ...]:
    wide = "–" if audit.passes_wide is None else "yes" if audit.passes_wide else "no"
    sampled = ", sampled" if audit.is_sampled else ""
    return (
        audit.problem, f"{audit.decision}{sampled}", audit.contract, audit.reading, audit.limit, wide,
        ", ".join(audit.vacuous) or "–", "yes" if audit.constant else "–", _list(audit.ignored), audit.mutants,
        len(audit.own_passed), len(audit.gonogo_passed),
    )  # fmt: skip


def _list(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:SHOWN_NAMES])
    return f"{shown}, …" if len(names) > SHOWN_NAMES else shown or "–"
