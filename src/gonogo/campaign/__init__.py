"""Plan → an engine's isolated workers → records in a run directory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from gonogo.campaign.plan import Plan
from gonogo.errors import InputError
from gonogo.records import RunDirectory, find_begun, lock_folder, read_description, read_done
from gonogo.records.description import PLANNED, RUN_FILE, format_resume
from gonogo.records.places import Place, S3Place, parse_place
from gonogo.runners.device import keep_switches
from gonogo.runners.engines import Crew, Engine, Order, open_engine
from gonogo.runners.pool import Allowance
from gonogo.schema import name_device

__all__ = ["Allowance", "Plan", "Progress", "resume_campaign", "run_campaign", "run_on_each_kind"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a campaign is."""

    rows: int
    total: int
    outcomes: dict[str, int]
    """How often each outcome was seen in this session of it."""
    is_begun: bool = True
    """Whether its run is there, and can be resumed."""


UNBEGUN = Progress(0, 0, {}, is_begun=False)
Report = Callable[[Progress], None]
Steps = Generator[Progress, None, None]
"""A campaign that takes turns with others: how far it is, whenever something has come or nothing did."""


def run_campaign(
    plan: Plan,
    folder: str | Place,
    *,
    allowance: Allowance | None = None,
    workers: int | None = None,
    report: Report | None = None,
    engine: Engine | None = None,
) -> Progress:
    """Run a plan from the start into a new run directory, or s3://bucket/prefix; where no engine is given, here."""
    order = _make_order(plan, allowance, workers)
    campaign = _run_new(plan, parse_place(folder), engine or open_engine("local"), order)
    return _follow({"": campaign}, plan.device, report)[""]


def resume_campaign(
    folder: str | Place,
    *,
    allowance: Allowance | None = None,
    workers: int | None = None,
    report: Report | None = None,
    ops_folders: Sequence[str] = (),
    engine: Engine | None = None,
) -> Progress:
    """Complete the plan of a run that was cut off; `ops_folders` again, if it had ops of its own."""
    folder = parse_place(folder)
    plan = _read_plan(read_description(folder), folder, ops_folders)
    order = _make_order(plan, allowance, workers)
    campaign = _resume(plan, folder, engine or open_engine("local"), order)
    return _follow({"": campaign}, plan.device, report)[""]


def run_on_each_kind(
    plan: Plan | None,
    folder: Place,
    engine: Engine,
    *,
    allowance: Allowance | None = None,
    workers: int | None = None,
    report: Report | None = None,
    ops_folders: Sequence[str] = (),
) -> dict[Place, Progress]:
    """Run a plan on every kind of device of an engine at once, each into a run directory of its own below `folder`.

    Without a plan, complete the runs there; a kind that has none gets the plan of the others.
    """
    begun = {run.name: run for run in find_begun(folder)} if plan is None else {}
    if plan is None and not begun:
        raise InputError(f"{folder} has no run of any kind in it: there is nothing to resume")
    plans = {name: _read_plan(read_description(run), run, ops_folders) for name, run in begun.items()}
    plan = plan or next(iter(plans.values()))
    kinds = {_name_folder(kind): kind for kind in engine.list_kinds(plan.device)}
    if gone := [name for name in begun if name not in kinds]:
        raise InputError(
            f"{folder} has runs of {', '.join(gone)}, of which there is no node now; there are "
            f"{', '.join(kinds) or 'none'}. Bring such a node back, or move these runs elsewhere and complete "
            "each by itself, on such a machine"
        )
    if len(kinds) < len(engine.list_kinds(plan.device)):
        raise InputError(f"kinds {', '.join(engine.list_kinds(plan.device))}: two of them would share a folder")
    campaigns = {}
    for name, kind in kinds.items():
        own = plans.get(name, plan)
        start = _resume if name in begun else _run_new
        campaigns[str(folder / name)] = start(
            own, folder / name, engine, _make_order(own, allowance, workers, kind)
        )
    return {parse_place(name): progress for name, progress in _follow(campaigns, plan.device, report).items()}


def _make_order(plan: Plan, allowance: Allowance | None, workers: int | None, kind: str | None = None) -> Order:
    return Order(plan.device, allowance or Allowance(), workers, plan.ops_folders, kind)


def _name_folder(kind: str) -> str:
    """A kind's name as that of a folder.

    >>> _name_folder("AMD EPYC/7B13 ..")
    'AMD-EPYC-7B13'
    """
    return re.sub(r"[^\w.+-]+", "-", kind).strip("-.") or "unnamed"


