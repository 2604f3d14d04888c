"""An op, a way of choosing and what a case may cost → sizes of its axes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from gonogo.ops import Op

STRATEGIES = ("default", "boundary", "regular", "odd", "long")
"""Sizes the op lists; beside powers of two, where masks and tails go wrong; powers of two and sizes of models, that
kernels are tuned for; any other; so long that sums, offsets and grids show their limits."""
BOUNDARY = tuple(sorted({1, *(2**k + d for k in range(1, 13) for d in (-1, 1))}))
REGULAR = tuple(sorted({*(2**k for k in range(1, 13)), 48, 80, 96, 192, 384, 640, 768, 1280, 1536, 3072}))
LONG = (8192, 10007, 16384, 20001, 32768, 50257, 65535, 65536, 65536)
LONG_OF_OTHERS = (*LONG[:-3], 65535, 65536, 65537, 70001)
"""Of axes that are neither the last of an input nor summed over: kernels give those to a grid, and 65,535 is what a
grid holds along two of its axes. A row of more than 65,536 many kernels refuse, and say so."""
EDGES = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 8191, 65534)
"""Upper ends of the classes of sizes that a plan tells apart: tiles are as large as some of them."""
TILE = 16
"""The smallest that kernels usually cut an axis into."""
TAIL_FROM = 64
"""What a size with a tail exceeds: less is often one tile."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one case may cost."""

    inputs: int
    """Elements of any input; they are drawn on the host."""
    output: int
    """Elements of the output."""
    rows: int
    """Rows of the output: its elements over those along the main axis, or along its last."""
    work: int
    """Product of the sizes of all axes: terms of all sums together."""


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """What cases may cost."""

    elements: int
    """Elements of any one array, usually."""
    rows: int
    """Rows of the output: its elements over those along the main axis, or along its last."""
    work: int
    """Product of the sizes of all axes: terms of all sums together."""
    longest: int
    """Largest size of an axis that the op does not list."""
    longest_listed: int
    """Largest size of an axis that the op lists."""
    most: int
    """Elements of any one array where a listed size needs them."""
    large_every: int = 24
    """One case in so many has many tiles along several axes."""
    far: bool = False
    """Whether rows may be further apart than 32 bits hold an offset."""

    def allow(self, elements: int) -> Budget:
        """What a case may cost that has arrays of so many elements."""
        return Budget(elements, elements, self.rows, self.work)

    def allow_large(self) -> Budget:
        """What a case of many tiles along several axes may cost; the usual where that is all there may be."""
        if self.most <= self.elements:
            return self.allow(self.elements)
        inputs, output = max(2**17, 2 * self.elements), max(2**17, 16 * self.elements)
        return Budget(inputs, output, output, max(2**22, self.work))


ON_GPU = SizeLimit(2**17, 2**17, 2**26, 2**17, 2**26, 2**26, large_every=12)
ON_CPU = SizeLimit(2**14, 2**14, 2**20, 2**16, 2**24, 2**24)
INTERPRETER = SizeLimit(2**14, 24, 2**18, 2049, 2049, 2**14)
"""Triton's interpreter takes 2 ms per program, and as long for some steps of its loops."""


def pick(name: str, count: int) -> int:
    """A number below `count` that `name` fixes."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") % count


class Picker:
    """Numbers that a name fixes, one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._words: list[int] = []
        self._digests = 0

    def below(self, count: int) -> int:
        """The next number, less than `count`."""
        if not self._words:
            digest = blake2b(f"{self._name}/{self._digests}".encode()).digest()
            self._words = [int.from_bytes(digest[at : at + 4], "little") for at in range(0, len(digest), 4)]
            self._digests += 1
        return self._words.pop() * count >> 32


class Bounds(NamedTuple):
    """What bounds the size of an axis: by names of axes, products of whose sizes must not be too large."""

    times: int
    """How often it comes in what the work grows with."""
    others: tuple[str, ...]
    """What else does."""
    inputs: tuple[tuple[str, ...], ...]
    """Axes of the inputs that have it."""
    output: tuple[str, ...]
    """Axes of the output, where that has it."""
    rows: tuple[str, ...]
    """Those that count programs, where it is one of them."""


