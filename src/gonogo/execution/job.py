"""A case and its kernels, as a worker is handed them; the rows that need nothing to have run.

Without torch: what plans cases and what waits for workers has no need of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gonogo.cases import Case
from gonogo.ops import Kernel, Op
from gonogo.schema import Outcome, Record

OWN = "own"
"""The strategy of cases that a benchmark has itself."""


@dataclass(frozen=True, slots=True)
class Job:
    """A case of a plan and the kernels still to be run on it."""

    number: int
    case: Case
    strategy: str
    op: Op
    kernels: tuple[Kernel, ...]
    device: str
    gave_nothing: tuple[str, ...] = ()
    """Names of kernels that ended a worker on this case; none is run again for the others to be compared with."""
    worst: int = 0
    """How many of its worst elements to put into a row, beside what is recorded."""
    bounds_only: bool = False
    """Whether to read no more than a verdict needs: no ErrorStats, policies or other kernels to compare with."""
    settled: float = -math.inf
    """A bound reading up to this is go without a deterministic one beside it."""
    stats: bool = False
    """Whether ErrorStats are wanted all the same, of an op with one output."""
    decoy: Literal["", "same", "new"] = ""
    """Whether a kernel under test, run in this process, is called on other values first: in the very tensors of the
    case, or in others of the same memory."""
    asked_again: bool = True
    """Whether a stranger's kernel is called many times more on a small case."""


def order_kernels(op: Op, dtype: str, sizes: Mapping[str, int]) -> tuple[Kernel, ...]:
    """Kernels that take a dtype and sizes, controls first: the others are compared with them."""
    usable = [kernel for kernel in op.kernels if kernel.takes(dtype, sizes)]
    return tuple(sorted(usable, key=lambda kernel: kernel.role != "control"))


def describe(job: Job, kernel: Kernel) -> Record:
    """What is known before anything has run."""
    op, case = job.op, job.case
    sizes = case.axis_sizes(op)
    return Record(
        number=job.number, case=case.id, op=op.name, dtype=case.dtype, shape="x".join(map(str, case.sizes)),
        layout=case.layout, distribution=case.distribution, strategy=job.strategy, seed=case.seed,
        reduced_length=math.prod(sizes[axis] for axis in op.reduced), kernel=kernel.name, role=kernel.role,
        framework=kernel.framework, contract=kernel.contract_for(case.dtype).describe(),
        calibrate_against=kernel.calibrate_against, current_atol=kernel.current.get(case.dtype),
    )  # fmt: skip


def make_records(job: Job, kernels: Sequence[Kernel], outcome: Outcome) -> list[Record]:
    """Records of kernels that never ran, or whose worker did not live to tell."""
    return [describe(job, kernel).end(outcome) for kernel in kernels]
