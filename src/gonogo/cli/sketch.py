"""gonogo sketch: runs, or sketches of other runs → one sketch, to calibrate from and to evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gonogo.cli._output import SCHEMA, echo, note_all, print_json
from gonogo.cli._parse import FILE, PLACE, prepare_file, show_examples, write_to

if TYPE_CHECKING:
    from gonogo.records.places import Place


@click.command(
    short_help="Sum up runs by counts that can be added: for too many records.",
    epilog=show_examples(
        "gonogo sketch s3://ci/nightly-2026-11-17 -o 17.sketch",
        "gonogo sketch 16.sketch 17.sketch -o november.sketch",
    ),
)
@click.argument("runs", nargs=-1, required=True, type=PLACE)
@click.option("-o", "--out", type=FILE, required=True, help="Where the sketch goes: a name.sketch.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def sketch(runs: tuple[Place, ...], out: Path, as_json: bool) -> None:
    """Sum up RUNS, or sketches of runs, as one sketch: counts, the size of which records do not change.

    gonogo calibrate and gonogo evaluate take it for runs. Limits made from the largest reading are exact, and so is
    what every policy says; percentiles are at most 0.8 % too large.
    """
    from gonogo.errors import InputError
    from gonogo.evaluate.sketch import Sketch, read_sketches, split_sketches
    from gonogo.records import open_runs

    if out.suffix != ".sketch":
        raise InputError(f"{out}: the name of a sketch ends with .sketch, by which other commands know it")
    prepare_file(out)
    files, others = split_sketches(runs)
    sketches = read_sketches(files)
    if others:
        source = open_runs(others)
        note_all(source.incomplete)
        sketches.append(Sketch.make(source))
    made = sketches[0] if len(sketches) == 1 else Sketch.merge(sketches)
    with write_to(out):
        made.write(out)
    if as_json:
        names = [name for name, _ in made.runs.values()]
        print_json({"schema": SCHEMA, "out": str(out), "records": made.records, "runs": names,
                    "counts": made.table.num_rows, "bytes": out.stat().st_size})  # fmt: skip
    else:
        runs_of = f"{len(made.runs)} run{'s' * (len(made.runs) != 1)}"
        size = f"{out.stat().st_size / 1e6:.1f} MB"
        echo(f"{made.records:,} records of {runs_of} in {out}: {size}. Next: gonogo calibrate {out}")
