"""A user's words → an op: its reference, and arguments by axes, by a generator, or as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any
from zlib import crc32

from gonogo.cases import EVERYWHERE, follows_dtype
from gonogo.errors import InputError, check_type, suggest
from gonogo.guest.nests import list_leaves
from gonogo.ops import (
    DTYPES,
    FOLLOWED,
    INPUT_DTYPES,
    AtHand,
    Index,
    Input,
    Kernel,
    Out,
    evaluate,
    op_names,
)  # fmt: skip
from gonogo.ops import Op as PlainOp
from gonogo.user.arguments import check_nest
from gonogo.user.kernels import name_function
from gonogo.words import find_words, need_torch

LEAF_DTYPES = (*INPUT_DTYPES, "int4", "uint4")
"""What a leaf of the output may be declared to have."""


UNSAID = (None, (), False)
"""By identity: what is given may be a tensor, which is equal to nothing. There is but one empty tuple."""


def Op(  # noqa: N802  reads as what it makes
    name: str,
    *,
    reference: Callable[..., Any],
    inputs: Any,
    output: str | None = None,
    sizes: Mapping[str, Sequence[int] | str] | None = None,
    main: str | None = None,
    reduced: Sequence[str] = (),
    only_listed: bool | Sequence[str] = False,
    outputs: Any = None,
    mutates: str | Sequence[str] = (),
    grads: bool | str | Sequence[str] = False,
) -> PlainOp:
    """An op of your own: a reference in torch ops that can run in float64, and where its arguments are from.

    `inputs` are names and axes, as in {"x": "rows cols"}, each axis with candidate `sizes`; or a generator
    draw(seed, dtype) of all arguments; or the arguments as they are, by place or by name. Axes may also be a
    gonogo.Arg(...) with a dtype or filling of its own; anything else under a name is handed over as it is.

    `output` are the axes of an output that is one tensor in the dtype of the case; without it the output is any
    nest, each leaf with the shape and dtype that the reference gives it, or that `outputs` says. outputs="last" is
    for kernels that write to outputs they are handed behind their arguments; `mutates` names arguments that a
    kernel writes to; `grads` those whose gradients are judged, too, True for all.

    `main` is the axis whose size matters most, by default the last of the first input: it also has sizes that are
    not listed, where masks and tails go wrong or that kernels are tuned for. `only_listed` keeps to the listed
    ones, of all axes or of those it names, for a kernel that needs a multiple of 64, say. An axis whose size is
    "2*P" follows another. `reduced` are the axes that are summed over. Listed sizes are run, each at least once
    within `cases`, or the verification says which were not.
    """
    check_type("op name", name, str, "text: letters, digits and _")
    if not re.fullmatch(r"\w+", name):
        raise InputError(f"op name {name!r}: letters, digits and _ only, for it is part of every case id")
    if name in op_names():
        raise InputError(
            f"op name {name!r} is that of an op of the package: its limits and records would be taken for yours. "
            f"Choose another, as in 'my_{name}'"
        )
    if not callable(reference):
        raise InputError(f"op {name}: reference is {type(reference).__name__}, not a function of its inputs")
    check_nest(f"op {name}: inputs", inputs)
    out, leaves = _read_outputs(name, outputs)
    facts: dict[str, Any] = {
        "name": name, "leaves": leaves, "out": out, "mutates": _list_words(mutates, "mutates"),
        "reference": AtHand(reference),
        "grads": grads if isinstance(grads, bool) else _list_words(grads, "grads"),
    }  # fmt: skip
    _check_gradients(name, facts)
    if _are_axes(inputs, sizes):
        return _make_from_axes(facts, inputs, output, {} if sizes is None else sizes, main, reduced, only_listed)
    if any(not any(said is word for word in UNSAID) for said in (output, sizes, main, reduced, only_listed)):
        raise InputError(f"op {name}: axes and sizes go with inputs={{'x': 'rows cols'}}, not with other inputs")
    return _make_from_arguments(facts, reference, inputs)


def _check_gradients(name: str, facts: Mapping[str, Any]) -> None:
    """Refuse gradients of what autograd cannot follow."""
    grads, mutates = facts["grads"], facts["mutates"]
    if grads and facts["out"]:
        raise InputError(f"op {name}: grads goes with kernels that return their outputs, not with outputs=")
    if facts["out"] and mutates:
        raise InputError(f"op {name}: outputs that are handed over do not go with mutates; hand over those, too")
    both = [path for path in mutates if grads is True or path in (grads or ())]
    if both:
        raise InputError(
            f"op {name}: {both[0]} is in mutates and in grads; autograd follows no argument written to"
        )


def _list_words(words: str | Sequence[str], what: str = "names") -> tuple[str, ...]:
    listed = (words,) if isinstance(words, str) else words
    if not isinstance(listed, (tuple, list)) or not all(isinstance(word, str) for word in listed):
        raise InputError(f"{what} is {words!r}; give names, as in {what}=('q', 'k')")
    return tuple(listed)


def _are_axes(inputs: Any, sizes: Any) -> bool:
    """Whether inputs are names and axes, and not arguments by name."""
    if not isinstance(inputs, Mapping):
        return isinstance(inputs, list) and all(isinstance(name, str) for name in inputs)
    if sizes is not None or any(isinstance(value, Arg) for value in inputs.values()):
        return True
    arrays = any(hasattr(leaf, "__array__") for _, leaf in list_leaves(dict(inputs)))
    return any(isinstance(value, str) for value in inputs.values()) and not arrays


def _read_outputs(name: str, declared: Any) -> tuple[str, dict[str, Out]]:
    """How a kernel is handed its outputs, if it is; and what is declared of leaves, by path."""
    if declared is None:
        return "", {}
    if isinstance(declared, str) and declared not in LEAF_DTYPES:
        return declared, {}
    if isinstance(declared, Mapping):
        parts = [(str(path), leaf) for path, leaf in declared.items()]
    elif isinstance(declared, (tuple, list)):
        parts = [(str(path), leaf) for path, leaf in enumerate(declared)]
    elif is_dataclass(declared) and not isinstance(declared, (Out, Index)):
        parts = [(part.name, getattr(declared, part.name)) for part in fields(declared)]
    else:
        parts = [("", declared)]
    return "", {path: _read_out(name, path, leaf) for path, leaf in parts if leaf is not None}


def _read_out(name: str, path: str, declared: Any) -> Out:
    if isinstance(declared, Out):
        return declared
    if isinstance(declared, Index):
        return Out(index=declared)
    dtype = str(declared).removeprefix("torch.")
    if dtype not in LEAF_DTYPES:
        where = f" {path}" if path else ""
        raise InputError(
            f'op {name}: outputs{where} is {declared!r}; give a dtype, gonogo.Index(of=...), or outputs="last"'
        )
    return Out(dtype)


def _make_from_arguments(facts: dict[str, Any], reference: Callable[..., Any], inputs: Any) -> PlainOp:
    """An op whose arguments are drawn by a user's generator, or given."""
    if callable(inputs) and not hasattr(inputs, "__array__"):
        need_torch("a generator of inputs")
        draw, is_given, follows = inputs, False, follows_dtype(inputs)
    else:
        if inputs is None:
            raise InputError(
                f"op {facts['name']}: no inputs; give arguments, a generator draw(seed, dtype), or names and axes"
            )
        draw, is_given, follows = (lambda: inputs), True, False
    op = PlainOp(
        inputs=(), output="", sizes={}, main="", is_nest=True, is_given=is_given, draw=AtHand(draw),
        kernels=(Kernel(f"{facts['name']}_torch", "torch", source=AtHand(reference)),), **facts,
    )  # fmt: skip
    if follows:
        return op
    from gonogo.cases import draw_arguments, take_arguments

    tensors = [x for _, x in take_arguments(op, draw_arguments(op, 0, DTYPES[-1])).tensors]
    named = [str(x.dtype).removeprefix("torch.") for x in tensors if x.is_floating_point()]
    named += [str(x.dtype).removeprefix("torch.") for x in tensors]
    label = next((dtype for dtype in named if dtype in INPUT_DTYPES), DTYPES[-1])
    return replace(op, dtypes=(label,))


