"""gonogo run: options → a campaign → a run directory."""

from __future__ import annotations

import shlex
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gonogo.cases import EXACT, FINITE, NON_FINITE, STRATEGIES
from gonogo.cli._completion import (
    DEVICES,
    complete_device,
    complete_distributions,
    complete_dtypes,
    complete_engine,
    complete_op,
    complete_ops,
    complete_strategies,
)
from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import FILE, PLACE, Interrupted, need_backend, prepare_folder, show_examples, words_option
from gonogo.cli._progress import Reporter, report_records
from gonogo.errors import CampaignFailed, InputError
from gonogo.ops import DTYPES, add_folder, op_names
from gonogo.words import find_dtypes, find_op, find_words

if TYPE_CHECKING:
    from gonogo.campaign import Plan, Progress
    from gonogo.records.places import Place
    from gonogo.runners.engines import Engine

EVERYTHING = (*FINITE, EXACT, *NON_FINITE)
WITH_RESUME = (
    "out", "resume", "workers", "timeout_s", "memory_gb", "share_gpu", "ops_path", "as_json", "engine_name",
    "address", "per_device_kind",
)  # fmt: skip
"""Options that are no part of a plan."""
AGAIN = ("workers", "timeout_s", "memory_gb", "share_gpu", "engine_name", "address", "per_device_kind")
"""Of these, what is said again as it was when a campaign goes on."""


