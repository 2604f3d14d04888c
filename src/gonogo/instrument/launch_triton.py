"""A Triton kernel and its arguments → a launch, at a fifth of the usual cost to the host.

Triton looks at every argument of every launch to find the compiled kernel, and then for its own hooks. Ours are
launched again and again with arguments of the same kinds, so the compiled kernel is kept under what Triton
specialises on, and handed to its driver as it is: with addresses for tensors, which it would have to ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton

# Launching a compiled kernel is not part of Triton's promised interface: only where it has been seen to work.
_DIRECT = tuple(int(part) for part in triton.__version__.split(".")[:2]) in {(3, 6), (3, 7)}
_get_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_get_device: Any = getattr(torch._C, "_cuda_getDevice", None)
"""Without a look at whether CUDA is initialized, as it is where tensors are."""


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

    Gives what a tape can launch again; None where Triton is not one of those that are known.
    """
    if not _DIRECT or not args[0].is_cuda:
        kernel[(programs,)](*args, **options)
        return None
    device = args[0].get_device()
    # By its id, for a kernel of Triton's takes a lock to tell its hash; it is kept, so that no other gets the id.
    # Arguments by what Triton tells two of them apart by, a few bits for an integer: without a call for each.
    plain = [_find_plain(arg) for arg in args]
    traits = [
        (arg == 1) | (arg & 15 == 0) << 1 | (arg >> 31 == 0) << 2 if type(arg) is int else (arg.dtype, at & 15)
        for arg, at in zip(args, plain, strict=True)
    ]
    key = (id(kernel), device, *traits, *options.values())
    known = _compiled.get(key)
    if known is None:
        made = kernel[(programs,)](*args, **options)
        constants = tuple(options[name] for name in kernel.arg_names[len(args) :])
        known = _compiled[key] = Compiled(made.run, made.function, made.packed_metadata, constants, kernel)
    else:
        known.start(programs, plain, _get_stream(device))
    return Launch(known, programs, args)


def _find_plain(arg: Any) -> int:
    """An integer as it is, or a tensor's address."""
    return arg if type(arg) is int else arg.data_ptr()


class Tape:
    """Launches one behind the other → the same again on other memory, for half of what each costs anew."""

    def __init__(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> None:
        """Of `memory` every call brings its own, laid out alike; other tensors must outlive the tape."""
        self._steps = [
            (compiled, programs, [_find_plain(x) for x in args], list(_find_moved(args, memory)))
            for compiled, programs, args in launches
        ]

    def play(self, memory: Sequence[torch.Tensor]) -> None:
        """Launch all of them."""
        starts, stream = [x.data_ptr() for x in memory], _get_stream(memory[0].get_device())
        for compiled, programs, given, moved in self._steps:
            args = given.copy()
            for at, which, offset in moved:
                args[at] = starts[which] + offset
            compiled.start(programs, args, stream)


def _find_moved(args: Sequence[Any], memory: Sequence[torch.Tensor]) -> Iterator[tuple[int, int, int]]:
    """Which arguments lie in which memory, and how many bytes from its beginning.

    The same tensor, or else a view of one: two that were given may share their memory, and others need not.
    """
    for at, arg in enumerate(args):
        if type(arg) is int:
            continue
        same = [which for which, x in enumerate(memory) if arg is x]
        views = [which for which, x in enumerate(memory) if _storage_of(arg) == _storage_of(x)]
        for which in (same or views)[:1]:
            yield at, which, arg.data_ptr() - memory[which].data_ptr()


def _storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Launch on the tensors' GPU, whatever the current one is."""
    if device.type != "cuda" or device.index == _get_device():
        return nullcontext()
    return torch.cuda.device(device)
