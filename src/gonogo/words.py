"""Words a user gives → what they stand for: ops, contracts, dtypes; a near word is suggested for one unknown."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Sequence
from typing import Any

from gonogo.contracts import CONTRACTS, OTHER_NAMES, find_contract, name_contract
from gonogo.errors import BackendMissing, InputError, UnknownOp, UnknownWord, suggest
from gonogo.ops import DTYPES, Op, get_op, op_names

# Contracts have a module of their own, which the instrument may import.
__all__ = [
    "ADDRESS",
    "CONTRACTS",
    "find_contract",
    "find_dtypes",
    "find_op",
    "find_words",
    "name_contract",
    "need_torch",
]

ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""What s3://bucket begins with, and whatever else is no path; a single letter is a drive of Windows."""
SEVERAL = (list, tuple, set, frozenset, dict)
"""What words may stand in; anything else is one of them."""


def find_op(op: str | Op) -> Op:
    """The op of that name; an op at hand is taken as it is."""
    if isinstance(op, Op):
        return op
    if not isinstance(op, str):
        raise InputError(f"op is {type(op).__name__}; give a name of gonogo ops, or a gonogo.Op(...)")
    if op not in op_names():
        raise UnknownOp(op, op_names(), near=suggest(op, op_names()))
    return get_op(op)


def need_torch(what: str) -> None:
    """Refuse what cannot be done without torch, before anything else is wrong with it."""
    if importlib.util.find_spec("torch") is None:
        raise BackendMissing("torch", what)


def find_dtypes(given: Any) -> tuple[str, ...]:
    """Dtypes by name, each once; torch's own, and names by which others go, are taken too."""
    several = list(given) if isinstance(given, SEVERAL) else [given]
    names = [str(dtype).removeprefix("torch.") for dtype in several]
    return find_words("dtype", [OTHER_NAMES.get(name, name) for name in names], DTYPES)


def find_words(what: str, given: str | Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Words, each once, all of them known; one may stand alone."""
    listed: list[Any] = list(given) if isinstance(given, SEVERAL) else [given]
    for word in listed:
        if not isinstance(word, str):
            raise UnknownWord(what, type(word).__name__, tuple(known))
    words = tuple(dict.fromkeys(listed))
    for word in words:
        if word not in known:
            raise UnknownWord(what, word, tuple(known))
    if not words:
        raise InputError(f"no {what}: at least 1 is needed; known: {', '.join(known)}")
    return words
