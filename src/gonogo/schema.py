"""Frozen records: what the stages of the flow hand to one another."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gonogo.errors import InputError
from gonogo.formats import get_format

Row = dict[str, Any]
"""A record, by column."""


@dataclass(frozen=True, slots=True)
class ErrorStats:
    """The paper's eleven-field record of one output against its reference."""

    count: int
    """Elements compared."""
    num_exceeding: int
    """Elements with |actual − expected| > atol, +inf included; 0 where no atol was given."""
    max_abs: float
    """Largest |actual − expected| in float64; a non-finite disagreement is +inf."""
    mean_abs: float
    """Mean of the same."""
    p50_abs: float
    """Median over all elements, linear interpolation, +inf last."""
    p90_abs: float
    """90th percentile, likewise."""
    p99_abs: float
    """99th percentile, likewise."""
    max_rel: float
    """Largest |actual − expected| / |expected| over the elements with expected ≠ 0."""
    mean_rel: float
    """Mean of the same, over the same elements."""
    max_ulp: int
    """Largest distance in units in the last place of the output format; 2^64 − 1 where there is none."""
    mean_ulp: float
    """Mean of the same; inf where max_ulp is saturated."""

    def to_dict(self) -> dict[str, int | float]:
        """Field names to plain Python numbers, in the order above."""
        return asdict(self)


ULP_SATURATED = 2**64 - 1
"""max_ulp where one side is NaN or an infinity the other side does not share."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The worst error of one output in the unit of one gauge."""

    gauge: str
    """Name of the gauge, with its parameters where it has any."""
    worst: float
    """Largest error in gauge units; 0 for an empty output, inf where no finite error explains an element."""
    index: tuple[int, ...] | None
    """Where the worst stands; None for an empty output."""
    bias: float
    """Mean signed error in gauge units × √count; inf where an element's error is infinite."""
    count: int
    """Elements read."""

    def to_dict(self) -> dict[str, str | int | float | tuple[int, ...] | None]:
        """Field names to plain Python values, in the order above."""
        return asdict(self)


PRODUCTS = ("tf32", "strassen", "fp8")
FLAGS = ("fast_math", "atomics", "backward")


@dataclass(frozen=True, slots=True)
class Contract:
    """What precision a kernel promises; it fixes u_c and the terms of the error scale S."""

    accumulate: str = "float32"
    """Format of sums and intermediates; u_c is its unit roundoff."""
    products: Literal["ieee", "tf32", "strassen", "fp8"] = "ieee"
    """How matrix products are made: of all bits, of operands cut to tf32's 11, by Strassen's algorithm, or as
    Hopper's FP8 units add, in about 14 bits with a promotion to float32 every 128 terms."""
    intermediate: str | None = None
    """Format a computed operand is cast to before a matrix product (P in attention); None: not cast."""
    summation: Literal["blocked", "sequential", "probabilistic"] = "blocked"
    """What a sum's error is charged: any order by its expected partial sums, n·Σ|x| for a proof, or √n·Σ|x|."""
    fast_math: bool = False
    """Approximate intrinsics (tanh.approx and kin) and fast algorithms (Winograd, FFT) allowed."""
    atomics: bool = False
    """Sums in no fixed order allowed: bits may differ from call to call."""
    backward: bool = False
    """Errors as of one rounding of each input allowed: x − logsumexp(x), exponents scaled by log2(e) beforehand."""
    output: str | None = None
    """Format of the output where it is not that of the inputs: float32 sums of half-precision inputs."""

    def __post_init__(self) -> None:
        for field, allowed in (
            ("products", ("ieee", *PRODUCTS)),
            ("summation", ("blocked", "sequential", "probabilistic")),
        ):
            if getattr(self, field) not in allowed:
                raise InputError(f"contract {field} is {getattr(self, field)!r}; it is one of {', '.join(allowed)}")

        for field in ("accumulate", "intermediate", "output"):
            if getattr(self, field) is not None:
                get_format(getattr(self, field), role=f"contract {field}")

    def describe(self) -> str:
        """In one word: the accumulate format, and whatever differs from the default.

        >>> Contract(products="tf32").describe()
        'float32+tf32'
        """
        words = [self.accumulate]
        words += [self.products] if self.products != "ieee" else []
        words += [f"via-{self.intermediate}"] if self.intermediate else []
        words += [self.summation] if self.summation != "blocked" else []
        words += [name for name in FLAGS if getattr(self, name)]
        words += [f"to-{self.output}"] if self.output else []
        return "+".join(words)

    @classmethod
    def parse(cls, text: str) -> Contract:
        """Read what `describe` wrote.

        >>> Contract.parse("float32+tf32") == Contract(products="tf32")
        True
        """
        accumulate, *words = text.split("+")
        facts: dict[str, Any] = {"accumulate": accumulate}
        for word in words:
            if word in PRODUCTS:
                facts["products"] = word
            elif word in ("sequential", "probabilistic"):
                facts["summation"] = word
            elif word in FLAGS:
                facts[word] = True
            elif word.startswith("via-"):
                facts["intermediate"] = word.removeprefix("via-")
            elif word.startswith("to-"):
                facts["output"] = word.removeprefix("to-")
            else:
                raise InputError(f"contract {text!r}: {word!r} says nothing")
        return cls(**facts)

    def growth(self, length: int) -> float:
        """g(n): how the error of a sum of `length` terms grows at most, in units of u_c·Σ|terms|.

        A chain's roundings are independent, hence √n; log2(n + 1) exceeds it for n up to 19. Where signs are mixed
        a "blocked" sum is charged less than this.
        """
        if self.summation == "sequential":
            return float(length)
        if self.summation == "probabilistic":
            return math.sqrt(length)
        return max(math.log2(length + 1), math.sqrt(length))
