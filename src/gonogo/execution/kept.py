"""Cases that were set up → set up again for the next kernel: nothing is drawn or traced anew.

Whoever judges one kernel after the other on the cases of an op waits for drawing and tracing longer than for
kernels. Only cases of ops that lie in a folder are kept, whose references do not change. A kernel never gets what
is kept, but a copy of it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import torch

from gonogo.cases import Call, Case, is_far, lay_far
from gonogo.cases.room import find_available_bytes
from gonogo.execution.reference import Reference
from gonogo.guest.memory import copy_whole
from gonogo.ops import InFolder, Op
from gonogo.schema import Contract

SHARE = 1 / 16
"""Of a GPU's memory, and of what the host has available: some thousand cases on either, and little to miss."""


@dataclass
class Kept:
    """A case set up, apart from its kernels."""

    laid: Call
    """The arguments, with gaps and guards; of those whose rows are far apart, which takes gigabytes, the values."""
    pristine: Call
    """The same, contiguous, in memory that no kernel gets."""
    far: frozenset[str] = frozenset()
    """Paths of arguments whose rows are to be far apart."""
    by_contract: dict[Contract, tuple[Reference, ...]] = field(default_factory=dict)
    """What outputs are held against: of a contract that a later kernel asks for, once that has come."""
    _counted: tuple[int, dict[str, int]] = (0, {})
    """How many tensors there were when their bytes were last counted, and these: none is ever replaced."""

    def copy_laid(self) -> Call:
        """The arguments in fresh memory, with the same bits in it and around it."""
        return self.laid.map(lambda path, x: lay_far(x) if path in self.far else copy_whole(x))

    def count_bytes(self) -> dict[str, int]:
        """Of a GPU's memory and of the host's, by kind of device."""
        tensors = list(self._list_tensors())
        if self._counted[0] != len(tensors):
            sizes: dict[str, int] = {}
            storages = [(x.device.type, x.untyped_storage()) for x in tensors]
            for (_, where), size in {(s.data_ptr(), where): s.nbytes() for where, s in storages}.items():
                sizes[where] = sizes.get(where, 0) + size
            self._counted = len(tensors), sizes
        return self._counted[1]

    def _list_tensors(self) -> Iterator[torch.Tensor]:
        yield from (x for call in (self.laid, self.pristine) for _, x in call.tensors)
        for references in list(self.by_contract.values()):  # a copy: another thread may add to it
            for reference in references:  # with what has been computed of it since, as its scale of long chains
                yield from (value for value in list(vars(reference).values()) if isinstance(value, torch.Tensor))


def start_keeping(op: Op, call: Call) -> Kept | None:
    """A case whose arguments have been drawn, if it is one to be kept."""
    if not isinstance(op.reference, InFolder) or op.draw is not None:
        return None
    far = frozenset(path for path, x in call.tensors if is_far(x))
    laid = call
    if far:  # too much to be copied for the first kernel, which gets the call itself
        laid = call.map(
            lambda path, x: x.clone(memory_format=torch.contiguous_format) if path in far else copy_whole(x)
        )
    return Kept(laid, laid.map(lambda path, x: x.contiguous()), far)


Key = tuple[Case, str]
"""A case, and where it is set up."""


@dataclass
class Shelf:
    """What is kept of one op."""

    op: Op
    cases: dict[Key, Kept] = field(default_factory=dict)
    sizes: dict[Key, Mapping[str, int]] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    """Bytes of all, by kind of device."""

    def put(self, key: Key, kept: Kept, size: Mapping[str, int]) -> None:
        """Add a case."""
        self.cases[key], self.sizes[key] = kept, size
        self.held.update(size)

    def drop(self, key: Key) -> None:
        """Let go of a case, if it is here."""
        if key in self.cases:
            del self.cases[key]
            self.held.subtract(self.sizes.pop(key))


class Store:
    """What is kept, by op; where it gets too much, of the op that was asked for longest ago."""

    def __init__(self) -> None:
        self._shelves: dict[int, Shelf] = {}
        self._lock = threading.Lock()

    @property
    def is_used(self) -> bool:
        """Whether any case is kept."""
        return bool(self._shelves)

    def find(self, op: Op, case: Case, device: str) -> Kept | None:
        """A case of an op, where it is kept."""
        with self._lock:
            shelf = self._take_shelf(op)
            if not shelf.cases:
                return None
            self._shelves[id(op)] = shelf
            return shelf.cases.get((case, _locate(device)))

    def keep(self, op: Op, case: Case, device: str, kept: Kept) -> None:
        """Keep a case that was used, unless there is no room even without those of other ops.

        It is counted after every use: a kernel may have asked for another contract, or for a scale of long chains.
        """
        size, key = kept.count_bytes(), (case, _locate(device))
        with self._lock:
            own = self._take_shelf(op)
            is_known = own.cases.get(key) is kept and own.sizes[key] == size
            if not is_known:
                own.drop(key)
            if not is_known and all(self._make_room(own.held[where] + more, where) for where, more in size.items()):
                own.put(key, kept, size)
            if own.cases:
                self._shelves[id(op)] = own

    def clear(self) -> bool:
        """Let go of everything; whether there was anything."""
        with self._lock:
            was_used = self.is_used
            self._shelves.clear()
            _find_room.cache_clear()
            return was_used

    def _take_shelf(self, op: Op) -> Shelf:
        """Of an op, off its place; put back, it is the last that was asked for."""
        shelf = self._shelves.pop(id(op), None)
        # An op that is gone may have left its id to another.
        return shelf if shelf is not None and shelf.op is op else Shelf(op)

    def _make_room(self, own: int, where: str) -> bool:
        """Let go of other ops' cases until so many bytes have room beside them; False where they never have."""
        room = _find_room(where)
        if own > room:
            return False
        for number, shelf in list(self._shelves.items()):
            if own + sum(other.held[where] for other in self._shelves.values()) <= room:
                break
            if shelf.held[where]:
                del self._shelves[number]
        return True


STORE = Store()


def forget_cases() -> None:
    """Let go of the cases that `gonogo.verify` keeps for the next kernel of an op, and of the memory they take."""
    if STORE.clear() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


@cache
def _find_room(where: str) -> float:
    return SHARE * (find_available_bytes(where) or 0)


def _locate(device: str) -> str:
    return f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
