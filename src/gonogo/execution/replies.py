"""What a guest sent and the case it was asked for → what its calls gave, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from gonogo.errors import BadKernelFile, BadModule
from gonogo.guest.calling import Leaves
from gonogo.guest.wire import BrokenProtocol, Foreign, TensorFile, clean, take, take_texts
from gonogo.ops import InText, Kernel

if TYPE_CHECKING:
    from gonogo.execution.bench import Bench

MOST_AXES, MOST_SIZE = 64, 2**48
TELLS_BYTES = 8000


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
    flags: tuple[str, ...]
    """Switches that a call has changed."""


@dataclass(frozen=True)
class Raised:
    """What a call raised."""

    word: str
    detail: str
    error: str


def check_loaded(reply: Mapping[str, Any], source: InText) -> None:
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
        raise BadKernelFile(name, problem)
    if "raised" in reply:
        word = take(reply, "raised", str)
        if word not in ("raised", "out-of-memory", "crashed"):
            raise BrokenProtocol("raised is no outcome")
        error = clean(take(reply, "error", str), TELLS_BYTES)
        return Raised(word, clean(take(reply, "detail", str)), error)
    references = bench.references(kernel.contract_for(bench.job.case.dtype))
    most = max((leaf.expected.numel() for leaf in references), default=0)
    aliases = take(reply, "aliases", dict)
    if not all(type(value) is str for value in aliases.values()):
        raise BrokenProtocol("aliases are no texts")
    first, again = (_read_leaves(take(reply, name, list), answer, most, bench) for name in ("first", "again"))
    return Called(
        first, again, take(reply, "elapsed_s", float), take(reply, "strays", int),
        tuple(take_texts(reply, "changed")), tuple(take_texts(reply, "parameters")), aliases,
        tuple(take_texts(reply, "shared")),
        take(reply, "unrepeated", int), take(reply, "launched", bool), tuple(take_texts(reply, "flags")),
    )  # fmt: skip


def _read_leaves(packed: list[Any], answer: TensorFile, most: int, bench: Bench) -> Leaves:
    """The leaves as tensors of this process, copied out of the file once; none is read that cannot be right."""
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
            if type(facts["number"]) not in (bool, int, float):
                raise BrokenProtocol("a number that is none")
            leaves[path] = facts["number"]
        else:
            leaves[path] = _read_tensor(facts, answer, most, bench.job.device)
    return leaves


def _read_tensor(facts: Mapping[str, Any], answer: TensorFile, most: int, device: str) -> torch.Tensor | Foreign:
    dtype = getattr(torch, take(facts, "dtype", str), None)
    shape, at = take(facts, "shape", list), take(facts, "at", int)
    sizes_fit = all(type(size) is int and 0 <= size < MOST_SIZE for size in shape)
    if not isinstance(dtype, torch.dtype) or len(shape) > MOST_AXES or not sizes_fit or at < 0:
        raise BrokenProtocol("a leaf that is no tensor")
    count = prod(shape)
    if count > most:  # of the wrong shape, whatever it holds
        return torch.empty((), dtype=dtype).expand(shape) if count < MOST_SIZE else Foreign("a tensor too large")
    if not count:
        return torch.empty(shape, dtype=dtype, device=device)
    content = answer.read(at, count * dtype.itemsize)
    return torch.frombuffer(content, dtype=dtype).reshape(shape).to(device)
