"""Options of a campaign → its jobs, by number: the same plan gives the same jobs on every machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gonogo.cases import (
    CASES_PER_SEED,
    DESIGN,
    DISTRIBUTIONS,
    EXACT,
    FINITE,
    INTERPRETER,
    NON_FINITE,
    ON_GPU,
    SEEDS,
    STRATEGIES,
    Design,
    Planned,
    choose_distributions,
    open_design,
    pick,
)
from gonogo.errors import InputError
from gonogo.execution.job import Job, order_kernels
from gonogo.ops import DTYPES, Kernel, Op, add_folder, find_ops, get_op

ENDED_A_WORKER = ("crashed", "timed-out", "out-of-memory")
"""Outcomes of kernels that are not to be run again for a comparison."""

WORDS = ("ops", "dtypes", "distributions", "strategies", "ops_folders")
NUMBERS = ("cases", "seed", "faulty_every", "design")
"""Fields of a plan, by what they hold; beside them there is the device."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign runs."""

    ops: tuple[str, ...]
    dtypes: tuple[str, ...] = DTYPES
    cases: int = 48
    """Per op and dtype."""
    seed: int = 0
    device: str = "cpu"
    distributions: tuple[str, ...] = (*FINITE, EXACT, *NON_FINITE)
    strategies: tuple[str, ...] = STRATEGIES
    faulty_every: int = 1
    """Faulty kernels run on one case in so many, controls on all: limits need more cases than recall does."""
    ops_folders: tuple[str, ...] = ()
    design: int = DESIGN
    """The number of the way in which its cases are chosen."""
    _designs: dict[tuple[str, str], Design] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in WORDS:
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        _check_names("dtype", self.dtypes, DTYPES)
        _check_names("distribution", self.distributions, DISTRIBUTIONS)
        _check_names("strategy", self.strategies, STRATEGIES)
        _check_names("device", (self.device,), ("cpu", "cuda"))
        self._check_numbers()
        if not self.ops:
            raise InputError("no op: at least 1 is needed")
        for folder in self.ops_folders:
            add_folder(Path(folder))
        for op in find_ops(self.ops):
            choose_distributions(op, self.distributions)
        if self.design != DESIGN:
            raise InputError(
                f"the run was planned by design {self.design} of cases, and this version plans by design {DESIGN}: "
                "the rest of its cases would be others. Start a new run"
            )

    def _check_numbers(self) -> None:
        if not 1 <= self.cases <= CASES_PER_SEED:
            limit = "at least 1 is needed" if self.cases < 1 else f"a seed has {CASES_PER_SEED:,}. Use more seeds"
            raise InputError(f"{self.cases} cases: {limit}")
        if self.faulty_every < 1:
            raise InputError(f"faulty kernels on every {self.faulty_every}th case: at least 1 is needed")
        if self.seed < 0:
            raise InputError(f"seed {self.seed} is negative")
        if self.seed >= SEEDS:
            raise InputError(f"seed {self.seed} is too large; it must be below {SEEDS}")

    def to_dict(self) -> dict[str, Any]:
        """The fields of the plan, for run.json."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init}

    @classmethod
    def from_dict(cls, fields: Any) -> Plan:
        """A plan from its fields in run.json; one that names no design is of the first."""
        values: dict[str, Any] = {"design": 1}
        try:
            for name, value in fields.items():
                if name in NUMBERS and type(value) is not int:
                    raise TypeError(f"{name} is {value!r}, not a whole number")
                if name in WORDS and not (
                    isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
                ):
                    raise TypeError(f"{name} is {value!r}, not a list of words")
                values[name] = value
            return cls(**values)
        except (AttributeError, TypeError) as error:
            raise InputError(f"this is no plan of a campaign: {error}") from None

    @property
    def size(self) -> int:
        """How many cases."""
        return len(self.ops) * len(self.dtypes) * self.cases

    def count_rows(self) -> int:
        """How many records the whole plan makes."""
        return sum(len(self._kernels(number)) for number in range(self.size))

    def _place(self, number: int) -> tuple[Op, str, int]:
        """Op, dtype and the case's number among theirs; ops and dtypes take turns, so that a part is a sample."""
        turn, which = divmod(number, len(self.ops) * len(self.dtypes))
        return get_op(self.ops[which // len(self.dtypes)]), self.dtypes[which % len(self.dtypes)], turn

    def _case(self, number: int) -> Planned:
        """A case and its strategy; those of an op and dtype follow from one another."""
        op, dtype, turn = self._place(number)
        if (op.name, dtype) not in self._designs:
            self._designs[op.name, dtype] = open_design(
                op, dtype, self.seed, distributions=self.distributions, strategies=self.strategies,
                limit=INTERPRETER if self.device == "cpu" else ON_GPU,
            )  # fmt: skip
        return self._designs[op.name, dtype].get(turn)

    def _kernels(self, number: int) -> tuple[Kernel, ...]:
        op, dtype, turn = self._place(number)
        # Only where a kernel does not take all sizes: to choose a case takes longer than all else here together.
        is_choosy = any(kernel.at_most for kernel in op.kernels)
        kernels = order_kernels(op, dtype, self._case(number)[0].axis_sizes(op) if is_choosy else {})
        if pick(f"{self.seed}/{op.name}/{dtype}/{turn}/faulty", self.faulty_every):
            return tuple(kernel for kernel in kernels if kernel.role == "control")
        return kernels

    def jobs(self, done: Mapping[tuple[int, str], str] = MappingProxyType({})) -> Iterator[Job]:
        """Jobs by number, without what is `done`: (number of the case, kernel) → outcome."""
        for number in range(self.size):
            planned = self._kernels(number)
            kernels = tuple(kernel for kernel in planned if (number, kernel.name) not in done)
            if kernels:
                case, strategy = self._case(number)
                ended = [kernel.name for kernel in planned if done.get((number, kernel.name)) in ENDED_A_WORKER]
                yield Job(number, case, strategy, self._place(number)[0], kernels, self.device, tuple(ended))


def _check_names(what: str, names: Collection[str], known: Collection[str]) -> None:
    if not names:
        raise InputError(f"no {what}: at least 1 is needed; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise InputError(f"unknown {what} {name!r}; known: {', '.join(known)}")
