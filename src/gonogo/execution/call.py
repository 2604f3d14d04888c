"""A kernel's function and a case → two outputs, leaf by leaf, by a call in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gonogo.errors import BadArguments
from gonogo.execution.bench import Bench, copy_call
from gonogo.execution.decoy import make_decoy
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
from gonogo.guest.memory import copy_whole, count_holders, fill_arguments, renew_tensors
from gonogo.ops import Kernel

__all__ = ["FILLINGS", "Leaves", "call_twice", "make_form", "shares_memory", "take_leaves", "to_torch"]

SMALL_BYTES = 2**26


def call_twice(function: Callable[..., Any], kernel: Kernel, bench: Bench) -> tuple[Leaves, Leaves, float | None]:
    """Two outputs on the same inputs in freshly poisoned memory, and the seconds of the second call.

    The first is a copy: a kernel may hand out the same memory again. The second is what the kernel returned. For a
    verdict alone nobody asks for seconds of a GPU's, and it is waited for once, behind both calls: on all of its
    streams, for what a kernel leaves undone on one of its own would be another's fault.

    Where the job has a decoy, a kernel under test has seen other values in the same memory before.
    """
    bench.strays, bench.guards, bench.reformed = 0, [], []
    held = list_state(function) if isinstance(function, torch.nn.Module) else {}
    form = make_form(kernel, bench, held)
    if bench.job.decoy and kernel.role == "candidate" and _is_small(bench.call):
        _call_on_decoy(function, form, bench)
    first = _call_on_case(function, form, bench, 0, timed=False)
    copied = {path: copy_leaf(leaf) for path, leaf in first.leaves.items()}
    is_asked_for = not bench.job.bounds_only or bench.job.device == "cpu"
    if is_asked_for:
        synchronize(bench.job.device)
    again = _call_on_case(function, form, bench, 1, timed=True)
    return copied, again.leaves, again.elapsed_s if is_asked_for else None


def _call_on_decoy(function: Callable[..., Any], form: Form, bench: Bench) -> None:
    """Calls on other values, where there are some: what it keeps by shape or by address is then wrong.

    In memory of their own, for one that keeps the arguments themselves; then in that of the case. There in the very
    tensors, which tell that they were written to; or in others, as where memory is given out again, which do not.
    """
    decoy = make_decoy(bench, bench.job.device)
    if decoy is None:
        return
    elsewhere, before = (call.map(lambda path, x: copy_whole(x)) for call in (decoy, bench.call))
    renews = bench.job.decoy == "new"
    forms, holders = _list_forms(bench.call), count_holders(bench.call)
    for given in (elsewhere, bench.call):
        if given is bench.call:
            fill_arguments(given, decoy)
        told = renew_tensors(given) if renews else given
        _call(function, form, bench, 0, (told, copy_call(decoy)), timed=False)
        del told
    bench.guards.clear()
    # Memory that a kernel holds on to is not given out again.
    if _list_forms(bench.call) != forms or (renews and count_holders(bench.call) != holders):
        bench.restore_inputs()
        return
    fill_arguments(bench.call, before)
    if renews:
        bench.call = renew_tensors(bench.call)


def _call_on_case(function: Callable[..., Any], form: Form, bench: Bench, number: int, *, timed: bool) -> Once:
    """One call on the arguments of the case, which are made anew where it has left one in another form.

    Such as are transposed, or given other memory or less of it: the next call would be blamed, or crash.
    """
    forms = _list_forms(bench.call)
    once = _call(function, form, bench, number, (bench.call, bench.pristine), timed=timed)
    left = _list_forms(bench.call)
    if left != forms:
        paths = [path for path, _ in bench.call.tensors]
        bench.reformed += [path for path, one, other in zip(paths, forms, left, strict=True) if one != other]
        bench.restore_inputs()
    return once


def _list_forms(call: Call) -> list[tuple[Any, ...]]:
    """Of each argument, how it is laid out and in which memory."""
    forms: list[tuple[Any, ...]] = []
    for _, x in call.tensors:
        store = x.untyped_storage()
        forms.append((x.dtype, x.shape, x.stride(), x.storage_offset(), store.data_ptr(), store.nbytes()))
    return forms


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


def _is_small(call: Call) -> bool:
    """Whether there is surely room for its arguments once more, and for what is made of them."""
    return sum(x.untyped_storage().nbytes() for _, x in call.tensors) <= SMALL_BYTES


def _call(
    function: Callable[..., Any], form: Form, bench: Bench, number: int, pair: tuple[Call, Call], *, timed: bool
) -> Once:
    """One call on the first of a `pair`, the second of which has what its arguments are to hold afterwards."""

    def draw_cotangent(path: str, leaf: torch.Tensor) -> torch.Tensor:
        return make_cotangent(bench.job.case.id, path, leaf, str(leaf.dtype).removeprefix("torch."))

    try:
        once = call_once(function, form, *pair, number, draw_cotangent, timed=timed)
    except UnknownArgument as error:
        raise BadArguments(str(error)) from None
    bench.guards += once.guards
    bench.changed = restore_state(function, bench.op)
    bench.aliases = once.aliases
    return once
