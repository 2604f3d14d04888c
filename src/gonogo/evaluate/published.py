"""published.toml → the figures of the paper that evaluations are held against.

They are data as printed: nothing here is computed from records.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Largest:
    """The cell whose tolerance calibration tightens most."""

    kernel: str
    dtype: str
    factor: float


@dataclass(frozen=True, slots=True)
class Headline:
    """What one campaign over the seven pairs came to, under current and calibrated tolerances."""

    machine: str
    software: str
    first_day: date
    last_day: date
    rows: int
    """All of the campaign, more than those counted below."""
    buggy_cases: int
    """Of the seven paired buggy kernels."""
    flagged_current: int
    flagged_calibrated: int
    control_cases: int
    fp_calibrated: int
    """Controls flagged."""
    largest: Largest
    fp_current: int | None = None
    """None where it was not counted."""

    @property
    def recall_current(self) -> float:
        """Share of the buggy cases that hand-picked tolerances flag."""
        return self.flagged_current / self.buggy_cases

    @property
    def recall_calibrated(self) -> float:
        """Share of the buggy cases that calibrated tolerances flag."""
        return self.flagged_calibrated / self.buggy_cases

    @property
    def fp_rate_calibrated(self) -> float:
        """Share of the control cases that calibrated tolerances flag."""
        return self.fp_calibrated / self.control_cases


@dataclass(frozen=True, slots=True)
class Tightening:
    """Tolerances of a control in a dtype."""

    kernel: str
    dtype: str
    current: float
    """Hand-picked atol."""
    calibrated: float
    """As printed, to three digits."""
    factor: float
    """As printed, from the tolerance before rounding."""


@dataclass(frozen=True, slots=True)
class Recall:
    """Flagged cases of a buggy kernel in a dtype."""

    kernel: str
    dtype: str
    current: int
    calibrated: int
    cases: int


@dataclass(frozen=True, slots=True)
class Published:
    """All figures of the paper that gonogo compares with."""

    title: str
    author: str
    artefact: str
    """Where the corpus and the calibration script are."""
    pairs: Mapping[str, str]
    """Buggy kernel → control."""
    paper: Headline
    rerun: Headline
    """What the paper's artefact came to when it was run again."""
    tightening: tuple[Tightening, ...]
    recall: tuple[Recall, ...]


@cache
def load_published() -> Published:
    """The figures of the paper.

    >>> f"{load_published().paper.recall_calibrated:.1%}"
    '82.4%'
    """
    tables = tomllib.loads(files("gonogo.evaluate").joinpath("published.toml").read_text(encoding="utf-8"))
    return Published(
        title=tables["title"],
        author=tables["author"],
        artefact=tables["artefact"],
        pairs=tables["pairs"],
        paper=_parse_headline(tables["paper"]),
        rerun=_parse_headline(tables["rerun"]),
        tightening=tuple(Tightening(**cell) for cell in tables["tightening"]),
        recall=tuple(Recall(**cell) for cell in tables["recall"]),
    )


def _parse_headline(table: dict[str, Any]) -> Headline:
    return Headline(**table | {"largest": Largest(**table["largest"])})
