"""Verdicts over cases → what they have in common, in plain words, where the pattern is plain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Trial:
    """One case and how it went."""

    sizes: dict[str, int]
    layout: str
    distribution: str
    failed: bool
    reading: float
    worst_at: tuple[int, ...] | None
    """Index of the worst element."""
    output_shape: tuple[int, ...]
    ratios: tuple[float, float] | None = None
    """Least and largest of actual / expected over the worst elements, where they were looked at."""
    dtype: str = ""


ENOUGH = 4
"""Failures with a property, and passes without it, that make a coincidence unlikely.

Were failures spread at random, the four that have it would be the four of eight that fail once in 70 times; of a
failure and a pass, every second pair would show a pattern.
"""


@dataclass(frozen=True, slots=True)
class Escape:
    """A change of a case: another layout, distribution or dtype, or another size of an axis."""

    field: str
    """`layout`, `distribution`, `dtype`, or `sizes`."""
    value: str = ""
    axis: str = ""
    resize: Callable[[int], int] | None = None
    """The new size, from the one it has."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What failures have in common."""

    told: str
    escape: Escape | None = None
    """What to change of a failing case to have it pass, if this is why it fails."""


Guess = tuple[str, Callable[[Trial], bool], Escape]
"""Words behind `fails only`, whether a trial has the property, and what would do away with it."""


def list_patterns(
    trials: Sequence[Trial], main: str, smallest: Trial | None = None, *, summed: Sequence[str] = ()
) -> Iterator[Pattern]:
    """Patterns that all failures show, the most telling first; `trials` are cases that passed or failed.

    The `smallest` failure must show it too, and counts for nothing: it was sought out. `summed` are the axes that
    an error may grow with.
    """
    failed = [trial for trial in trials if trial.failed]
    passed = [trial for trial in trials if not trial.failed]
    if not failed:
        return
    every = [*failed, smallest or failed[0]]
    guesses = [*_guess_layouts(failed[0], passed), *_guess_sizes(main, passed), *_guess_values(failed[0])]
    for words, holds, escape in guesses:
        if _separates(holds, failed, passed) and all(map(holds, every)):
            yield Pattern(f"fails only {words}", escape)
    if _all_at(failed, lambda t: t.worst_at is not None and t.worst_at[-1] == t.output_shape[-1] - 1):
        yield Pattern("the worst element is always in the last column")
    factors = [trial.ratios for trial in failed if trial.ratios is not None]
    if factors and len(factors) >= min(len(failed), ENOUGH):
        low, high = min(f[0] for f in factors), max(f[1] for f in factors)
        if low > 0 and high / low < 1.01 and not 0.99 < low < 1.01:
            yield Pattern(f"the worst elements are off by one factor, about {math.sqrt(low * high):.4g}")
    for axis in summed:
        if _grows(failed, axis):
            yield Pattern(f"the error grows with {axis}")
    for words, holds, escape in _guess_least(failed[0], passed):
        if _separates(holds, failed, passed) and all(map(holds, every)):
            yield Pattern(f"fails only {words}", escape)


def _guess_layouts(failure: Trial, passed: Sequence[Trial]) -> Iterator[Guess]:
    """One layout, where others that are not contiguous either pass; else all that are not contiguous."""
    layout = failure.layout
    others = [trial.layout for trial in passed if trial.layout not in (layout, "contiguous")]
    if others and layout != "contiguous":
        yield f"on {layout} inputs", lambda t: t.layout == layout, Escape("layout", others[0])
    yield (
        "on inputs that are not contiguous", lambda t: t.layout != "contiguous", Escape("layout", "contiguous")
    )  # fmt: skip


def _guess_sizes(main: str, passed: Sequence[Trial]) -> Iterator[Guess]:
    """Tails of the main axis; and every axis beyond the largest size that passed."""

    def resize(axis: str, change: Callable[[int], int]) -> Escape:
        return Escape("sizes", axis=axis, resize=change)

    if not main:  # sizes are not known
        return
    yield (
        f"where {main} is no power of two", lambda t: not _is_power_of_two(t.sizes[main]),
        resize(main, lambda size: 1 << (size - 1).bit_length()),
    )  # fmt: skip
    yield (
        f"where {main} is no multiple of 128", lambda t: t.sizes[main] % 128 != 0,
        resize(main, lambda size: -(-size // 128) * 128),
    )  # fmt: skip
    axes = dict.fromkeys([main, *(passed[0].sizes if passed else ())])
    for axis in axes:
        edge = max((trial.sizes[axis] for trial in passed), default=0)
        yield (
            f"where {axis} is above {edge}", lambda t, axis=axis, edge=edge: t.sizes[axis] > edge,  # type: ignore[misc]
            resize(axis, lambda size, edge=edge: edge),  # type: ignore[misc]
        )  # fmt: skip


def _guess_values(failure: Trial) -> Iterator[Guess]:
    distribution = failure.distribution
    other = "uniform" if distribution == "normal" else "normal"
    yield (
        f"on {distribution} values", lambda t: t.distribution == distribution, Escape("distribution", other)
    )  # fmt: skip


def _guess_least(failure: Trial, passed: Sequence[Trial]) -> Iterator[Guess]:
    """What half of all cases have, or shows errors of every kind best."""
    layouts = [trial.layout for trial in passed if trial.layout != "contiguous"]
    if layouts:
        yield "on contiguous inputs", lambda t: t.layout == "contiguous", Escape("layout", layouts[0])
    dtypes = [trial.dtype for trial in passed if trial.dtype != failure.dtype]
    if dtypes:
        yield f"in {failure.dtype}", lambda t: t.dtype == failure.dtype, Escape("dtype", dtypes[0])


def _separates(holds: Callable[[Trial], bool], failed: Sequence[Trial], passed: Sequence[Trial]) -> bool:
    """Whether all failures have it, with enough of them, and of passes without it, to rule out chance.

    A pass may have it: a fault need not show wherever it could, and padding that leaks nothing does no harm.
    """
    without = sum(not holds(trial) for trial in passed)
    return all(holds(trial) for trial in failed) and min(len(failed), without) >= ENOUGH


def _is_power_of_two(size: int) -> bool:
    return size & (size - 1) == 0


def _all_at(failed: Sequence[Trial], holds: Callable[[Trial], bool]) -> bool:
    wide = [trial for trial in failed if trial.output_shape and trial.output_shape[-1] > 2]
    return len(wide) > 1 and all(holds(trial) for trial in wide)


def _grows(failed: Sequence[Trial], axis: str) -> bool:
    """Whether readings and the axis rise together: rank correlation above 0.8 over at least five sizes."""
    finite = [trial for trial in failed if math.isfinite(trial.reading)]
    if len({trial.sizes[axis] for trial in finite}) < 5:
        return False
    ranks = [np.argsort(np.argsort(values)) for values in (
        [trial.sizes[axis] for trial in finite], [trial.reading for trial in finite],
    )]  # fmt: skip
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]) > 0.8
