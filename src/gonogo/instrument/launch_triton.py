"""A Triton kernel and its arguments → a launch, at a fifth of the usual cost to the host.

Triton looks at every argument of every launch to find the compiled kernel, and then for its own hooks. Ours are
launched again and again with arguments of the same kinds, so the compiled kernel is kept under what Triton
specialises on, and handed to its driver as it is: with addresses for tensors, which it would have to ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton

# Launching a compiled kernel is not part of Triton's promised interface: only where it has been seen to work.
_DIRECT = tuple(int(part) for part in triton.__version__.split(".")[:2]) in {(3, 6), (3, 7)}
_get_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_get_device: Any = getattr(torch._C, "_cuda_getDevice", None)


class Compiled(NamedTuple):
    """A kernel as it is handed to Triton's driver."""

    run: Any
    function: Any
    metadata: Any
    constants: tuple[Any, ...]
    kernel: Any

    def start(self, programs: int, args: Sequence[int], stream: Any) -> None:
        """Launch it; tensors are given by their addresses."""
        self.run(programs, 1, 1, stream, self.function, self.metadata, None, None, None, *args, *self.constants)


class Launch(NamedTuple):
    """What was launched."""

    compiled: Compiled
    programs: int
    args: tuple[Any, ...]


_compiled: dict[Any, Compiled] = {}


def launch(kernel: Any, programs: int, *args: Any, **options: Any) -> Launch | None:
    """`kernel[(programs,)](*args, **options)`: a tensor first; constants and options by name, in one order.

    Gives what a tape can launch again; None where Triton's interpreter runs it, or a version that is not known.
    """
    if not _DIRECT or not args[0].is_cuda:
        kernel[(programs,)](*args, **options)
        return None
    device = args[0].get_device()
    # By its id, for a kernel of Triton's takes a lock to tell its hash; it is kept, so that no other gets the id.
    # Arguments by what Triton tells two of them apart by, a few bits for an integer: without a call for each.
    numbers = [_find_number(arg) for arg in args]
    traits = [
        (arg == 1) | (arg & 15 == 0) << 1 | (arg >> 31 == 0) << 2 if type(arg) is int else (arg.dtype, at & 15)
        for arg, at in zip(args, numbers, strict=True)
    ]
    key = (id(kernel), device, *traits, *options.values())
    known = _compiled.get(key)
    if known is None:
        compiled = kernel[(programs,)](*args, **options)
        constants = tuple(options[name] for name in kernel.arg_names[len(args) :])
        known = Compiled(compiled.run, compiled.function, compiled.packed_metadata, constants, kernel)
        _compiled[key] = known
    else:
        known.start(programs, numbers, _get_stream(device))
    return Launch(known, programs, args)


def _find_number(arg: Any) -> int:
    """An integer as it is, or a tensor's address."""
    return arg if type(arg) is int else arg.data_ptr()


class Tape:
    """Launches one behind the other → the same again on other memory, for half of what each costs anew."""

    def __init__(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> None:
        """Of `memory` every call brings its own, laid out alike; other tensors are kept, and used again."""
        storages = [_storage_of(x) for x in memory]
        self._steps = []
        self._kept = []
        for compiled, programs, args in launches:
            moved = []
            for at, arg in enumerate(args):
                if type(arg) is int:
                    continue
                which = _find_memory(arg, memory, storages)
                if which is None:
                    self._kept.append(arg)
                else:
                    moved.append((at, which, arg.data_ptr() - memory[which].data_ptr()))
            self._steps.append((compiled, programs, [_find_number(arg) for arg in args], moved))

    def play(self, memory: Sequence[torch.Tensor]) -> None:
        """Launch all of them."""
        starts, stream = [x.data_ptr() for x in memory], _get_stream(memory[0].get_device())
        for compiled, programs, numbers, moved in self._steps:
            args = numbers.copy()
            for at, which, offset in moved:
                args[at] = starts[which] + offset
            compiled.start(programs, args, stream)


def _find_memory(tensor: torch.Tensor, memory: Sequence[torch.Tensor], storages: Sequence[int]) -> int | None:
    """Which of `memory` a tensor is, or else is a view of: two of them may share a storage, and later ones not."""
    for which, x in enumerate(memory):
        if tensor is x:
            return which
    storage = _storage_of(tensor)
    return storages.index(storage) if storage in storages else None


def _storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Launch on the tensors' GPU, whatever the current one is."""
    if device.type != "cuda" or device.index == _get_device():
        return nullcontext()
    return torch.cuda.device(device)
