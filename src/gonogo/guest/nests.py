"""Nests of tuples, lists, mappings and dataclasses ↔ their leaves, each by its path: `0`, `cache.k`, `1.weight`.

What is none of these is a leaf. A nest that is one leaf has the path "".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any


@cache
def _classify(kind: Any) -> str:
    """What a type is to a nest: `mapping`, `named`, `sequence`, `dataclass`, or a `leaf`."""
    if issubclass(kind, Mapping):
        return "mapping"
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return "named"
    if issubclass(kind, (tuple, list)):
        return "sequence"
    return "dataclass" if is_dataclass(kind) else "leaf"


def list_parts(nest: Any) -> list[tuple[str, Any]] | None:
    """What a nest is made of, by name; None for a leaf."""
    kind: str = _classify(type(nest))  # type: ignore[arg-type]
    if kind == "leaf":
        return None
    if kind == "mapping":
        return [(str(key), part) for key, part in nest.items()]
    if kind == "sequence":
        return [(str(at), part) for at, part in enumerate(nest)]
    names = nest._fields if kind == "named" else [field.name for field in fields(nest)]
    return [(name, getattr(nest, name)) for name in names]


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
    if all(new is old for new, (_, old) in zip(made, parts, strict=True)):
        return nest
    kind: str = _classify(type(nest))  # type: ignore[arg-type]
    if kind == "named":
        return type(nest)(*made)
    if kind == "sequence":
        return made if type(nest) is list else tuple(made) if type(nest) is tuple else type(nest)(made)
    if kind == "mapping":
        keyed = dict(zip(nest, made, strict=True))
        if type(nest) is dict:
            return keyed
    changed = copy.copy(nest)  # of its own class, however that is made
    if kind == "mapping":
        changed.update(keyed)
        return changed
    for (name, _), part in zip(parts, made, strict=True):
        object.__setattr__(changed, name, part)
    return changed
