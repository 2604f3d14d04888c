"""gonogo run: options → a campaign → a run directory."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from gonogo.cases import EXACT, FINITE, NON_FINITE, STRATEGIES
from gonogo.cli._completion import (
    DEVICES,
    complete_device,
    complete_distributions,
    complete_dtypes,
    complete_op,
    complete_strategies,
)
from gonogo.cli._parse import need_backend, prepare_folder, show_examples, split_words
from gonogo.cli._tables import print_json
from gonogo.errors import InputError
from gonogo.ops import DTYPES, add_folder, op_names
from gonogo.words import find_dtypes, find_op, find_words

if TYPE_CHECKING:
    from gonogo.campaign import Progress

PLAIN_EVERY_S = 10.0
EVERYTHING = (*FINITE, EXACT, *NON_FINITE)
WITH_RESUME = ("out", "resume", "workers", "timeout_s", "memory_gb", "ops_path", "as_json")
"""Options that are no part of a plan."""


@click.command(
    epilog=show_examples(
        "gonogo run softmax rmsnorm --cases 100 --seed 1 --out runs/one", "gonogo run --resume --out runs/one"
    )
)
@click.argument("ops", nargs=-1, shell_complete=complete_op)
@click.option(
    "--dtypes",
    default=",".join(DTYPES),
    show_default=True,
    help="Comma-separated.",
    shell_complete=complete_dtypes,
)
@click.option("--cases", default=48, show_default=True, help="Cases per op and dtype.")
@click.option(
    "--faulty-every", default=1, show_default=True, help="Faulty kernels on one case in so many, controls on all."
)
@click.option("--seed", default=0, show_default=True, help="Another seed is another set of cases.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda.", shell_complete=complete_device
)
@click.option(
    "--distributions",
    default=",".join(EVERYTHING),
    show_default=True,
    help="Of values. Comma-separated.",
    shell_complete=complete_distributions,
)
@click.option(
    "--strategies",
    default=",".join(STRATEGIES),
    show_default=True,
    help="Of shapes. Comma-separated.",
    shell_complete=complete_strategies,
)
@click.option("--out", type=click.Path(path_type=Path), help="Run directory; runs/DEVICE-SEED by default.")
@click.option("--resume", is_flag=True, help="Complete the run in --out; its own plan is used.")
@click.option(
    "--quick", is_flag=True, help="Two cases per op and dtype: everything once, in about 20 s on two cores."
)
@click.option("--workers", type=click.IntRange(1), help="Processes; by default one per core.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds per kernel and case.",
)
@click.option(
    "--memory-gb",
    type=click.FloatRange(0, min_open=True),
    default=8.0,
    show_default=True,
    help="Resident memory of a worker.",
)
@click.option("--ops-path", multiple=True, type=click.Path(path_type=Path), help="Folder with more ops.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
@click.pass_context
def run(
    context: click.Context,
    /,
    *,
    out: Path | None,
    resume: bool,
    workers: int | None,
    timeout_s: float,
    memory_gb: float,
    ops_path: tuple[Path, ...],
    as_json: bool,
    **plan_options: Any,
) -> None:
    """Run kernels of OPS (all by default) on the same cases, isolated, and record what they do."""
    folders = tuple(str(folder.resolve()) for folder in ops_path)
    if resume:
        folder = _find_run(context, out)
    else:
        fields = _find_fields(folders, **plan_options)
    with need_backend("gonogo run"):  # what takes seconds to import comes behind what may be mistyped
        from gonogo.campaign import Allowance, Plan, resume_campaign, run_campaign
        from gonogo.runners.device import find_device
    reporter = Reporter(sys.stderr.isatty())
    started = time.monotonic()
    allowance = Allowance(timeout_s, memory_gb * 2**30)
    if resume:
        start = partial(resume_campaign, folder, ops_folders=folders)
    else:
        plan = Plan(**fields | {"device": find_device(fields["device"])})
        folder = out or Path("runs") / f"{plan.device}-{plan.seed}"
        prepare_folder(folder)
        start = partial(run_campaign, plan, folder)
    try:
        with reporter:
            progress = start(allowance=allowance, workers=workers, report=reporter.report)
    except KeyboardInterrupt:
        click.echo(f"interrupted: what is done is kept. Go on: gonogo run --resume --out {folder}", err=True)
        sys.exit(130)
    _print_summary(folder, progress, time.monotonic() - started, as_json=as_json)


def _find_fields(
    folders: tuple[str, ...],
    *,
    ops: tuple[str, ...],
    dtypes: str,
    cases: int,
    device: str,
    distributions: str,
    strategies: str,
    quick: bool,
    **numbers: int,
) -> dict[str, Any]:
    """The fields of a plan; every word among them is known."""
    for folder in folders:
        add_folder(Path(folder))
    return numbers | {
        "ops": tuple(find_op(name).name for name in ops) or op_names(),
        "dtypes": find_dtypes(split_words(dtypes)),
        "cases": 2 if quick else cases,
        "device": find_words("device", device, DEVICES)[0],
        "distributions": find_words("distribution", split_words(distributions), EVERYTHING),
        "strategies": find_words("strategy", split_words(strategies), STRATEGIES),
        "ops_folders": folders,
    }


def _find_run(context: click.Context, out: Path | None) -> Path:
    """The run to resume. Its plan is its own: what would make another is refused."""
    from gonogo.records import read_description

    if out is None:
        raise InputError("--resume needs --out with the run directory to complete")
    overrides = [
        parameter.opts[0] if isinstance(parameter, click.Option) else "OPS"
        for parameter in context.command.params
        if parameter.name not in WITH_RESUME
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        and context.params[str(parameter.name)] != ()
    ]
    if overrides:
        raise InputError(f"--resume goes by the plan in {out / 'run.json'}; leave out {', '.join(overrides)}")
    read_description(out)  # says what is no run, before anything is imported
    return out


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
        print_json({
            "schema": 1, "run": str(folder), "records": progress.rows, "planned": progress.total,
            "seconds": round(seconds, 3), "records_per_second": round(made / seconds, 1),
            "outcomes": dict(sorted(progress.outcomes.items())),
        })  # fmt: skip
        return
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(progress.outcomes.items()))
    now = f"{made} made now in {seconds:.0f} s: {outcomes}" if made else "nothing was left to do"
    click.echo(f"{progress.rows} of {progress.total} records in {folder}; {now}")