def _follow(campaigns: Mapping[str, Steps], device: str, report: Report | None) -> dict[str, Progress]:
    """Have campaigns take turns until all have ended; how far each came."""
    progress: dict[str, Progress] = {}
    running = dict(campaigns)
    with keep_switches(device), ExitStack() as stack:
        for campaign in campaigns.values():
            stack.enter_context(closing(campaign))
        try:
            while running:
                for name, campaign in list(running.items()):
                    step = next(campaign, None)
                    if step is None:
                        del running[name]
                        continue
                    last = progress.get(name, UNBEGUN)
                    is_news = (step.is_begun, step.outcomes) != (last.is_begun, last.outcomes)
                    progress[name] = step
                    if report is not None and is_news:
                        report(_add_up(progress))
        except KeyboardInterrupt as interrupt:
            with ExitStack() as ends:  # all of them, whatever one raises
                for campaign in running.values():
                    ends.callback(_interrupt, campaign, interrupt)
            raise
    return progress


def _interrupt(campaign: Steps, interrupt: KeyboardInterrupt) -> None:
    """End a campaign as if Ctrl-C had been pressed in its turn, which is one campaign's alone, or nobody's."""
    try:
        campaign.throw(interrupt)
    except KeyboardInterrupt as raised:
        if raised is not interrupt:  # pressed again
            raise


def _add_up(progress: Mapping[str, Progress]) -> Progress:
    """How far several campaigns are."""
    outcomes = sum((Counter(one.outcomes) for one in progress.values()), Counter[str]())
    rows, total = (sum(getattr(one, name) for one in progress.values()) for name in ("rows", "total"))
    return Progress(rows, total, dict(outcomes))


def _run_new(plan: Plan, folder: Place, engine: Engine, order: Order) -> Steps:
    with lock_folder(folder):
        if (folder / "run.json").exists():
            go_on = f"complete it, if it is not: {format_resume(folder)}"
            raise InputError(f"{folder} already holds a run. Choose another directory, or {go_on}")
        with closing(engine.hire(order)) as crew:
            start = Progress(0, plan.count_rows(), {})
            yield replace(start, is_begun=False)  # others may hire theirs meanwhile
            description = {"environment": crew.describe()}
            yield from _record(plan, folder, description, {}, crew, start)


def _resume(plan: Plan, folder: Place, engine: Engine, order: Order) -> Steps:
    read_description(folder)  # says what is no run, before a lock is laid there
    with lock_folder(folder):
        description, done = read_description(folder), read_done(folder)
        recorded = description.get("environment") or {}
        start = Progress(len(done), plan.count_rows(), {})
        engine.find_device(plan.device)
        if start.rows == start.total and isinstance(folder, S3Place) and (folder / RUN_FILE).exists():
            yield start  # it is closed, and nobody opens it again
            return
        if start.rows == start.total:  # killed as it ended, maybe: no worker is needed to end it
            with _open_directory(plan, folder, description, start.total):
                yield start
            return
        with closing(engine.hire(replace(order, kind=order.kind or recorded.get("kind")))) as crew:
            yield start
            environment = crew.describe()
            _check_kind(folder, recorded, environment)
            description["resumed"] = [*(description.get("resumed") or []), environment]
            yield from _record(plan, folder, description, done, crew, start)


def _check_kind(folder: Place, recorded: dict[str, Any], environment: dict[str, Any]) -> None:
    """Refuse to complete a run on other devices than it was begun on."""
    began, here = name_device(recorded), name_device(environment)
    if recorded and began != here:
        raise InputError(
            f"the run in {folder} was begun on {began}, and this is {here}: rows of two kinds would be one run. "
            "Start another; on a cluster that has both, by --per-device-kind"
        )


def _read_plan(description: dict[str, Any], folder: Place, ops_folders: Sequence[str]) -> Plan:
    fields = description.get("plan")
    if not isinstance(fields, dict):
        raise InputError(f"{folder / 'run.json'} has no plan: it is not of a campaign, and has all it will have")
    # Code is imported from folders of ops: a file of data does not decide from which.
    recorded = fields.get("ops_folders")
    if recorded and not ops_folders:
        named = ", ".join(map(str, recorded)) if isinstance(recorded, list) else recorded
        raise InputError(
            f"the run in {folder} had ops from {named}. "
            "Their code is run only from where you say: name each folder again by --ops-path"
        )
    try:
        return Plan.from_dict(fields | {"ops_folders": list(ops_folders)})
    except InputError as error:
        raise InputError(f"{folder / 'run.json'}: {error}") from None


def _record(
    plan: Plan,
    folder: Place,
    description: dict[str, Any],
    done: dict[tuple[int, str], str],
    crew: Crew,
    start: Progress,
) -> Steps:
    """Have a crew run what is not done, and keep it."""
    directory = _open_directory(plan, folder, description, start.total)
    rows_done, outcomes = start.rows, Counter[str]()
    with directory, closing(crew):  # no worker is left when the last part is written
        yield start
        for records in crew.run(plan.jobs(done)):
            if records:
                directory.append(records)
                rows_done += len(records)
                outcomes.update(record.outcome for record in records)
            yield Progress(rows_done, start.total, dict(outcomes))


def _open_directory(plan: Plan, folder: Place, description: dict[str, Any], total: int) -> RunDirectory:
    try:
        return RunDirectory(folder, description | {"plan": plan.to_dict(), PLANNED: total})
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
