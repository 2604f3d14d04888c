"""Bits of two arrays → partials, by the C extension over as many threads as the machine lends.

Absent where the package was installed without a C compiler; `available()` tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gonogo.formats import FORMATS, Format
from gonogo.instrument import path_numpy
from gonogo.instrument.partials import (
    Bracket,
    Caught,
    Moments,
    Pair,
    Scan,
    Unit,
    WorstError,
    add_moments,
    add_scans,
    add_worst_errors,
    saturate,
    sum_overflowed,
)
from gonogo.instrument.threads import thread_limit

_native: Any
try:
    _native = import_module("gonogo.instrument._native")
except ImportError:  # built without a compiler
    _native = None

T = TypeVar("T")

_KIND = {name: kind for kind, name in enumerate(FORMATS)}
_NO_BITS = np.empty(0, np.uint64)
_NO_VALUES = np.empty(0, np.float64)

THREAD_SHARE = 2**19
"""Elements that make a thread worth starting: about 0.3 ms of work against 0.05 ms to start it."""


def available() -> bool:
    """Whether the extension was built."""
    return _native is not None


@cache
def instruction_sets() -> tuple[str, ...]:
    """The instruction sets this chip runs, narrowest first; the last is used."""
    return tuple(_native.isas()) if _native is not None else ()


def thread_count(elements: int) -> int:
    """Threads for a job: what this process may use, and no more than pay."""
    return max(1, min(thread_limit(), elements // THREAD_SHARE))


def _run_split(job: Callable[[int, int], T], count: int) -> list[T]:
    """Run job(start, stop) over equal shares of `count`, one thread each, results in order."""
    threads = thread_count(count)
    if threads == 1:
        return [job(0, count)]
    from concurrent.futures import ThreadPoolExecutor

    edges = [count * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(job, edges[:-1], edges[1:]))


def scan(pair: Pair, atol: float, brackets: Sequence[Bracket], *, isa: int = -1) -> Scan:
    """Partial ErrorStats of a piece, in instruction set number `isa`; the widest by default."""
    count = pair.actual.size
    total = add_scans(_run_split(lambda start, stop: _scan_share(pair, start, stop, atol, brackets, isa), count))
    overflowed = sum_overflowed(total.sum_abs, total.max_abs) or sum_overflowed(total.sum_rel, total.max_rel)
    # Finite errors near the top of float64 whose sum overflows: rare enough to leave to exact fractions.
    return path_numpy.scan(pair, atol, brackets) if overflowed else total


def _scan_share(pair: Pair, start: int, stop: int, atol: float, brackets: Sequence[Bracket], isa: int) -> Scan:
    # Untouched pages of a room cost nothing, so each share gets room for all of a bracket.
    rooms = [np.empty(min(stop - start, b.capacity)) if b.capacity else _NO_VALUES for b in brackets]
    exceeding, max_abs, sum_abs, nonzero, max_rel, sum_rel, max_ulp, sum_ulp, saturated, low, high, kept = (
        _native.scan(
            isa % len(instruction_sets()),
            _KIND[pair.actual_format.name],
            pair.actual[start:stop],
            _KIND[pair.expected_format.name],
            pair.expected[start:stop],
            atol,
            *((b.low, b.high, b.stride, room) for b, room in zip(brackets, rooms, strict=True)),
        )
    )
    max_ulp, sum_ulp = saturate(max_ulp, sum_ulp, bool(saturated))
    caught = tuple(Caught(low[k], high[k], rooms[k][: kept[k]]) for k in range(len(brackets)))
    return Scan(exceeding, max_abs, sum_abs, nonzero, max_rel, sum_rel, max_ulp, sum_ulp, caught)


def read(
    pair: Pair,
    scale: npt.NDArray[np.unsignedinteger] | None,
    scale_format: Format | None,
    unit: Unit,
    *,
    isa: int = -1,
) -> WorstError:
    """Worst error of a piece in a gauge's unit."""

    def read_share(start: int, stop: int) -> WorstError:
        worst, index, signed_sum, infinite, bad_scale = _native.read(
            isa % len(instruction_sets()),
            _KIND[pair.actual_format.name],
            pair.actual[start:stop],
            _KIND[pair.expected_format.name],
            pair.expected[start:stop],
            0 if scale_format is None else _KIND[scale_format.name],
            _NO_BITS if scale is None else scale[start:stop],
            tuple(unit),
        )
        bad_index = None if bad_scale < 0 else start + bad_scale
        return WorstError(worst, start + index, signed_sum, infinite, bad_index)

    total = add_worst_errors(_run_split(read_share, pair.actual.size))
    overflowed = isinstance(total.signed_sum, float) and not math.isfinite(total.signed_sum)
    if overflowed and total.bad_scale is None:  # finite errors near the top of float64: exact fractions
        return replace(total, signed_sum=path_numpy.read(pair, scale, scale_format, unit).signed_sum)
    return total


def measure_moments(
    values: npt.NDArray[np.unsignedinteger], fmt: Format, factor: float, *, isa: int = -1
) -> Moments:
    """Largest finite |r|, sum of squares of finite r·factor, and how many are finite."""

    def measure_share(start: int, stop: int) -> Moments:
        number = isa % len(instruction_sets())
        return Moments(*_native.moments(number, _KIND[fmt.name], values[start:stop], factor))

    return add_moments(_run_split(measure_share, values.size))


def lose_terms(
    rows: npt.NDArray[np.float64],
    steps: npt.NDArray[np.float64],
    swamp: npt.NDArray[np.float64],
    part: int,
    *,
    isa: int = -1,
) -> npt.NDArray[np.float64]:
    """Of every part of each row: what its terms lose by rounding to each of its steps, and below `swamp`."""
    count, length = rows.shape
    parts = -(-length // part)
    sums = np.empty((count, parts, steps.shape[1] + 1))

    def lose_share(start: int, stop: int) -> None:
        first, last = start // part, stop // part
        _native.lose(isa % len(instruction_sets()), rows, length, part, first, last, steps, swamp, sums)

    _run_split(lose_share, count * parts * part)
    return sums