class Axes:
    """An op's axes as sizes are drawn for them."""

    def __init__(self, op: Op, limit: SizeLimit) -> None:
        self.op, self.limit, self.names = op, limit, op.axes
        self.arrays = [
            tuple(base for axis in axes.split() for base in op.list_bases(axis))
            for axes in (*(described.axes for described in op.inputs), op.output)
        ]
        output = self.arrays[-1]
        self.work = tuple(op.work.split()) or self.names
        self.along = op.main if op.main in output else output[-1] if output else ""
        self.smallest = {axis: min(op.sizes[axis]) if op.keeps_listed(axis) else 1 for axis in self.names}
        rows = tuple(axis for axis in output if axis != self.along)
        self.bounds = {
            axis: Bounds(
                max(self.work.count(axis), 1), tuple(other for other in self.work if other != axis),
                tuple(axes for axes in self.arrays[:-1] if axis in axes), output if axis in output else (),
                rows if axis in rows else (),
            ) for axis in self.names
        }  # fmt: skip
        self.common: dict[tuple[object, ...], int] = {}
        """Sizes that several axes may have at once, by budget and axes."""
        self.choices = {
            (axis, strategy): self._list_sizes(axis, strategy) for axis in self.names for strategy in STRATEGIES
        }

    def _list_sizes(self, axis: str, strategy: str) -> tuple[int, ...]:
        """Sizes of an axis, ascending, that a strategy chooses from; those the op lists where it has no others."""
        listed = tuple(sorted(self.op.sizes[axis]))
        if strategy == "default" or self.op.keeps_listed(axis):
            return listed
        if strategy == "long":
            summed_or_last = {*self.op.reduced, *(axes[-1] for axes in self.arrays[:-1] if axes)}
            sizes = LONG if axis in summed_or_last else LONG_OF_OTHERS
        else:
            sizes = BOUNDARY if strategy == "boundary" else REGULAR
        top = min(self.limit.longest, self.op.largest.get(axis, self.limit.longest))
        return tuple(size for size in sizes if size <= top) or listed

    def find_room(self, axis: str, sizes: dict[str, int], budget: Budget) -> int:
        """The largest size of an axis beside those of the others."""
        times, others, inputs, output, rows = self.bounds[axis]
        find = sizes.__getitem__
        room = int((budget.work / math.prod(map(find, others))) ** (1 / times) + 1e-9)
        for axes in inputs:
            room = min(room, budget.inputs * sizes[axis] // math.prod(map(find, axes)))
        if output:
            room = min(room, budget.output * sizes[axis] // math.prod(map(find, output)))
        return min(room, budget.rows * sizes[axis] // math.prod(map(find, rows))) if rows else room

    def draw(
        self, picker: Picker, first: str, size: int | None, strategy: str, others: Sequence[str],
        twin: str | None = None,
    ) -> dict[str, int]:  # fmt: skip
        """Sizes of all axes: the `first` one's own, the rest in what room it leaves, by strategies of their own.

        `size` is what the first must have; else it is one of its strategy. The `twin` has the same size, where
        there is room for that.
        """
        sizes = dict(self.smallest)
        elements = self.limit.elements >> 2 * picker.below(3)
        if strategy == "long":
            elements = min(max(2 * self.limit.elements, 2**16), self.limit.most)
        elif strategy in ("tail", "far"):
            elements = self.limit.elements
        budget = self.limit.allow(elements)
        room = self.find_room(first, sizes, budget)
        sizes[first] = size or self._draw_size(picker, first, strategy, math.isqrt(room) if twin else room)
        settled = [first]
        if twin and self._takes(twin, sizes[first]) and sizes[first] <= self.find_room(twin, sizes, budget):
            sizes[twin] = sizes[first]
            settled.append(twin)
        return self._fill(picker, sizes, settled, others, budget)

    def draw_large(self, picker: Picker, axes: Sequence[str], others: Sequence[str]) -> dict[str, int]:
        """Some axes about as long as they can be all at once, the rest in what room they leave."""
        sizes, budget = dict(self.smallest), self.limit.allow_large()
        unlisted = [name for name in others if name != "default"] or others
        together = self._fit_together(axes, budget)
        for axis in axes:
            room = min(together, self.find_room(axis, sizes, budget))
            sizes[axis] = self._draw_size(picker, axis, unlisted[picker.below(len(unlisted))], room, large=True)
        return self._fill(picker, sizes, axes, others, budget)

    def _fit_together(self, axes: Sequence[str], budget: Budget) -> int:
        """A size that all these axes may have at once, and a third more: some of them will have less."""
        known = self.common.get((budget, *axes))
        if known is not None:
            return known
        size = 4
        while all(self.find_room(axis, self.smallest | dict.fromkeys(axes, size), budget) >= size for axis in axes):
            size += size // 4
        self.common[budget, *axes] = size + size // 3
        return size + size // 3

    def _fill(
        self, picker: Picker, sizes: dict[str, int], settled: Sequence[str], others: Sequence[str], budget: Budget
    ) -> dict[str, int]:
        """Sizes of the axes that are not settled, in any order.

        The main axis has sizes off the usual ones: those it has whenever it comes first itself.
        """
        unusual = [name for name in others if name in ("boundary", "odd")] or others
        for axis in self._shuffle(picker, settled):
            ways = unusual if axis == self.op.main else others
            way, room = ways[picker.below(len(ways))], self.find_room(axis, sizes, budget)
            sizes[axis] = self._draw_size(picker, axis, way, room)
        return sizes

    def _takes(self, axis: str, size: int) -> bool:
        if self.op.keeps_listed(axis):
            return size in self.op.sizes[axis]
        return size <= self.op.largest.get(axis, size)

    def _draw_size(self, picker: Picker, axis: str, strategy: str, room: int, *, large: bool = False) -> int:
        """A size that there is room for; a large one is among the largest of these."""
        if strategy in ("odd", "tail") and not self.op.keeps_listed(axis):
            top = min(room, self.limit.longest, self.op.largest.get(axis, room), 3000)
            if top < 5:
                return self.smallest[axis]
            if large:
                return top - picker.below(top // 2)
            if strategy == "tail" and top > TAIL_FROM:
                low = TAIL_FROM << picker.below((top // TAIL_FROM).bit_length())
                size = min(top, low + 1 + picker.below(low - 1))
                return size - (size % TILE == 0)
            low = 1 << picker.below(top.bit_length() - 1) + 1
            return min(top, low + picker.below(low))
        sizes = self.choices[axis, strategy]
        fitting = bisect_right(sizes, room)
        if strategy == "long" and not fitting:  # of work that grows with its square
            return room - picker.below(1 + room // 4)
        if large:
            return sizes[fitting - 1 - picker.below(min(fitting, 4))] if fitting else self.smallest[axis]
        return sizes[picker.below(fitting)] if fitting else self.smallest[axis]

    def _shuffle(self, picker: Picker, settled: Sequence[str]) -> list[str]:
        axes = [axis for axis in self.names if axis not in settled]
        for at in range(len(axes) - 1, 0, -1):
            other = picker.below(at + 1)
            axes[at], axes[other] = axes[other], axes[at]
        return axes

    def fits_at_all(self, axis: str, size: int) -> bool:
        """Whether a listed size can be run beside the smallest of the others, at whatever cost it has."""
        sizes = self.smallest | {axis: size}
        fits = all(math.prod(sizes[other] for other in axes) <= self.limit.most for axes in self.arrays)
        return fits and size <= self.limit.longest_listed


def classify(size: int) -> tuple[int, bool]:
    """Which class of sizes one is in, and whether tiles divide it: tails are of one kind, fast paths of another."""
    return bisect_right(EDGES, size - 1), size % TILE == 0
