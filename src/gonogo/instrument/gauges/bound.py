"""bound: the unit is u_c·S, and the error is counted from the rounding cell of the output."""

from gonogo.formats import FLOAT64, Format, get_format
from gonogo.instrument.gauges._gauge import Gauge
from gonogo.instrument.partials import Unit


def gauge(*, accumulate: str | None = None) -> Gauge:
    """Distance from r to the cell of y over u_c·S; u_c is the unit roundoff of `accumulate`.

    Left out, `accumulate` is float32, or float64 for float64 outputs.
    """
    declared = None if accumulate is None else get_format(accumulate)

    def unit_roundoff(output: Format) -> float:
        if declared is not None:
            return declared.unit_roundoff
        return output.unit_roundoff if output is FLOAT64 else 2.0**-24

    return Gauge(
        "bound" if accumulate is None else f"bound(accumulate={accumulate})",
        lambda fmt, size: Unit(per_scale=unit_roundoff(fmt), from_cell=True),
        needs_scale=True,
    )
