"""gonogo evaluate: records → what every tolerance catches, and how often it cries wolf."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gonogo.cli._completion import complete_distributions, complete_dtypes, complete_holdout, complete_ops
from gonogo.cli._output import echo, note_all, print_json
from gonogo.cli._parse import PLACE, check_recorded, show_examples, words_option
from gonogo.cli._tables import View, fill, print_tables, table_options
from gonogo.errors import InputError
from gonogo.words import find_dtypes, find_words

if TYPE_CHECKING:
    from gonogo.evaluate import Evaluation
    from gonogo.records import StreamedRuns
    from gonogo.records.places import Place
    from gonogo.table import Table

EVALUATION_SCHEMA = 2
"""1 had shares as texts, and of drift a table."""


@click.command(
    short_help="What every tolerance catches, and how often it cries wolf.",
    epilog=show_examples(
        "gonogo evaluate records --op softmax --dtype float16",
        "gonogo evaluate records/h200-* --holdout shape",
        "gonogo evaluate --drift records/h200-1 records/h200-2 --fail-on drift",
    ),
)
@click.argument("runs", nargs=-1, type=PLACE)
@click.option(
    "--holdout",
    default="run",
    show_default=True,
    help="none, run, implementation, distribution, shape, op, device.",
    shell_complete=complete_holdout,
)
@words_option(
    "--op", "--ops", "ops", metavar="OP", help="Only these. Repeated, or with commas.", shell_complete=complete_ops
)
@words_option(
    "--dtype", "--dtypes", "dtypes", metavar="DTYPE", help="Only these, in the same way.",
    shell_complete=complete_dtypes,
)  # fmt: skip
@words_option(
    "--distribution", "--distributions", "distributions", metavar="NAME", shell_complete=complete_distributions,
    help="Only these distributions of values.",
)  # fmt: skip
@click.option("--every-method", is_flag=True, help="Every gauge with every rule.")
@click.option(
    "--tables",
    is_flag=True,
    help="Recall by bin and the paper's tables too: headline, tightening, recall per kernel, curve.",
)
@click.option(
    "--sweep", is_flag=True, help="Safety factors, percentiles and margins: false positives against recall."
)
@click.option("--drift", nargs=2, type=PLACE, help="Two sets of runs: do the limits of the first hold?")
@click.option(
    "--fail-on", type=click.Choice(["drift"]), help="With --drift: exit code 1 where some limit does not hold."
)
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def evaluate(
    runs: tuple[Place, ...],
    holdout: str,
    ops: tuple[str, ...],
    dtypes: tuple[str, ...],
    distributions: tuple[str, ...],
    every_method: bool,
    tables: bool,
    sweep: bool,
    drift: tuple[Place, Place] | None,
    fail_on: str | None,
    view: View,
    as_json: bool,
) -> None:
    """Score gonogo's limits, the paper's rule and the field's policies on RUNS, folders of runs, or sketches."""
    from gonogo.evaluate.folds import HOLDOUTS
    from gonogo.evaluate.score import default_methods, list_needed
    from gonogo.evaluate.sketched import open_sketches
    from gonogo.records import find_runs, open_runs
    from gonogo.records.columns import EVERYTHING

    def load(paths: tuple[Place, ...]) -> StreamedRuns:
        needed = list_needed(default_methods(holdout), holdout, beside_controls=tables)
        wanted = set(EVERYTHING) - {"number"} | needed if every_method or sweep else needed
        source = open_runs(paths, wanted=wanted)
        note_all(source.incomplete)
        asked = {"op": ops, "dtype": dtypes, "distribution": distributions}
        if any(asked.values()):
            known = source.survey()
            for name, words in asked.items():
                check_recorded(name, words, known[name])
            source.keep_only(**asked)
        return source

    find_words("hold-out", holdout, HOLDOUTS)
    if drift and str(drift[1]).startswith("--"):
        raise InputError(f"--drift takes two sets of runs, BEFORE and AFTER; after {drift[0]} comes {drift[1]}")
    dtypes = find_dtypes(dtypes) if dtypes else ()
    if fail_on and not drift:
        raise InputError("--fail-on drift goes with --drift BEFORE AFTER")
    if drift and runs:
        raise InputError(f"--drift compares two sets of runs, and takes no third: leave out {runs[0]}")
    if drift and (tables or sweep or every_method):
        raise InputError("--drift has a table of its own: leave out --tables, --sweep and --every-method")
    sketched = open_sketches(runs)
    if sketched is not None:
        if ops or dtypes or distributions or every_method or tables or sweep or holdout != "run":
            raise InputError(
                "a sketch is evaluated held out by folds of runs, and as a whole: leave out --holdout, --op, "
                "--dtype, --distribution, --every-method, --tables and --sweep, or name runs"
            )
        _print_evaluation(sketched.evaluate(), [], view, as_json)
        return
    find_runs([*runs, *(drift or ())])  # all of them, before any is read
    if drift:
        _print_drift(load((drift[0],)), load((drift[1],)), fail_on is not None, view, as_json)
        return
    if not runs:
        raise InputError("no runs given. Example: gonogo evaluate records")
    _print_scores(load(runs), holdout, every_method, tables, sweep, view, as_json)


