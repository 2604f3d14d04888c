"""An op, a strategy and a number → sizes of its axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b

from gonogo.ops import Op

STRATEGIES = ("default", "boundary", "regular")
"""Sizes the op lists; those at which masks and tails go wrong; those that kernels are tuned for."""
BOUNDARY = (1, 2, 3, 7, 15, 17, 31, 33, 63, 65, 127, 129, 255, 257, 1025, 2049)
REGULAR = (64, 128, 256, 512)
_TRIES = 32


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """What a case may be at most. Triton's interpreter takes 2 ms per program, a GPU memory only."""

    elements: int
    """Elements of any one array."""
    rows: int
    """Rows of the output: its elements over those along the main axis, or along its last."""


NO_LIMIT = SizeLimit(2**24, 2**24)
INTERPRETER = SizeLimit(2**14, 24)


def pick(name: str, count: int) -> int:
    """A number below `count` that `name` fixes."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") % count


def draw_sizes(op: Op, strategy: str, name: str, limit: SizeLimit) -> tuple[int, ...]:
    """Sizes in the order of the op's axes, fixed by `name`: the first draw within the limit, else the smallest."""
    choices = {axis: op.sizes[axis] for axis in op.axes}
    if op.only_listed:
        pass
    elif strategy == "boundary":
        choices[op.main] = BOUNDARY
    elif strategy == "regular":
        choices[op.main] = REGULAR
    for attempt in range(_TRIES):
        sizes = {axis: sizes[pick(f"{name}/{axis}/{attempt}", len(sizes))] for axis, sizes in choices.items()}
        if _fits(op, sizes, limit):
            return tuple(sizes.values())
    return tuple(min(sizes) for sizes in choices.values())


def _fits(op: Op, sizes: dict[str, int], limit: SizeLimit) -> bool:
    arrays = [[sizes[axis] for axis in axes.split()] for axes in (*(i.axes for i in op.inputs), op.output)]
    output = op.output.split()
    along = sizes[op.main] if op.main in output else sizes[output[-1]] if output else 1
    rows = math.prod(arrays[-1]) // along
    return rows <= limit.rows and all(math.prod(array) <= limit.elements for array in arrays)
