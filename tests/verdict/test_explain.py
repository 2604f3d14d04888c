"""Patterns of failures: a claim needs enough cases on both sides, so that chance makes none."""

from __future__ import annotations

import pytest

from gonogo.verdict.explain import Trial, list_patterns


def guess_pattern(trials: list[Trial], main: str) -> str | None:
    return next((pattern.told for pattern in list_patterns(trials, main)), None)


def make_trials(failed: int, passed: int, bad: tuple[int, str, str], good: tuple[int, str, str]) -> list[Trial]:
    kinds = [(bad, True)] * failed + [(good, False)] * passed
    return [
        Trial({"K": size}, layout, distribution, fails, 9.0, (0,), (size,))
        for (size, layout, distribution), fails in kinds
    ]


@pytest.mark.parametrize(
    ("bad", "good", "told"),
    [
        ((9, "contiguous", "normal"), (16, "contiguous", "normal"), "fails only where K is no power of two"),
        ((16, "contiguous", "normal"), (128, "contiguous", "normal"), "fails only where K is no multiple of 128"),
        ((8, "strided", "normal"), (8, "contiguous", "normal"), "fails only on inputs that are not contiguous"),
        ((512, "contiguous", "normal"), (8, "contiguous", "normal"), "fails only where K is above 8"),
        ((8, "contiguous", "offset"), (8, "contiguous", "normal"), "fails only on offset values"),
    ],
)
def test_a_claim_needs_four_of_either(bad: tuple[int, str, str], good: tuple[int, str, str], told: str) -> None:
    assert guess_pattern(make_trials(4, 4, bad, good), "K") == told
    for failed, passed in ((1, 1), (3, 20), (20, 3), (20, 0)):
        assert guess_pattern(make_trials(failed, passed, bad, good), "K") is None
    contradicted = make_trials(20, 20, bad, good) + make_trials(1, 0, good, bad)
    assert guess_pattern(contradicted, "K") != told
    if "above" not in told:  # the edge is where passes end, so that none lies beyond
        shown_not_everywhere = make_trials(20, 20, bad, good) + make_trials(0, 1, good, bad)
        assert guess_pattern(shown_not_everywhere, "K") == told
