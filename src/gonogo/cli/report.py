"""gonogo report: runs → one HTML file that says which tolerance each kernel justifies and what it catches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gonogo.cli._completion import complete_holdout
from gonogo.cli._output import SCHEMA, echo, note_all, print_json
from gonogo.cli._parse import FILE, PLACE, prepare_file, show_examples, write_to
from gonogo.words import find_words

if TYPE_CHECKING:
    from gonogo.records.places import Place


@click.command(
    short_help="Write a page to look at: one HTML file, offline.",
    epilog=show_examples(
        "gonogo report records -o report.html",
        "gonogo report runs/nightly-* --lock gonogo.lock -o nightly.html",
        "gonogo report --solutions verdicts.jsonl --atlas records/atlas/h200 -o benchmark.html",
    ),
)
@click.argument("runs", nargs=-1, type=PLACE)
@click.option("--lock", type=FILE, help="Draw these limits instead of what the runs justify.")
@click.option(
    "--holdout",
    default="",
    help="none, run, implementation, distribution, shape, op, device. By default run, or none of one run.",
    shell_complete=complete_holdout,
)
@click.option(
    "--solutions", multiple=True, type=FILE,
    help="Verdicts that gonogo check --problem --out has kept.",
)  # fmt: skip
@click.option("--atlas", multiple=True, type=PLACE, help="Records that gonogo atlas --record has made.")
@click.option("--title", default="gonogo report", show_default=True, help="What stands on top.")
@click.option(
    "-o",
    "--out",
    type=FILE,
    default="report.html",
    show_default=True,
    help="Where it goes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def report(
    runs: tuple[Place, ...],
    lock: Path | None,
    holdout: str,
    solutions: tuple[Path, ...],
    atlas: tuple[Place, ...],
    title: str,
    out: Path,
    as_json: bool,
) -> None:
    """Write what RUNS, or folders of runs, show to one HTML file that opens anywhere and asks for nothing else."""
    from gonogo.evaluate.folds import HOLDOUTS
    from gonogo.report import collect_report
    from gonogo.report.page import make_page

    if holdout:
        find_words("hold-out", holdout, HOLDOUTS)
    prepare_file(out)
    data = collect_report(runs, lock=lock, holdout=holdout, solutions=solutions, atlas=atlas)
    page = make_page(data, title)
    with write_to(out):
        out.write_text(page, encoding="utf-8")
    size = out.stat().st_size
    note_all(data.get("records", {}).get("incomplete", []))
    if as_json:
        records = data.get("records", {})
        evaluation = records.get("evaluation", {})
        print_json({
            "schema": SCHEMA, "out": str(out), "bytes": size, "told": data["subtitle"],
            "records": evaluation.get("records", 0), "holdout": evaluation.get("holdout"),
            "merged": records.get("merged", []),
        })  # fmt: skip
    else:
        echo(f"{out}: {size / 1e6:.1f} MB. Open it in a browser", aside=True)
