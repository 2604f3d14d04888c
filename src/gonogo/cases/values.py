"""A stream and a shape → values of a distribution, the same bits on every machine and with every NumPy.

Only sums, products, quotients and square roots are used, which IEEE 754 rounds in one way everywhere. No exp, log
or cosine: libraries differ in their last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gonogo.cases.stream import Floats, Stream
from gonogo.formats import Format

Shape = tuple[int, ...]

CHOSEN_AT_ONCE = 2**16
"""Elements: large cases have no memory for all kinds twice."""


def _uniform(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    return (2 * stream.uniform(math.prod(shape)) - 1) * 10


def _normal(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    return stream.normal(math.prod(shape))


def _heavy(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Density falls as |x|⁻³."""
    count = math.prod(shape)
    return np.clip(stream.normal(count) / np.sqrt(stream.uniform(count) + 2.0**-26), -8192, 8192)


def _cancel(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Neighbours are nearly each other's negative: sums over them all but vanish."""
    count = math.prod(shape)
    half = (count + 1) // 2
    first = 10 * stream.normal(half)
    second = -first * (1 + (stream.uniform(half) - 0.5) / 64)
    return np.stack([first, second], axis=1).reshape(-1)[:count]


def _offset(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """About 100 or about −100, all of an input alike: in half of the cases every product of two inputs is negative.

    Not in float16: seven such products are past its range, and what a correct kernel makes of −inf is often NaN.
    """
    sign = -1.0 if stream.words(1)[0] % 2 and fmt.largest > 1e30 else 1.0
    return sign * (100 + stream.normal(math.prod(shape)))


def _spike(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Small, but for one in 64 between 50 and 100."""
    count = math.prod(shape)
    small, which, size = 0.1 * stream.normal(count), stream.uniform(count), stream.uniform(count)
    return np.where(which < 1 / 128, 50 + 50 * size, np.where(which < 1 / 64, -50 - 50 * size, small))


def _integers(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """−2 … 2: sums of their products are exact in float32, and so is any order of summing them."""
    return np.floor(5 * stream.uniform(math.prod(shape))) - 2


def _nan_injected(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """One in 20 is NaN, +inf, −inf or 0."""
    count = math.prod(shape)
    values, which = _uniform(stream, shape, fmt), stream.uniform(count)
    special = np.array([np.nan, np.inf, -np.inf, 0.0])[(stream.uniform(count) * 4).astype(np.int64)]
    return np.where(which < 0.05, special, values)


def _adversarial(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Equally likely: 0; subnormal; up to the largest; within ±1000; NaN or an infinity."""
    count = math.prod(shape)
    bucket, u = (stream.uniform(count) * 5).astype(np.int64), 2 * stream.uniform(count) - 1
    special = np.array([np.nan, np.inf, -np.inf])[(stream.uniform(count) * 3).astype(np.int64)]
    return _choose(bucket, [np.zeros(count), fmt.smallest_normal * u, fmt.largest * u, 1000 * u, special])


def _choose(which: npt.NDArray[np.int64], kinds: list[Floats]) -> Floats:
    """At each place the value of the kind that is named there: as np.choose, in a third of its time."""
    chosen = np.empty(which.size)
    for start in range(0, which.size, CHOSEN_AT_ONCE):
        part = slice(start, start + CHOSEN_AT_ONCE)
        named = which[part]
        chosen[part] = np.concatenate([kind[part] for kind in kinds])[named * named.size + np.arange(named.size)]
    return chosen


def _flip(values: Floats, words: npt.NDArray[np.uint64]) -> Floats:
    """Values, negated in place where a word is odd."""
    bits = values.view(np.uint64)
    bits ^= words << np.uint64(63)
    return values


def _low(fmt: Format) -> int:
    """Exponent of the smallest sizes: tensor cores lose digits of float16's subnormals, and are right to."""
    return -20 if fmt.largest > 1e30 else -14


def _scales(stream: Stream, count: int, low: int, high: int) -> Floats:
    """Of either sign, the size between 2^low and 2^high, every power of two as likely as any other."""
    exponents = low + np.floor((high - low) * stream.uniform(count)).astype(np.int64)
    sizes = 1 + stream.uniform(count)
    bits = sizes.view(np.int64)
    bits += exponents << 52  # as np.ldexp does it, where nothing leaves float64's range
    return _flip(sizes, stream.words(count))


def _zeros(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Normal, but for one in eight that is 0 or −0, and one row in four that is nothing else."""
    count = math.prod(shape)
    values, zeros = stream.normal(count), _flip(np.zeros(count), stream.words(count))
    rows, width = _split_rows(shape)
    empty = np.repeat(stream.uniform(rows) < 0.25, width) if len(shape) > 1 else np.zeros(count, bool)
    return np.where(empty | (stream.uniform(count) < 0.125), zeros, values)


def _ties(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Six values of few bits: nearly every extreme of a row is shared, and sums of them are exact."""
    return np.array([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0])[(6 * stream.uniform(math.prod(shape))).astype(np.int64)]


def _tiny(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Between 10⁻⁶ and 10⁻¹, in float16 from 6·10⁻⁵ on: where eps and lost digits near 0 matter."""
    return _scales(stream, math.prod(shape), _low(fmt), -3)


def _huge(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Between 10² and 10⁸, or the largest of the format."""
    drawn = _scales(stream, math.prod(shape), 7, 26 if fmt.largest > 1e30 else 16)
    return np.clip(drawn, -float(fmt.largest), float(fmt.largest))


def _exponent(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Half of them between 60 and 120, of either sign: float32 loses exp past 88, and exp of twice that past 44."""
    count = math.prod(shape)
    far = _flip(60 + 60 * stream.uniform(count), stream.words(count))
    return np.where(stream.uniform(count) < 0.5, far, stream.normal(count))


def _mixed(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """0, −0, tiny, ordinary, past the overflow of exp and large side by side: no shortcut by size takes all."""
    count = math.prod(shape)
    kinds = [
        _flip(np.zeros(count), stream.words(count)), _scales(stream, count, _low(fmt), -3),
        stream.normal(count), 10 * (2 * stream.uniform(count) - 1), _scales(stream, count, 5, 7),
        _scales(stream, count, 7, 13),
    ]  # fmt: skip
    return _choose((len(kinds) * stream.uniform(count)).astype(np.int64), kinds)


def _rows(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Each row of a kind of its own: zero, constant, tiny, large, negative, a spike, normal. Vectors are normal."""
    count = math.prod(shape)
    rows, width = _split_rows(shape)
    normal = stream.normal(count).reshape(rows, width)
    if len(shape) < 2:
        return normal.reshape(-1)
    tiny, large = (_scales(stream, count, *ends).reshape(rows, width) for ends in ((_low(fmt), -8), (7, 12)))
    spike = np.where(
        np.arange(width) == (width * stream.uniform(rows)).astype(np.int64)[:, None], 64.0, 0.1 * normal
    )
    kinds = [
        np.zeros((rows, width)),
        np.repeat(normal[:, :1], width, 1),
        tiny,
        large,
        -1 - normal**2,
        spike,
        normal,
    ]
    which = (np.arange(rows) + stream.words(1)[0] % len(kinds)).astype(np.int64) % len(kinds)
    chosen: Floats = np.choose(which[:, None], kinds)
    return chosen.reshape(-1)


def _whole(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Whole numbers within ±4, every other row with the sum 0: sums, squares and centred values are exact.

    What is left of an error is not that of adding up: a count that is off by one shows however long the row is.
    """
    rows, width = _split_rows(shape)
    values = (np.floor(9 * stream.uniform(math.prod(shape))) - 4).reshape(rows, width)
    half = width // 2
    values[::2, width - half :] = -values[::2, :half]
    values[::2, half : width - half] = 0.0
    if len(shape) < 2:
        values = np.where(values == 0, 1.0, values)
    return values.reshape(-1)


def _masked(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """−inf in a leading block of each row, or here and there; the last of a row is finite."""
    rows, width = _split_rows(shape)
    values = 3 * stream.normal(math.prod(shape)).reshape(rows, width)
    lead = (width * stream.uniform(rows)).astype(np.int64)
    block = np.arange(width) < lead[:, None]
    scattered = stream.uniform(rows * width).reshape(rows, width) < 0.25
    hidden = np.where((np.arange(rows) % 2 == 0)[:, None], block, scattered)
    hidden[:, -1:] = False
    return np.where(hidden, -np.inf, values).reshape(-1)


def _nan(stream: Stream, shape: Shape, fmt: Format) -> Floats:
    """Normal, with one NaN in every third row: it must come out, and nowhere else; a vector has none."""
    rows, width = _split_rows(shape)
    values = stream.normal(math.prod(shape)).reshape(rows, width)
    at = (width * stream.uniform(rows)).astype(np.int64)
    if len(shape) > 1 and width:
        values[np.arange(0, rows, 3), at[::3]] = np.nan
    return values.reshape(-1)


def _split_rows(shape: Shape) -> tuple[int, int]:
    """How many rows along the last axis, and how long they are."""
    width = shape[-1] if shape else 1
    return math.prod(shape[:-1]), width


DISTRIBUTIONS: dict[str, Callable[[Stream, Shape, Format], Floats]] = {
    "uniform": _uniform,
    "normal": _normal,
    "heavy": _heavy,
    "cancel": _cancel,
    "offset": _offset,
    "spike": _spike,
    "integers": _integers,
    "nan_injected": _nan_injected,
    "adversarial": _adversarial,
    "zeros": _zeros,
    "ties": _ties,
    "tiny": _tiny,
    "huge": _huge,
    "exponent": _exponent,
    "mixed": _mixed,
    "rows": _rows,
    "whole": _whole,
    "masked": _masked,
    "nan": _nan,
}
FIRST = ("uniform", "normal", "heavy", "cancel", "offset", "spike", "integers", "nan_injected", "adversarial")
"""Words whose cases draw indices, int8 and scales as they were first recorded: without ends and negative ones."""
FINITE = (
    "uniform", "normal", "heavy", "cancel", "offset", "spike", "zeros", "ties", "tiny", "huge", "exponent", "mixed",
    "rows", "whole",
)  # fmt: skip
EXACT = "integers"
"""Only for ops that are sums of products."""
ON_PROMISE = ("masked", "nan")
"""Only for ops that say in `takes` what becomes of them."""
NON_FINITE = ("nan_injected", "adversarial", *ON_PROMISE)
USUAL = (*FINITE, EXACT, *ON_PROMISE)
"""What a kernel is verified on, each where the op takes it."""
LONGEST_REPETITIVE = 512
"""Terms of a sum up to which they may repeat.

Additions of a long chain of few distinct terms are off by the same amount each, and these errors do not average
out: a correct chain would read as one that is wrong.
"""


def draw_values(distribution: str, stream: Stream, shape: Shape, fmt: Format) -> npt.NDArray[Any]:
    """Bit patterns of an array's values in C order, rounded to `fmt` by way of float32, to nearest even."""
    with np.errstate(over="ignore"):
        return round_to_bits(DISTRIBUTIONS[distribution](stream, shape, fmt).astype(np.float32), fmt)


def draw_index(distribution: str, stream: Stream, count: int, below: int) -> npt.NDArray[np.int64]:
    """Whole numbers from 0 to `below` − 1; one in eight is the first, one in eight the last."""
    drawn = (stream.uniform(count) * below).astype(np.int64)
    if distribution in FIRST:
        return drawn
    end = stream.uniform(count)
    return np.where(end < 0.125, 0, np.where(end < 0.25, below - 1, drawn))


def draw_int8(distribution: str, stream: Stream, count: int) -> npt.NDArray[np.int8]:
    """−128 … 127, one in 16 the least of all."""
    drawn = stream.uniform(count)
    if distribution in FIRST:
        return (np.floor(drawn * 255) - 127).astype(np.int8)
    return np.where(stream.uniform(count) < 1 / 16, -128, np.floor(drawn * 256) - 128).astype(np.int8)


def draw_scale(distribution: str, stream: Stream, count: int, fmt: Format) -> npt.NDArray[Any]:
    """Bit patterns of factors between 10⁻⁶ and 2 in size, of either sign, and one in 16 that is 0."""
    if distribution in FIRST:
        return round_to_bits((0.001 + 0.019 * stream.uniform(count)).astype(np.float32), fmt)
    scales = np.where(stream.uniform(count) < 1 / 16, 0.0, _scales(stream, count, _low(fmt), 1))
    return round_to_bits(scales.astype(np.float32), fmt)


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
