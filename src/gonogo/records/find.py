"""Paths → the run directories at or right below them; on request none of whose rows would count twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gonogo.errors import InputError
from gonogo.records.parts import join_key, name_damage
from gonogo.records.run_directory import read_description, read_run
from gonogo.records.schema import KEY


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run directories among `paths`, or right below them."""
    folders: list[Path] = []
    for path in paths:
        with name_damage(path):
            below = sorted(entry.parent for entry in path.glob("*/run.json")) if path.is_dir() else []
            is_run = (path / "run.json").exists()
        if is_run:
            folders.append(path)
        elif below:
            folders.extend(below)
        else:
            read_description(path)  # says what is wrong
    return folders


def find_distinct_runs(paths: Sequence[Path]) -> list[Path]:
    """Run directories at or right below `paths`; refuse one given twice, and two that share rows of one machine.

    Rows that count twice make a limit look better proved than it is, and leave nothing held out.
    """
    folders = find_runs(paths)
    by_resolved: dict[Path, Path] = {}
    for folder in folders:
        resolved = folder.resolve()
        if resolved in by_resolved:
            also = "" if by_resolved[resolved] == folder else f", also as {by_resolved[resolved]}"
            raise InputError(f"run {folder} is given twice{also}: its rows would count twice. Name it once")
        by_resolved[resolved] = folder
    described = {folder: read_description(folder) for folder in folders}
    keys: dict[Path, pa.Array] = {}
    for pair in combinations(folders, 2):
        if not _may_share(*(described[folder] for folder in pair)):
            continue
        for folder in pair:
            if folder not in keys:
                keys[folder] = join_key(read_run(folder, KEY))
        shared = pc.sum(pc.is_in(keys[pair[0]], value_set=keys[pair[1]])).as_py()
        if shared:
            raise InputError(
                f"runs {pair[0]} and {pair[1]} share {shared:,} of {len(keys[pair[0]]):,} rows: the same cases of "
                "the same kernels in the same environment, which would count twice. Leave one out, or take another "
                "seed"
            )
    return folders


def _may_share(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """By what run.json says, so that few runs are read for it: campaigns with other seeds share no case."""
    if first.get("environment") != second.get("environment"):
        return False
    seeds = [(description.get("plan") or {}).get("seed") for description in (first, second)]
    return None in seeds or seeds[0] == seeds[1]
