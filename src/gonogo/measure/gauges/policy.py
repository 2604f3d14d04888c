"""policy: the unit is atol + rtol·|r|; somebody's allclose reads at most 1 where it passes."""

from gonogo.errors import BadTolerance
from gonogo.measure.gauges._gauge import Gauge
from gonogo.measure.partials import Unit


def gauge(*, atol: float, rtol: float) -> Gauge:
    """|y − r| over atol + rtol·|r|."""
    for name, value in (("atol", atol), ("rtol", rtol)):
        if not value >= 0:
            raise BadTolerance(name, value)
    return Gauge(
        f"policy(atol={atol!r}, rtol={rtol!r})",
        lambda fmt, size: Unit(constant=float(atol), per_magnitude=float(rtol)),
    )
