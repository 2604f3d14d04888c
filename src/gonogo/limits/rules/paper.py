"""paper: a high percentile of a control's readings, times a factor; the paper's rule."""

from gonogo.errors import InputError
from gonogo.limits.rules._rule import Rule, check_parameter


def rule(*, percentile: float = 95.0, factor: float = 1.5) -> Rule:
    """The reading at index round(percentile/100·(n − 1)), halves to even, no interpolation; times `factor`."""
    if not 0.0 <= percentile <= 100.0:
        raise InputError(f"rule paper: percentile is {percentile}; it lies between 0 and 100")
    factor = check_parameter("paper", "factor", factor, above=0.0)
    return Rule(
        "paper",
        {"percentile": float(percentile), "factor": factor},
        needs=1,
        pools="control",
        find_rank=lambda count: round(percentile / 100.0 * (count - 1)),
        settle=lambda reading: factor * reading,
    )
