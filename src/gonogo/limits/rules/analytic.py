"""analytic: the limit is 1, whatever the readings; the bound itself, where the scale is deterministic."""

from gonogo.limits.rules._rule import Rule


def rule() -> Rule:
    """1: to first order no correct kernel reads more, in units of a scale with every sum one long chain."""
    return Rule("analytic", {}, needs=0, pools="op", find_rank=lambda count: 0, settle=lambda reading: 1.0)
