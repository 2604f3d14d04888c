"""Paths → the run directories at or right below them; on request none of whose rows would count twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gonogo.errors import InputError
from gonogo.records.damage import name_damage
from gonogo.records.description import RUN_FILE, read_description
from gonogo.records.keys import Hashes, hash_keys, join_key
from gonogo.records.parts import list_parts
from gonogo.records.schema import KEY


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Run directories among `paths`, or right below them."""
    folders: list[Path] = []
    for path in paths:
        with name_damage(path):
            below = sorted(entry.parent for entry in path.glob(f"*/{RUN_FILE}")) if path.is_dir() else []
            is_run = (path / RUN_FILE).exists()
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
    hashes: dict[Path, Hashes] = {}
    for pair in combinations(folders, 2):
        if not _may_share(*(described[folder] for folder in pair)):
            continue
        for folder in pair:
            if folder not in hashes:
                hashes[folder] = _hash_run(folder)
        shared = _count_shared(*pair, np.intersect1d(hashes[pair[0]], hashes[pair[1]]))
        if shared:
            raise InputError(
                f"runs {pair[0]} and {pair[1]} share {shared:,} of {len(hashes[pair[0]]):,} rows: the same cases "
                "of the same kernels in the same environment, which would count twice. Leave one out, or take "
                "another seed"
            )
    return folders


def _hash_run(folder: Path) -> Hashes:
    """8 bytes of every row's key: as text, those of many runs would not fit into memory."""
    hashes = [hash_keys(table) for part in list_parts(folder) for table in part.iterate(KEY, as_codes=KEY)]
    return np.concatenate([np.empty(0, np.uint64), *hashes])


def _count_shared(first: Path, second: Path, alike: Hashes) -> int:
    """How many rows of one run the other has, too, by the text of those whose hashes are equal."""
    keys = [set(_read_keys(folder, alike)) if alike.size else set() for folder in (first, second)]
    return len(keys[0] & keys[1])


def _read_keys(folder: Path, alike: Hashes) -> Iterator[str]:
    for part in list_parts(folder):
        for table in part.iterate(KEY, as_codes=KEY):
            yield from join_key(table.filter(pa.array(np.isin(hash_keys(table), alike)))).to_pylist()


def _may_share(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """By what run.json says, so that few runs are read for it: campaigns with other seeds share no case."""
    if first.get("environment") != second.get("environment"):
        return False
    seeds = [(description.get("plan") or {}).get("seed") for description in (first, second)]
    return None in seeds or seeds[0] == seeds[1]
