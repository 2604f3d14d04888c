"""op, dtype, seed → cases that touch every kind there is: sizes, layouts and values, and pairs of these.

A covering design, grown one case at a time: of some draws the one is taken that brings most of what was seen least.
So a longer plan begins with the shorter one, and the case of a number depends on nothing but op, dtype and seed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from threading import Lock
from typing import Any

from gonogo.cases._case import DRAWN, EVERYWHERE, Case
from gonogo.cases.shapes import STRATEGIES, Axes, Picker, SizeLimit, classify, pick
from gonogo.cases.values import DISTRIBUTIONS, EXACT, LONGEST_REPETITIVE, ON_PROMISE
from gonogo.errors import InputError
from gonogo.ops import Op
from gonogo.words import find_words

DESIGN = 3
"""Raised whenever a seed gives other cases than it did, so that no run is completed with cases of another kind."""
CASES_PER_SEED = 10**6
"""What keeps the cases of two seeds apart."""
SEEDS = 2**64
"""What a seed is below: more than anybody can prepare for."""
SEED_BITS = 62
"""Of a case's seed that is drawn: far from those of small seeds, and what 63 bits hold."""
DRAWN_SEED_BITS = 31
"""Of one that a user's generator is given: what every library's takes."""
DRAWS = 4
"""Draws to choose a case from: more of them cover little more and cost as much time as small cases do."""
LONG_EVERY, LONG_AT, ALIKE_AT = 6, 5, 3
"""Of so many cases one has a long axis, and one two axes of one size: what takes one for the other shows there."""
TAIL_EVERY, TAIL_AT = 12, 1
"""Of so many one has several tiles and a tail along the main axis."""
FAR_EVERY, FAR_AT = 24, 11
"""Of so many one has rows that are far apart."""
LARGE_AT = 7
"""Number of the large case among as many as one of them is large."""
WHY_NOT = {
    EXACT: f"{EXACT} is for sums of products only",
    "masked": "masked is for ops that say what becomes of -inf",
    "nan": "nan is for ops that say what becomes of NaN",
}
"""Of each distribution that not every op takes, which do."""
FAR_ROWS = 1100
"""Rows of a far input, of which 32 bits do not hold the offsets of the last."""

KEPT_DESIGNS = 16
"""Designs that are kept: whoever verifies one kernel after another asks for the same cases again."""

Planned = tuple[Case, str]
"""A case and the strategy that its leading axis has its size from."""


_designs: dict[Any, Design] = {}
"""By op and all else that fixes it, the latest last."""
_adding = Lock()


def find_usable(op: Op, distributions: Sequence[str]) -> list[str]:
    """The distributions that an op takes, of those named."""
    if op.draw is not None:
        return [DRAWN]
    return [
        name for name in distributions
        if (name != EXACT or op.sums_of_products) and (name not in ON_PROMISE or name in op.takes)
    ]  # fmt: skip


def choose_distributions(op: Op, distributions: str | Sequence[str]) -> list[str]:
    """The distributions that an op takes, of those named; refused where it takes none of them."""
    words = find_words("distribution", distributions, DISTRIBUTIONS)
    usable = find_usable(op, words)
    if not usable:
        why, others = ", ".join(WHY_NOT[word] for word in words), ", ".join(find_usable(op, list(DISTRIBUTIONS)))
        raise InputError(
            f"op {op.name} takes none of the distributions {', '.join(words)}: {why}. It takes {others}"
        )
    return usable


def plan_cases(
    op: Op,
    dtype: str,
    count: int,
    seed: int,
    *,
    distributions: Sequence[str],
    strategies: Sequence[str] = STRATEGIES,
    limit: SizeLimit,
) -> list[Planned]:
    """The first cases of a seed, each with the strategy of its leading axis."""
    if op.draw is not None:
        seeds = [seed_case(seed, number, DRAWN_SEED_BITS) for number in range(1 if op.is_given else count)]
        return [(Case(op.name, dtype, (), EVERYWHERE[0], DRAWN, own), DRAWN) for own in seeds]
    design = open_design(op, dtype, seed, distributions=distributions, strategies=strategies, limit=limit)
    return [design.get(number) for number in range(count)]


