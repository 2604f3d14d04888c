"""Runs, verdicts or solutions → one HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gonogo.errors import InputError
from gonogo.limits.lock import read_lock
from gonogo.report.page import make_page

__all__ = ["make_report"]


def make_report(
    runs: Sequence[Path] = (),
    *,
    lock: Path | None = None,
    holdout: str = "",
    solutions: Sequence[Path] = (),
    atlas: Sequence[Path] = (),
    title: str = "gonogo report",
) -> str:
    """The page of some runs, and of verdicts on solutions and records of torch's ops, where these are given."""
    from gonogo.report.collect import collect
    from gonogo.report.extras import collect_atlas, collect_solutions

    if not (runs or solutions or atlas):
        raise InputError("nothing to report on. Example: gonogo report records -o report.html")
    limits = None if lock is None else read_lock(lock)[0]
    data: dict[str, object] = {}
    told = []
    if runs:
        records = collect(runs, holdout=holdout, limits=limits)
        data["records"] = records
        devices = ", ".join(records["names"]["device"])
        told.append(
            f"{records['evaluation']['records']:,} records of {len(records['runs'])} runs on {devices}; "
            f"{records['how']}" + (f"; limits of {lock.name}" if lock is not None else "")
        )
    if solutions:
        data["solutions"] = collect_solutions(solutions)
        told.append(f"{data['solutions']['count']:,} solutions")  # type: ignore[index]
    if atlas:
        data["atlas"] = collect_atlas(atlas)
        told.append("torch's own ops")
    return make_page({"subtitle": "; ".join(told)} | data, title)
