"""gonogo run: options → a campaign → a run directory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from gonogo.cases import DISTRIBUTIONS, EXACT, FINITE, NON_FINITE, STRATEGIES
from gonogo.errors import BackendMissing, InputError
from gonogo.ops import DTYPES, add_folder, op_names

if TYPE_CHECKING:
    from gonogo.campaign import Progress

PLAIN_EVERY_S = 10.0
EVERYTHING = (*FINITE, EXACT, *NON_FINITE)


@click.command(epilog="Example: gonogo run softmax rmsnorm --cases 100 --seed 1 --out runs/one")
@click.argument("ops", nargs=-1)
@click.option("--dtypes", default=",".join(DTYPES), show_default=True, help="Comma-separated.")
@click.option("--cases", default=48, show_default=True, help="Cases per op and dtype.")
@click.option(
    "--faulty-every", default=1, show_default=True, help="Faulty kernels on one case in so many, controls on all."
)
@click.option("--seed", default=0, show_default=True, help="Another seed is another set of cases.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--distributions", help=f"Comma-separated, of: {', '.join(DISTRIBUTIONS)}. All by default.")
@click.option("--strategies", default=",".join(STRATEGIES), show_default=True, help="Of shapes. Comma-separated.")
@click.option("--out", type=click.Path(path_type=Path), help="Run directory; runs/DEVICE-SEED by default.")
@click.option("--resume", is_flag=True, help="Complete the run in --out; its own plan is used.")
@click.option(
    "--quick", is_flag=True, help="Two cases per op and dtype: everything once, in two minutes on two cores."
)
@click.option("--workers", type=click.IntRange(1), help="Processes; by default one per core.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds per kernel and case.")
@click.option("--memory-gb", default=8.0, show_default=True, help="Resident memory of a worker.")
@click.option("--ops-path", multiple=True, type=click.Path(path_type=Path), help="Folder with more ops.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
def run(
    ops: tuple[str, ...],
    dtypes: str,
    cases: int,
    faulty_every: int,
    seed: int,
    device: str,
    distributions: str | None,
    strategies: str,
    out: Path | None,
    resume: bool,
    quick: bool,
    workers: int | None,
    timeout_s: float,
    memory_gb: float,
    ops_path: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Run kernels of OPS (all by default) on the same cases, isolated, and record what they do."""
    try:
        from gonogo.campaign import Limits, Plan, find_device, resume_campaign, run_campaign
    except ModuleNotFoundError as error:
        raise BackendMissing(str(error.name), "gonogo run") from None
    limits = Limits(timeout_s, int(memory_gb * 2**30))
    reporter = Reporter(sys.stderr.isatty())
    started = time.monotonic()
    if resume:
        if out is None:
            raise InputError("--resume needs --out with the run directory to complete")
        folder = out
    else:
        for extra in ops_path:
            add_folder(extra)
        plan = Plan(
            ops=ops or op_names(),
            dtypes=_split(dtypes),
            cases=2 if quick else cases,
            faulty_every=faulty_every,
            seed=seed,
            device=find_device(device),
            distributions=_split_known("distribution", distributions, DISTRIBUTIONS) or EVERYTHING,
            strategies=_split_known("strategy", strategies, STRATEGIES) or STRATEGIES,
            ops_folders=tuple(str(extra.resolve()) for extra in ops_path),
        )
        folder = out or Path("runs") / f"{plan.device}-{seed}"
    try:
        with reporter:
            if resume:
                progress = resume_campaign(folder, limits=limits, workers=workers, report=reporter.report)
            else:
                progress = run_campaign(plan, folder, limits=limits, workers=workers, report=reporter.report)
    except KeyboardInterrupt:
        click.echo(f"interrupted: what is done is kept. Go on: gonogo run --resume --out {folder}", err=True)
        sys.exit(130)
    _print_summary(folder, progress, time.monotonic() - started, as_json=as_json)


def _split(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _split_known(what: str, text: str | None, known: Collection[str]) -> tuple[str, ...]:
    names = _split(text or "")
    for name in names:
        if name not in known:
            raise InputError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return names


class Reporter:
    """A bar on a terminal, a line now and then elsewhere, on stderr both."""

    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal
        self._said = self._started = time.monotonic()
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}/s"), TimeRemainingColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), disable=not terminal)

    def __enter__(self) -> Reporter:
        self._bar.start()
        self._task = self._bar.add_task("records", total=None, rate="–")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def report(self, progress: Progress) -> None:
        """Take note of how far it is."""
        now = time.monotonic()
        rate = sum(progress.outcomes.values()) / max(now - self._started, 1e-9)
        self._bar.update(self._task, completed=progress.rows, total=progress.total, rate=f"{rate:.0f}")
        if not self.terminal and now - self._said > PLAIN_EVERY_S:
            self._said = now
            left_s = (progress.total - progress.rows) / max(rate, 1e-9)
            click.echo(f"{progress.rows}/{progress.total} records, {rate:.0f}/s, {left_s:.0f} s left", err=True)


def _print_summary(folder: Path, progress: Progress, seconds: float, *, as_json: bool) -> None:
    made = sum(progress.outcomes.values())
    if as_json:
        click.echo(json.dumps({
            "run": str(folder), "records": progress.rows, "planned": progress.total, "seconds": round(seconds, 3),
            "records_per_second": round(made / seconds, 1), "outcomes": dict(sorted(progress.outcomes.items())),
        }))  # fmt: skip
        return
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(progress.outcomes.items()))
    now = f"{made} made now in {seconds:.0f} s: {outcomes}" if made else "nothing was left to do"
    click.echo(f"{progress.rows} of {progress.total} records in {folder}; {now}")
