"""Paths → the run directories at or right below them; on request none of whose rows would count twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from gonogo.errors import InputError
from gonogo.records.damage import name_damage
from gonogo.records.description import OPEN_FILE, RUN_FILE, read_description
from gonogo.records.keys import Hashes, hash_keys, join_key
from gonogo.records.parts import AT_ONCE, list_parts
from gonogo.records.places import Place, S3Place
from gonogo.records.places.globs import expand_globs
from gonogo.records.schema import KEY

MOST_TEXTS = 10_000
"""Keys with equal hashes that are looked at as text: of 10⁸ rows fewer than one pair is alike by accident."""


def find_runs(paths: Sequence[Place]) -> list[Place]:
    """Run directories among `paths`, or right below them; what a shell would expand is expanded."""
    folders: list[Place] = []
    for path in paths:
        matches = expand_globs(path)
        if isinstance(path, S3Place) and list(matches) != [path]:
            folders += _find_closed(path, matches)
        else:
            folders += [folder for match in matches for folder in _find_below(match)]
    return folders


def find_unclosed(paths: Sequence[Place]) -> list[S3Place]:
    """Of prefixes and patterns in a store, the runs that `find_runs` leaves out: they are not there yet."""
    remote = [path for path in paths if isinstance(path, S3Place)]
    matches = {path: [match for match in expand_globs(path) if isinstance(match, S3Place)] for path in remote}
    candidates = [
        prefix for path in remote
        for prefix in (matches[path] if matches[path] != [path] else path.list_below()[0])
    ]  # fmt: skip

    def is_unclosed(prefix: S3Place) -> bool:
        return (prefix / OPEN_FILE).exists() and not (prefix / RUN_FILE).exists()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        unclosed = list(pool.map(is_unclosed, candidates))
    return [prefix for prefix, is_left_out in zip(candidates, unclosed, strict=True) if is_left_out]


def _find_below(path: Place) -> Sequence[Place]:
    """The run at a place, or those right below it."""
    if isinstance(path, S3Place):
        return _find_remote(path)
    with name_damage(path):
        below = sorted(entry.parent for entry in path.glob(f"*/{RUN_FILE}")) if path.is_dir() else []
        is_run = (path / RUN_FILE).exists()
    if not is_run and not below:
        read_description(path)  # says what is wrong
    return [path] if is_run else below


def _find_closed(pattern: S3Place, matches: Sequence[Place]) -> list[Place]:
    """Of what matches a pattern in a store, the runs that are closed: others are not there yet."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        closed = list(pool.map(lambda match: (match / RUN_FILE).exists(), matches))
    if not any(closed):
        raise InputError(f"no run that matches {pattern} is closed")
    return [match for match, is_closed in zip(matches, closed, strict=True) if is_closed]


def _find_remote(path: S3Place) -> list[S3Place]:
    """The same in a store; runs that are not closed are not there yet."""
    if path.key and (path / RUN_FILE).exists():
        return [path]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        prefixes, objects = path.list_below()
        closed = list(pool.map(lambda prefix: (prefix / RUN_FILE).exists(), prefixes))
    if any(entry.name == OPEN_FILE for entry in objects):
        list_parts(path)  # says that it is not closed
    if not any(closed):
        raise InputError(f"{path} is no run: neither it nor a prefix right below it has a {RUN_FILE}")
    return [prefix for prefix, is_closed in zip(prefixes, closed, strict=True) if is_closed]


def find_begun(folder: Place) -> list[Place]:
    """Runs right below a folder, in a store those too that are not closed."""
    if isinstance(folder, S3Place):
        below = folder.list_below()[0]
        return [run for run in below if any((run / name).exists() for name in (RUN_FILE, OPEN_FILE))]
    return sorted(entry.parent for entry in folder.glob(f"*/{RUN_FILE}"))


def find_distinct_runs(paths: Sequence[Place]) -> list[Place]:
    """Run directories at or right below `paths`; refuse one given twice, and two that share rows of one machine.

    Rows that count twice make a limit look better proved than it is, and leave nothing held out.
    """
    folders = find_runs(paths)
    by_resolved: dict[Place, Place] = {}
    for folder in folders:
        resolved = folder.resolve()
        if resolved in by_resolved:
            also = "" if by_resolved[resolved] == folder else f", also as {by_resolved[resolved]}"
            raise InputError(f"run {folder} is given twice{also}: its rows would count twice. Name it once")
        by_resolved[resolved] = folder
    described = {folder: read_description(folder) for folder in folders} if len(folders) > 1 else {}
    hashes: dict[Place, Hashes] = {}
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


def _hash_run(folder: Place) -> Hashes:
    """8 bytes of every row's key: as text, those of many runs would not fit into memory."""
    hashes = [hash_keys(table) for part in list_parts(folder) for table in part.iterate(KEY, as_codes=KEY)]
    return np.concatenate([np.empty(0, np.uint64), *hashes])


def _count_shared(first: Place, second: Place, alike: Hashes) -> int:
    """How many rows of one run the other has, too, by the text of those whose hashes are equal."""
    if alike.size > MOST_TEXTS:  # equal hashes of so many different keys do not happen
        return len(alike)
    keys = [set(_read_keys(folder, alike)) if alike.size else set() for folder in (first, second)]
    return len(keys[0] & keys[1])


def _read_keys(folder: Place, alike: Hashes) -> Iterator[str]:
    for part in list_parts(folder):
        for table in part.iterate(KEY, as_codes=KEY):
            yield from join_key(table.filter(pa.array(np.isin(hash_keys(table), alike)))).to_pylist()


def _may_share(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """By what run.json says, so that few runs are read for it: campaigns with other seeds share no case."""
    if first.get("environment") != second.get("environment"):
        return False
    seeds = [(description.get("plan") or {}).get("seed") for description in (first, second)]
    return None in seeds or seeds[0] == seeds[1]
