"""Records → those that limits are made from. The one definition, for whole columns and for single records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gonogo.cases import NON_FINITE
from gonogo.schema import Record


def may_calibrate(
    control: npt.ArrayLike, sound: npt.ArrayLike, finite: npt.ArrayLike, largest: npt.ArrayLike
) -> npt.NDArray[np.bool_]:
    """Sound records of controls on finite inputs, record by record, whose largest absolute error is not infinite.

    Where it is, the reference itself is past the format's largest value: an infinite output is right there, and an
    infinite distance from an unrounded reference.
    """
    masks = [np.asarray(mask, np.bool_) for mask in (control, sound, finite)]
    return np.logical_and.reduce([*masks, ~np.isinf(np.asarray(largest, np.float32))])  # type: ignore[no-any-return]


def calibrates(record: Record) -> bool:
    """Whether a limit may be made from a record; its largest error may not have been read."""
    sound, finite = record.outcome == "ok", record.distribution not in NON_FINITE
    return bool(may_calibrate(record.role == "control", sound, finite, record.absolute or 0.0))
