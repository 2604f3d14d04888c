"""Plan → isolated workers → records in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.campaign.plan import Plan
from gonogo.errors import InputError
from gonogo.records import RunDirectory, lock_folder, read_description, read_done
from gonogo.runners.device import count_workers, find_device, keep_switches
from gonogo.runners.environment import describe_environment
from gonogo.runners.pool import Allowance, Pool

__all__ = ["Allowance", "Plan", "Progress", "resume_campaign", "run_campaign"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a campaign is."""

    rows: int
    total: int
    outcomes: dict[str, int]
    """How often each outcome was seen in this session of it."""


Report = Callable[[Progress], None]


def run_campaign(
    plan: Plan,
    folder: Path,
    *,
    allowance: Allowance | None = None,
    workers: int | None = None,
    report: Report | None = None,
) -> Progress:
    """Run a plan from the start into a new run directory."""
    with lock_folder(folder), keep_switches(plan.device):
        if (folder / "run.json").exists():
            raise InputError(
                f"{folder} already holds a run; go on with it by --resume, or choose another directory"
            )
        description = {"environment": describe_environment(plan.device)}
        return _run(plan, folder, description, {}, allowance or Allowance(), workers, report)


def resume_campaign(
    folder: Path,
    *,
    allowance: Allowance | None = None,
    workers: int | None = None,
    report: Report | None = None,
    ops_folders: Sequence[str] = (),
) -> Progress:
    """Complete the plan of a run that was cut off; `ops_folders` again, if it had ops of its own."""
    read_description(folder)  # says what is no run, before a lock is laid there
    with lock_folder(folder):
        description = read_description(folder)
        plan = _read_plan(description, folder, ops_folders)
        find_device(plan.device)
        with keep_switches(plan.device):
            description["resumed"] = [*(description.get("resumed") or []), describe_environment(plan.device)]
            return _run(plan, folder, description, read_done(folder), allowance or Allowance(), workers, report)


def _read_plan(description: dict[str, Any], folder: Path, ops_folders: Sequence[str]) -> Plan:
    fields = description.get("plan")
    if not isinstance(fields, dict):
        raise InputError(f"{folder / 'run.json'} has no plan: the run cannot be completed")
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


def _run(
    plan: Plan,
    folder: Path,
    description: dict[str, Any],
    done: dict[tuple[int, str], str],
    allowance: Allowance,
    workers: int | None,
    report: Report | None,
) -> Progress:
    description = description | {"plan": plan.to_dict()}
    try:
        directory = RunDirectory(folder, description)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    total, rows_done, outcomes = plan.count_rows(), len(done), dict[str, int]()
    pool = Pool(workers or count_workers(plan.device), allowance)
    progress = Progress(rows_done, total, outcomes)
    try:
        for records in pool.run(plan.jobs(done)):
            directory.append(records)
            rows_done += len(records)
            for record in records:
                outcomes[record.outcome] = outcomes.get(record.outcome, 0) + 1
            progress = Progress(rows_done, total, outcomes)
            if report is not None:
                report(progress)
    finally:
        pool.close()
        directory.close()
    return progress