def seed_case(seed: int, number: int, bits: int = SEED_BITS) -> int:
    """The seed of a seed's case of a number: one after the other, or, where 63 bits do not hold that, drawn."""
    after = seed * CASES_PER_SEED + number
    return after if after < 2**63 else pick(f"{seed}/{number}", 2**bits)


def open_design(
    op: Op, dtype: str, seed: int, *, distributions: Sequence[str], strategies: Sequence[str], limit: SizeLimit
) -> Design:
    """All cases of a seed, made as they are asked for; of the latest designs, those that are made already."""
    ways = find_words("strategy", strategies, STRATEGIES)
    usable = tuple(choose_distributions(op, distributions))
    key = (id(op), dtype, seed, usable, tuple(ways), limit)
    with _adding:
        known = _designs.pop(key, None)
        if known is None or known.op is not op:  # an op that is gone may have left its id to another
            known = Design(op, dtype, seed, usable, ways, limit)
        _designs[key] = known
        while len(_designs) > KEPT_DESIGNS:
            del _designs[next(iter(_designs))]
    return known


def list_unrun(op: Op, planned: Sequence[Planned]) -> dict[str, list[int]]:
    """Listed sizes that no case has, by axis."""
    run = {axis: {case.axis_sizes(op)[axis] for case, _ in planned} for axis in op.axes}
    missing = {axis: sorted(set(op.sizes[axis]) - run[axis]) for axis in op.axes}
    return {axis: sizes for axis, sizes in missing.items() if sizes}


def list_unfit(op: Op, limit: SizeLimit) -> dict[str, list[int]]:
    """Listed sizes that no case can have, whatever the others are, by axis."""
    axes = Axes(op, limit)
    unfit = {
        axis: [size for size in sorted(op.sizes[axis]) if not axes.fits_at_all(axis, size)] for axis in op.axes
    }
    return {axis: sizes for axis, sizes in unfit.items() if sizes}


