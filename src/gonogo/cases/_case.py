"""A case: all that fixes the inputs of an op, bit for bit, and the short id that stands for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gonogo.errors import InputError
from gonogo.ops import Op, get_op

DTYPE_CODES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
LAYOUTS = ("contiguous", "transposed", "strided", "offset")
"""In order; last two axes stored swapped; a gap behind every element; the first element off its alignment."""
_ID = re.compile(
    r"(?P<op>\w+):(?P<dtype>\w+):(?P<sizes>\d+(x\d+)*):(?P<layout>\w):(?P<distribution>\w+):(?P<seed>\d+)"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs of an op."""

    op: str
    dtype: str
    sizes: tuple[int, ...]
    """In the order of the op's axes."""
    layout: str
    distribution: str
    seed: int

    @property
    def id(self) -> str:
        """What `gonogo show` takes: softmax:f16:2x7x1025:c:uniform:81."""
        return ":".join([
            self.op, DTYPE_CODES[self.dtype], "x".join(map(str, self.sizes)), self.layout[0], self.distribution,
            str(self.seed),
        ])  # fmt: skip

    def axis_sizes(self, op: Op) -> dict[str, int]:
        """Axis → size."""
        return dict(zip(op.axes, self.sizes, strict=True))

    def shape_of(self, op: Op, axes: str) -> tuple[int, ...]:
        """Shape of an array with these axes."""
        sizes = self.axis_sizes(op)
        return tuple(sizes[axis] for axis in axes.split())


def parse_case(text: str, op: Op | None = None) -> Case:
    """The case an id stands for, of an op at hand or of one in its folder.

    >>> parse_case("softmax:f16:2x7x1025:c:uniform:81").sizes
    (2, 7, 1025)
    """
    from gonogo.cases.values import DISTRIBUTIONS

    found = _ID.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} is no case id; one looks like softmax:f16:2x7x1025:c:uniform:81")
    dtypes = {code: name for name, code in DTYPE_CODES.items()}
    layouts = {name[0]: name for name in LAYOUTS}
    for what, value, known in (
        ("dtype", found["dtype"], dtypes),
        ("layout", found["layout"], layouts),
        ("distribution", found["distribution"], DISTRIBUTIONS),
    ):
        if value not in known:
            raise InputError(f"case id {text!r}: {what} {value!r} is none of {', '.join(known)}")
    if op is not None and op.name != found["op"]:
        raise InputError(f"case id {text!r} is of op {found['op']}, not of {op.name}")
    op = op or get_op(found["op"])
    sizes = tuple(int(size) for size in found["sizes"].split("x"))
    if len(sizes) != len(op.axes):
        raise InputError(f"case id {text!r}: {len(sizes)} sizes for the axes {' '.join(op.axes)} of {op.name}")
    return Case(
        op.name, dtypes[found["dtype"]], sizes, layouts[found["layout"]], found["distribution"], int(found["seed"])
    )
