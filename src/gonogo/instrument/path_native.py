"""Bits of two arrays → partials, by the C extension over as many threads as the machine lends.

Absent where the package was installed without a C compiler; `available()` tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import pairwise
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
Floats = npt.NDArray[np.float64]

_KIND = {name: kind for kind, name in enumerate(FORMATS)}
_NO_BITS = np.empty(0, np.uint64)

MOST_UNITS = 64
"""That one pass has room for."""
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


def _split(count: int) -> list[tuple[int, int]]:
    """Equal shares (start, stop) of `count`, one for each thread."""
    threads = thread_count(count)
    return list(pairwise(count * i // threads for i in range(threads + 1)))


def _run_split(job: Callable[[int, int], T], shares: Sequence[tuple[int, int]]) -> list[T]:
    """Run job(start, stop) for every share, one thread each, results in order."""
    *others, last = shares
    if not others:
        return [job(*last)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(others)) as pool:  # this thread takes the last share itself
        running = [pool.submit(job, *share) for share in others]
        result = job(*last)
        return [*(task.result() for task in running), result]


def scan(pair: Pair, atol: float, brackets: Sequence[Bracket], *, isa: int = -1) -> Scan:
    """Partial ErrorStats of a piece, in instruction set number `isa`; the widest by default."""
    count = pair.actual.size
    shares = _split(count)
    # A row for each share, with room for all of a bracket: pages that are not touched cost nothing.
    rooms = [np.empty((len(shares), min(-(-count // len(shares)), b.capacity))) for b in brackets]

    def scan_share(start: int, stop: int) -> Scan:
        rows = [room[shares.index((start, stop))] for room in rooms]
        return _scan_share(pair, start, stop, atol, brackets, rows, isa)

    parts = _run_split(scan_share, shares)
    total = parts[0] if len(parts) == 1 else _add_shares(parts, rooms)
    overflowed = sum_overflowed(total.sum_abs, total.max_abs) or sum_overflowed(total.sum_rel, total.max_rel)
    # Finite errors near the top of float64 whose sum overflows: rare enough to leave to exact fractions.
    return path_numpy.scan(pair, atol, brackets) if overflowed else total


def _scan_share(
    pair: Pair, start: int, stop: int, atol: float, brackets: Sequence[Bracket], rows: Sequence[Floats], isa: int
) -> Scan:
    exceeding, max_abs, sum_abs, nonzero, max_rel, sum_rel, max_ulp, sum_ulp, saturated, low, high, kept = (
        _native.scan(
            isa % len(instruction_sets()),
            _KIND[pair.actual_format.name],
            pair.actual[start:stop],
            _KIND[pair.expected_format.name],
            pair.expected[start:stop],
            atol,
            *((b.low, b.high, b.stride, row) for b, row in zip(brackets, rows, strict=True)),
        )
    )
    max_ulp, sum_ulp = saturate(max_ulp, sum_ulp, bool(saturated))
    caught = tuple(Caught(low[k], high[k], rows[k][: kept[k]]) for k in range(len(brackets)))
    return Scan(exceeding, max_abs, sum_abs, nonzero, max_rel, sum_rel, max_ulp, sum_ulp, caught)


def _add_shares(parts: Sequence[Scan], rooms: Sequence[Floats]) -> Scan:
    caught = tuple(_pack(room, [part.caught[k] for part in parts]) for k, room in enumerate(rooms))
    return replace(add_scans([replace(part, caught=()) for part in parts]), caught=caught)


def _pack(room: Floats, parts: Sequence[Caught]) -> Caught:
    """What the shares caught, moved together in the room it lies in: a second copy of it all would cost more."""
    values, end = room.reshape(-1), parts[0].values.size
    for part in parts[1:]:
        values[end : end + part.values.size] = part.values
        end += part.values.size
    return Caught(sum(p.below_low for p in parts), sum(p.below_high for p in parts), values[:end])


def sort_errors(errors: Floats) -> Floats:
    """Errors, sorted."""
    ordered = np.array(errors, np.float64)
    _native.sort(ordered, np.empty_like(ordered))
    return ordered


def select_errors(errors: Floats, ranks: Sequence[int]) -> list[float]:
    """Errors at 0-based ranks."""
    ascending = sorted(ranks)
    selected = np.empty(len(ranks))
    values = np.ascontiguousarray(errors, np.float64)
    _native.select(values, np.empty(2 * values.size), np.array(ascending, np.int64), selected)
    at = dict(zip(ascending, selected.tolist(), strict=True))
    return [at[rank] for rank in ranks]


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

    total = add_worst_errors(_run_split(read_share, _split(pair.actual.size)))
    overflowed = isinstance(total.signed_sum, float) and not math.isfinite(total.signed_sum)
    if overflowed and total.bad_scale is None:  # finite errors near the top of float64: exact fractions
        return replace(total, signed_sum=path_numpy.read(pair, scale, scale_format, unit).signed_sum)
    return total


def read_units(pair: Pair, units: Sequence[Unit], *, isa: int = -1) -> list[float]:
    """What `read` gives as worst in each of several units without a scale or cells: one pass for all."""
    if len(units) > MOST_UNITS:
        return [*read_units(pair, units[:MOST_UNITS], isa=isa), *read_units(pair, units[MOST_UNITS:], isa=isa)]
    assert not any(unit.from_cell or unit.per_scale for unit in units)
    numbers = np.array([unit[:3] for unit in units], np.float64)

    def read_share(start: int, stop: int) -> Floats:
        worst = np.zeros(len(units))
        _native.read_units(
            isa % len(instruction_sets()), _KIND[pair.actual_format.name], pair.actual[start:stop],
            _KIND[pair.expected_format.name], pair.expected[start:stop], numbers, worst,
        )  # fmt: skip
        return worst

    found: list[float] = np.max(_run_split(read_share, _split(pair.actual.size)), axis=0).tolist()
    return found


def measure_moments(
    values: npt.NDArray[np.unsignedinteger], fmt: Format, factor: float, *, isa: int = -1
) -> Moments:
    """Largest finite |r|, sum of squares of finite r·factor, and how many are finite."""

    def measure_share(start: int, stop: int) -> Moments:
        number = isa % len(instruction_sets())
        return Moments(*_native.moments(number, _KIND[fmt.name], values[start:stop], factor))

    return add_moments(_run_split(measure_share, _split(values.size)))


def lose_terms(
    rows: Floats,
    steps: Floats,
    swamp: Floats,
    part: int,
    *,
    isa: int = -1,
) -> Floats:
    """Of every part of each row: what its terms lose by rounding to each of its steps, and below `swamp`."""
    count, length = rows.shape
    parts = -(-length // part)
    sums = np.empty((count, parts, steps.shape[1] + 1))

    def lose_share(start: int, stop: int) -> None:
        first, last = start // part, stop // part
        _native.lose(isa % len(instruction_sets()), rows, length, part, first, last, steps, swamp, sums)

    _run_split(lose_share, _split(count * parts * part))
    return sums