@dataclass
class Design:
    """The cases so far, as counts of what they have touched."""

    op: Op
    dtype: str
    seed: int
    distributions: tuple[str, ...]
    strategies: tuple[str, ...]
    limit: SizeLimit
    seen: Counter[tuple[object, ...]] = field(default_factory=Counter)
    planned: list[Planned] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.axes = Axes(self.op, self.limit)
        listed = [(axis, size) for axis in self.axes.names for size in self.op.sizes[axis]]
        usable = [pair for pair in listed if self.axes.fits_at_all(*pair)]
        self.due = [[pair for pair in usable if (pair[0] != self.op.main) == odd] for odd in (False, True)]
        self.free = [axis for axis in self.op.axes if not self.op.keeps_listed(axis)]
        # Every other long axis is the main one.
        rest = [axis for axis in self.free if axis != self.op.main]
        self.long = (
            [axis for other in rest for axis in (self.op.main, other)] if self.op.main in self.free else rest
        )
        self.long = self.long or self.free
        self.others = tuple(name for name in self.strategies if name != "long") or self.strategies
        # Two in five sizes are listed ones, where the op's own are asked for.
        self.others += ("default",) * (1 + len(self.others) // 4) if "default" in self.others else ()

    def get(self, number: int) -> Planned:
        """The case of a number; those before it are made, too."""
        if len(self.planned) <= number:
            with _adding:
                while len(self.planned) <= number:
                    self.planned.append(self._add(len(self.planned)))
        return self.planned[number]

    def _add(self, number: int) -> Planned:
        name = f"{self.seed}/{self.op.name}/{self.dtype}/{number}"
        drawn = [self._draw(Picker(f"{name}/{attempt}"), number) for attempt in range(DRAWS)]
        touched = [self._list_features(case) for case, _ in drawn]
        best = max(range(DRAWS), key=lambda at: self._rate(touched[at]))
        self.seen.update(touched[best])
        return drawn[best]

    def _draw(self, picker: Picker, number: int) -> Planned:
        if self.limit.far and self.dtype != "float32" and number % FAR_EVERY == FAR_AT and self._list_far():
            return self._draw_far(picker, number)
        if number % self.limit.large_every == LARGE_AT and self.free and len(self.axes.work) > 1:
            sizes, strategy = self.axes.draw_large(picker, self._choose_large(picker), self.others), "large"
        elif "long" in self.strategies and number % LONG_EVERY == LONG_AT and self.long:
            first, strategy = self.long[number // LONG_EVERY % len(self.long)], "long"
            sizes = self.axes.draw(picker, first, None, strategy, self.others)
        elif number % TAIL_EVERY == TAIL_AT and self.op.main in self.free:
            strategy = "tail"
            sizes = self.axes.draw(picker, self.op.main, None, strategy, self.others)
        else:
            first, size = self._choose_listed(picker, number)
            strategy = "default" if size is not None else self.others[picker.below(len(self.others))]
            twin = self._choose_twin(picker, first) if number % LONG_EVERY == ALIKE_AT else None
            sizes = self.axes.draw(picker, first, size, strategy, self.others, twin)
        return self._settle(picker, number, sizes, self._draw_layout(picker, sizes)), strategy

    def _settle(self, picker: Picker, number: int, sizes: dict[str, int], layout: str) -> Case:
        return Case(
            self.op.name, self.dtype, tuple(sizes.values()), layout, self._draw_distribution(picker, sizes),
            seed_case(self.seed, number),
        )  # fmt: skip

    def _choose_listed(self, picker: Picker, number: int) -> tuple[str, int | None]:
        """An axis to begin with, and a size of it that the op lists and no case has had; None: any.

        The main axis has its turn in every other case: in the rest it has sizes that are off the list.
        """
        due = [[pair for pair in pairs if not self.seen[("size", *pair)]] for pairs in self.due]
        unseen = due[1] if number % 2 else due[0] or due[1]
        if unseen and "default" in self.strategies:
            return unseen[picker.below(len(unseen))]
        axes = [axis for axis in self.free if number % 2 or axis != self.op.main] or self.free or self.axes.names
        return axes[picker.below(len(axes))], None

    def _choose_twin(self, picker: Picker, first: str) -> str | None:
        """An axis to have the size of the `first`, of those that had it least."""
        others = [axis for axis in self.axes.names if axis != first]
        rare = _find_rarest(others, [self.seen[("alike", *sorted((first, axis)))] for axis in others])
        return rare[picker.below(len(rare))] if rare else None

    def _choose_large(self, picker: Picker) -> list[str]:
        """All axes, or two: mostly the last of the output, those that a kernel cuts into tiles."""
        if picker.below(2) or len(self.free) == 1:
            return list(self.free)
        axes = [axis for axis in self.axes.arrays[-1] if axis in self.free]
        axes = axes if len(axes) > 1 else list(self.free)
        axes = axes[-2:] if picker.below(3) else axes
        return [axes.pop(picker.below(len(axes))) for _ in range(2)]

    def _draw_layout(self, picker: Picker, sizes: dict[str, int]) -> str:
        """A layout for each input, the less used ones first; half of all inputs are contiguous.

        At most one is expanded along a sum: of two, equal products would be added again and again.
        """
        chosen: list[str] = []
        for position, described in enumerate(self.op.inputs):
            if described.kind == "constant":
                chosen.append(EVERYWHERE[0])
                continue
            before = [at for at, name in enumerate(chosen) if name == "expanded"]
            alone = not any(self._find_repeated(at, sizes) for at in before)
            may = self._may_repeat(position, sizes) and (alone or not self._find_repeated(position, sizes))
            names = [name for name in described.layouts or EVERYWHERE[1:] if name != "expanded" or may]
            if described.layouts:
                chosen.append(names[picker.below(len(names))] if names else EVERYWHERE[0])
                continue
            rare = _find_rarest(names, [self.seen["layout", position, name] for name in names])
            chosen.append(rare[picker.below(len(rare))] if picker.below(2) else EVERYWHERE[0])
        return chosen[0] if len(set(chosen)) == 1 else "+".join(chosen)

    def _may_repeat(self, position: int, sizes: dict[str, int]) -> bool:
        """Whether an input may have stride 0: not along an axis of a long sum, whose terms would all be alike."""
        return self._find_repeated(position, sizes) <= LONGEST_REPETITIVE

    def _find_repeated(self, position: int, sizes: dict[str, int]) -> int:
        """How many equal terms of a sum an input would have, were it expanded; 0 where it is no sum's axis."""
        sizes = self.op.find_sizes(sizes)
        axes = [axis for axis in self.op.inputs[position].axes.split() if sizes[axis] > 1]
        return sizes[axes[0]] if axes and axes[0] in self.op.reduced else 0

    def _draw_distribution(self, picker: Picker, sizes: dict[str, int]) -> str:
        """One of those that were drawn least, and that a sum of this length can be judged on."""
        length = math.prod(sizes[axis] for axis in self.op.reduced)
        usable = [
            name for name in self.distributions if length <= LONGEST_REPETITIVE or name not in self.op.repeats
        ] or list(self.distributions)  # fmt: skip
        rare = _find_rarest(usable, [self.seen["values", name] for name in usable])
        return rare[picker.below(len(rare))]

    def _list_far(self) -> list[tuple[int, str]]:
        """Inputs that may be far, each with every axis whose entries may be apart: any long one but the last."""
        return [
            (at, axis)
            for at, described in enumerate(self.op.inputs)
            if described.kind == "values" and described.far and not described.layouts
            for axis in described.axes.split()[:-1] if self._may_be(axis, FAR_ROWS)
        ]  # fmt: skip

    def _may_be(self, axis: str, size: int) -> bool:
        return axis in self.free and size <= self.op.largest.get(axis, size)

    def _draw_far(self, picker: Picker, number: int) -> Planned:
        """One input with rows so far apart that 32 bits do not hold the offsets of the last.

        No product is one of vectors: cuBLAS multiplies those by kernels that count in 32 bits themselves.
        """
        usable = self._list_far()
        position, rows = usable[picker.below(len(usable))]
        sizes = self.axes.draw(picker, rows, FAR_ROWS, "far", self.others)
        own = self.op.inputs[position].axes.split()
        before = own[: own.index(rows)]
        for axis in self.free:
            sizes[axis] = 1 if axis in before else max(sizes[axis], 2)
        layouts = ["far" if at == position else "contiguous" for at in range(len(self.op.inputs))]
        layout = "+".join(layouts) if len(layouts) > 1 else "far"
        return self._settle(picker, number, sizes, layout), "far"

    def _list_features(self, case: Case) -> list[tuple[object, ...]]:
        """What a case touches, alone and in pairs."""
        sizes = tuple(zip(self.axes.names, case.sizes, strict=True))
        alone: list[tuple[object, ...]] = [("values", case.distribution)]
        alone += [("layout", at, case.layout_of(self.op, at)) for at in range(len(self.op.inputs))]
        alone += [("class", axis, classify(size)) for axis, size in sizes]
        listed: list[tuple[object, ...]] = [("size", *pair) for pair in sizes if pair[1] in self.op.sizes[pair[0]]]
        pairs = combinations(sorted(sizes), 2)
        alike = [("alike", axis, other) for (axis, size), (other, same) in pairs if size == same > 1]
        return [*alone, *combinations(alone, 2), *listed, *alike]

    def _rate(self, features: Sequence[tuple[object, ...]]) -> float:
        """How much of some features is new: whatever was seen n times counts 1/(1 + n)²."""
        return sum([1 / (1 + self.seen[feature]) ** 2 for feature in features])


def _find_rarest(names: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Those of the smallest count."""
    least = min(counts, default=0)
    return [name for name, count in zip(names, counts, strict=True) if count == least]
