"""Functions at hand → ops and kernels: a user's own op, a kernel to judge, controls to judge it by."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from gonogo.errors import InputError, suggest
from gonogo.ops import AtHand, Input, Kernel, Source, op_names
from gonogo.ops import Op as PlainOp
from gonogo.schema import Contract

if TYPE_CHECKING:
    import torch

CANDIDATE: Literal["candidate"] = "candidate"
"""What the kernel to be judged is called in rows."""


def Op(  # noqa: N802  reads as what it makes
    name: str,
    *,
    inputs: Mapping[str, str],
    output: str,
    sizes: Mapping[str, Sequence[int]],
    reference: Callable[..., Any],
    main: str | None = None,
    reduced: Sequence[str] = (),
    only_listed: bool = False,
) -> PlainOp:
    """An op of your own: named axes, candidate sizes, and a reference in torch ops that can run in float64.

    `main` is the axis whose size matters most, by default the last of the first input: it also has sizes that are
    not listed, where masks and tails go wrong or that kernels are tuned for. `only_listed` keeps to the listed
    ones, for a kernel that needs a multiple of 64, say. `reduced` are the axes that are summed over. Listed sizes
    are run, each at least once within `cases`, or the verification says which were not.
    """
    if not re.fullmatch(r"\w+", name):
        raise InputError(f"op name {name!r}: letters, digits and _ only, for it is part of every case id")
    if name in op_names():
        raise InputError(
            f"op name {name!r} is that of an op of the package: its limits and records would be taken for yours. "
            f"Choose another, as in 'my_{name}'"
        )
    if not isinstance(inputs, Mapping) or not all(isinstance(axes, str) for axes in inputs.values()):
        raise InputError(f"op {name}: inputs is {inputs!r}; give names and axes, as in inputs={{'x': 'rows cols'}}")
    if "," in "".join([*inputs.values(), output]):
        raise InputError(f"op {name}: axes are separated by spaces, as in {{'x': 'rows cols'}}, not by commas")
    first = next(iter(inputs.values()), "").split()
    if not first:
        raise InputError(f"op {name}: its first input needs axes, as in inputs={{'x': 'rows cols'}}")
    if not callable(reference):
        raise InputError(f"op {name}: reference is {type(reference).__name__}, not a function of its inputs")
    reduced = (reduced,) if isinstance(reduced, str) else tuple(reduced)
    main = main or first[-1]
    _check_axes(name, inputs, output, sizes, (main, *reduced))
    axes = " ".join([*inputs.values(), output]).split()
    return PlainOp(
        name=name,
        inputs=tuple(Input(given, axes) for given, axes in inputs.items()),
        output=output,
        sizes={axis: tuple(choices) for axis, choices in sizes.items()},
        kernels=(Kernel(f"{name}_torch", "torch", source=AtHand(reference)),),
        main=main,
        reduced=reduced,
        only_listed=only_listed or tuple(dict.fromkeys(axis for axis in axes if axis != main)),
        reference=AtHand(reference),
    )


def _check_axes(
    name: str, inputs: Mapping[str, str], output: str, sizes: Mapping[str, Sequence[int]], named: Sequence[str]
) -> None:
    used = dict.fromkeys(" ".join([*inputs.values(), output]).split())
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
    for axis in named:
        if axis not in used:
            near = suggest(axis, list(used)) or f"; it has {', '.join(used)}"
            raise InputError(f"op {name}: main or reduced names axis {axis!r}, which no input or output has{near}")


def make_candidate(op: PlainOp, source: Source, contract: Contract) -> Kernel:
    """The kernel to be judged."""
    return Kernel(
        CANDIDATE, "torch", CANDIDATE, contract=contract, calibrate_against=find_control(op).name, source=source
    )


def make_controls(op: PlainOp, controls: Sequence[Callable[..., Any]], contract: Contract) -> tuple[Kernel, ...]:
    """Controls that are given, in order, each by a name that no other kernel has."""
    kernels: list[Kernel] = []
    for control in controls:
        if not callable(control):
            raise InputError(f"controls: {control!r} is no function of the op's inputs")
        taken = {CANDIDATE, *(kernel.name for kernel in (*op.kernels, *kernels))}
        plain, count = name_function(control), 1
        name = plain
        while name in taken:
            count += 1
            name = f"{plain}_{count}"
        kernels.append(Kernel(name, "torch", contract=contract, source=AtHand(control)))
    return tuple(kernels)


def name_function(function: Callable[..., Any]) -> str:
    """What a message calls a function."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def find_control(op: PlainOp) -> Kernel:
    """The control that others are compared with: the framework's own op where there is one."""
    controls = [kernel for kernel in op.kernels if kernel.role == "control"]
    own = [kernel for kernel in controls if kernel.name == f"{op.name}_torch"]
    torch = [kernel for kernel in controls if kernel.framework == "torch"]
    if not controls:
        raise InputError(f"op {op.name} has no control to compare with: give it a kernel of that role")
    return (own or torch or controls)[0]


def find_recorded_control(op: PlainOp, contract: Contract) -> Kernel:
    """The control that is recorded beside a candidate: the op's own, or its reference in the accumulate format.

    An own op's first kernel is its reference in the dtype of the inputs: no contract says what that promises.
    """
    if not op.is_own:
        return find_control(op)
    promised = Contract(accumulate=contract.accumulate)
    return Kernel(
        f"{op.name}_reference", "torch", contract=promised, source=AtHand(compute_in(contract.accumulate, op))
    )


def compute_in(accumulate: str, op: PlainOp) -> Callable[..., Any]:
    """A kernel that takes its inputs to a format, calls the reference and rounds once."""
    reference = op.load_reference()
    valued = next(place for place, given in enumerate(op.inputs) if given.kind == "values")

    def compute(*inputs: torch.Tensor) -> torch.Tensor:
        import torch

        from gonogo.execution.precision import keep_precision

        format_ = getattr(torch, accumulate)
        with keep_precision():
            output: torch.Tensor = reference(*(x.to(format_) if x.is_floating_point() else x for x in inputs))
        return output.to(inputs[valued].dtype)

    return compute