@click.command(
    short_help="Run ops' own kernels on many cases, and record them.",
    epilog=show_examples(
        "gonogo run softmax rmsnorm --cases 100 --seed 1 --out runs/one",
        "gonogo run --resume --out runs/one",
        "gonogo run --engine ray --address 10.0.0.1:6379 --per-device-kind --out runs/all",
    ),
)
@click.argument("ops", nargs=-1, shell_complete=complete_op)
@words_option(
    "--op", "only_ops", metavar="OP", help="The same as OPS. Repeated, or with commas.", shell_complete=complete_ops
)
@words_option(
    "--dtype", "--dtypes", "dtypes", metavar="DTYPE", shell_complete=complete_dtypes,
    help="Only these; all three by default. Repeated, or with commas.",
)  # fmt: skip
@click.option("--cases", default=48, show_default=True, help="Cases per op and dtype.")
@click.option(
    "--faulty-every", default=1, show_default=True, help="Faulty kernels on one case in so many, controls on all."
)
@click.option("--seed", default=0, show_default=True, help="Another seed is another set of cases.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda.", shell_complete=complete_device
)
@words_option(
    "--distribution", "--distributions", "distributions", metavar="NAME", shell_complete=complete_distributions,
    help=f"Of values: {', '.join(EVERYTHING)}. All by default.",
)  # fmt: skip
@words_option(
    "--strategy", "--strategies", "strategies", metavar="NAME", shell_complete=complete_strategies,
    help=f"Of shapes: {', '.join(STRATEGIES)}. All by default.",
)  # fmt: skip
@click.option("--out", type=PLACE, help="Run directory; runs/DEVICE-SEED by default.")
@click.option(
    "--resume", is_flag=True, help="Complete the run in --out; its own plan is used, and --ops-path again."
)
@click.option(
    "--quick", is_flag=True, help="Two cases per op and dtype: everything once, in under a minute on two cores."
)
@click.option("--workers", type=click.IntRange(1), help="Processes; by default one per core.")
@click.option(
    "--engine", "engine_name", default="local", show_default=True, shell_complete=complete_engine,
    help="Where kernels run: local, this machine; ray, a Ray cluster.",
)  # fmt: skip
@click.option(
    "--address",
    help="Of the Ray cluster, as HOST:PORT; by default RAY_ADDRESS, else one is started on this machine.",
)
@click.option(
    "--per-device-kind", is_flag=True, help="The same cases on each kind of device, into --out/KIND, all at once."
)
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
@click.option(
    "--share-gpu/--no-share-gpu", default=True, show_default=True,
    help="Whether workers are at work on a GPU at the same time, by NVIDIA's MPS, where this machine has it.",
)  # fmt: skip
@click.option("--ops-path", multiple=True, type=FILE, help="Folder with more ops.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
@click.pass_context
def run(
    context: click.Context,
    /,
    *,
    out: Place | None,
    resume: bool,
    workers: int | None,
    timeout_s: float,
    memory_gb: float,
    share_gpu: bool,
    ops_path: tuple[Path, ...],
    as_json: bool,
    engine_name: str,
    address: str | None,
    per_device_kind: bool,
    **plan_options: Any,
) -> None:
    """Run kernels of OPS (all by default) on the same cases, isolated, and record what they do."""
    folders = tuple(str(folder.resolve()) for folder in ops_path)
    if resume:
        folder = _find_run(context, out, has_kinds=per_device_kind)
    else:
        fields = _find_fields(folders, **plan_options)
    with need_backend("gonogo run"):  # what takes seconds to import comes behind what may be mistyped
        from gonogo.campaign import Allowance, Plan
        from gonogo.runners.engines import open_engine
    started = time.monotonic()
    allowance = Allowance(timeout_s, memory_gb * 2**30, share_gpu)
    with closing(open_engine(engine_name, address)) as engine:
        plan = None if resume else Plan(**fields | {"device": engine.find_device(fields["device"])})
        if plan is not None:
            folder = out or Path("runs") / f"{plan.device}-{plan.seed}"
            prepare_folder(folder)
        reporter = Reporter()
        try:
            with reporter:
                progress = _run(
                    plan, folder, engine, per_device_kind=per_device_kind, ops_folders=folders, allowance=allowance,
                    workers=workers, report=partial(report_records, reporter),
                )  # fmt: skip
        except KeyboardInterrupt as interrupt:
            if resume or reporter.has_reported:
                lost = _list_notes(interrupt)
                but = f", but for {' and '.join(lost)}" if lost else ""
                again = _format_again(context, folder, folders)
                raise Interrupted(f"interrupted: what is done is kept{but}. Go on: {again}") from None
            raise Interrupted("interrupted before anything was recorded") from None
        except CampaignFailed as error:
            if error.says_rest or not (resume or reporter.has_reported):
                raise
            again = _format_again(context, folder, folders)
            problem = str(error).removesuffix(".")
            raise CampaignFailed(f"{problem}. What is recorded is kept. Go on: {again}", says_rest=True) from error
    seconds = time.monotonic() - started
    if per_device_kind:
        _print_summaries(progress, seconds, as_json=as_json)
    else:
        _print_summary(folder, progress[folder], seconds, as_json=as_json)


def _run(
    plan: Plan | None,
    folder: Place,
    engine: Engine,
    *,
    per_device_kind: bool,
    ops_folders: tuple[str, ...],
    **options: Any,
) -> dict[Place, Progress]:
    """Run a plan, or without one complete what is there; each run directory → how far it is."""
    from gonogo.campaign import resume_campaign, run_campaign, run_on_each_kind

    if per_device_kind:
        return run_on_each_kind(plan, folder, engine, ops_folders=ops_folders, **options)
    if plan is None:
        return {folder: resume_campaign(folder, ops_folders=ops_folders, engine=engine, **options)}
    return {folder: run_campaign(plan, folder, engine=engine, **options)}


def _list_notes(interrupt: BaseException | None) -> list[str]:
    """What was lost when Ctrl-C was pressed, and when it was pressed again."""
    if interrupt is None:
        return []
    return [*_list_notes(interrupt.__context__), *getattr(interrupt, "__notes__", ())]


def _format_again(context: click.Context, folder: Place, ops_folders: tuple[str, ...]) -> str:
    """The command that completes a campaign, with the options that are not in its plan."""
    words = ["gonogo", "run", "--resume", "--out", str(folder)]
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        if name not in AGAIN or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if value is True:
            words.append(parameter.opts[0])
        elif value is False:
            words.append(parameter.secondary_opts[0])
        else:
            words += [parameter.opts[0], f"{value:g}" if isinstance(value, float) else str(value)]
    words += [word for path in ops_folders for word in ("--ops-path", path)]
    return shlex.join(words)


def _find_fields(
    folders: tuple[str, ...],
    *,
    ops: tuple[str, ...],
    only_ops: tuple[str, ...],
    dtypes: tuple[str, ...],
    cases: int,
    device: str,
    distributions: tuple[str, ...],
    strategies: tuple[str, ...],
    quick: bool,
    **numbers: int,
) -> dict[str, Any]:
    """The fields of a plan; every word among them is known."""
    for folder in folders:
        add_folder(Path(folder))
    return numbers | {
        "ops": tuple(dict.fromkeys(find_op(name).name for name in (*ops, *only_ops))) or op_names(),
        "dtypes": find_dtypes(dtypes or DTYPES),
        "cases": 2 if quick else cases,
        "device": find_words("device", device, DEVICES)[0],
        "distributions": find_words("distribution", distributions or EVERYTHING, EVERYTHING),
        "strategies": find_words("strategy", strategies or STRATEGIES, STRATEGIES),
        "ops_folders": folders,
    }


def _find_run(context: click.Context, out: Place | None, *, has_kinds: bool) -> Place:
    """The run to resume. Its plan is its own: what would make another is refused."""
    from gonogo.records import find_begun, read_description
    from gonogo.records.description import format_resume

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
    if not has_kinds:
        try:
            read_description(out)  # says what is no run, before anything is imported
        except InputError as error:
            below = [] if isinstance(out, Path) and not out.is_dir() else find_begun(out)
            if not below:
                raise
            raise InputError(
                f"{out} is no run, and has {len(below)} below it, as of --per-device-kind. Add that, or complete "
                f"one: {format_resume(below[0])}"
            ) from error
    return out


def _print_summary(folder: Place, progress: Progress, seconds: float, *, as_json: bool) -> None:
    if as_json:
        print_json({"schema": SCHEMA} | _sum_up(folder, progress, seconds))
        return
    made = sum(progress.outcomes.values())
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(progress.outcomes.items()))
    now = f"{made} made now in {seconds:.0f} s: {outcomes}" if made else "nothing was left to do"
    echo(f"{progress.rows} of {progress.total} records in {folder}; {now}")


def _print_summaries(progress: dict[Place, Progress], seconds: float, *, as_json: bool) -> None:
    """One of each kind of device; their campaigns took turns, so that all took as long."""
    if as_json:
        runs = [_sum_up(folder, one, seconds) for folder, one in progress.items()]
        print_json({"schema": SCHEMA, "runs": runs})
        return
    for folder, one in progress.items():
        _print_summary(folder, one, seconds, as_json=False)


def _sum_up(folder: Place, progress: Progress, seconds: float) -> dict[str, Any]:
    made = sum(progress.outcomes.values())
    return {
        "run": str(folder), "records": progress.rows, "planned": progress.total,
        "seconds": round(seconds, 3), "records_per_second": round(made / seconds, 1),
        "outcomes": dict(sorted(progress.outcomes.items())),
    }  # fmt: skip
