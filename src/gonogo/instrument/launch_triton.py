"""A Triton kernel and its arguments → a launch, at a fifth of the usual cost to the host.

Triton looks at every argument of every launch to find the compiled kernel, and then for its own hooks. Ours are
launched again and again with arguments of the same kinds, so the compiled kernel is kept under what Triton
specialises on, and handed to its driver as it is.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton

# Launching a compiled kernel is not part of Triton's promised interface: only where it has been seen to work.
_DIRECT = tuple(int(part) for part in triton.__version__.split(".")[:2]) in {(3, 6), (3, 7)}
_compiled: dict[Any, tuple[Any, Any, Any, tuple[Any, ...], Any]] = {}
_get_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def launch(kernel: Any, programs: int, *args: Any, **options: Any) -> None:
    """`kernel[(programs,)](*args, **options)`: a tensor first; constants and options by name, in one order."""
    if not _DIRECT or not args[0].is_cuda:
        kernel[(programs,)](*args, **options)
        return
    device = args[0].get_device()
    # By its id, for a kernel of Triton's takes a lock to tell its hash; it is kept, so that no other gets the id.
    # Arguments by what Triton tells two of them apart by, a few bits for an integer: without a call for each.
    traits = [
        (arg == 1) | (arg & 15 == 0) << 1 | (arg >> 31 == 0) << 2
        if type(arg) is int
        else (arg.dtype, arg.data_ptr() & 15)
        for arg in args
    ]
    key = (id(kernel), device, *traits, *options.values())
    known = _compiled.get(key)
    if known is None:
        compiled = kernel[(programs,)](*args, **options)
        constants = tuple(options[name] for name in kernel.arg_names[len(args) :])
        _compiled[key] = compiled.run, compiled.function, compiled.packed_metadata, constants, kernel
        return
    run, function, metadata, constants, _ = known
    run(programs, 1, 1, _get_stream(device), function, metadata, None, None, None, *args, *constants)


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Launch on the tensors' GPU, whatever the current one is."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)
