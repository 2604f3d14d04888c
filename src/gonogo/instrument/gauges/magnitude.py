"""magnitude: the unit is u·(|r| + rms(r)), one rounding of the element or of a typical one."""

from gonogo.instrument.gauges._gauge import Gauge
from gonogo.instrument.partials import Unit


def gauge() -> Gauge:
    """|y − r| over u·(|r| + rms(r)), u the unit roundoff of the output format."""
    return Gauge(
        "magnitude",
        lambda fmt, size: Unit(constant=fmt.unit_roundoff * size.rms, per_magnitude=fmt.unit_roundoff),
        needs_size=True,
    )
