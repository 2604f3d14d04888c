"""What a gauge is: a name, what it needs, and how it makes its unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gonogo.formats import Format
from gonogo.instrument.partials import Unit


@dataclass(frozen=True, slots=True)
class Size:
    """How large a reference is, over its finite elements."""

    rms: float
    """Root mean square, to 24 significant bits so that every path finds the same number."""
    largest: float
    """Largest magnitude."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """A unit of error for every element of an output."""

    name: str
    make_unit: Callable[[Format, Size], Unit]
    """Output format and size of the reference → unit. The size is all zeros unless `needs_size`."""
    needs_scale: bool = False
    needs_size: bool = False
