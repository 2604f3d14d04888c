"""Text → where runs are: a path on disk, or a prefix in an object store that speaks S3.

Both can be joined by /, have a name and a parent, and can be read; `s3://bucket/a/b` stays whole, which a Path
would not leave it. The store's client is loaded when something is read or written, not before.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from gonogo.errors import InputError
from gonogo.records.places.s3 import SCHEME, S3Place
from gonogo.words import ADDRESS

Place = Path | S3Place

__all__ = ["Place", "S3Place", "parse_place"]


def parse_place(text: str | PathLike[str] | Place) -> Place:
    """Where a run is, as a user writes it.

    >>> parse_place("s3://bucket/nightly/one/").parent
    S3Place(bucket='bucket', key='nightly')
    """
    if isinstance(text, Path | S3Place):
        return text
    name = str(text)
    if name.lower().startswith(SCHEME):
        return S3Place.parse(name)
    scheme = ADDRESS.match(name)
    if scheme is not None and not Path(name).exists():
        raise InputError(f"an address with {scheme[1]}: is not known. Give a path, or s3://bucket/prefix")
    return Path(name)
