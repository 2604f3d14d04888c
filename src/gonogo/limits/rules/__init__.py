"""A rule's name → how readings of correct kernels become a limit. One file per rule, found by its name.

A rule file has one function, `rule(**parameters) -> Rule`. Rule checks the readings and finds the one that counts,
so that a file holds nothing but how many it needs, the rank of that one, and the limit made of it; adding a rule
touches no other file. `max_margin.py` is the rule "max-margin".
"""

from __future__ import annotations

import inspect
import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from gonogo.errors import InputError, UnknownRule, suggest
from gonogo.limits.rules._rule import Rule

__all__ = ["Rule", "rule", "rule_names"]


@cache
def rule_names() -> tuple[str, ...]:
    """Names of all rules, sorted."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.replace("_", "-") for name in modules if not name.startswith("_")))


def rule(name: str, **parameters: Any) -> Rule:
    """The rule called `name`, with its parameters where they are not the usual ones.

    >>> rule("wilks", rate=1e-3).needs
    2995
    """
    if name not in rule_names():
        raise UnknownRule(name, rule_names())
    make = import_module(f"{__name__}.{name.replace('-', '_')}").rule
    known = tuple(inspect.signature(make).parameters)
    for key in parameters:
        if key not in known:
            near = suggest(key, known) or "."
            raise InputError(f"rule {name!r} has no parameter {key!r}{near} It has: {', '.join(known) or 'none'}")
    try:
        made = make(**parameters)
    except TypeError as error:  # no number
        raise InputError(f"rule {name!r}: {error}") from None
    assert isinstance(made, Rule)
    return made
