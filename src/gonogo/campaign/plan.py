"""Options of a campaign → its jobs, by number: the same plan gives the same jobs on every machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gonogo.campaign.execute import Job, order_kernels
from gonogo.cases import EXACT, FINITE, INTERPRETER, NO_LIMIT, NON_FINITE, STRATEGIES, plan_case
from gonogo.errors import InputError
from gonogo.ops import DTYPES, add_folder, find_ops, get_op


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
    ops_folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for dtype in self.dtypes:
            if dtype not in DTYPES:
                raise InputError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
        if self.device not in ("cpu", "cuda"):
            raise InputError(f"unknown device {self.device!r}; known: cpu, cuda")
        if self.cases < 1:
            raise InputError(f"{self.cases} cases: at least 1 is needed")
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
        return self.cases * sum(len(order_kernels(get_op(op), dtype)) for op in self.ops for dtype in self.dtypes)

    def jobs(self, done: Collection[tuple[int, str]] = ()) -> Iterator[Job]:
        """Jobs by number, without what is `done`; ops and dtypes take turns, so that a part is a sample."""
        limit = INTERPRETER if self.device == "cpu" else NO_LIMIT
        for number in range(self.size):
            turn, which = divmod(number, len(self.ops) * len(self.dtypes))
            op = get_op(self.ops[which // len(self.dtypes)])
            dtype = self.dtypes[which % len(self.dtypes)]
            kernels = tuple(name for name in order_kernels(op, dtype) if (number, name) not in done)
            if kernels:
                case, strategy = plan_case(
                    op, dtype, turn, self.seed,
                    distributions=self.distributions, strategies=self.strategies, limit=limit,
                )  # fmt: skip
                yield Job(number, case, strategy, kernels, self.device)
