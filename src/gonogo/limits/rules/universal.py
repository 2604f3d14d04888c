"""universal: as pooled, from the controls of all ops of a contract; for ops that have no limit of their own."""

from gonogo.limits.rules._rule import Rule, check_parameter


def rule(*, floor: float = 2.0, margin: float = 3.0) -> Rule:
    """The larger of `floor` and `margin` × the largest reading of any op.

    The gauge `bound` counts in what the op itself may be off by, so one number fits ops that no control was ever
    measured of: how often, `gonogo evaluate --holdout op` says. The margin is larger than that of
    `pooled`: nothing at all was measured of such an op.
    """
    floor = check_parameter("universal", "floor", floor, above=0.0)
    margin = check_parameter("universal", "margin", margin, above=0.0)
    return Rule(
        "universal",
        {"floor": floor, "margin": margin},
        needs=1,
        pools="contract",
        find_rank=lambda count: count - 1,
        settle=lambda largest: max(floor, margin * largest),
    )
