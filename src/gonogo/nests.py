"""Nests of tuples, lists, mappings and dataclasses ↔ their leaves, each by its path: `0`, `cache.k`, `1.weight`.

What is none of these is a leaf. A nest that is one leaf has the path "".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any


def list_parts(nest: Any) -> list[tuple[str, Any]] | None:
    """What a nest is made of, by name; None for a leaf."""
    if isinstance(nest, Mapping):
        return [(str(key), part) for key, part in nest.items()]
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return list(zip(nest._fields, nest, strict=True))
    if isinstance(nest, (tuple, list)):
        return [(str(place), part) for place, part in enumerate(nest)]
    if is_dataclass(nest) and not isinstance(nest, type):
        return [(one.name, getattr(nest, one.name)) for one in fields(nest)]
    return None


def list_leaves(nest: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and leaf, in order."""
    parts = list_parts(nest)
    if parts is None:
        yield path, nest
        return
    for name, part in parts:
        yield from list_leaves(part, f"{path}.{name}" if path else name)


def map_leaves(function: Callable[[str, Any], Any], nest: Any, path: str = "") -> Any:
    """The same nest of what `function` makes of each path and leaf."""
    parts = list_parts(nest)
    if parts is None:
        return function(path, nest)
    made = [map_leaves(function, part, f"{path}.{name}" if path else name) for name, part in parts]
    if isinstance(nest, Mapping):
        return dict(zip(nest, made, strict=True))
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*made)
    if isinstance(nest, tuple):
        return type(nest)(made) if type(nest) is not tuple else tuple(made)
    if isinstance(nest, list):
        return made
    names = [name for name, _ in parts]
    return replace(nest, **dict(zip(names, made, strict=True)))
