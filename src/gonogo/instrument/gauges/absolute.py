"""absolute: the unit is 1; the paper's gauge."""

from gonogo.instrument.gauges._gauge import Gauge
from gonogo.instrument.partials import Unit


def gauge() -> Gauge:
    """|y − r|."""
    return Gauge("absolute", lambda fmt, size: Unit(constant=1.0))
