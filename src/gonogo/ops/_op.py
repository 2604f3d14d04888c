"""What an op is: named axes, inputs, a float64 reference and the kernels that implement it; all of it plain data.

Nothing here imports torch or triton: an op can be listed on a machine that has neither.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from gonogo.errors import InputError
from gonogo.ops._source import InFolder, Source
from gonogo.parsing import parse_source
from gonogo.schema import Contract

DTYPES = ("float16", "bfloat16", "float32")
Framework = Literal["torch", "triton", "numpy"]
Role = Literal["control", "faulty", "candidate"]
Kind = Literal[
    "values", "index", "int8", "scale", "integers", "boolean", "positive", "probability", "range", "constant"
]
FOLLOWED = "T"
"""The dtype of an input that has the case's."""
INPUT_DTYPES = (
    *DTYPES, "float64", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int16", "int32", "int64", "bool"
)  # fmt: skip
"""What an input may have that does not follow the case."""
LAID_OUT = ("values", "positive", "probability", "range")
"""Kinds of inputs that have layouts of their own."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of an op."""

    name: str
    axes: str
    """Names of its axes, as in "rows cols"; empty for a scalar."""
    kind: Kind = "values"
    """Numbers of the case's distribution; integers below `below`; −127 … 127; positive factors; integers from
    `low` to `high`; true or false; sizes of the distribution's numbers; from 0 to 1; from `low` to `high`; `value`,
    which is no array at all."""
    below: str | None = None
    """The axis an index points into."""
    dtype: str = FOLLOWED
    """A dtype of its own, or that of the case; integers that name none are int64."""
    low: float = 0
    """The least of a range."""
    high: float | str = 1
    """The largest, which is in the range; an axis stands for its size."""
    layouts: tuple[str, ...] = ()
    """Layouts it may have, where it may not have all."""
    value: Any = None
    """The value of a constant."""
    far: bool = True
    """Whether 32 bits may be too few for an offset within it; not for parameters, which are never that large."""

    def __post_init__(self) -> None:
        _check_known(f"input {self.name}", "kind", self.kind, get_args(Kind))
        _check_known(f"input {self.name}", "dtype", self.dtype, (FOLLOWED, *INPUT_DTYPES))
        if self.kind == "index" and self.below is None:
            raise InputError(f"input {self.name} is an index: below must name the axis it points into")


@dataclass(frozen=True, slots=True)
class Index:
    """Of a leaf of indices: judged by what they point at, so that any of several equal ones will do."""

    of: str
    """The argument, or the leaf of the output, that they point into."""
    dim: int = -1
    """Its dimension that they count along."""
    unique: bool = False
    """Whether no index may come twice along that dimension."""


@dataclass(frozen=True, slots=True)
class Out:
    """What is declared of a leaf of the output; the rest is as the reference has it."""

    dtype: str | None = None
    """Its dtype; `int4` and `uint4` are in the low bits of int8 and uint8."""
    index: Index | None = None
    """How it is judged, where it is made of indices."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One implementation of an op."""

    name: str
    framework: Framework
    role: Role = "control"
    """Held to be correct, carrying a known bug, or a user's, of which nothing is known."""
    contract: Contract = field(default=Contract())
    in_dtype: bool = False
    """Whether it accumulates in the dtype of its inputs, whatever that is."""
    calibrate_against: str | None = None
    """The control of the same op that another kernel is compared with."""
    current: Mapping[str, float] = field(default_factory=dict)
    """Hand-picked atol of the published corpus, by dtype."""
    dtypes: tuple[str, ...] = DTYPES
    at_most: Mapping[str, int] = field(default_factory=dict)
    """Largest size that it takes of an axis, where it does not take all that the op promises."""
    source: Source | None = None
    """Where its function is from; None in an op's own folder, until the op is found there by its name."""

    def __post_init__(self) -> None:
        _check_known(f"kernel {self.name}", "role", self.role, get_args(Role))
        _check_known(f"kernel {self.name}", "framework", self.framework, get_args(Framework))
        for dtype in self.dtypes:
            _check_known(f"kernel {self.name}", "dtype", dtype, INPUT_DTYPES)

    def takes(self, dtype: str, sizes: Mapping[str, int]) -> bool:
        """Whether it runs on inputs of a dtype and these sizes."""
        return dtype in self.dtypes and all(sizes[axis] <= size for axis, size in self.at_most.items())

    def contract_for(self, dtype: str) -> Contract:
        """What it promises for inputs of `dtype`."""
        return replace(self.contract, accumulate=dtype) if self.in_dtype else self.contract

    def load(self) -> Callable[..., Any]:
        """The function: inputs, in order → output. Imports its framework."""
        if self.source is None:
            raise InputError(f"kernel {self.name} has no source: take its op by gonogo.ops.get_op")
        return self.source.load()


