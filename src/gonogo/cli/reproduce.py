"""gonogo reproduce: the paper end to end: run, calibrate, evaluate, and its figures beside this machine's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gonogo.cli._completion import DEVICES, complete_device
from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import FILE, PLACE, need_backend, prepare_folder, show_examples, write_to
from gonogo.cli._progress import Reporter, report_records
from gonogo.cli._tables import View, print_tables, table_options
from gonogo.words import find_words

if TYPE_CHECKING:
    from gonogo.campaign import Plan
    from gonogo.records.places import Place


@click.command(
    short_help="The paper end to end: run, calibrate, evaluate.",
    epilog=show_examples(
        "gonogo reproduce --device cpu --cases 3", "gonogo reproduce --records records --out tables"
    ),
)
@click.option(
    "--records",
    multiple=True,
    type=PLACE,
    help="Use these runs; no kernel is run. Repeatable.",
)
@click.option("--out", type=FILE, default=Path("reproduction"), show_default=True)
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda.", shell_complete=complete_device
)
@click.option("--cases", default=3, show_default=True, help="Cases per op and dtype of each of the two runs.")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def reproduce(records: tuple[Place, ...], out: Path, device: str, cases: int, view: View, as_json: bool) -> None:
    """Run the corpus twice (or take --records), calibrate, evaluate held out, write tables, figure and limits."""
    from gonogo.evaluate.reproduction import reproduce_paper, write_reproduction
    from gonogo.records import find_distinct_runs, load_columns

    find_words("device", device, DEVICES)
    find_distinct_runs(records)
    plans = [] if records else _plan_twice(device, cases)  # what is missing is said before a folder is made
    prepare_folder(out)
    started = time.monotonic()
    paths: Sequence[Place] = records
    if plans:
        paths = _run_plans(plans, out)
        echo(f"ran the corpus in {time.monotonic() - started:.0f} s", aside=True)
    reproduction = reproduce_paper(load_columns(paths))
    with write_to(out):
        written = write_reproduction(reproduction, out)
    tables = [*reproduction.headlines, reproduction.summary]
    if as_json:
        print_json({
            "schema": SCHEMA, "out": str(out), "files": [path.name for path in written],
            "records": reproduction.records, "runs": list(reproduction.runs),
            "tables": {table.title: table.to_dicts() for table in tables},
        })  # fmt: skip
        return
    print_tables(tables, view)
    echo(f"{len(written)} files in {out}: {', '.join(path.name for path in written)}")
    if not any(path.suffix == ".svg" for path in written):
        echo("figure 1 is left out: it needs matplotlib. Run: pip install 'gonogo[report]'", aside=True)


def _plan_twice(device: str, cases: int) -> list[Plan]:
    """Two runs, so that one can be held out."""
    with need_backend("gonogo reproduce without --records"):
        from gonogo.campaign import Plan
        from gonogo.runners.device import find_device
    from gonogo.ops import op_names

    return [Plan(ops=op_names(), cases=cases, seed=seed, device=find_device(device)) for seed in (1, 2)]


def _run_plans(plans: list[Plan], out: Path) -> list[Path]:
    from gonogo.campaign import run_campaign

    folders = []
    stamp = int(time.time())
    for number, plan in enumerate(plans, 1):
        folder = out / "runs" / f"{stamp}-{plan.device}-{plan.seed}"
        echo(f"run {number} of {len(plans)}: every kernel, into {folder}", aside=True)
        with Reporter() as reporter:
            run_campaign(plan, folder, report=partial(report_records, reporter))
        folders.append(folder)
    return folders
