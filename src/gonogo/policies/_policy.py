"""field.toml → policies: who tolerates what, by op and dtype."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from gonogo.errors import InputError, check_tolerance, suggest
from gonogo.formats import FORMATS
from gonogo.ops import op_names

Rule = Literal["allclose", "either", "share", "roundoff", "twin_max", "twin_rmse"]
NUMBERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "allclose": ((), ("atol", "rtol", "atol_per_reduced_element")),
    "either": (("atol", "rtol"), ()),
    "share": (("atol", "rtol", "allowed_share"), ()),
    "roundoff": (("accumulate_roundoff",), ()),
    "twin_max": (("factor", "floor"), ()),
    "twin_rmse": (("factor", "tol"), ()),
}
"""Of each rule, the numbers it needs and those it can do without: they are 0 then."""
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
        for by_dtype in (self.numbers.get(op, {}), self.numbers.get(ANY, {})):
            for word in (dtype, ANY):
                if word in by_dtype:
                    return by_dtype[word]
        return None


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


def make_policy(name: str, atol: Mapping[str, float], rtol: Mapping[str, float]) -> Policy:
    """A policy of two numbers, each by dtype, or for "all"; one that is given for no dtype is 0 for all.

    It says nothing of a dtype that one of the two is given for others alone.
    """
    for word, by_dtype in (("atol", atol), ("rtol", rtol)):
        for value in by_dtype.values():
            check_tolerance(word, value, finite=True)
    numbers: dict[str, Numbers] = {}
    for dtype in dict.fromkeys([*atol, *rtol]):
        pair = [(by_dtype or {ANY: 0.0}).get(dtype, (by_dtype or {ANY: 0.0}).get(ANY)) for by_dtype in (atol, rtol)]
        if pair[0] is not None and pair[1] is not None:
            numbers[dtype] = {"atol": pair[0], "rtol": pair[1]}
    return Policy(name, "", "allclose", {ANY: numbers})


def read_policy_file(path: Path, name: str = "") -> Policy:
    """A policy of a TOML file, in the form of field.toml; where it has several, the one of that name."""
    try:
        tables = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    listed = ", ".join(tables)
    if not tables:
        raise InputError(f"{path} has no policy: write one as a table, [NAME], and its numbers by dtype below")
    flat = [word for word, value in tables.items() if not isinstance(value, dict)]
    if flat and not name:
        raise InputError(f"{path}: {flat[0]!r} is no table: write [NAME], and below it all = {{ {flat[0]} = … }}")
    if name and name not in tables:
        raise InputError(f"{path} has no policy {name!r}{suggest(name, list(tables)) or '.'} It has: {listed}")
    if not name and len(tables) > 1:
        raise InputError(f"{path} has {len(tables)} policies: {listed}. Name one: {path}:{next(iter(tables))}")
    chosen = name or next(iter(tables))
    table = tables[chosen]
    if not isinstance(table, dict):
        raise InputError(f"{path}: {chosen!r} is no table: write [{chosen}] and its numbers by dtype below")
    return _parse_policy(chosen, dict(table), f"{path}: policy {chosen}")


def _parse_policy(name: str, table: dict[str, Any], where: str = "") -> Policy:
    where = where or f"policy {name}"
    rule, source = table.pop("rule", "allclose"), table.pop("source", "")
    if str(rule) not in NUMBERS:
        raise InputError(f"{where}: rule {rule!r} is none of {', '.join(NUMBERS)}")
    if not isinstance(source, str):
        raise InputError(f"{where}: source is {source!r}, not a text")
    for key, numbers in table.items():
        if key != ANY and key not in FORMATS:  # an op, and below it its dtypes
            if key not in op_names():
                near = suggest(key, (*op_names(), *FORMATS, ANY))
                raise InputError(f"{where}: {key!r} is neither a dtype nor an op{near or '. Ops: gonogo ops'}")
            for dtype, below in _as_table(numbers, f"{where}, {key}").items():
                if dtype != ANY and dtype not in FORMATS:
                    raise InputError(f'{where}, {key}: {dtype!r} is neither a dtype nor "all"')
                _check_numbers(below, rule, f"{where}, {key}, {dtype}")
        else:
            _check_numbers(numbers, rule, f"{where}, {key}")
    by_dtype = {key: table[key] for key in table if key == ANY or key in FORMATS}
    by_op = {key: table[key] for key in table if key not in by_dtype}
    if not table:
        raise InputError(f"{where} has no numbers: give them by dtype, as in all = {{ atol = 1e-3, rtol = 1e-3 }}")
    return Policy(name, source, rule, {**by_op, ANY: by_dtype} if by_dtype else by_op)


def _as_table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} is {value!r}, not a table of numbers")
    return value


def _check_numbers(value: object, rule: str, where: str) -> None:
    """Refuse what a rule cannot apply: a number that is missing, unknown, negative or none."""
    numbers, (needed, optional) = _as_table(value, where), NUMBERS[rule]
    known = f"{rule} has {', '.join(needed + optional)}"
    for name, number in numbers.items():
        if name not in (*needed, *optional):
            near = suggest(name, (*needed, *optional))
            raise InputError(f"{where}: unknown number {name!r}{near or '.'} {known}")
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InputError(f"{where}: {name} is {number!r}, not a number")
        check_tolerance(f"{where}: {name}", number, finite=True)
    if numbers.get("allowed_share", 0) > 1:
        raise InputError(f"{where}: allowed_share is {numbers['allowed_share']}, a share of elements: at most 1")
    for name in needed:
        if name not in numbers:
            raise InputError(f"{where} has no {name}, which the rule {rule} needs")
    if not numbers:
        raise InputError(f"{where} has no numbers; {known}")
