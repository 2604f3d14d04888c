"""Readings of controls → limits ↔ lock files: by which rule, from what, and where each is found."""

from gonogo.limits.limit import (
    DTYPE_FREE,
    EVERY_OP,
    GAUGES,
    GroupOfReadings,
    Limit,
    make_limit,
)

__all__ = [
    "DTYPE_FREE",
    "EVERY_OP",
    "GAUGES",
    "GroupOfReadings",
    "Limit",
    "make_limit",
]
