"""A kernel's function and a case → two outputs, leaf by leaf, by a call in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gonogo.errors import BadArguments
from gonogo.execution.bench import Bench
from gonogo.execution.dtypes import NARROW
from gonogo.execution.functions import find_wanted, make_cotangent, restore_state
from gonogo.guest.arguments import Call
from gonogo.guest.calling import (
    FILLINGS,
    Form,
    Leaves,
    Once,
    UnknownArgument,
    call_once,
    copy_leaf,
    list_state,
    shares_memory,
    synchronize,
    take_leaves,
    to_torch,
)
from gonogo.ops import Kernel

__all__ = ["FILLINGS", "Leaves", "call_twice", "make_form", "shares_memory", "take_leaves", "to_torch"]


def call_twice(function: Callable[..., Any], kernel: Kernel, bench: Bench) -> tuple[Leaves, Leaves, float | None]:
    """Two outputs on the same inputs in freshly poisoned memory, and the seconds of the second call.

    The first is a copy: a kernel may hand out the same memory again. The second is what the kernel returned. For a
    verdict alone nobody asks for seconds of a GPU's, and it is waited for once, behind both calls: on all of its
    streams, for what a kernel leaves undone on one of its own would be another's fault.
    """
    bench.strays, bench.guards = 0, []
    held = list_state(function) if isinstance(function, torch.nn.Module) else {}
    form = make_form(kernel, bench, held)
    first = _call(function, form, bench, 0, timed=False)
    copied = {path: copy_leaf(leaf) for path, leaf in first.leaves.items()}
    is_asked_for = not bench.job.bounds_only or bench.job.device == "cpu"
    if is_asked_for:
        synchronize(bench.job.device)
    again = _call(function, form, bench, 1, timed=True)
    return copied, again.leaves, again.elapsed_s if is_asked_for else None


def make_form(kernel: Kernel, bench: Bench, state: dict[str, torch.Tensor]) -> Form:
    """How a kernel of the op is called; `state` is that of a kernel that is a module."""
    op = bench.op
    outs = bench.references(kernel.contract_for(bench.job.case.dtype)) if op.out else ()
    return Form(
        bench.job.device, op.is_nest, kernel.framework == "numpy", op.out,
        tuple((leaf.path, NARROW.get(leaf.dtype, leaf.dtype), tuple(leaf.expected.shape)) for leaf in outs),
        tuple(op.mutates), None if op.grads is False else find_wanted(op, bench.call, state),
        tuple(name for name in op.scratch if _has_tensors(bench.call, name)),
    )  # fmt: skip


def _has_tensors(call: Call, name: str) -> bool:
    """Whether an argument is given in this call, and is or holds tensors."""
    return any(path == name or path.startswith(f"{name}.") for path, _ in call.tensors)


def _call(function: Callable[..., Any], form: Form, bench: Bench, number: int, *, timed: bool) -> Once:
    def draw_cotangent(path: str, leaf: torch.Tensor) -> torch.Tensor:
        return make_cotangent(bench.job.case.id, path, leaf, str(leaf.dtype).removeprefix("torch."))

    try:
        once = call_once(function, form, bench.call, bench.pristine, number, draw_cotangent, timed=timed)
    except UnknownArgument as error:
        raise BadArguments(str(error)) from None
    bench.guards += once.guards
    bench.changed = restore_state(function, bench.op)
    bench.aliases = once.aliases
    return once
