"""Readings of all elements of an output → where in it the error lies, small enough to be drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gonogo.schema import ErrorMap

TILES = 48
"""At most so many each way of a slice, and so many along an axis."""

Readings = npt.NDArray[np.float64]


def map_errors(readings: Readings, shape: Sequence[int], leaf: str | None) -> ErrorMap:
    """The largest reading of every tile of the worst slice, over the last two axes, and along every axis.

    A reading is infinite where an element is wrong without one, and NaN where it is not judged.
    """
    whole = np.where(np.isnan(readings), -1.0, readings).reshape(tuple(shape) or (1,))
    at = np.unravel_index(int(whole.argmax()), whole.shape)
    index = tuple(int(i) for i in at[: max(0, whole.ndim - 2)])
    tiles = _shrink(_shrink(np.atleast_2d(whole[index]), 0), 1)
    along = [_shrink(whole.max(axis=tuple(other for other in range(whole.ndim) if other != axis)), 0)
             for axis in range(whole.ndim)]  # fmt: skip
    return ErrorMap(
        tuple(whole.shape), leaf, index, tuple(tuple(map(float, row)) for row in tiles),
        tuple(tuple(map(float, row)) for row in along),
    )  # fmt: skip


def _shrink(values: Readings, axis: int) -> Readings:
    """An axis in at most TILES pieces, each its largest value."""
    count = values.shape[axis]
    pieces = min(count, TILES)
    starts = np.arange(pieces) * count // pieces
    shrunk: Readings = np.maximum.reduceat(values, starts, axis=axis)
    return shrunk
