"""Op name → rule: every rule of the running-error mode, merged from one dict per kind of op.

A rule is a function rule(ctx, op, args, kwargs) → (value, error). `ctx` is the running RunningErrorMode, `op`
the torch operator to compute the value with, args and kwargs what the reference called it with; tensors among
them are Tracked or plain, and ctx.split(arg) gives the value and the Error of either. The error it returns is
an Error, a float64 tensor in units of u_c, or None for none. Keys are op names ("aten.add") or single
overloads ("aten.add.Tensor"), which win. Ops that torch itself composes of others (reshape, linear, einsum,
square) arrive as their parts and need no rule.
"""

from __future__ import annotations

from gonogo.instrument.running_error.facts import name_ops
from gonogo.instrument.running_error.mode import Rule
from gonogo.instrument.running_error.rules.activations import ACTIVATIONS
from gonogo.instrument.running_error.rules.arithmetic import ARITHMETIC
from gonogo.instrument.running_error.rules.backward import BACKWARD
from gonogo.instrument.running_error.rules.complex_numbers import COMPLEX
from gonogo.instrument.running_error.rules.composites import COMPOSITES
from gonogo.instrument.running_error.rules.discrete import CASTS, DISCRETE, STEPS
from gonogo.instrument.running_error.rules.linear_algebra import LINEAR_ALGEBRA
from gonogo.instrument.running_error.rules.losses import LOSSES
from gonogo.instrument.running_error.rules.movement import MOVEMENT, WRITES
from gonogo.instrument.running_error.rules.products import PRODUCTS
from gonogo.instrument.running_error.rules.recurrent import RECURRENT
from gonogo.instrument.running_error.rules.reductions import REDUCTIONS
from gonogo.instrument.running_error.rules.scatters import SCATTERS
from gonogo.instrument.running_error.rules.selections import SELECTIONS
from gonogo.instrument.running_error.rules.slices import slice_rules
from gonogo.instrument.running_error.rules.smooth import SMOOTH
from gonogo.instrument.running_error.rules.special import SPECIAL

RULES: dict[str, Rule] = slice_rules(
    {
        **ARITHMETIC,
        **SMOOTH,
        **SPECIAL,
        **SELECTIONS,
        **ACTIVATIONS,
        **REDUCTIONS,
        **PRODUCTS,
        **MOVEMENT,
        **WRITES,
        **SCATTERS,
        **DISCRETE,
        **STEPS,
        **CASTS,
        **COMPOSITES,
        **LOSSES,
        **BACKWARD,
        **COMPLEX,
        **LINEAR_ALGEBRA,
        **RECURRENT,
    }
)

PASSIVE = frozenset(MOVEMENT) | frozenset(DISCRETE)
"""Ops that make no rounding error of their own: on a reference's own constants they run as they are."""

TAKES_COMPLEX = frozenset((*MOVEMENT, *WRITES, *COMPLEX)).union(
    name_ops(
        "add", "sub", "mul", "div", "neg", "abs", "sgn", "sum", "mean", "_to_copy", "where", "eq", "ne",
        "zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_empty",
    )
)  # fmt: skip
"""Ops whose rules hold for complex numbers, too."""
