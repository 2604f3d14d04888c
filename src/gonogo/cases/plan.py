"""op, dtype, number and seed of a run → one case; every number has its own, whatever the others are."""

from __future__ import annotations

from collections.abc import Sequence

from gonogo.cases._case import LAYOUTS, Case
from gonogo.cases.shapes import STRATEGIES, SizeLimit, draw_sizes, pick
from gonogo.cases.values import EXACT
from gonogo.ops import Op

CASES_PER_SEED = 10**6
"""What keeps the cases of two seeds apart."""


def find_usable(op: Op, distributions: Sequence[str]) -> list[str]:
    """Those of the distributions that an op takes."""
    return [name for name in distributions if name != EXACT or op.sums_of_products]


def plan_case(
    op: Op,
    dtype: str,
    number: int,
    seed: int,
    *,
    distributions: Sequence[str],
    strategies: Sequence[str] = STRATEGIES,
    limit: SizeLimit,
) -> tuple[Case, str]:
    """The case and the strategy its shape is from. Distributions take turns; most layouts are contiguous."""
    name = f"{seed}/{op.name}/{dtype}/{number}"
    usable = find_usable(op, distributions)
    # Half of the shapes are from the first strategy, the op's own sizes.
    strategy = strategies[0] if pick(f"{name}/half", 2) else strategies[pick(f"{name}/strategy", len(strategies))]
    layout = LAYOUTS[0] if pick(f"{name}/plain", 2) else LAYOUTS[pick(f"{name}/layout", len(LAYOUTS))]
    case = Case(
        op.name,
        dtype,
        draw_sizes(op, strategy, name, limit),
        layout,
        usable[(number + pick(f"{op.name}/{dtype}", len(usable))) % len(usable)],
        seed * CASES_PER_SEED + number,
    )
    return case, strategy
