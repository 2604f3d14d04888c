"""Runs, verdicts or solutions → one HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.errors import InputError
from gonogo.limits.lock import read_lock

if TYPE_CHECKING:
    from gonogo.records.places import Place

__all__ = ["collect_report"]


def collect_report(
    runs: Sequence[Place] = (),
    *,
    lock: Path | None = None,
    holdout: str = "",
    solutions: Sequence[Path] = (),
    atlas: Sequence[Place] = (),
) -> dict[str, Any]:
    """What a page holds of some runs, of verdicts on solutions and of records of torch's ops, as given."""
    from gonogo.report.collect import collect
    from gonogo.report.extras import collect_atlas, collect_solutions

    if not (runs or solutions or atlas):
        raise InputError("nothing to report on. Example: gonogo report records -o report.html")
    if not runs and (lock is not None or holdout):
        raise InputError("--lock and --holdout are about runs: name some, as in: gonogo report records")
    limits = None if lock is None else read_lock(lock)[0]
    data: dict[str, Any] = {}
    told = []
    if runs:
        records = collect(runs, holdout=holdout, limits=limits)
        data["records"] = records
        devices = ", ".join(records["names"]["device"])
        told.append(
            f"{records['evaluation']['records']:,} records of {_count(len(records['runs']), 'run')} on {devices}; "
            f"{records['how']}" + (f"; drawn with the limits of {lock.name}" if lock is not None else "")
        )
    if solutions:
        data["solutions"] = collect_solutions(solutions)
        told.append(f"{data['solutions']['count']:,} solutions")
    if atlas:
        data["atlas"] = collect_atlas(atlas)
        told.append("torch's own ops")
    return {"subtitle": "; ".join(told)} | data


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