def _make_from_axes(
    facts: dict[str, Any],
    inputs: Mapping[str, Any],
    output: str | None,
    sizes: Mapping[str, Sequence[int] | str],
    main: str | None,
    reduced: Sequence[str],
    only_listed: bool | Sequence[str],
) -> PlainOp:
    """An op whose arguments are drawn by axes."""
    name = facts["name"]
    if not isinstance(inputs, Mapping):
        raise InputError(f"op {name}: inputs is {inputs!r}; give names and axes, as in inputs={{'x': 'rows cols'}}")
    check_type(f"op {name}: sizes", sizes, Mapping, "the sizes of every axis: {'rows': (1, 7)}")
    for word, axes_given in (("output", output), ("main", main)):
        check_type(f"op {name}: {word}", axes_given, (str, type(None)), "axes by name, as in 'rows cols'")
    for axis in sizes:
        check_type(f"op {name}: an axis of sizes", axis, str, "text")
    described = tuple(_describe_input(argument, axes) for argument, axes in inputs.items())
    for path in facts["mutates"]:
        if path not in inputs:
            raise InputError(f"op {name}: mutates {path!r} is none of the inputs {', '.join(inputs)}")
    # Of an input at stride 0 many elements are one, and nothing can be written to them.
    described = tuple(
        replace(argument, layouts=argument.layouts or tuple(word for word in EVERYWHERE if word != "expanded"))
        if argument.name in facts["mutates"] else argument for argument in described
    )  # fmt: skip
    axes = " ".join([*(argument.axes for argument in described), output or ""])
    if "," in axes:
        raise InputError(f"op {name}: axes are separated by spaces, as in {{'x': 'rows cols'}}, not by commas")
    derived = {axis: size for axis, size in sizes.items() if isinstance(size, str)}
    listed = {axis: choices for axis, choices in sizes.items() if not isinstance(choices, str)}
    first = next((argument.axes.split() for argument in described if argument.kind != "constant"), [])
    if not first:
        raise InputError(f"op {name}: its first input needs axes, as in inputs={{'x': 'rows cols'}}")
    reduced = _list_words(reduced, "reduced")
    used = dict.fromkeys(axes.split())
    free = [axis for axis in used if axis not in derived]
    bases = dict.fromkeys([*free, *(base for size in derived.values() for base in _bases(size))])
    for axis, size in derived.items():
        if not _bases(size):
            raise InputError(f"op {name}: axis {axis!r} has the size {size!r}; give one of another's, as in '2*P'")
    main = main or (first[-1] if first[-1] in bases else _bases(derived[first[-1]])[0])
    _check_axes(name, list(bases), listed, derived, (main, *reduced))
    only: bool | tuple[str, ...] = True
    if only_listed is not True:
        others = [axis for axis in bases if axis != main]
        named = () if only_listed is False else _list_words(only_listed, "only_listed")
        only = tuple(dict.fromkeys([*others, *named]))
    return PlainOp(
        inputs=described, output=output or "", sizes={axis: tuple(choices) for axis, choices in listed.items()},
        kernels=(Kernel(f"{name}_torch", "torch", source=facts["reference"]),), twin=f"{name}_torch", main=main,
        reduced=reduced, only_listed=only, derived=derived,
        is_nest=output is None or bool(facts["leaves"] or facts["out"] or facts["mutates"] or facts["grads"]),
        **facts,
    )  # fmt: skip


