"""wilks: the largest of so many readings that it bounds the false-positive rate, whatever their distribution."""

import math

from gonogo.limits.rules._rule import Rule, check_parameter


def rule(*, rate: float = 1e-2, confidence: float = 0.95) -> Rule:
    """The largest reading: with `confidence`, at most a `rate` of cases like these read more (Wilks 1941).

    All n readings lie below the quantile at 1 − rate with probability (1 − rate)ⁿ, and only then is the promise
    broken; n is the smallest with (1 − rate)ⁿ ≤ 1 − confidence.
    """
    rate = check_parameter("wilks", "rate", rate, above=0.0, below=1.0)
    confidence = check_parameter("wilks", "confidence", confidence, above=0.0, below=1.0)
    exact = math.log1p(-confidence) / math.log1p(-rate)
    return Rule(
        "wilks",
        {"rate": rate, "confidence": confidence},
        needs=math.ceil(exact * (1.0 - 1e-12)),  # a whole number stays itself when rounding left it just above
        pools="op",
        find_rank=lambda count: count - 1,
    )
