"""A gauge's name → the unit it gives every element. One file per gauge, found by its name.

A gauge file has one function, `gauge(**parameters) -> Gauge`. A unit is an affine function of |r|, the ULP at
r and the error scale S (see Unit), with coefficients that may depend on the output format and on the size of
the reference; that is all the measuring paths need to know, so adding a gauge touches no other file.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from gonogo.errors import InputError, UnknownGauge
from gonogo.instrument.gauges._gauge import Gauge, Size

__all__ = ["Gauge", "Size", "gauge", "gauge_names"]


@cache
def gauge_names() -> tuple[str, ...]:
    """Names of all gauges, sorted."""
    return tuple(
        sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    )


def gauge(name: str, **parameters: Any) -> Gauge:
    """The gauge called `name`, with its parameters where it takes any.

    >>> gauge("policy", atol=1e-2, rtol=1e-2).name
    'policy(atol=0.01, rtol=0.01)'
    """
    if not isinstance(name, str) or name not in gauge_names():
        raise UnknownGauge(name, gauge_names())
    try:
        made = import_module(f"{__name__}.{name}").gauge(**parameters)
    except TypeError as error:  # a parameter missing or too many
        raise InputError(f"gauge {name!r}: {error}") from None
    assert isinstance(made, Gauge)
    return made