@dataclass(frozen=True, slots=True)
class Op:
    """An operator."""

    name: str
    inputs: tuple[Input, ...]
    output: str
    """Axes of the output."""
    sizes: Mapping[str, tuple[int, ...]]
    """Candidate sizes of every axis; those of the published corpus where it has the op."""
    kernels: tuple[Kernel, ...]
    main: str
    """The axis whose size matters most: the one that a pattern is told of first."""
    only_listed: bool | tuple[str, ...] = False
    """Axes that kernels take no sizes of but the candidates, or True for all: nothing leaves them then."""
    largest: Mapping[str, int] = field(default_factory=dict)
    """Largest size of an axis that is promised, where there is one."""
    takes: tuple[str, ...] = ()
    """Distributions with infinities or NaN whose output the reference defines: `masked`, `nan`."""
    reduced: tuple[str, ...] = ()
    """Axes summed over: the length of its sums is the product of their sizes."""
    repeats: tuple[str, ...] = ("ties", "rows")
    """Distributions of which its sums have few distinct terms: they are for sums of some hundred terms."""
    work: str = ""
    """Axes that its work is the product of: one that counts twice is named twice. Empty for all axes, once each."""
    sums_of_products: bool = False
    """Whether small integers make every intermediate exact, so that the only right answer is the exact one."""
    is_matrix_product: bool = False
    """Whether it is the product of two matrices, its inputs: some tolerances are made for nothing else."""
    reference: Source | None = None
    """Where its float64 reference is from; None in its own folder, until it is found there by its name."""
    twin: str | None = None
    """The control that is the framework's own op, by which some tolerances are made; in a folder, OP_torch."""
    derived: Mapping[str, str] = field(default_factory=dict)
    """Axes whose sizes are made of others', as in "2*P"."""
    draw: Source | None = None
    """Where its arguments are from, if not from axes: seed and dtype → arguments."""
    dtypes: tuple[str, ...] = DTYPES
    """Dtypes that its cases may have; one, where its arguments do not follow the case's."""
    is_given: bool = False
    """Whether its arguments are the same for every seed, so that it has but one case."""
    is_nest: bool = False
    """Whether its output is any nest, as the reference gives it; else one tensor of the axes `output`."""
    leaves: Mapping[str, Out] = field(default_factory=dict)
    """By path, what is declared of leaves of the output."""
    out: str = ""
    """`last` where a kernel is handed its outputs behind its arguments, or the name it takes them by; else ""."""
    mutates: tuple[str, ...] = ()
    """Arguments that a kernel writes to: what they hold afterwards is output."""
    grads: bool | tuple[str, ...] = False
    """Arguments whose gradients are output, too; True for all that are floating."""
    scratch: tuple[str, ...] = ()
    """Arguments that a kernel may write to, and of which nothing is judged: a buffer among the inputs, say."""
    own_check: Source | None = None
    """Where the check is from that a benchmark has for it: the call and a kernel's output → whether it passes."""
    is_uneven: bool = False
    """Whether its cases are another's calls, some of which the reference may not take: these are not judged."""

    def __post_init__(self) -> None:
        if self.draw is not None:
            return
        used = set(self.axes)
        if used != set(self.sizes):
            raise InputError(f"op {self.name}: axes {sorted(used)} but sizes for {sorted(self.sizes)}")
        for axis, sizes in self.sizes.items():
            if not sizes or min(sizes) < 1:
                raise InputError(f"op {self.name}: axis {axis} has sizes {sizes}; give one or more, all above 0")
        only = self.only_listed if isinstance(self.only_listed, tuple) else ()
        below = [described.below for described in self.inputs if described.below]
        below += [described.high for described in self.inputs if isinstance(described.high, str)]
        used |= set(self.derived)
        for axis in (self.main, *self.reduced, *only, *self.largest, *self.work.split(), *below):
            if axis not in used:
                raise InputError(f"op {self.name}: axis {axis!r} is none of {sorted(used)}")
        if not self.kernels:
            raise InputError(f"op {self.name} has no kernels")
        names = [kernel.name for kernel in self.kernels]
        if len(set(names)) != len(names):
            raise InputError(f"op {self.name}: two kernels of one name among {names}")
        controls = [kernel.name for kernel in self.kernels if kernel.role == "control"]
        for kernel in self.kernels:
            if kernel.role == "faulty" and kernel.calibrate_against not in controls:
                raise InputError(
                    f"kernel {kernel.name}: calibrate_against is {kernel.calibrate_against!r}, "
                    f"none of the controls {controls}"
                )

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes in the order in which inputs and output name them; for one derived, those it is made of."""
        named = " ".join([*(i.axes for i in self.inputs), self.output]).split()
        return tuple(dict.fromkeys(base for axis in named for base in self.list_bases(axis)))

    def list_bases(self, axis: str) -> tuple[str, ...]:
        """The axes that one is made of: itself, if it is not derived."""
        return _list_names(self.derived[axis]) if axis in self.derived else (axis,)

    def find_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes of all axes, derived ones too, from those of the others."""
        return {**sizes, **{axis: evaluate(expression, sizes) for axis, expression in self.derived.items()}}

    def keeps_listed(self, axis: str) -> bool:
        """Whether an axis has the sizes that are listed, and no others."""
        return self.only_listed is True or (self.only_listed is not False and axis in self.only_listed)

    def kernel(self, name: str) -> Kernel:
        """The kernel called `name`."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise InputError(f"op {self.name} has no kernel {name!r}; it has {', '.join(k.name for k in self.kernels)}")

    @property
    def is_own(self) -> bool:
        """Whether it is a user's, and in no folder."""
        return not isinstance(self.reference, InFolder)

    def load_reference(self) -> Callable[..., Any]:
        """The float64 reference: a function of the inputs, in order, in primitive torch ops."""
        if self.reference is None:
            raise InputError(f"op {self.name} has no reference: take it by gonogo.ops.get_op")
        return self.reference.load()

    def load_kernel(self, name: str) -> Callable[..., Any]:
        """The function of a kernel: inputs, in order → output. Imports its framework."""
        return self.kernel(name).load()

    def describe_kernel(self, name: str) -> str:
        """First line of the docstring of a kernel: what it does, or its bug and where that shows."""
        source = self.kernel(name).source
        if not isinstance(source, InFolder):
            return ""
        return _read_docstrings(source.find_file()).get(name, "").partition("\n")[0]

    def settle_in(self, home: str | None) -> Op:
        """A copy of the op with its functions in the folder of its name in `home`."""
        kernels = [
            replace(kernel, source=InFolder(home, self.name, kernel.framework, kernel.name))
            for kernel in self.kernels
        ]
        reference = InFolder(home, self.name, "reference", "reference")
        named = f"{self.name}_torch"
        twin = named if any(kernel.name == named for kernel in kernels) else None
        return replace(self, kernels=tuple(kernels), reference=reference, twin=self.twin or twin)


