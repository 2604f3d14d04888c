"""Hits out of trials → exact binomial confidence limits (Clopper & Pearson), without SciPy.

A limit is the rate at which the binomial tail from what was seen on, a regularised incomplete beta function, falls
to what the confidence leaves over. The tail is its first term times a sum of positive terms, so nothing cancels.
The first term is in Loader's form: at 10^8 trials a difference of lgammas would be good to seven digits only.
"""

from __future__ import annotations

import math

from gonogo.errors import InputError


def clopper_pearson(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided exact interval for the rate behind `hits` of `trials`; (0, 1) where there were no trials.

    >>> low, high = clopper_pearson(3, 100)
    >>> f"{low:.4f} {high:.4f}"
    '0.0062 0.0852'
    """
    _check(hits, trials, confidence)
    beyond = (1.0 - confidence) / 2.0
    return _find_lower(hits, trials, beyond), _find_upper(hits, trials, beyond)


def upper_bound(hits: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided exact upper bound for the rate behind `hits` of `trials`; 1 where there were no trials.

    >>> f"{upper_bound(0, 3_000):.6f}"  # the rule of three
    '0.000998'
    """
    _check(hits, trials, confidence)
    if confidence < 0.5 and hits < trials:  # the other tail, for a tail near 1 says little
        return _find_lower(hits + 1, trials, confidence)
    return _find_upper(hits, trials, 1.0 - confidence)


def _check(hits: int, trials: int, confidence: float) -> None:
    if not 0 <= hits <= trials:
        raise InputError(f"{hits:,} hits of {trials:,} trials; hits lie between 0 and the number of trials")
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence is {confidence}; it lies between 0 and 1")


def _find_lower(hits: int, trials: int, beyond: float) -> float:
    """The rate at which as many hits or more have probability `beyond`."""
    if hits == 0:
        return 0.0
    if hits == trials:
        return math.exp(math.log(beyond) / trials)
    return _solve_tail(hits, trials, beyond, upwards=True)


def _find_upper(hits: int, trials: int, beyond: float) -> float:
    """The rate at which as many hits or fewer have probability `beyond`."""
    if hits == trials:
        return 1.0
    if hits == 0:
        return -math.expm1(math.log(beyond) / trials)
    return _solve_tail(hits, trials, beyond, upwards=False)


def _solve_tail(hits: int, trials: int, beyond: float, *, upwards: bool) -> float:
    """Newton's method for log tail = log beyond, in the logit of the rate.

    The log of a tail is concave in the logit: its second derivative is the variance of the hits within the tail
    less their variance at large. So every tangent lies above the curve, and from the second step on the method
    walks towards the root from one side, without a bracket.
    """
    misses = trials - hits
    # About two standard deviations to the right side: a step or two less than from the observed rate.
    logit = math.log(hits / misses) + (-2.0 if upwards else 2.0) * math.sqrt(1.0 / hits + 1.0 / misses)
    step = math.inf
    for count in range(200):
        rate, rest = 1.0 / (1.0 + math.exp(-logit)), 1.0 / (1.0 + math.exp(logit))
        if upwards:
            terms = _sum_terms(hits, misses, rate / rest)
            slope = hits * rest / terms
        else:
            terms = _sum_terms(misses, hits, rest / rate)
            slope = -misses * rate / terms
        last, step = step, (math.log(beyond) - _log_mass(hits, trials, rate, rest) - math.log(terms)) / slope
        logit += step
        # Steps shrink until they are rounding errors.
        if abs(step) <= 1e-15 or (count > 2 and abs(step) < 1e-11 and abs(step) >= abs(last) / 2):
            break
    return 1.0 / (1.0 + math.exp(-logit))


def _sum_terms(inside: int, outside: int, odds: float) -> float:
    """The tail over its first term: 1 + r₁ + r₁r₂ + …, with rⱼ = (outside − j + 1)/(inside + j)·odds falling."""
    total, term = 1.0, 1.0
    while outside > 0 and term > 1e-18 * total:
        inside += 1
        term *= outside / inside * odds
        outside -= 1
        total += term
    return total


def _log_mass(hits: int, trials: int, rate: float, rest: float) -> float:
    """Log of the probability of exactly `hits`, neither 0 nor all (Loader 2000)."""
    misses = trials - hits
    excess = hits - trials * rate
    return (
        _stirling_error(trials) - _stirling_error(hits) - _stirling_error(misses)
        - _deviance(hits, trials * rate, excess) - _deviance(misses, trials * rest, -excess)
        + 0.5 * math.log(trials / (2.0 * math.pi * hits * misses))
    )  # fmt: skip


def _deviance(count: int, mean: float, excess: float) -> float:
    """count·log(count/mean) + mean − count, where excess = count − mean."""
    relative = -excess / count
    return count * (relative - (math.log1p(relative) if abs(relative) < 0.5 else math.log(mean / count)))


def _stirling_error(n: int) -> float:
    """What log n! exceeds Stirling's ½·log(2πn) + n·log n − n by."""
    if n < 16:  # below it the series is too short; lgamma is small there, so little cancels
        return math.lgamma(n + 1) - (0.5 * math.log(2.0 * math.pi * n) + n * math.log(n) - n)
    square = 1.0 / (n * n)
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / n
