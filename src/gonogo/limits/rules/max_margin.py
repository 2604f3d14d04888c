"""max-margin: the largest of a control's readings, times a factor; a heuristic the paper compares with."""

from gonogo.limits.rules._rule import Rule, check_parameter


def rule(*, factor: float = 1.2) -> Rule:
    """The largest reading times `factor`."""
    factor = check_parameter("max-margin", "factor", factor, above=0.0)
    return Rule(
        "max-margin",
        {"factor": factor},
        needs=1,
        pools="control",
        find_rank=lambda count: count - 1,
        settle=lambda largest: factor * largest,
    )
