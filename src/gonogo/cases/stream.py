"""A name → a stream of random numbers, the same bits on every machine, with every NumPy and without a C compiler.

Philox's words are fixed by its paper. From there on only sums and products are used, which IEEE 754 rounds in one
way everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from importlib import import_module
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

_native: Any
try:
    _native = import_module("gonogo.cases._native")
except ImportError:  # built without a compiler, or by one that knows no products of 128 bits
    _native = None

Floats = npt.NDArray[np.float64]
Words = TypeVar("Words", bound=npt.NDArray[Any])
"""An array of 64 bits an element."""


def _make_key(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()


class Stream(Protocol):
    """A stream of random numbers that a name fixes."""

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Words of 64 random bits each."""

    def uniform(self, count: int) -> Floats:
        """Numbers in [0, 1), of 53 random bits each."""

    def normal(self, count: int) -> Floats:
        """About normal with variance 1, within ±6: twelve 16-bit uniforms added up, and one of full width below."""


class NumpyStream:
    """A stream drawn by NumPy."""

    def __init__(self, name: str) -> None:
        self._bits = np.random.Philox(key=int.from_bytes(_make_key(name), "little"))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """What NumPy's generator gives, one by one."""
        return self._bits.random_raw(count)

    def uniform(self, count: int) -> Floats:
        """The upper 53 bits of a word each."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> Floats:
        """Of four words each: the first words of all numbers come first in the stream, then the second ones."""
        pairs, lanes = np.zeros(count, np.uint64), np.uint64(0x0000_FFFF_0000_FFFF)
        for _ in range(3):
            words = self.words(count)
            pairs += words & lanes  # two sums side by side: six 16-bit numbers fit 32 bits
            pairs += (words >> np.uint64(16)) & lanes
        total = ((pairs & np.uint64(0xFFFF_FFFF)) + (pairs >> np.uint64(32))).astype(np.float64)
        return (total + self.uniform(count)) * 2.0**-16 - 6.0


class NativeStream:
    """The same bits as of a NumpyStream, by the C extension, which is told where in the stream to begin."""

    def __init__(self, name: str) -> None:
        self._key, self._at = _make_key(name), 0

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Words of 64 random bits each."""
        return self._draw(_native.words, np.empty(count, np.uint64))

    def uniform(self, count: int) -> Floats:
        """Numbers in [0, 1)."""
        return self._draw(_native.uniform, np.empty(count))

    def normal(self, count: int) -> Floats:
        """About normal numbers."""
        return self._draw(_native.normal, np.empty(count))

    def _draw(self, fill: Callable[[bytes, int, Words], int], drawn: Words) -> Words:
        self._at = fill(self._key, self._at, drawn)
        return drawn


def open_stream(name: str) -> Stream:
    """The stream of a name, at its start."""
    return NumpyStream(name) if _native is None else NativeStream(name)
