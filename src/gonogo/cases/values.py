"""A name and a count → values of a distribution, the same bits on every machine and with every NumPy.

Philox's raw stream is fixed by its paper; from there on only sums, products, quotients and square roots are used,
which IEEE 754 rounds in one way everywhere. No exp, log or cosine: libraries differ in their last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.formats import Format

Floats = npt.NDArray[np.float64]


class Stream:
    """A stream of random numbers that a name fixes."""

    def __init__(self, name: str) -> None:
        key = int.from_bytes(blake2b(name.encode(), digest_size=16).digest(), "little")
        self._bits = np.random.Philox(key=key)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """64 random bits each."""
        return self._bits.random_raw(count)

    def uniform(self, count: int) -> Floats:
        """In [0, 1), 53 bits each."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> Floats:
        """About normal with variance 1, within ±6: twelve 16-bit uniforms added up, and one of full width below."""
        pairs, lanes = np.zeros(count, np.uint64), np.uint64(0x0000_FFFF_0000_FFFF)
        for _ in range(3):
            words = self.words(count)
            pairs += words & lanes  # two sums side by side: six 16-bit numbers fit 32 bits
            pairs += (words >> np.uint64(16)) & lanes
        total = ((pairs & np.uint64(0xFFFF_FFFF)) + (pairs >> np.uint64(32))).astype(np.float64)
        return (total + self.uniform(count)) * 2.0**-16 - 6.0


def _uniform(stream: Stream, count: int, fmt: Format) -> Floats:
    return (2 * stream.uniform(count) - 1) * 10


def _normal(stream: Stream, count: int, fmt: Format) -> Floats:
    return stream.normal(count)


def _heavy(stream: Stream, count: int, fmt: Format) -> Floats:
    """Density falls as |x|⁻³."""
    return np.clip(stream.normal(count) / np.sqrt(stream.uniform(count) + 2.0**-26), -8192, 8192)


def _cancel(stream: Stream, count: int, fmt: Format) -> Floats:
    """Neighbours are nearly each other's negative: sums over them all but vanish."""
    half = (count + 1) // 2
    first = 10 * stream.normal(half)
    second = -first * (1 + (stream.uniform(half) - 0.5) / 64)
    return np.stack([first, second], axis=1).reshape(-1)[:count]


def _offset(stream: Stream, count: int, fmt: Format) -> Floats:
    """About 100 or about −100, all of an input alike: in half of the cases every product of two inputs is negative.

    Not in float16: seven such products are past its range, and what a correct kernel makes of −inf is often NaN.
    """
    sign = -1.0 if stream.words(1)[0] % 2 and fmt.largest > 1e30 else 1.0
    return sign * (100 + stream.normal(count))


def _spike(stream: Stream, count: int, fmt: Format) -> Floats:
    """Small, but for one in 64 between 50 and 100."""
    small, which, size = 0.1 * stream.normal(count), stream.uniform(count), stream.uniform(count)
    return np.where(which < 1 / 128, 50 + 50 * size, np.where(which < 1 / 64, -50 - 50 * size, small))


def _integers(stream: Stream, count: int, fmt: Format) -> Floats:
    """−2 … 2: sums of their products are exact in float32, and so is any order of summing them."""
    return np.floor(5 * stream.uniform(count)) - 2


def _nan_injected(stream: Stream, count: int, fmt: Format) -> Floats:
    """One in 20 is NaN, +inf, −inf or 0."""
    values, which = _uniform(stream, count, fmt), stream.uniform(count)
    special = np.array([np.nan, np.inf, -np.inf, 0.0])[(stream.uniform(count) * 4).astype(np.int64)]
    return np.where(which < 0.05, special, values)


def _adversarial(stream: Stream, count: int, fmt: Format) -> Floats:
    """Equally likely: 0; subnormal; up to the largest; within ±1000; NaN or an infinity."""
    bucket, u = (stream.uniform(count) * 5).astype(np.int64), 2 * stream.uniform(count) - 1
    special = np.array([np.nan, np.inf, -np.inf])[(stream.uniform(count) * 3).astype(np.int64)]
    return np.choose(bucket, [np.zeros(count), fmt.smallest_normal * u, fmt.largest * u, 1000 * u, special])


DISTRIBUTIONS: dict[str, Callable[[Stream, int, Format], Floats]] = {
    "uniform": _uniform,
    "normal": _normal,
    "heavy": _heavy,
    "cancel": _cancel,
    "offset": _offset,
    "spike": _spike,
    "integers": _integers,
    "nan_injected": _nan_injected,
    "adversarial": _adversarial,
}
FINITE = ("uniform", "normal", "heavy", "cancel", "offset", "spike")
EXACT = "integers"
"""Only for ops that are sums of products."""
NON_FINITE = ("nan_injected", "adversarial")


def draw_values(distribution: str, stream: Stream, count: int, fmt: Format) -> npt.NDArray[Any]:
    """Bit patterns of `count` values, rounded to `fmt` by way of float32, to nearest even."""
    with np.errstate(over="ignore"):
        return round_to_bits(DISTRIBUTIONS[distribution](stream, count, fmt).astype(np.float32), fmt)


def round_to_bits(values: npt.NDArray[np.float32], fmt: Format) -> npt.NDArray[Any]:
    """Float32 values → bit patterns of a format of up to 32 bits."""
    if fmt.name == "float32":
        return values.view(np.uint32)
    if fmt.name == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    if fmt.name != "bfloat16":
        raise ValueError(fmt.name)
    words = values.view(np.uint32)
    rounded = ((words + np.uint32(0x7FFF) + ((words >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )
    quiet = ((words >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    return np.where(np.isnan(values), quiet, rounded)
