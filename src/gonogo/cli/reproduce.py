"""gonogo reproduce: the paper end to end: run, calibrate, evaluate, and its figures beside this machine's."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from gonogo.choices import find_words
from gonogo.cli._completion import DEVICES, complete_device
from gonogo.cli._parse import need_backend, prepare_folder, show_examples, write_to
from gonogo.cli._tables import print_tables


@click.command(
    epilog=show_examples(
        "gonogo reproduce --device cpu --cases 3", "gonogo reproduce --records records --out tables"
    )
)
@click.option(
    "--records",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Use these runs; no kernel is run. Repeatable.",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("reproduction"), show_default=True)
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda.", shell_complete=complete_device
)
@click.option("--cases", default=3, show_default=True, help="Cases per op and dtype of each of the two runs.")
def reproduce(records: tuple[Path, ...], out: Path, device: str, cases: int) -> None:
    """Run the corpus twice (or take --records), calibrate, evaluate held out, write tables, figure and limits."""
    from gonogo.evaluate.reproduction import reproduce_paper, write_reproduction
    from gonogo.records import find_runs, load_columns

    find_words("device", device, DEVICES)
    find_runs(records)
    prepare_folder(out)
    started = time.monotonic()
    paths = list(records)
    if not paths:
        paths = _run_twice(out, device, cases)
        click.echo(f"ran the corpus in {time.monotonic() - started:.0f} s", err=True)
    reproduction = reproduce_paper(load_columns(paths))
    with write_to(out):
        written = write_reproduction(reproduction, out)
    print_tables([*reproduction.headlines, reproduction.summary])
    click.echo(f"{len(written)} files in {out}: {', '.join(path.name for path in written)}")


def _run_twice(out: Path, device: str, cases: int) -> list[Path]:
    """Two runs, so that one can be held out."""
    with need_backend("gonogo reproduce without --records"):
        from gonogo.campaign import Plan, find_device, run_campaign
    from gonogo.cli.run import Reporter
    from gonogo.ops import op_names

    folders = []
    stamp = int(time.time())
    for seed in (1, 2):
        plan = Plan(ops=op_names(), cases=cases, seed=seed, device=find_device(device))
        folder = out / "runs" / f"{stamp}-{plan.device}-{seed}"
        reporter = Reporter(sys.stderr.isatty())
        with reporter:
            run_campaign(plan, folder, report=reporter.report)
        folders.append(folder)
    return folders
