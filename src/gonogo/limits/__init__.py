"""Readings of controls → limits ↔ lock files: by which rule, from what, and where each is found."""

from gonogo.limits.limit import (
    DTYPE_FREE,
    EVERY_OP,
    GAUGES,
    Limit,
    make_limit,
    make_limit_of_largest,
)

__all__ = [
    "DTYPE_FREE",
    "EVERY_OP",
    "GAUGES",
    "Limit",
    "make_limit",
    "make_limit_of_largest",
]
