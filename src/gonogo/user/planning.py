"""A user's words, a device and a kernel → the cases that it is verified on."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gonogo.cases import (
    CASES_PER_SEED,
    DISTRIBUTIONS,
    DRAWN,
    EVERYWHERE,
    INTERPRETER,
    ON_CPU,
    ON_GPU,
    SEEDS,
    USUAL,
    Case,
    Planned,
    SizeLimit,
    choose_distributions,
    list_unfit,
    list_unrun,
    plan_cases,
)
from gonogo.errors import InputError
from gonogo.execution.job import OWN
from gonogo.limits import DTYPE_FREE
from gonogo.limits.shipped import FoundLimit
from gonogo.ops import DTYPES, InText, Kernel, Op
from gonogo.schema import Record
from gonogo.user.kernel_file import may_launch_triton
from gonogo.verdict.referee import Runner
from gonogo.words import find_dtypes, find_words

if TYPE_CHECKING:
    import torch

DEFAULT_CASES = 24
FAR_NEEDS = 24 * 2**30
"""Bytes of a GPU that must be free for rows that are far apart: 2^32 elements of two bytes, and as much again."""


@dataclass(frozen=True)
class Choice:
    """Which cases a kernel is verified on, in a user's words; refused where they make no sense."""

    op: Op
    dtypes: str | Sequence[str | torch.dtype] | torch.dtype = DTYPES
    cases: int = DEFAULT_CASES
    """Per dtype."""
    seed: int = 0
    distributions: str | Sequence[str] = USUAL

    def __post_init__(self) -> None:
        if type(self.cases) is not int or not 1 <= self.cases <= CASES_PER_SEED:
            raise InputError(f"{self.cases!r} cases: give a whole number from 1 to {CASES_PER_SEED:,}")
        if type(self.seed) is not int or not 0 <= self.seed < SEEDS:
            raise InputError(f"seed {self.seed!r}: give a whole number from 0 to {SEEDS - 1:,}")
        words = find_words("distribution", self.distributions, DISTRIBUTIONS)
        if self.op.draw is not None and words != USUAL:
            raise InputError(
                f"op {self.op.name} draws its own arguments, so the distributions given, {', '.join(words)}, would "
                "change nothing. Leave distributions out"
            )
        choose_distributions(self.op, words)
        find_dtypes(self.dtypes)

    def plan(self, limit: SizeLimit) -> list[Planned]:
        """The cases of the seed, dtype by dtype."""
        words = find_words("distribution", self.distributions, DISTRIBUTIONS)
        # Arguments that do not follow a dtype are what they are.
        dtypes = find_dtypes(self.dtypes) if self.op.dtypes == DTYPES else self.op.dtypes
        return [
            planned
            for dtype in dtypes
            for planned in plan_cases(self.op, dtype, self.cases, self.seed, distributions=words, limit=limit)
        ]


def plan_own(op: Op, seeds: Sequence[int]) -> list[Planned]:
    """The cases of a benchmark's own seeds."""
    return [(Case(op.name, dtype, (), EVERYWHERE[0], DRAWN, seed), OWN) for dtype in op.dtypes for seed in seeds]


def choose_seed() -> int:
    """A fresh seed for a kernel that may have been written to pass; the same one in CI, which must not flicker."""
    return 0 if os.environ.get("CI", "").lower() not in ("", "0", "false") else secrets.randbits(64)


def choose_depth(limit: FoundLimit | None, *, recorded: bool) -> dict[str, Any]:
    """How much a job reads: no more than the verdict needs, unless it is for a record."""
    # Gauges but these two need no scale, and are not among the bounds.
    bounds_only = not recorded and (limit is None or limit.gauge in DTYPE_FREE)
    settled = limit.value if bounds_only and limit is not None and limit.gauge == "bound" else -math.inf
    return {"bounds_only": bounds_only, "settled": settled}


def try_small(choice: Choice, device: str, runner: Runner, candidate: Kernel) -> Record | None:
    """The record of a small case, run before what others may cost is chosen; None where it decides nothing.

    Not of a file that can have nothing of Triton's: the case would cost as much as two of those that are judged.
    """
    if device == "cuda" or choice.op.draw is not None:  # its sizes are not ours to choose
        return None
    if isinstance(candidate.source, InText) and not may_launch_triton(candidate.source.text):
        return None
    ((record,),) = runner.run(replace(choice, cases=1).plan(INTERPRETER)[-1:], [candidate])
    return record


def choose_size_limit(device: str, tried: Record | None) -> SizeLimit:
    """What a case may cost: Triton's interpreter takes no large ones."""
    if device == "cuda":
        from torch.cuda import mem_get_info

        return replace(ON_GPU, far=mem_get_info()[0] >= FAR_NEEDS)
    return INTERPRETER if tried is not None and tried.framework == "triton" else ON_CPU


def tell_unrun(op: Op, planned: Sequence[Planned], limit: SizeLimit) -> tuple[str, ...]:
    """Which of the sizes that an op of a user's lists were not run, and whether more cases would have them."""
    if not op.is_own or op.draw is not None:
        return ()
    unfit = list_unfit(op, limit)
    notes = []
    for axis, missing in list_unrun(op, planned).items():
        too_large = [size for size in missing if size in unfit.get(axis, ())]
        due = [size for size in missing if size not in too_large]
        if due:
            more = "" if len(planned) >= DEFAULT_CASES else f", {DEFAULT_CASES} or more per dtype"
            notes.append(f"sizes {', '.join(map(str, due))} of axis {axis} were not run: give more cases{more}")
        if too_large:
            notes.append(
                f"sizes {', '.join(map(str, too_large))} of axis {axis} were not run: an array has at most "
                f"{limit.most:,} elements here, and an axis {limit.longest_listed:,}. Give smaller ones"
            )
    return tuple(notes)
