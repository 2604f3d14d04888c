"""A place with * ? or [ in it, which no shell expanded → the places that it stands for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from gonogo.errors import InputError
from gonogo.records.places import Place
from gonogo.records.places.s3 import S3Place

MAGIC = re.compile(r"[*?[]")


def expand_globs(place: Place) -> Sequence[Place]:
    """What matches, in order; the place itself where it has nothing to expand, or is there by that very name."""
    if not MAGIC.search(str(place)):
        return [place]
    if isinstance(place, Path):
        if place.exists():
            return [place]
        start = Path(place.anchor)
        matches: Sequence[Place] = sorted(start.glob(str(place.relative_to(place.anchor))))
    else:
        matches = _expand_key(place)
    if not matches:
        raise InputError(f"nothing matches {place}")
    return matches


def _expand_key(place: S3Place) -> list[S3Place]:
    """Prefixes that match a pattern, part by part, so that no more is listed than can match."""
    matches = [S3Place(place.bucket)]
    for part in place.key.split("/"):
        if MAGIC.search(part):
            below = [prefix for match in matches for prefix in match.list_below()[0]]
            matches = [prefix for prefix in below if fnmatchcase(prefix.name, part)]
        else:
            matches = [match / part for match in matches]
    return matches
