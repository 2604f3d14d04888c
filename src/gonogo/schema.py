"""Frozen records: what the stages of the flow hand to one another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, Self

from gonogo.errors import InputError, check_type
from gonogo.formats import get_format


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
    stored: str | None = None
    """Format that the result of every op is stored in, as torch does op by op; None: that of sums."""

    def __post_init__(self) -> None:
        for name, allowed in (
            ("products", ("ieee", *PRODUCTS)),
            ("summation", ("blocked", "sequential", "probabilistic")),
        ):
            check_type(f"contract {name}", getattr(self, name), str, f"one of {', '.join(allowed)}")
            if getattr(self, name) not in allowed:
                raise InputError(f"contract {name} is {getattr(self, name)!r}; it is one of {', '.join(allowed)}")

        for name in FLAGS:
            check_type(f"contract {name}", getattr(self, name), bool, "True or False")
        for name in ("accumulate", "intermediate", "output", "stored"):
            if getattr(self, name) is not None:
                get_format(getattr(self, name), role=f"contract {name}")

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
        words += [f"stored-{self.stored}"] if self.stored else []
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
            elif word.startswith("stored-"):
                facts["stored"] = word.removeprefix("stored-")
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call, or of its output, short of how large its errors are."""

    word: str
    """`ok`, or the first of records.OUTCOMES that holds."""
    detail: str | None = None
    """One line: how many elements, which shape, what was raised."""
    unjudged: str | None = None
    """Why some elements of an output that is otherwise ok are not judged."""
    error: str | None = None
    """Traceback and message of what was raised, as Python prints them."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an output."""

    index: tuple[int, ...]
    expected: float
    actual: float
    ulp: int
    """Units in the last place between the two; ULP_SATURATED where there is no number of them."""
    bound: float
    """Its error in the gauge `bound`."""
    leaf: str | None = None
    """Path of the leaf it is in, where an output has several."""


@dataclass(frozen=True, slots=True)
class ErrorMap:
    """Where in an output the error lies: largest readings in the gauge `bound`, −1 where nothing is judged."""

    shape: tuple[int, ...]
    leaf: str | None
    """Path of the leaf it is of, where an output has several."""
    index: tuple[int, ...]
    """Of the worst slice, over all axes but the last two."""
    tiles: tuple[tuple[float, ...], ...]
    """Of that slice, in tiles of equal size."""
    along: tuple[tuple[float, ...], ...]
    """For each axis, by place on it, over all others."""


