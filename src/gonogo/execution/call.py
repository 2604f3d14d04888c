"""A kernel's function and a case → its outputs, whatever framework it is of."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from gonogo.execution.bench import Bench
from gonogo.execution.outcome import find_wrong_kind
from gonogo.execution.poison import poisoned_memory
from gonogo.execution.precision import keep_precision
from gonogo.ops import InFolder, Kernel


def call_twice(function: Callable[..., Any], kernel: Kernel, bench: Bench) -> tuple[Any, Any, float]:
    """Two outputs on the same inputs in freshly poisoned memory, and the seconds of the second call.

    The first is a copy: a kernel may hand out the same memory again. The second is what the kernel returned.
    """
    bench.strays = 0
    first, _ = _call(function, kernel, bench)
    if find_wrong_kind(first, kernel, bench) is None:
        first = first.detach().clone()
        _synchronize(bench)
    again, elapsed = _call(function, kernel, bench)
    return first, again, elapsed


def _call(function: Callable[..., Any], kernel: Kernel, bench: Bench) -> tuple[Any, float]:
    args = [_to_numpy(x) for x in bench.inputs] if kernel.framework == "numpy" else bench.inputs
    ours = isinstance(kernel.source, InFolder)
    # Whatever a user has torch set to, a kernel of an op's folder must keep what it promises.
    with keep_precision() if ours else nullcontext(), poisoned_memory() as memory:
        started = time.perf_counter()
        output = function(*args)
        _synchronize(bench)
        elapsed = time.perf_counter() - started
    bench.strays += memory.count_strays()
    if not isinstance(output, torch.Tensor) and hasattr(output, "__array__"):  # NumPy, JAX
        output = to_torch(np.asarray(output))
    return output, elapsed


def _synchronize(bench: Bench) -> None:
    if bench.job.device != "cpu":
        torch.cuda.synchronize()


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
