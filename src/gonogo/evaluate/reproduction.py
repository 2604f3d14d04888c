"""Columns → everything the paper reports and its follow-ups, as tables, a figure and a lock file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gonogo._version import __version__
from gonogo.errors import BackendMissing, InputError, NoSuchHoldout
from gonogo.evaluate import evaluate_by, filter_columns, make_non_finite_table, train_judge
from gonogo.evaluate.figure import Cell, draw_tightening
from gonogo.evaluate.folds import HOLDOUTS
from gonogo.evaluate.paper_tables import (
    TELLS_APART,
    find_tightening,
    make_curve,
    make_headline,
    make_recall,
    make_tightening,
)
from gonogo.evaluate.score import calibrate_with_universal, default_methods
from gonogo.evaluate.sweep import make_sweep
from gonogo.limits import Limit
from gonogo.limits.lock import write_lock
from gonogo.records import Columns
from gonogo.table import Table


@dataclass(frozen=True)
class Reproduction:
    """All tables, the cells of Figure 1 and the default limits."""

    machine: str
    records: int
    runs: tuple[str, ...]
    headlines: Sequence[Table]
    """The paper's Table 1: on uniform values as in the paper, and on all finite distributions."""
    summary: Table
    """Ours, the paper's rule and the field's policies, held out."""
    evaluations: Sequence[Table]
    """One per hold-out, held out by run first; the last is in-sample."""
    tables: Sequence[Table]
    cells: Sequence[Cell]
    limits: Sequence[Limit]


def reproduce_paper(columns: Columns) -> Reproduction:
    """Calibrate and evaluate in every way."""
    uniform = filter_columns(columns, distribution="uniform")
    headlines = []
    for name, some in (("uniform values, as in the paper", uniform), ("all finite distributions", columns)):
        headlines.append(replace(make_headline(some), title=f"Headline, {name}"))
    evaluations = []
    scores, cells, summary, recall_by_bin = None, None, None, None
    for holdout in (*HOLDOUTS[1:], HOLDOUTS[0]):
        try:
            judge = train_judge(columns, holdout, every_method=holdout in ("run", "none"))
            evaluation = evaluate_by(columns, judge, TELLS_APART)
        except NoSuchHoldout:  # one run, or one device: that hold-out does not exist here
            continue
        evaluations += evaluation.to_tables()
        named = [score for score in evaluation.scores if "×" not in score.name]
        summary = summary or replace(evaluation, scores=tuple(named)).to_table()
        recall_by_bin = recall_by_bin or evaluation.to_recall_table()
        cells = cells or judge.gathered.cells
        scores = scores or {score.name: score for score in evaluation.scores}
    assert scores is not None  # in-sample always exists
    assert cells is not None
    assert summary is not None
    assert recall_by_bin is not None
    tables = [
        replace(make_tightening(uniform), title="Tightening per control and dtype, uniform values"),
        recall_by_bin,
        make_recall(scores, cells),
        make_curve(scores),
        make_non_finite_table(columns),
        make_sweep(columns, "run" if len(columns.runs) > 1 else "none"),
    ]
    return Reproduction(
        machine=", ".join(sorted(set(columns.devices))),
        records=len(columns),
        runs=tuple(columns.runs),
        headlines=headlines,
        summary=summary,
        evaluations=evaluations,
        tables=tables,
        cells=[cell for cell, _ in find_tightening(uniform)],
        limits=[limit for limit in calibrate_with_universal(columns, default_methods()[0]) if not limit.is_vacuous],
    )


def write_reproduction(found: Reproduction, folder: Path) -> list[Path]:
    """Markdown, CSV, Figure 1 and the lock file; the figure is left out where matplotlib is not installed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    every = [*found.headlines, *found.evaluations, *found.tables]
    head = f"# Results\n\n{found.records:,} records of the runs {', '.join(found.runs)}, on {found.machine}.\n"
    written = [folder / "results.md"]
    written[0].write_text("\n".join([head, *(table.to_markdown() for table in every)]), encoding="utf-8")
    for table in every:
        name = "".join(c if c.isalnum() else "-" for c in table.title.lower()).replace("--", "-")
        written.append(folder / f"{name.strip('-')}.csv")
        written[-1].write_text(table.to_csv(), encoding="utf-8")
    provenance: dict[str, str | int] = {
        "gonogo": __version__, "devices": found.machine, "runs": ", ".join(found.runs), "records": found.records,
    }  # fmt: skip
    written.append(folder / "gonogo.lock")
    write_lock(written[-1], found.limits, provenance)
    with suppress(BackendMissing):
        written.extend(draw_tightening(found.cells, folder, machine=found.machine))
    return written