@dataclass(frozen=True, slots=True)
class LeafReading:
    """The bound reading of one leaf of an output."""

    path: str
    """Of the leaf; "" where it is the output itself."""
    bound: float
    """The reading."""
    blind_from: float | None
    """The limit above which zeros would pass for most of the leaf; None where there is none."""
    codes: str | None = None
    """The integer format of a leaf that stands for floating values."""
    is_sampled: bool = False
    """Whether its scale is from runs with roundings drawn at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What became of an output and what it reads: all that a verdict needs."""

    outcome: str = "ok"
    """One of records.OUTCOMES."""
    detail: str | None = None
    """One line on the outcome."""
    unjudged: str | None = None
    """Why some elements are not judged, where they are not."""
    leaf: str | None = None
    """Path of the leaf that the readings are of, the worst one; None where an output has but one."""
    leaves: tuple[LeafReading, ...] = ()
    """What each leaf reads, of an output that may be a nest."""
    absolute: float | None = None
    """Largest |actual − expected|."""
    magnitude: float | None = None
    """The same over the size of the whole reference."""
    ulp: float | None = None
    """Largest error in units in the last place."""
    bound: float | None = None
    """Largest error in units of u_c·S."""
    bound_at: str | None = None
    """Index of that element, joined by commas."""
    bias: float | None = None
    """Mean signed error in the same units, times √count."""
    deterministic: float | None = None
    """The bound reading with every sum taken for one long chain; None where no verdict needs it."""
    rmse: float | None = None
    """Root mean square of actual − expected."""
    v_abft: float | None = None
    """Worst error over u_c·K/√2·rms(row of a)·rms(column of b), of a matrix product."""
    blind_from: float | None = None
    """The limit of the gauge `bound` above which zeros would pass for most of the output."""
    deterministic_blind_from: float | None = None
    """The same of the gauge `deterministic`."""

    def read(self, gauge: str) -> float | None:
        """The reading of a gauge, by its name."""
        value: float | None = getattr(self, gauge, None)
        return value

    def end(self, outcome: Outcome) -> Self:
        """The same with what became of it."""
        return replace(self, outcome=outcome.word, detail=outcome.detail, unjudged=outcome.unjudged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Measured):
    """One kernel on one case."""

    number: int
    """Place of the case in its plan."""
    case: str
    """Id of the case."""
    op: str
    """Name of the op."""
    dtype: str
    """Of the case: what inputs have that follow it."""
    shape: str
    """Sizes of the op's axes, joined by x."""
    layout: str
    """Of the inputs: one for all, or one for each, joined by +."""
    distribution: str
    """Of the values of the inputs."""
    strategy: str
    """How the sizes were chosen, or why the case was run again."""
    seed: int
    """Of the values of the inputs."""
    reduced_length: int
    """Terms of the op's sums; 1 for none."""
    kernel: str
    """Name of the kernel."""
    role: str
    """`control`, `faulty` or `candidate`."""
    framework: str
    """`torch`, `triton` or `numpy`; `triton` for whatever launched it."""
    contract: str
    """What the kernel promises, in a word."""
    calibrate_against: str | None = None
    """The control that a faulty kernel is compared with."""
    current_atol: float | None = None
    """Hand-picked atol of the published corpus."""
    compared_with: str | None = None
    """The control whose output `bits_equal` and `signal` refer to."""
    bits_equal: bool | None = None
    """Whether the output has that control's bits."""
    signal: float | None = None
    """How far beyond rounding the two are apart."""
    time_us: float | None = None
    """Of the second call; None where a verdict alone was asked of a kernel in this process, on a GPU."""
    stats: ErrorStats | None = None
    """The paper's record, where one was asked for."""
    policies: Mapping[str, float | None] = field(default_factory=dict)
    """By name, what each policy reads: at most 1 where it passes."""
    worst: tuple[Element, ...] = ()
    """The worst elements, the worst first, where they were asked for."""
    error_map: ErrorMap | None = None
    """Where the error lies, where the worst elements were asked for."""
    error: str | None = None
    """What the kernel raised, with its traceback."""
    printed: str | None = None
    """The last of what the kernel printed, where workers ran it; elsewhere it prints as it does without gonogo."""
    passes_own: bool | None = None
    """Whether it passes the check of the benchmark that its op is from, on a case of that; None elsewhere."""
    set_up: bool = True
    """Whether the case could be set up; where not, no kernel has run."""

    def take(self, measured: Measured, outcome: Outcome, time_us: float | None) -> Record:
        """The same with what an output reads, and what became of it."""
        readings = {name: getattr(measured, name) for name in READ}
        return replace(
            self, **readings, outcome=outcome.word, detail=outcome.detail, unjudged=outcome.unjudged,
            time_us=time_us,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """By column, what there is: nothing of what is None; `policy_…` for each policy."""
        columns = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in NESTED}
        columns |= self.stats.to_dict() if self.stats is not None else {}
        columns |= {policy_column(name): value for name, value in self.policies.items()}
        return {name: value for name, value in columns.items() if value is not None}


def policy_column(name: str) -> str:
    """Column of a policy's reading: at most 1 where the policy passes."""
    return f"policy_{name}"


def name_device(environment: Any) -> str:
    """The GPU of an environment, as run.json has it, or its processor; cpu where it tells neither.

    >>> name_device({"gpu": None, "processor": "AMD EPYC", "platform": "Linux x86_64"})
    'AMD EPYC'
    """
    facts = environment if isinstance(environment, dict) else {}
    return str(facts.get("gpu") or facts.get("processor") or facts.get("platform") or "cpu")


READ = tuple(column.name for column in fields(Measured) if column.name not in ("outcome", "detail", "unjudged"))
"""Fields that hold what an output reads."""
NESTED = ("stats", "policies", "worst", "error_map", "leaves", "set_up", "passes_own")
"""Fields of a record that are no column, or several."""
