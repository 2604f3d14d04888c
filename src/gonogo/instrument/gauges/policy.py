"""policy: the unit is atol + rtol·|r|; somebody's allclose reads at most 1 where it passes."""

from gonogo.errors import check_tolerance
from gonogo.instrument.gauges._gauge import Gauge
from gonogo.instrument.partials import Unit


def gauge(*, atol: float, rtol: float) -> Gauge:
    """|y − r| over atol + rtol·|r|."""
    check_tolerance("atol", atol, finite=True)
    check_tolerance("rtol", rtol, finite=True)
    unit = Unit(constant=float(atol), per_magnitude=float(rtol))
    return Gauge(f"policy(atol={float(atol)!r}, rtol={float(rtol)!r})", lambda fmt, size: unit)
