"""A kernel's function and its arguments → its outputs, leaf by leaf, whatever framework it is of.

Runs wherever the kernel does. What is found there by addresses in memory comes back as plain facts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .arguments import Call
from .nests import list_leaves
from .poison import poisoned_memory

Leaves = dict[str, Any]
"""What a kernel gave, by path: tensors, or whatever else it returned."""
VAST_BYTES = 2**32
FILLINGS = (0x5A, 0xA5)
"""Bytes of outputs that a kernel is handed, call by call: an element that has both was written in neither."""
GRAD, WRITTEN = "grad.", "="
"""Before the path of an argument: its gradient; what it holds after the call."""
Cotangent = Callable[[str, torch.Tensor], torch.Tensor]
"""Path and leaf → what it is multiplied by."""


class UnknownArgument(Exception):
    """A name of `mutates` that is none of the arguments."""


@dataclass(frozen=True)
class Form:
    """How a kernel is called, and what is taken of it, in plain values."""

    device: str
    is_nest: bool = False
    """Whether the output is whatever the kernel returns; else it is one tensor."""
    takes_numpy: bool = False
    out: str | None = None
    """`last`, or the name of the argument that outputs are handed over by; None where they are returned."""
    outs: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Path, dtype and shape of each such output."""
    mutates: tuple[str, ...] = ()
    """Arguments that are written to."""
    wanted: tuple[str, ...] | None = None
    """Paths whose gradients are asked for; None where none are."""
    scratch: tuple[str, ...] = ()
    """Arguments that may be written to, and of which nothing is taken."""


@dataclass
class Once:
    """One call."""

    leaves: Leaves
    elapsed_s: float
    guards: list[tuple[torch.Tensor, int]]
    """Memory around what was allocated, and what it holds unless it was written."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Leaves that stand in the memory of an argument that was to be written, and its leaf."""


def call_once(
    function: Callable[..., Any],
    form: Form,
    call: Call,
    pristine: Call,
    number: int,
    cotangent: Cotangent,
    *,
    timed: bool = True,
) -> Once:
    """One call in freshly poisoned memory; the arguments that it is to write are as before afterwards.

    Its time is right only where it is `timed`: then it is waited for.
    """
    given = call.map(lambda path, x: to_numpy(x)) if form.takes_numpy else call
    with poisoned_memory() as memory:
        outs = _allocate(form, number)
        args, kwargs = given.args, dict(given.kwargs)
        if form.out == "last":
            args = (*args, *outs.values())
        elif form.out:
            kwargs[form.out] = next(iter(outs.values())) if len(outs) == 1 else tuple(outs.values())
        started = time.perf_counter()
        if form.wanted is None:
            output = function(*args, **kwargs)
            returned = dict(list_leaves(output)) if form.is_nest else {"": output}
        else:
            returned = run_with_gradients(function, call, form.wanted, cotangent)
        if timed:
            synchronize(form.device)
        elapsed_s = time.perf_counter() - started
    guards = memory.take_guards()
    outputs = take_leaves(returned) if form.is_nest else {path: to_tensor(leaf) for path, leaf in returned.items()}
    outputs = outs if form.out else outputs
    if not form.mutates and not form.scratch:
        return Once(outputs, elapsed_s, guards)
    targets, buffers = _find_written(form.mutates, call), _find_written(form.scratch, call)
    aliases = {
        path: f"{WRITTEN}{target}"
        for path, leaf in outputs.items()
        for target, x in targets
        if shares_memory(leaf, x) and _lie_alike(leaf, x)
    }
    # Copied before the arguments are restored, which is the same memory.
    outputs = {
        path: copy_leaf(leaf) if any(shares_memory(leaf, x) for _, x in (*targets, *buffers)) else leaf
        for path, leaf in outputs.items()
    }
    written = _take_written(targets, pristine)
    _take_written(buffers, pristine)
    return Once({**outputs, **written}, elapsed_s, guards, aliases)


def copy_leaf(leaf: Any) -> Any:
    """A tensor in memory of its own; anything else as it is."""
    plain = type(leaf) in (torch.Tensor, torch.nn.Parameter) and not leaf.is_nested  # others' words may raise
    copied = plain and leaf.layout is torch.strided and leaf.device.type != "meta"
    return leaf.detach().clone() if copied and has_memory(leaf) and not is_vast(leaf) else leaf


