"""Rows → scores of the tolerances of other projects, as they stand."""

from __future__ import annotations

import numpy as np

from gonogo.evaluate.groups import Rows
from gonogo.evaluate.tally import UNJUDGED, Decisions, Score
from gonogo.policies import load_policies
from gonogo.verdict.judge import GO, NO_GO

ALWAYS_SEEN = ("raised", "crashed", "timed-out", "out-of-memory", "no-output", "wrong-shape", "wrong-dtype")
"""Outcomes that any harness notices, whatever its tolerance."""

V_ABFT_LAMBDA = 16.0
"""The least power of two that fewer than 1 in 100 correct float32 products of the committed records exceed."""


def score_policies(rows: Rows) -> list[Score]:
    """Hand-picked tolerances: nothing is calibrated, so every row is held out."""
    seen = rows.columns.equals("outcome", *ALWAYS_SEEN)
    at_least = np.where(seen, np.int8(NO_GO), np.int8(UNJUDGED))
    names = "current", *(policy.name for policy in load_policies())
    scores = [_score_policy(rows, name, at_least) for name in names]
    return [*scores, score_v_abft(rows)]


def _score_policy(rows: Rows, name: str, at_least: Decisions) -> Score:
    exceeds = rows.columns.exceeds[name]

    def decide_block(block: slice) -> Decisions:
        decisions: Decisions = np.maximum(exceeds[block] * np.int8(NO_GO), at_least[block])  # of 1, 0 or −1
        return decisions

    score = Score(name, "policy", "limit 1")
    score.count(rows, rows.counted, decide_block)
    return score


def score_v_abft(rows: Rows) -> Score:
    """A variance-based bound on matrix products: λ·u_c·K/√2·rms(row of a)·rms(column of b), for float32 outputs.

    It bounds the sum, not the rounding of the output, and so says nothing of shorter formats.
    """
    readings, shown = rows.columns.readings["v_abft"], rows.columns.equals("dtype", "float32")

    def decide_block(block: slice) -> Decisions:
        known = np.isfinite(readings[block]) & shown[block]
        decisions = np.where(readings[block] > V_ABFT_LAMBDA, np.int8(NO_GO), np.int8(GO))
        decisions[~known] = UNJUDGED
        return decisions

    score = Score("v_abft", "policy", f"λ = {V_ABFT_LAMBDA:g}")
    score.count(rows, rows.counted, decide_block)
    return score
