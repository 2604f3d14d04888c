"""op, dtype, seed → cases → inputs: shapes, layouts and values, the same on every machine."""

from __future__ import annotations

from gonogo.cases._case import DRAWN, DTYPE_CODES, EVERYWHERE, LAYOUTS, Case, parse_case
from gonogo.cases.call import copy_guarded, draw_arguments, follows_dtype, make_call, take_arguments
from gonogo.cases.inputs import GUARD_BITS, find_guard, is_far, lay_far, make_inputs
from gonogo.cases.plan import (
    CASES_PER_SEED,
    DESIGN,
    DRAWN_SEED_BITS,
    SEED_BITS,
    SEEDS,
    Design,
    Planned,
    choose_distributions,
    find_usable,
    list_unfit,
    list_unrun,
    open_design,
    plan_cases,
)
from gonogo.cases.room import check_room, is_out_of_memory, refuse_without_room
from gonogo.cases.shapes import INTERPRETER, ON_CPU, ON_GPU, STRATEGIES, SizeLimit, pick
from gonogo.cases.values import DISTRIBUTIONS, EXACT, FINITE, NON_FINITE, USUAL
from gonogo.guest.arguments import Call

__all__ = [
    "CASES_PER_SEED",
    "DESIGN",
    "DISTRIBUTIONS",
    "DRAWN",
    "DRAWN_SEED_BITS",
    "DTYPE_CODES",
    "EVERYWHERE",
    "EXACT",
    "FINITE",
    "GUARD_BITS",
    "INTERPRETER",
    "LAYOUTS",
    "NON_FINITE",
    "ON_CPU",
    "ON_GPU",
    "SEEDS",
    "SEED_BITS",
    "STRATEGIES",
    "USUAL",
    "Call",
    "Case",
    "Design",
    "Planned",
    "SizeLimit",
    "check_room",
    "choose_distributions",
    "copy_guarded",
    "draw_arguments",
    "find_guard",
    "find_usable",
    "follows_dtype",
    "is_far",
    "is_out_of_memory",
    "lay_far",
    "list_unfit",
    "list_unrun",
    "make_call",
    "make_inputs",
    "open_design",
    "parse_case",
    "pick",
    "plan_cases",
    "refuse_without_room",
    "take_arguments",
]
