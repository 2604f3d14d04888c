"""gonogo check --problem: solutions of a benchmark's problems → gonogo's verdict and the benchmark's own."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import Interrupted
from gonogo.cli._progress import Reporter, report_records
from gonogo.cli._tables import USUAL, fill, print_tables
from gonogo.errors import InputError
from gonogo.problems.judging import Judged, Terms
from gonogo.problems.problem import Options
from gonogo.problems.summaries import make_tables, tell_counts, write_page
from gonogo.verdict.verdicts import tell_verification

NAME_WIDTH = 14


def check_solution(
    problem: Path, target: str, options: Options, terms: Terms, *, trace: Path | None, as_json: bool
) -> None:
    """Judge one, print it and exit."""
    from gonogo.problems.judging import judge_solution

    try:
        with Reporter() as reporter:
            judged = judge_solution(
                problem, target, options, terms, report=partial(report_records, reporter)
            )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted("interrupted: no verdict") from None
    if trace is not None:
        write_trace(trace, judged)
    if as_json:
        print_json({"schema": SCHEMA} | judged.to_dict())
    else:
        _print(judged)
    sys.exit(1 if judged.decision == "no-go" else 0)


def _print(judged: Judged) -> None:
    echo(f"{judged.solution} for {judged.problem} ({judged.format}): {judged.decision}")
    fits = judged.fits or "none that gonogo knows"
    lines = [
        ("contract", f"judged by {judged.contract}; fits: {fits}"),
        ("own check", f"{_tell_own(judged.own)}: {judged.rule}"),
        ("compared", _explain(judged)),
        ("outside", _tell_outside(judged)),
    ]
    for name, text in lines:
        if text:
            echo(fill(text, start=f"  {name:<11} ", indent=" " * NAME_WIDTH))
    for part in judged.parts:
        for line in tell_verification(part.verification):
            echo(fill(line[NAME_WIDTH:], start=line[:NAME_WIDTH], indent=" " * NAME_WIDTH))
    known = {note for part in judged.parts for note in part.verification.notes}
    for note in judged.notes:
        if note not in known:
            echo(fill(note, start=f"  {'note':<11} ", indent=" " * NAME_WIDTH))


def _tell_own(own: bool | None) -> str:
    return "not run" if own is None else "passes" if own else "fails"


def _explain(judged: Judged) -> str:
    """What it means that two verdicts differ."""
    if judged.comparison == "too loose":
        return "the benchmark's check is too loose here: it passes what gonogo does not"
    if judged.comparison == "too strict":
        return "the benchmark's check is stricter here: it fails what rounding may explain"
    return "both agree" if judged.comparison == "agree" else ""


def _tell_outside(judged: Judged) -> str:
    """What became of other values and sizes."""
    if judged.outside is None:
        return ""
    why = f": {judged.outside_why}" if judged.outside_why else ""
    told = f"{judged.outside} on other values and sizes than the benchmark draws{why}"
    return f"{told}. The problem may not promise to work there" if judged.outside == "no-go" else told


def check_solutions(
    problem: Path,
    solutions: Path,
    options: Options,
    terms: Terms,
    *,
    workers: int,
    out: Path | None,
    page: Path | None,
    runs: bool,
    as_json: bool,
) -> None:
    """Judge many, or read what was found of them, print tables and exit."""
    from gonogo.problems.batch import judge_all, list_tasks, read_kept

    if not runs and (out is None or not out.exists()):
        raise InputError("--show shows what --out FILE has: give one that is there")
    try:
        with Reporter("solutions") as reporter:
            if runs or out is None:
                tasks = list_tasks(problem, solutions)
                answers = judge_all(tasks, options, terms, workers=workers, kept=out, report=reporter.report)
            else:
                answers = list(read_kept(out).values())
    except KeyboardInterrupt:
        kept = f"; what is done is in {out}, the same command goes on from there" if out else ""
        raise Interrupted(f"interrupted{kept}") from None
    counts = Counter(answer["decision"] for answer in answers)
    loose = Counter(answer["comparison"] for answer in answers)
    if page is not None:
        write_page(page, answers, problem.name)
    if as_json:
        print_json({"schema": SCHEMA, "counts": dict(counts), "comparison": dict(loose), "solutions": answers})
    else:
        print_tables(make_tables(answers), USUAL)
        echo(tell_counts(answers))
    sys.exit(1 if counts["no-go"] else 2 if counts["refused"] == len(answers) else 0)


def write_trace(path: Path, judged: Judged) -> None:
    """Add lines as FlashInfer-Bench's evaluations are, one for each workload, with gonogo's facts in them."""
    facts: dict[str, Any] = {
        "decision": judged.decision, "contract": judged.contract, "fits": judged.fits, "why": judged.why,
        "comparison": judged.comparison, "notes": list(judged.notes),
    }  # fmt: skip
    found: list[tuple[Any, str, bool | None, dict[str, Any]]] = []
    for workload, case in judged.workloads:
        verdict, record = case.verdict, case.record
        own = {"decision": verdict.decision, "reading": verdict.reading, "limit": verdict.limit, "case": case.case}
        found.append((workload, _find_status(verdict.decision, [record.outcome]), record.passes_own, facts | own))
    if not found:
        outcomes = [word for part in judged.parts for word in part.outcomes]
        found.append((None, _find_status(judged.decision, outcomes), judged.own, facts))
    with path.open("a", encoding="utf-8") as file:
        for told in found:
            evaluation = {"status": told[1], "correctness": {"own_check": told[2]}, "gonogo": told[3]}
            line = {"definition": judged.problem, "solution": judged.solution, "workload": told[0]}
            file.write(json.dumps(line | {"evaluation": evaluation}) + "\n")


def _find_status(decision: str, outcomes: Sequence[str]) -> str:
    if decision != "no-go":
        return "PASSED"
    known = {
        "wrong-shape": "INCORRECT_SHAPE", "wrong-dtype": "INCORRECT_DTYPE", "raised": "RUNTIME_ERROR",
        "crashed": "RUNTIME_ERROR", "timed-out": "TIMEOUT", "out-of-memory": "RUNTIME_ERROR",
    }  # fmt: skip
    return next((status for word, status in known.items() if word in outcomes), "INCORRECT_NUMERICAL")
