"""A case: all that fixes the inputs of an op, bit for bit, and the short id that stands for it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from gonogo.errors import InputError, check_type
from gonogo.ops import DTYPES, LAID_OUT, Op, get_op

DTYPE_CODES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int8": "i8", "uint8": "u8", "int16": "i16", "int32": "i32", "int64": "i64",
    "bool": "bool",
}  # fmt: skip
DRAWN = "drawn"
"""The distribution of arguments that an op draws itself, or that were given."""
LAYOUTS = ("contiguous", "transposed", "strided", "offset", "pitched", "expanded", "far")
"""In order; last two axes stored swapped; a gap behind every element; the first element off its alignment; a gap
behind every row; the first axis of several repeats one entry, at stride 0; rows so far
apart that 32 bits do not hold an offset, for a GPU."""
EVERYWHERE = LAYOUTS[:-1]
"""Layouts that need no more memory than the elements do."""
_ID = re.compile(
    r"(?P<op>\w+):(?P<dtype>\w+):(?P<sizes>-|\d+(x\d+)*):(?P<layout>[a-z]+):(?P<distribution>\w+):(?P<seed>\d+)"
)
_LETTERS = {name[0]: name for name in LAYOUTS}


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs of an op."""

    op: str
    dtype: str
    sizes: tuple[int, ...]
    """In the order of the op's axes."""
    layout: str
    """One for all inputs of values; or one for each input, joined by +."""
    distribution: str
    seed: int

    @property
    def id(self) -> str:
        """What `gonogo show` takes: softmax:f16:2x7x1025:c:uniform:81."""
        layout = "".join(name[0] for name in self.layout.split("+"))
        return ":".join([
            self.op, DTYPE_CODES[self.dtype], "x".join(map(str, self.sizes)) or "-", layout, self.distribution,
            str(self.seed),
        ])  # fmt: skip

    def layout_of(self, op: Op, position: int) -> str:
        """Layout of one input; a layout for all is for those of values."""
        layouts = self.layout.split("+")
        if len(layouts) > 1:
            return layouts[position]
        return layouts[0] if op.inputs[position].kind in LAID_OUT else "contiguous"

    def axis_sizes(self, op: Op) -> dict[str, int]:
        """Axis → size, of derived axes too."""
        return op.find_sizes(dict(zip(op.axes, self.sizes, strict=True)))

    def shape_of(self, op: Op, axes: str) -> tuple[int, ...]:
        """Shape of an array with these axes."""
        sizes = self.axis_sizes(op)
        return tuple(sizes[axis] for axis in axes.split())


LONGEST_ID = 1000
"""Letters of a case id: no axis has so many that theirs take more, and Python reads no number of 5,000 digits."""


def parse_case(text: str, op: Op | None = None) -> Case:
    """The case an id stands for, of an op at hand or of one in its folder.

    >>> parse_case("softmax:f16:2x7x1025:c:uniform:81").sizes
    (2, 7, 1025)
    """
    from gonogo.cases.values import DISTRIBUTIONS

    check_type("a case id", text, str, "text such as softmax:f16:2x7x1025:c:uniform:81")
    match = _ID.fullmatch(text)
    if match is None or len(text) > LONGEST_ID:
        shown = text if len(text) <= LONGEST_ID else f"{text[:40]}…"
        raise InputError(f"{shown!r} is no case id; one looks like softmax:f16:2x7x1025:c:uniform:81")
    dtypes = {DTYPE_CODES[name]: name for name in (DTYPES if op is None else op.dtypes)}
    words: list[tuple[str, str, Collection[str]]] = [("dtype", match["dtype"], dtypes)]
    words += [("layout", letter, _LETTERS) for letter in match["layout"]]
    drawn = op is not None and op.draw is not None
    words.append(("distribution", match["distribution"], [DRAWN] if drawn else DISTRIBUTIONS))
    for what, value, known in words:
        if value not in known:
            raise InputError(f"case id {text!r}: {what} {value!r} is none of {', '.join(known)}")
    if op is not None and op.name != match["op"]:
        raise InputError(f"case id {text!r} is of op {match['op']}, not of {op.name}")
    op = op or get_op(match["op"])
    sizes = tuple(int(size) for size in match["sizes"].split("x") if size != "-")
    if len(sizes) != len(op.axes):
        raise InputError(f"case id {text!r}: {len(sizes)} sizes for the axes {' '.join(op.axes)} of {op.name}")
    layout = "+".join(_LETTERS[letter] for letter in match["layout"])
    if len(match["layout"]) not in (1, max(1, len(op.inputs))):
        raise InputError(
            f"case id {text!r}: {len(match['layout'])} layouts for the {len(op.inputs)} inputs of {op.name}; "
            "give one, or one for each"
        )
    return Case(op.name, dtypes[match["dtype"]], sizes, layout, match["distribution"], int(match["seed"]))