def evaluate(told: str, sizes: Mapping[str, int]) -> int:
    """The value of "2*P" and kin: whole numbers and axes with +, −, * and //."""
    try:
        size = _evaluate(parse_source(told, mode="eval").body, told, sizes)
    except (SyntaxError, ZeroDivisionError):
        size = 0
    if size < 1:
        shown = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
        raise InputError(f"size {told!r} is none, with {shown}: give whole numbers and axes with +, -, * and //")
    return size


def _evaluate(node: ast.expr, expression: str, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and node.id in sizes:
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = (_evaluate(side, expression, sizes) for side in (node.left, node.right))
        return _OPERATORS[type(node.op)](left, right)
    raise InputError(f"size {expression!r}: give whole numbers and axes with +, -, * and //, as in '2*P'")


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def _list_names(expression: str) -> tuple[str, ...]:
    """The axes that an expression names."""
    try:
        tree = parse_source(expression, mode="eval")
    except SyntaxError:
        raise InputError(
            f"size {expression!r}: give whole numbers and axes with +, -, * and //, as in '2*P'"
        ) from None
    return tuple(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))


def _check_known(whose: str, what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"{whose}: {what} {value!r} is none of {', '.join(known)}")


@cache
def _read_docstrings(path: Path) -> dict[str, str]:
    """Docstrings of a module's functions, read without importing it: its framework may not be there."""
    tree = parse_source(path.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_docstring(node) or "" for node in functions}
