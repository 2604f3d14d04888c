"""What a kernel did on a case, and its limit → go, no-go or suspect. The one decision of gonogo.

Evaluation decides over whole columns and users' CI over single measurements, by the same function.
"""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gonogo.plain import to_plain

GO, SUSPECT, NO_GO = 0, 1, 2
DECISIONS: tuple[Literal["go", "suspect", "no-go"], ...] = ("go", "suspect", "no-go")
SUSPECT_UP_TO = 2.0
"""Times its limit up to which a reading may be suspect; the deterministic bound of a long sum allows far more."""


def decide(
    sound: npt.ArrayLike, reading: npt.ArrayLike, limit: npt.ArrayLike, deterministic: npt.ArrayLike
) -> npt.NDArray[np.int8]:
    """GO, SUSPECT or NO_GO, element by element.

    `sound` is whether the outcome was ok; anything else is NO_GO before a reading is looked at. A reading above
    its limit is SUSPECT up to SUSPECT_UP_TO times that, where the deterministic bound (1, in units of the scale
    with every sum taken for one long chain) still explains it, and NO_GO otherwise. An absent reading, NaN, is
    above every limit, and so is any reading where the limit is absent.
    """
    with np.errstate(invalid="ignore"):
        below = np.asarray(reading) <= np.asarray(limit)
        explained = (np.asarray(deterministic) <= 1.0) & (np.asarray(reading) <= SUSPECT_UP_TO * np.asarray(limit))
    unsound = ~np.asarray(sound, dtype=bool)
    go, suspect, no_go = np.int8(GO), np.int8(SUSPECT), np.int8(NO_GO)  # else NumPy makes words of eight bytes
    return np.where(unsound, no_go, np.where(below, go, np.where(explained, suspect, no_go)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on one kernel and one case, and why."""

    decision: Literal["go", "suspect", "no-go"]
    reason: str
    """`reading`, or the outcome that came before any reading; `no-reading` where the gauge has none."""
    outcome: str
    gauge: str
    reading: float | None
    limit: float | None
    limit_from: str
    """Rule, parameters and cases of the limit; or what stands in for one."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: NaN is null, an infinity "inf"."""
        plain: dict[str, Any] = to_plain(asdict(self) | {"message": self.message})
        return plain

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.message)}</pre>"

    @property
    def message(self) -> str:
        """One line for a busy engineer."""
        if self.reason == "no-reading":
            return f"{self.decision}: no reading in the gauge {self.gauge}"
        if self.reason != "reading":
            return f"{self.decision}: {self.outcome}"
        assert self.reading is not None
        limit = "none" if self.limit is None else f"{self.limit:.4g}"
        relation = "within" if self.decision == "go" else "above"
        told = f"reads {self.reading:.4g} {self.gauge}, {relation} the limit {limit} ({self.limit_from})"
        return f"{self.decision}: {told}"


def judge(
    outcome: str,
    reading: float | None,
    limit: float | None,
    *,
    deterministic: float | None = None,
    gauge: str = "bound",
    limit_from: str = "",
) -> Verdict:
    """Judge one record or measurement.

    >>> judge("ok", 9.1, 4.0, limit_from="pooled, 2,400 cases").message
    'no-go: reads 9.1 bound, above the limit 4 (pooled, 2,400 cases)'
    >>> judge("unwritten", None, 4.0).message
    'no-go: unwritten'
    """
    absent = float("nan")
    code = decide(
        outcome == "ok",
        absent if reading is None else reading,
        absent if limit is None else limit,
        absent if deterministic is None else deterministic,
    )
    reason = "reading" if outcome == "ok" and reading is not None else outcome if outcome != "ok" else "no-reading"
    return Verdict(DECISIONS[int(code)], reason, outcome, gauge, reading, limit, limit_from)


def judge_record(
    row: dict[str, Any], limit: float | None, *, gauge: str = "bound", limit_from: str = ""
) -> Verdict:
    """Judge a row of a run."""
    return judge(
        row["outcome"], row.get(gauge), limit, deterministic=row.get("deterministic"), gauge=gauge,
        limit_from=limit_from,
    )  # fmt: skip
