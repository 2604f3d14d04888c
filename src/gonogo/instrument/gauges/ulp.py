"""ulp: the unit is one unit in the last place of r in the output format."""

from gonogo.instrument.gauges._gauge import Gauge
from gonogo.instrument.partials import Unit


def gauge() -> Gauge:
    """|y − r| in ULPs of the unrounded r: at most 1/2 for a correctly rounded output."""
    return Gauge("ulp", lambda fmt, size: Unit(per_ulp=1.0))
