"""Rows → what the tolerances of other projects, as they stand, say of them."""

from __future__ import annotations

from functools import partial

import numpy as np

from gonogo.evaluate.score import USUAL, Block, Policy, open_strata, tally_rows
from gonogo.evaluate.tally import UNJUDGED, Decisions, Score
from gonogo.policies import load_policies
from gonogo.records import Source
from gonogo.verdict.judge import GO, NO_GO

V_ABFT_LAMBDA = 16.0
"""The least power of two that fewer than 1 in 100 correct float32 products of the committed records exceed."""
NEEDED = {"exceeds", "v_abft"}


def list_policies() -> list[tuple[Score, Policy]]:
    """Hand-picked tolerances: nothing is calibrated, so every row is held out."""
    names = "current", *(policy.name for policy in load_policies())
    policies: list[tuple[Score, Policy]] = [
        (Score(name, "policy", "limit 1"), partial(_decide, name)) for name in names
    ]
    return [*policies, (Score("v_abft", "policy", f"λ = {V_ABFT_LAMBDA:g}"), _decide_v_abft)]


def score_policies(source: Source, dimensions: tuple[str, ...] = USUAL) -> list[Score]:
    """All of them, by themselves."""
    return tally_rows(source, open_strata(source, dimensions), policies=list_policies(), needed=NEEDED)


def _decide(name: str, block: Block) -> Decisions:
    decisions: Decisions = np.maximum(block.columns.exceeds[name] * np.int8(NO_GO), block.at_least)  # of 1, 0 or −1
    return decisions


def _decide_v_abft(block: Block) -> Decisions:
    """A variance-based bound on matrix products: λ·u_c·K/√2·rms(row of a)·rms(column of b), for float32 outputs.

    It bounds the sum, not the rounding of the output, and so says nothing of shorter formats.
    """
    readings = block.columns.readings["v_abft"]
    known = np.isfinite(readings) & block.columns.equals("dtype", "float32")
    decisions = np.where(readings > V_ABFT_LAMBDA, np.int8(NO_GO), np.int8(GO))
    decisions[~known] = UNJUDGED
    return decisions
