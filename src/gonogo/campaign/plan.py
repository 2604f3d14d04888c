"""Options of a campaign → its jobs, by number: the same plan gives the same jobs on every machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gonogo.campaign.execute import Job, order_kernels
from gonogo.cases import EXACT, FINITE, INTERPRETER, NO_LIMIT, NON_FINITE, STRATEGIES, pick, plan_case
from gonogo.errors import InputError
from gonogo.ops import DTYPES, Op, add_folder, find_ops, get_op


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

    def __post_init__(self) -> None:
        for dtype in self.dtypes:
            if dtype not in DTYPES:
                raise InputError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
        if self.device not in ("cpu", "cuda"):
            raise InputError(f"unknown device {self.device!r}; known: cpu, cuda")
        if self.cases < 1:
            raise InputError(f"{self.cases} cases: at least 1 is needed")
        if self.faulty_every < 1:
            raise InputError(f"faulty kernels on every {self.faulty_every}th case: at least 1 is needed")
        if self.seed < 0:
            raise InputError(f"seed {self.seed} is negative")
        for folder in self.ops_folders:
            add_folder(Path(folder))
        find_ops(self.ops)

    def to_dict(self) -> dict[str, Any]:
        """For run.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Plan:
        """Back from run.json."""
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**plain)

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

    def _kernels(self, number: int) -> tuple[str, ...]:
        op, dtype, turn = self._place(number)
        names = order_kernels(op, dtype)
        if pick(f"{self.seed}/{op.name}/{dtype}/{turn}/faulty", self.faulty_every):
            return tuple(name for name in names if op.kernel(name).role == "control")
        return names

    def jobs(self, done: Collection[tuple[int, str]] = ()) -> Iterator[Job]:
        """Jobs by number, without what is `done`."""
        limit = INTERPRETER if self.device == "cpu" else NO_LIMIT
        for number in range(self.size):
            op, dtype, turn = self._place(number)
            kernels = tuple(name for name in self._kernels(number) if (number, name) not in done)
            if kernels:
                case, strategy = plan_case(
                    op, dtype, turn, self.seed,
                    distributions=self.distributions, strategies=self.strategies, limit=limit,
                )  # fmt: skip
                yield Job(number, case, strategy, kernels, self.device)
