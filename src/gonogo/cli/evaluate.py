"""gonogo evaluate: records → what every tolerance catches, and how often it cries wolf."""

from __future__ import annotations

from pathlib import Path

import click

from gonogo.cli._completion import complete_distribution, complete_dtype, complete_holdout, complete_op
from gonogo.cli._parse import check_recorded, show_examples
from gonogo.cli._tables import print_json, print_tables
from gonogo.words import find_dtypes, find_words


@click.command(
    epilog=show_examples(
        "gonogo evaluate records --op softmax --dtype float16",
        "gonogo evaluate records/h200-* --holdout shape",
        "gonogo evaluate --drift records/h200-1 records/h200-2",
    )
)
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--holdout",
    default="run",
    show_default=True,
    help="none, run, implementation, distribution, shape, op, device.",
    shell_complete=complete_holdout,
)
@click.option("--op", default="", help="Only this op.", shell_complete=complete_op)
@click.option("--dtype", default="", help="Only this dtype.", shell_complete=complete_dtype)
@click.option(
    "--distribution", default="", help="Only this distribution of values.", shell_complete=complete_distribution
)
@click.option("--every-method", is_flag=True, help="Every gauge with every rule.")
@click.option(
    "--tables",
    is_flag=True,
    help="Recall by bin and the paper's tables too: headline, tightening, recall per kernel, curve.",
)
@click.option(
    "--sweep", is_flag=True, help="Safety factors, percentiles and margins: false positives against recall."
)
@click.option(
    "--drift", nargs=2, type=click.Path(path_type=Path), help="Two sets of runs: do the limits of the first hold?"
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def evaluate(
    runs: tuple[Path, ...],
    holdout: str,
    op: str,
    dtype: str,
    distribution: str,
    every_method: bool,
    tables: bool,
    sweep: bool,
    drift: tuple[Path, Path] | None,
    as_json: bool,
) -> None:
    """Score gonogo's limits, the paper's rule and the field's policies on RUNS, or folders of runs."""
    from gonogo.errors import InputError
    from gonogo.evaluate import Rows, filter_columns, make_non_finite_table
    from gonogo.evaluate import evaluate as score
    from gonogo.evaluate.drift import make_drift
    from gonogo.evaluate.folds import HOLDOUTS
    from gonogo.evaluate.paper_tables import make_curve, make_headline, make_recall, make_tightening
    from gonogo.evaluate.score import default_methods, list_needed
    from gonogo.evaluate.sweep import make_sweep
    from gonogo.records import find_runs, load_columns
    from gonogo.records.columns import EVERYTHING

    def load(paths: tuple[Path, ...]) -> Rows:
        needed = list_needed(default_methods(holdout), holdout, beside_controls=tables)
        wanted = set(EVERYTHING) - {"number"} | needed if every_method or sweep else needed
        columns = load_columns(paths, wanted=wanted)
        for name, word in (("op", op), ("dtype", dtype), ("distribution", distribution)):
            check_recorded(name, [word] if word else [], columns.names[name])
        return Rows(filter_columns(columns, op=op, dtype=dtype, distribution=distribution))

    find_words("hold-out", holdout, HOLDOUTS)
    dtype = find_dtypes(dtype)[0] if dtype else ""
    find_runs([*runs, *(drift or ())])  # all of them, before any is read
    if drift:
        all_tables = [make_drift(load((drift[0],)), load((drift[1],)), default_methods()[0])]
        result = {}
    else:
        if not runs:
            raise InputError("no runs given. Example: gonogo evaluate records")
        rows = load(runs)
        evaluation = score(rows.columns, holdout, every_method=every_method)
        all_tables, result = evaluation.to_tables(), evaluation.to_dict()
        scores = {method_score.name: method_score for method_score in evaluation.scores}
        if tables:
            all_tables += [
                evaluation.to_recall_table(),
                make_headline(rows),
                make_tightening(rows),
                make_recall(rows, scores),
                make_curve(rows, scores),
            ]
            all_tables.append(make_non_finite_table(rows))
        if sweep:
            all_tables.append(make_sweep(rows, holdout))
    if as_json:
        extra = {
            t.title: [dict(zip(t.columns, map(_plain, row), strict=True)) for row in t.rows]
            for t in (all_tables if drift else all_tables[len(evaluation.to_tables()) :])
        }
        print_json(result | ({"schema": 1, "tables": extra} if extra else {}))
        return
    print_tables(all_tables)


def _plain(cell: object) -> object:
    """A cell of a table as JSON holds it; a share of nothing is null."""
    from gonogo.evaluate.table import Share

    if isinstance(cell, Share) and not cell.whole:
        return None
    return cell if cell is None or isinstance(cell, int | float | str) else str(cell)