def is_vast(tensor: torch.Tensor) -> bool:
    """Whether a tensor repeats its memory to a size that is not to be had: it is known by its shape alone."""
    return tensor.nbytes > max(2 * tensor.untyped_storage().nbytes(), VAST_BYTES)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the memory that a tensor stands in is as large as it must be: a storage can be cut short."""
    if not tensor.numel():
        return True
    last = tensor.storage_offset() + sum(
        (size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (last + 1) * tensor.itemsize <= tensor.untyped_storage().nbytes()


def _allocate(form: Form, number: int) -> dict[str, torch.Tensor]:
    """The outputs that a kernel is handed, filled with what no two calls begin with."""
    made = {}
    for path, dtype, shape in form.outs:
        out = torch.empty(shape, dtype=getattr(torch, dtype), device=form.device)
        if out.dtype is torch.bool:
            out.fill_(bool(number % 2))
        elif out.numel():
            out.reshape(-1).view(torch.uint8).fill_(FILLINGS[number % 2])
        made[path] = out
    return made


def _find_written(names: Sequence[str], call: Call) -> list[tuple[str, torch.Tensor]]:
    """The tensors of the arguments that a kernel writes to, by path."""
    targets = []
    for name in names:
        paths = [(path, x) for path, x in call.tensors if path == name or path.startswith(f"{name}.")]
        if not paths:
            known = ", ".join(path for path, _ in call.tensors)
            raise UnknownArgument(f"mutates: {name!r} is none of the arguments {known}")
        targets += paths
    return targets


def _take_written(targets: Sequence[tuple[str, torch.Tensor]], pristine: Call) -> dict[str, torch.Tensor]:
    """What they hold; they are restored at once."""
    before = dict(pristine.tensors)
    written = {}
    for path, x in targets:
        written[f"{WRITTEN}{path}"] = x.detach().clone()
        x.copy_(before[path])
    return written


def _lie_alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors of one memory are the same elements."""
    facts = [(tensor.data_ptr(), tensor.shape, tensor.stride()) for tensor in (first, second)]
    return facts[0] == facts[1]


def shares_memory(output: Any, argument: torch.Tensor) -> bool:
    """Whether an output stands in the memory of an argument."""
    if not isinstance(output, torch.Tensor) or output.layout is not torch.strided or output.numel() == 0:
        return False
    if output.device.type == "meta":
        return False
    return output.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr()


def synchronize(device: str) -> None:
    """Wait until a device has done what it was told."""
    if device != "cpu":
        torch.cuda.synchronize()


def take_leaves(returned: Mapping[str, Any]) -> Leaves:
    """The leaves of an output that are judged: no None and no text."""
    return {path: to_tensor(leaf) for path, leaf in returned.items() if not isinstance(leaf, str | None)}


def to_tensor(leaf: Any) -> Any:
    """NumPy, JAX and plain numbers as tensors; anything else as it is."""
    if isinstance(leaf, torch.Tensor):
        lazy = leaf.layout is torch.strided and leaf.is_neg()
        return leaf.resolve_neg() if lazy else leaf
    if hasattr(leaf, "__array__"):
        return to_torch(np.asarray(leaf))
    return leaf


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The same values in memory of the host, for kernels of NumPy."""
    host = tensor.cpu()
    if host.dtype is torch.bfloat16:
        import ml_dtypes

        return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray[Any, Any] = host.numpy()
    return array


def to_torch(value: np.ndarray[Any, Any] | np.generic) -> Any:
    """As a tensor, over the same memory if it can be; as it is where torch has no such dtype."""
    array = np.asarray(value)
    if any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch has none
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        return value


def list_trained(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters alone, by name."""
    return {path: x for path, x in list_state(module).items() if isinstance(x, torch.nn.Parameter)}


def list_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, by name; of what torch.compile made of a module, those of the module."""
    module = getattr(module, "_orig_mod", module)
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def run_with_gradients(
    function: Callable[..., Any], call: Call, wanted: Sequence[str], cotangent: Cotangent
) -> dict[str, torch.Tensor | Any]:
    """All leaves of a kernel's output by path, and the gradients of its arguments by autograd."""
    parameters = list_trained(function) if isinstance(function, torch.nn.Module) else {}
    tracked = {path: x.detach().requires_grad_() for path, x in call.tensors if path in wanted}
    tracked |= {path: parameters[path] for path in wanted if path in parameters}
    chosen = call.map(lambda path, x: tracked.get(path, x))
    with torch.enable_grad():
        made = dict(list_leaves(function(*chosen.args, **chosen.kwargs)))
    outputs = {path: x for path, x in made.items() if isinstance(x, torch.Tensor) and x.requires_grad}
    cotangents = [cotangent(path, x).to(x.dtype) for path, x in outputs.items()]
    if not outputs:
        return made | {f"{GRAD}{path}": None for path in wanted}
    computed = torch.autograd.grad(list(outputs.values()), list(tracked.values()), cotangents, allow_unused=True)
    gradients = dict(zip(tracked, computed, strict=True))
    # Autograd's word for a gradient that is 0 everywhere.
    filled = {path: torch.zeros_like(tracked[path]) if x is None else x for path, x in gradients.items()}
    leaves = {path: x.detach() if isinstance(x, torch.Tensor) else x for path, x in made.items()}
    return leaves | {f"{GRAD}{path}": filled.get(path) for path in wanted}
