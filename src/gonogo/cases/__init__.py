"""op, dtype, number, seed → cases → inputs: shapes and values, the same on every machine."""

from __future__ import annotations

from gonogo.cases._case import DTYPE_CODES, LAYOUTS, Case, parse_case
from gonogo.cases.inputs import make_inputs
from gonogo.cases.plan import CASES_PER_SEED, find_usable, plan_case
from gonogo.cases.shapes import INTERPRETER, NO_LIMIT, STRATEGIES, SizeLimit, pick
from gonogo.cases.values import DISTRIBUTIONS, EXACT, FINITE, NON_FINITE

__all__ = [
    "CASES_PER_SEED",
    "DISTRIBUTIONS",
    "DTYPE_CODES",
    "EXACT",
    "FINITE",
    "INTERPRETER",
    "LAYOUTS",
    "NON_FINITE",
    "NO_LIMIT",
    "STRATEGIES",
    "Case",
    "SizeLimit",
    "find_usable",
    "make_inputs",
    "parse_case",
    "pick",
    "plan_case",
]
