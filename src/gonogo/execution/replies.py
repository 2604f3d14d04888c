"""What a guest sent and the case it was asked for → what its calls gave, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from gonogo.errors import BadKernelFile, BadModule
from gonogo.guest.calling import GRAD, WRITTEN, Leaves
from gonogo.guest.launches import WrongDevice
from gonogo.guest.leaves import NUMBERS
from gonogo.guest.wire import BrokenProtocol, Foreign, TensorFile, clean, take, take_count, take_texts
from gonogo.ops import Elsewhere, Kernel

if TYPE_CHECKING:
    from gonogo.execution.bench import Bench

MOST_AXES, MOST_SIZE, MOST_SECONDS = 64, 2**48, 1e9
MOST_READ = 8
"""How many times the elements of all references are read of one output: leaves may stand for one argument."""
TELLS_BYTES = 8000
DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128",
    *(name for name in vars(torch) if name.startswith("float8_")),
)  # fmt: skip
"""Of tensors that are read. Others torch may not survive: bytes as a quantized tensor end the process."""


class GuestRefused(Exception):
    """A launch that could not be judged."""


@dataclass(frozen=True)
class Called:
    """What two judged calls gave."""

    first: Leaves
    again: Leaves
    elapsed_s: float
    strays: int
    changed: tuple[str, ...]
    """Arguments that were changed, and were not to be."""
    parameters: tuple[str, ...]
    aliases: Mapping[str, str]
    shared: tuple[str, ...]
    """Leaves that stand in the memory of an argument."""
    unrepeated: int
    """Of many calls on the same arguments, those that gave something else."""
    launched: bool
    own: bool
    """Whether code ran that is neither torch's nor NumPy's, as far as it could see."""
    flags: tuple[str, ...]
    """Switches that a call has changed."""
    overwritten: bool
    """Whether an output was another after later calls."""


@dataclass(frozen=True)
class Raised:
    """What a call raised."""

    word: str
    detail: str
    error: str


def check_loaded(reply: Mapping[str, Any], source: Elsewhere) -> None:
    """Refuse a source that gave no function, or none for its reference."""
    if "unloaded" in reply:
        raise BadKernelFile(source.path, clean(take(reply, "unloaded", str)))
    if "unfit" in reply:
        raise BadModule(clean(take(reply, "unfit", str)))
    take(reply, "loaded", bool)


def read_reply(reply: Mapping[str, Any], answer: TensorFile, bench: Bench, kernel: Kernel) -> Called | Raised:
    """What a call gave or raised; GuestRefused, BrokenProtocol, or a refusal of gonogo's."""
    if "refused" in reply:
        raise GuestRefused(clean(take(reply, "refused", str)))
    if "wrong_device" in reply:
        name, problem = (*take_texts(reply, "wrong_device", 2), "", "")[:2]
        raise BadKernelFile(name, problem) from WrongDevice(name, problem)
    if "raised" in reply:
        word = take(reply, "raised", str)
        if word not in ("raised", "out-of-memory", "crashed"):
            raise BrokenProtocol("raised is no outcome")
        error = clean(take(reply, "error", str), TELLS_BYTES)
        return Raised(word, clean(take(reply, "detail", str)), error)
    first, again = _read_outputs(reply, answer, bench, kernel)
    elapsed_s = take(reply, "elapsed_s", float)
    if not 0 <= elapsed_s < MOST_SECONDS:
        raise BrokenProtocol("elapsed_s is no time")
    return Called(
        first, again, elapsed_s, take_count(reply, "strays"),
        tuple(take_texts(reply, "changed")), tuple(take_texts(reply, "parameters")),
        _read_aliases(take(reply, "aliases", dict), first), tuple(take_texts(reply, "shared")),
        take_count(reply, "unrepeated"), take(reply, "launched", bool), take(reply, "own", bool),
        tuple(take_texts(reply, "flags")), take(reply, "overwritten", bool),
    )  # fmt: skip


def _read_aliases(aliases: Mapping[str, Any], leaves: Leaves) -> dict[str, str]:
    """Leaves that are returned, each with one that is written: no other pairs two leaves."""
    written = [path for path in leaves if path.startswith(WRITTEN)]
    if not all(type(value) is str and value in written for value in aliases.values()):
        raise BrokenProtocol("aliases are no leaves that are written")
    return {path: aliases[path] for path in leaves if path in aliases and not path.startswith((WRITTEN, GRAD))}


def _read_outputs(
    reply: Mapping[str, Any], answer: TensorFile, bench: Bench, kernel: Kernel
) -> tuple[Leaves, Leaves]:
    """Both outputs. No leaf is read that is larger than any reference, nor more of them than can be paired."""
    references = bench.references(kernel.contract_for(bench.job.case.dtype))
    sizes = [leaf.expected.numel() for leaf in references]
    reader = _Reader(answer, bench.job.device, max(sizes, default=0), 2 * MOST_READ * sum(sizes))
    first, again = (reader.read(take(reply, name, list)) for name in ("first", "again"))
    return first, again


@dataclass
class _Reader:
    """Leaves as tensors of this process, copied out of the file once."""

    answer: TensorFile
    device: str
    most: int
    """Elements of one leaf."""
    left: int
    """Elements that may still be read."""

    def read(self, packed: list[Any]) -> Leaves:
        if len(packed) > 1000:
            raise BrokenProtocol(f"an output of {len(packed):,} leaves")
        leaves: Leaves = {}
        for facts in packed:
            if type(facts) is not dict:
                raise BrokenProtocol("a leaf that is no object")
            path = clean(take(facts, "path", str))
            if "other" in facts:
                leaves[path] = Foreign(clean(take(facts, "other", str)))
            elif "number" in facts:
                if type(facts["number"]) not in NUMBERS:
                    raise BrokenProtocol("a number that is none")
                leaves[path] = facts["number"]
            else:
                leaves[path] = self._read_tensor(facts)
        return leaves

    def _read_tensor(self, facts: Mapping[str, Any]) -> torch.Tensor | Foreign:
        name, shape = clean(take(facts, "dtype", str)), take(facts, "shape", list)
        at = take_count(facts, "at")
        sizes_fit = all(type(size) is int and 0 <= size < MOST_SIZE for size in shape)
        if len(shape) > MOST_AXES or not sizes_fit:
            raise BrokenProtocol("a leaf that is no tensor")
        if name not in DTYPES:
            return Foreign(f"a tensor of dtype {name}")
        dtype, count = getattr(torch, name), prod(shape)
        if prod(max(size, 1) for size in shape) >= MOST_SIZE:
            return Foreign("a tensor too large")
        if count > self.most:  # of the wrong shape, whatever it holds
            return torch.empty((), dtype=dtype).expand(shape)
        if not count:
            return torch.empty(shape, dtype=dtype, device=self.device)
        self.left -= count
        if self.left < 0:
            return Foreign("a tensor behind too many others")
        content = self.answer.read(at, count * dtype.itemsize)
        return torch.frombuffer(content, dtype=dtype).reshape(shape).to(self.device)
