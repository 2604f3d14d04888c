"""conformal: the reading of the rank that split conformal prediction asks for."""

from fractions import Fraction

from gonogo.limits.rules._rule import Rule, check_parameter


def rule(*, rate: float = 1e-2) -> Rule:
    """The ⌈(n + 1)(1 − rate)⌉-th smallest reading: the next case reads more with probability at most `rate`.

    The probability is over the calibration too: an average over calibrations, where `wilks` speaks of this one.
    """
    rate = check_parameter("conformal", "rate", rate, above=0.0, below=1.0)
    # The rate as it is written, 1/100 for 0.01: in floating point (n + 1)(1 − rate) ends above whole numbers.
    exact = Fraction(repr(rate))

    def find_rank(count: int) -> int:
        return _ceil((count + 1) * (1 - exact)) - 1

    # It is below n where 1 ≤ (n + 1)·rate.
    return Rule("conformal", {"rate": rate}, needs=_ceil(1 / exact) - 1, pools="op", find_rank=find_rank)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
