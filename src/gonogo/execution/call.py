"""A kernel's function and a case → its outputs, leaf by leaf, whatever framework it is of."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from gonogo.errors import BadArguments
from gonogo.execution.bench import Bench
from gonogo.execution.dtypes import NARROW
from gonogo.execution.functions import WRITTEN, find_wanted, list_state, restore_state, run_with_gradients
from gonogo.execution.poison import poisoned_memory
from gonogo.execution.precision import keep_precision
from gonogo.nests import list_leaves
from gonogo.ops import InFolder, Kernel

Leaves = dict[str, Any]
"""What a kernel gave, by path: tensors, or whatever else it returned."""
FILLINGS = (0x5A, 0xA5)
"""Bytes of outputs that a kernel is handed, call by call: an element that has both was written in neither."""


def call_twice(function: Callable[..., Any], kernel: Kernel, bench: Bench) -> tuple[Leaves, Leaves, float]:
    """Two outputs on the same inputs in freshly poisoned memory, and the seconds of the second call.

    The first is a copy: a kernel may hand out the same memory again. The second is what the kernel returned.
    """
    bench.strays = 0
    first, _ = _call(function, kernel, bench, 0)
    first = {path: _copy(leaf) for path, leaf in first.items()}
    _synchronize(bench)
    again, elapsed = _call(function, kernel, bench, 1)
    return first, again, elapsed


def _copy(leaf: Any) -> Any:
    copied = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.device.type != "meta"
    return leaf.detach().clone() if copied else leaf


def _call(function: Callable[..., Any], kernel: Kernel, bench: Bench, number: int) -> tuple[Leaves, float]:
    op, call = bench.op, bench.call
    if kernel.framework == "numpy":
        call = call.map(lambda path, x: _to_numpy(x))
    ours = isinstance(kernel.source, InFolder)
    # Whatever a user has torch set to, a kernel of an op's folder must keep what it promises.
    with keep_precision() if ours else nullcontext(), poisoned_memory() as memory:
        outs = _allocate(kernel, bench, number) if op.out else {}
        args, kwargs = call.args, dict(call.kwargs)
        if op.out == "last":
            args = (*args, *outs.values())
        elif op.out:
            kwargs[op.out] = next(iter(outs.values())) if len(outs) == 1 else tuple(outs.values())
        started = time.perf_counter()
        if op.grads is False:
            output = function(*args, **kwargs)
            returned = dict(list_leaves(output)) if op.is_nest else {"": output}
        else:
            held = list_state(function) if isinstance(function, torch.nn.Module) else {}
            returned = run_with_gradients(function, call, find_wanted(op, call, held), bench.job.case.id)
        _synchronize(bench)
        elapsed = time.perf_counter() - started
    bench.strays += memory.count_strays()
    bench.changed = restore_state(function, op)
    outputs = take_leaves(returned) if op.is_nest else {path: _to_tensor(leaf) for path, leaf in returned.items()}
    outputs = outs if op.out else outputs
    if not op.mutates:
        return outputs, elapsed
    targets = _find_written(bench)
    bench.aliases = {
        path: f"{WRITTEN}{target}"
        for path, leaf in outputs.items()
        for target, x in targets
        if shares_memory(leaf, x) and _lie_alike(leaf, x)
    }
    # Copied before the arguments are restored, which is the same memory.
    outputs = {
        path: _copy(leaf) if any(shares_memory(leaf, x) for _, x in targets) else leaf
        for path, leaf in outputs.items()
    }
    return {**outputs, **_take_written(bench, targets)}, elapsed


def _allocate(kernel: Kernel, bench: Bench, number: int) -> dict[str, torch.Tensor]:
    """An output for each leaf of the reference, filled with what no two calls begin with."""
    outs = {}
    for reference in bench.references(kernel.contract_for(bench.job.case.dtype)):
        dtype = getattr(torch, NARROW.get(reference.dtype, reference.dtype))
        out = torch.empty(tuple(reference.expected.shape), dtype=dtype, device=bench.job.device)
        if dtype is torch.bool:
            out.fill_(bool(number))
        elif out.numel():
            out.reshape(-1).view(torch.uint8).fill_(FILLINGS[number])
        outs[reference.path] = out
    return outs


def _find_written(bench: Bench) -> list[tuple[str, torch.Tensor]]:
    """The tensors of the arguments that a kernel writes to, by path."""
    targets = []
    for name in bench.op.mutates:
        paths = [(path, x) for path, x in bench.call.tensors if path == name or path.startswith(f"{name}.")]
        if not paths:
            known = ", ".join(path for path, _ in bench.call.tensors)
            raise BadArguments(f"mutates: {name!r} is none of the arguments {known}")
        targets += paths
    return targets


def _take_written(bench: Bench, targets: Sequence[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """What they hold; they are restored at once."""
    before = dict(bench.pristine.tensors)
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


def _synchronize(bench: Bench) -> None:
    if bench.job.device != "cpu":
        torch.cuda.synchronize()


def take_leaves(returned: Mapping[str, Any]) -> Leaves:
    """The leaves of an output that are judged: no None and no text."""
    return {path: _to_tensor(leaf) for path, leaf in returned.items() if not isinstance(leaf, str | None)}


def _to_tensor(leaf: Any) -> Any:
    """NumPy, JAX and plain numbers as tensors; anything else as it is."""
    if isinstance(leaf, torch.Tensor):
        lazy = leaf.layout is torch.strided and leaf.is_neg()
        return leaf.resolve_neg() if lazy else leaf
    if hasattr(leaf, "__array__"):
        return to_torch(np.asarray(leaf))
    return leaf


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
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