def _bases(size: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", size)


def _describe_input(name: str, axes: Any) -> Input:
    check_type("the name of an input", name, str, "text")
    if isinstance(axes, str):
        return Input(name, axes)
    if isinstance(axes, Arg):
        return axes.name_as(name)
    return Input(name, "", "constant", value=axes)


BYTES = {"int8": (-128, 127), "uint8": (0, 255)}
"""Integers that are drawn over their whole range where none is told."""


@dataclass(frozen=True)
class Arg:
    """One input of an op by axes, with a dtype, a filling or layouts of its own.

    `fill` is `values`, numbers of the case's distribution; `positive`, their sizes; `probability`, from 0 to 1;
    `range`, from `low` to `high`, 0 to 1 by default; `integers`, likewise, but of int8 and uint8 all by default;
    `index`, from 0 to below the size of the axis `below`; or `boolean`. It follows from the dtype where it is not
    told. "T" is the dtype of the case.
    """

    axes: str
    dtype: Any = FOLLOWED
    fill: str | None = None
    below: str | None = None
    low: float | None = None
    high: float | str | None = None
    layouts: Sequence[str] = ()

    def name_as(self, name: str) -> Input:
        """The input of that name."""
        check_type(f"input {name}: axes", self.axes, str, "names of axes, as in 'rows cols'")
        for word in ("fill", "below"):
            check_type(f"input {name}: {word}", getattr(self, word), (str, type(None)), "a word")
        for word, kinds in (("low", (int, float)), ("high", (int, float, str))):
            check_type(f"input {name}: {word}", getattr(self, word), (*kinds, type(None)), "a number")
        dtype = str(self.dtype).removeprefix("torch.")
        whole = dtype in ("int8", "uint8", "int16", "int32", "int64")
        usual = "index" if self.below else "boolean" if dtype == "bool" else "integers" if whole else "values"
        fill = self.fill or usual
        low, high = self._find_range(name, dtype, fill)
        if isinstance(high, int | float) and low > high:
            raise InputError(f"input {name}: low is {low}, above high, {high}")
        layouts = find_words("layout", self.layouts, EVERYWHERE) if self.layouts else ()
        return Input(
            name, self.axes, fill, self.below, dtype=dtype, low=low, high=high,  # type: ignore[arg-type]
            layouts=layouts,
        )  # fmt: skip

    def _find_range(self, name: str, dtype: str, fill: str) -> tuple[float, float | str]:
        """From where to where; of bytes it is all that they hold, of wider integers it must be told."""
        if fill != "integers" or self.low is not None or self.high is not None:
            return self.low or 0, 1 if self.high is None else self.high
        if dtype not in BYTES:
            raise InputError(
                f"input {name}: {dtype} integers from where to where? Give low= and high=, a number or the name of "
                "an axis, or below= an axis that they point into"
            )
        return BYTES[dtype]


def choose_contract(op: PlainOp) -> str | None:
    """What a kernel promises that says nothing: float32, but for arguments in float64."""
    return "float64" if op.dtypes == ("float64",) else None


def name_op(reference: Callable[..., Any]) -> str:
    """What an op is called that is told by its reference alone."""
    name = re.sub(r"\W+", "_", name_function(reference)).strip("_") or "kernel"
    if name == "lambda":  # two of them are two ops, whose records and limits must not mix
        code = reference.__code__
        name += f"_{crc32(repr((code.co_code, code.co_names, code.co_consts)).encode()):08x}"
    return f"my_{name}" if name in op_names() else name


def _check_axes(
    name: str,
    used: Sequence[str],
    sizes: Mapping[str, Sequence[int]],
    derived: Mapping[str, str],
    named: Sequence[str],
) -> None:
    for axis in used:
        if axis not in sizes:
            near = suggest(axis, [known for known in sizes if known not in used])
            remedy = near or f". Give some, as in sizes={{{axis!r}: (1, 7, 128)}}"
            raise InputError(f"op {name}: no sizes for axis {axis!r}{remedy}")
    for axis in sizes:
        if axis not in used:
            near = suggest(axis, list(used))
            raise InputError(f"op {name}: sizes for axis {axis!r}, which no input or output has{near}")
        choices = sizes[axis]
        if isinstance(choices, int | str) or not all(type(size) is int for size in choices):
            raise InputError(f"op {name}: sizes of axis {axis!r} are {choices!r}; give whole numbers: (1, 7, 128)")
    for size in derived.values():
        evaluate(size, {axis: min(choices, default=1) for axis, choices in sizes.items()})
    for axis in named:
        if axis not in used:
            near = suggest(axis, list(used)) or f"; it has {', '.join(used)}"
            raise InputError(f"op {name}: main or reduced names axis {axis!r}, which no input or output has{near}")
