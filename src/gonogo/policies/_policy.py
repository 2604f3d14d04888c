"""field.toml → policies: who tolerates what, by op and dtype."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from gonogo.errors import InputError, check_tolerance
from gonogo.formats import FORMATS

Rule = Literal["allclose", "either", "share", "roundoff", "twin_max", "twin_rmse"]
Numbers = Mapping[str, float]
ANY = "all"
"""Stands for every dtype in field.toml, and for every op in `Policy.numbers`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One project's tolerance. It passes an output whose reading is at most 1."""

    name: str
    source: str
    """Project and file that its numbers stand in."""
    rule: Rule
    """How the numbers are applied; see gonogo.policies.readings."""
    numbers: Mapping[str, Mapping[str, Numbers]]
    """Op, then dtype → the rule's numbers; "all" stands for any."""

    def find_numbers(self, op: str, dtype: str) -> Numbers | None:
        """The numbers for an op in a dtype; None where the policy says nothing."""
        by_dtype = self.numbers.get(op, self.numbers.get(ANY, {}))
        return by_dtype.get(dtype, by_dtype.get(ANY))


@dataclass(frozen=True, slots=True)
class Twin:
    """Error of the framework's own op on the same case, against the same reference."""

    max_abs: float
    rmse: float

    def __post_init__(self) -> None:
        check_tolerance("max_abs of the twin", self.max_abs)
        check_tolerance("rmse of the twin", self.rmse)


@cache
def load_policies() -> tuple[Policy, ...]:
    """All policies, in the order of field.toml."""
    tables = tomllib.loads(files("gonogo.policies").joinpath("field.toml").read_text(encoding="utf-8"))
    return tuple(_parse_policy(name, table) for name, table in tables.items())


def _parse_policy(name: str, table: dict[str, Any]) -> Policy:
    rule = table.pop("rule", "allclose")
    if rule not in get_args(Rule):
        raise InputError(f"policy {name}: rule {rule!r} is none of {', '.join(get_args(Rule))}")
    source = table.pop("source")
    by_dtype = {key: table[key] for key in table if key == ANY or key in FORMATS}
    by_op = {key: table[key] for key in table if key not in by_dtype}
    return Policy(name, source, rule, {**by_op, ANY: by_dtype} if by_dtype else by_op)
