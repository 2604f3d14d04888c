"""Functions at hand → kernels of an op: one to judge, and controls to judge it by."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from gonogo.errors import InputError
from gonogo.ops import AtHand, InModule, Kernel, Op, Source
from gonogo.schema import Contract

if TYPE_CHECKING:
    import torch

CANDIDATE: Literal["candidate"] = "candidate"
"""What the kernel to be judged is called in rows."""


def make_candidate(op: Op, source: Source, contract: Contract) -> Kernel:
    """The kernel to be judged."""
    return Kernel(
        CANDIDATE, "torch", CANDIDATE, contract=contract, calibrate_against=find_control(op).name, source=source,
        dtypes=op.dtypes,
    )  # fmt: skip


def find_module(function: Callable[..., Any]) -> InModule:
    """Where a process of its own imports a function from; refused where it cannot."""
    name = getattr(function, "__module__", None) or type(function).__module__
    module = sys.modules.get(str(name))
    path = getattr(module, "__file__", None)
    wanted = _find_name(function, module)
    if path is None or wanted is None:
        raise InputError(
            f"isolated: {name_function(function)} cannot be imported by a process of its own. Have it stand by its "
            "name at the top of a file: no lambda, no function inside of a function, no module made elsewhere"
        )
    folders = tuple(dict.fromkeys(str(Path(entry).resolve()) for entry in sys.path))
    return InModule(str(name), str(Path(path).resolve()), wanted, folders)


def _find_name(function: Callable[..., Any], module: ModuleType | None) -> str | None:
    """The name that a module has a function by; one that is wrapped stands by another one's name, and is not it."""
    wanted = str(getattr(function, "__qualname__", ""))
    try:
        if wanted and attrgetter(wanted)(module) is function:
            return wanted
    except AttributeError:
        pass
    return next((name for name, value in vars(module).items() if value is function), None) if module else None


def make_controls(op: Op, controls: Sequence[Callable[..., Any]], contract: Contract) -> tuple[Kernel, ...]:
    """Controls that are given, in order, each by a name that no other kernel has."""
    kernels: list[Kernel] = []
    for control in controls:
        if not callable(control):
            raise InputError(f"controls: {control!r} is no function of the op's inputs")
        taken = {CANDIDATE, *(kernel.name for kernel in (*op.kernels, *kernels))}
        own, count = name_function(control), 1
        name = own
        while name in taken:
            count += 1
            name = f"{own}_{count}"
        kernels.append(Kernel(name, "torch", contract=contract, source=AtHand(control), dtypes=op.dtypes))
    return tuple(kernels)


def name_function(function: Callable[..., Any]) -> str:
    """What a message calls a function."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def find_control(op: Op) -> Kernel:
    """The control that others are compared with: the framework's own op where there is one."""
    controls = [kernel for kernel in op.kernels if kernel.role == "control"]
    own = [kernel for kernel in controls if kernel.name == op.twin]
    torch = [kernel for kernel in controls if kernel.framework == "torch"]
    if not controls:
        raise InputError(f"op {op.name} has no control to compare with: give it a kernel of that role")
    return (own or torch or controls)[0]


def find_recorded_control(op: Op, contract: Contract) -> Kernel:
    """The control that is recorded beside a candidate: the op's own, or its reference in the accumulate format.

    An own op's first kernel is its reference in the dtype of the inputs: no contract says what that promises.
    """
    if not op.is_own:
        return find_control(op)
    keeps = Contract(accumulate=contract.accumulate)
    return Kernel(
        f"{op.name}_reference", "torch", contract=keeps, source=AtHand(compute_in(contract.accumulate, op))
    )


def compute_in(accumulate: str, op: Op) -> Callable[..., Any]:
    """A kernel that takes its inputs to a format, calls the reference and rounds once."""
    reference = op.load_reference()
    valued = next(at for at, described in enumerate(op.inputs) if described.kind == "values")

    def compute(*inputs: torch.Tensor) -> torch.Tensor:
        import torch

        from gonogo.execution.precision import keep_precision

        format_ = getattr(torch, accumulate)
        with keep_precision():
            output: torch.Tensor = reference(*(x.to(format_) if x.is_floating_point() else x for x in inputs))
        return output.to(inputs[valued].dtype)

    return compute
