"""Plan → isolated workers → records in a run directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.campaign.environment import describe_environment
from gonogo.campaign.plan import Plan
from gonogo.campaign.pool import Limits, Pool
from gonogo.errors import InputError
from gonogo.records import RunDirectory, read_description, read_done

__all__ = [
    "Limits", "Plan", "Progress", "find_device", "keep_switches", "resume_campaign", "run_campaign", "set_switches",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a campaign is."""

    rows: int
    total: int
    outcomes: dict[str, int]
    """How often each outcome was seen in this session of it."""


Report = Callable[[Progress], None]


def find_device(name: str) -> str:
    """`auto` → cuda where there is a GPU, else cpu; anything else is checked."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"unknown device {name!r}; known: auto, cpu, cuda")
    if name == "cpu":
        return name
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if name == "cuda":
        raise InputError("device cuda: torch sees no CUDA device on this machine")
    return "cpu"


def run_campaign(
    plan: Plan,
    folder: Path,
    *,
    limits: Limits | None = None,
    workers: int | None = None,
    report: Report | None = None,
) -> Progress:
    """Run a plan from the start into a new run directory."""
    if (folder / "run.json").exists():
        raise InputError(f"{folder} already holds a run; go on with it by --resume, or choose another directory")
    with keep_switches(plan.device):
        description = {"environment": describe_environment(plan.device)}
        return _run(plan, folder, description, {}, limits or Limits(), workers, report)


def resume_campaign(
    folder: Path,
    *,
    limits: Limits | None = None,
    workers: int | None = None,
    report: Report | None = None,
    ops_folders: Sequence[str] = (),
) -> Progress:
    """Complete the plan of a run that was cut off; `ops_folders` if folders of its own ops have moved."""
    description = read_description(folder)
    plan = _read_plan(description, folder, ops_folders)
    find_device(plan.device)
    with keep_switches(plan.device):
        description["resumed"] = [*description.get("resumed", []), describe_environment(plan.device)]
        return _run(plan, folder, description, read_done(folder), limits or Limits(), workers, report)


def _read_plan(description: dict[str, Any], folder: Path, ops_folders: Sequence[str]) -> Plan:
    fields = description.get("plan")
    if not isinstance(fields, dict):
        raise InputError(f"{folder / 'run.json'} has no plan: the run cannot be completed")
    if ops_folders:
        there = [known for known in fields.get("ops_folders", []) if Path(known).is_dir()]
        fields = fields | {"ops_folders": [*there, *ops_folders]}
    return Plan.from_dict(fields)


def _run(
    plan: Plan,
    folder: Path,
    description: dict[str, Any],
    done: dict[tuple[int, str], str],
    limits: Limits,
    workers: int | None,
    report: Report | None,
) -> Progress:
    description = description | {"plan": plan.to_dict()}
    try:
        directory = RunDirectory(folder, description)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from None
    total, rows_done, outcomes = plan.count_rows(), len(done), dict[str, int]()
    pool = Pool(workers or count_workers(plan.device), limits, plan.ops_folders)
    progress = Progress(rows_done, total, outcomes)
    try:
        for rows in pool.run(plan.jobs(done)):
            directory.append(rows)
            rows_done += len(rows)
            for row in rows:
                outcomes[row["outcome"]] = outcomes.get(row["outcome"], 0) + 1
            progress = Progress(rows_done, total, outcomes)
            if report is not None:
                report(progress)
    finally:
        pool.close()
        directory.close()
    return progress


def set_switches(device: str) -> None:
    """Triton's, for good: read when a kernel is decorated, they must stand before any is imported.

    For processes of our own. Where a user's kernels are imported, the switches are the user's: a kernel decorated
    during a call of gonogo must be no other than one decorated before it.
    """
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # its default changes between versions


@contextmanager
def keep_switches(device: str) -> Iterator[None]:
    """Inside, the switches are set, for workers are given them as they stand; afterwards all is as it was."""
    names = ("TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION")
    before = {name: os.environ.get(name) for name in names}
    set_switches(device)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def count_workers(device: str) -> int:
    """All cores; on a GPU machine one is left for the campaign itself."""
    cores = os.cpu_count() or 1
    return cores if device == "cpu" else max(cores - 1, 1)
