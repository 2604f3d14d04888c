"""absolute: the unit is 1; the paper's gauge."""

from gonogo.measure.gauges._gauge import Gauge
from gonogo.measure.partials import Unit


def gauge() -> Gauge:
    """|y − r|."""
    return Gauge("absolute", lambda fmt, size: Unit(constant=1.0))