def _print_scores(
    source: StreamedRuns, holdout: str, every_method: bool, tables: bool, sweep: bool, view: View, as_json: bool
) -> None:
    from gonogo.evaluate import evaluate_by, make_non_finite_table, train_judge
    from gonogo.evaluate.paper_tables import TELLS_APART, make_curve, make_headline, make_recall, make_tightening
    from gonogo.evaluate.score import USUAL
    from gonogo.evaluate.sweep import make_sweep

    judge = train_judge(source, holdout, every_method=every_method)
    evaluation = evaluate_by(source, judge, TELLS_APART if tables else USUAL)
    scores = {method_score.name: method_score for method_score in evaluation.scores}
    more: list[Table] = []
    if tables:
        more += [
            evaluation.to_recall_table(),
            make_headline(source),
            make_tightening(source),
            make_recall(scores, judge.gathered.cells),
            make_curve(scores),
            make_non_finite_table(source),
        ]
    if sweep:
        more.append(make_sweep(source, holdout))
    _print_evaluation(evaluation, more, view, as_json)


def _print_evaluation(evaluation: Evaluation, more: list[Table], view: View, as_json: bool) -> None:
    if as_json:
        extra = {"tables": {table.title: table.to_dicts() for table in more}} if more else {}
        print_json(evaluation.to_dict() | {"schema": EVALUATION_SCHEMA} | extra)
    else:
        own = evaluation.to_tables()
        # A program that reads CSV expects one table: the others are asked for by name.
        print_tables([*(own[:1] if view.form == "csv" and not more else own), *more], view)


def _print_drift(before: StreamedRuns, after: StreamedRuns, fails: bool, view: View, as_json: bool) -> None:
    from gonogo.evaluate.drift import find_drift, gather_for_drift, list_ops, make_drift_table
    from gonogo.evaluate.score import default_methods

    method = default_methods()[0]
    sides = tuple(gather_for_drift(source, method) for source in (before, after))
    drifts = find_drift(sides[0], sides[1], method)
    if not drifts:
        raise InputError("the two sets of runs have no op and contract with readings of controls in common")
    broken = sum(not drift.holds for drift in drifts)
    ops = [list_ops(side, method) for side in sides]
    alone = [sorted(ops[0] - ops[1]), sorted(ops[1] - ops[0])]
    if as_json:
        print_json({
            "schema": EVALUATION_SCHEMA, "gauge": method.gauge, "rule": method.rule.name, "groups": len(drifts),
            "not_holding": broken, "only_before": alone[0], "only_after": alone[1],
            "drift": [asdict(drift) | {"holds": drift.holds} for drift in drifts],
        })  # fmt: skip
    else:
        print_tables([make_drift_table(drifts, method.gauge)], view)
        echo(f"{broken} of {len(drifts)} limits do not hold")
        for where, missing in zip(("BEFORE", "AFTER"), alone, strict=True):
            if missing:
                echo(fill(f"only {where} has {', '.join(missing)}: nothing is said of that", indent="  "))
    sys.exit(1 if fails and broken else 0)
