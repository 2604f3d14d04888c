"""pooled: the largest reading of all controls of a group times a margin, and no less than a floor; the default."""

from gonogo.limits.rules._rule import Rule, check_parameter


def rule(*, floor: float = 2.0, margin: float = 2.0) -> Rule:
    """The larger of `floor` and `margin` × the largest reading.

    There is a floor because the largest reading can be exactly 0: controls that compute in float32 and round
    correctly leave nothing outside the rounding cell, and a limit of 0 would fail the first correct kernel that
    adds in another order. The margin is for implementations, distributions and shapes that are not among the
    readings. Both were chosen for the gauge `bound`.
    """
    floor = check_parameter("pooled", "floor", floor, above=0.0)
    margin = check_parameter("pooled", "margin", margin, above=0.0)
    return Rule(
        "pooled",
        {"floor": floor, "margin": margin},
        needs=1,
        pools="op",
        find_rank=lambda count: count - 1,
        settle=lambda largest: max(floor, margin * largest),
    )
