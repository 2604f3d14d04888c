"""What a kernel did on a case, and its limit → go, no-go or suspect. The one decision of gonogo.

Evaluation decides over whole columns and users' CI over single measurements, by the same function.
"""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gonogo.plain import to_plain

GO, SUSPECT, NO_GO = 0, 1, 2
SUSPECT_UP_TO = 1.1
"""Times its limit that a reading may be and still be suspect.

A limit is twice what correct kernels read, or 2 where they read less: what reads a tenth more than that is no
correct kernel that adds in an order of its own. Of 52,938 control cases on an NVIDIA H200, held out by run, three
are above their limit, 87 times and more. Chosen on those records, among 2, 1.25 and this.
"""
DECISIONS: tuple[Literal["go", "suspect", "no-go"], ...] = ("go", "suspect", "no-go")


def decide(
    sound: npt.ArrayLike, reading: npt.ArrayLike, limit: npt.ArrayLike, deterministic: npt.ArrayLike
) -> npt.NDArray[np.int8]:
    """GO, SUSPECT or NO_GO, element by element.

    `sound` is whether the outcome was ok; anything else is NO_GO before a reading is looked at. A reading above
    its limit is SUSPECT where it is at most SUSPECT_UP_TO times the limit and the deterministic bound (1, in units
    of the scale with every sum taken for one long chain) explains it, and NO_GO otherwise. An absent reading, NaN,
    is above every limit, and so is any reading where the limit is absent.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        below = np.asarray(reading) <= np.asarray(limit)
        near = np.asarray(reading) <= SUSPECT_UP_TO * np.asarray(limit)
        explained = near & (np.asarray(deterministic) <= 1.0)
    unsound = ~np.asarray(sound, dtype=bool)
    go, suspect, no_go = np.int8(GO), np.int8(SUSPECT), np.int8(NO_GO)  # else NumPy makes words of eight bytes
    return np.where(unsound, no_go, np.where(below, go, np.where(explained, suspect, no_go)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on one kernel and one case, and why."""

    decision: Literal["go", "suspect", "no-go"]
    reason: str
    """`reading`, or the outcome that came before any reading; `no-reading` where the gauge has none.

    `repeated` where it was suspect, and above its limit again on fresh seeds.
    """
    gauge: str
    reading: float | None
    limit: float | None
    limit_from: str
    """Rule, parameters and cases of the limit; or what stands in for one."""
    detail: str | None = None
    """One line on the outcome."""
    leaf: str | None = None
    """Path of the leaf that was read, the worst, where an output has several."""
    again: tuple[float, ...] = ()
    """What the same kind of case read on fresh seeds, where it was run on some; infinite where there was none."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: NaN is null, an infinity "inf"; `share` is the reading over the limit."""
        data: dict[str, Any] = to_plain(
            asdict(self) | {"outcome": self.outcome, "share": self.share, "message": self.message}
        )
        return data

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.message)}</pre>"

    @property
    def is_by_reading(self) -> bool:
        """Whether a reading decided it, and no outcome before any."""
        return self.reason in ("reading", "repeated")

    @property
    def share(self) -> float | None:
        """The reading over the limit; None where one of them is missing."""
        if not self.is_by_reading or self.reading is None or self.limit is None:
            return None
        return self.reading / self.limit if self.limit > 0 else math.inf if self.reading > 0 else 0.0

    def tell_share(self) -> str:
        """A reading, and how near to its limit it is."""
        assert self.reading is not None
        assert self.share is not None
        percent = 100 * self.share
        return (
            f"{self.reading:.2g} {self.gauge}, {percent:{'.0f' if 10 <= percent < 1000 else '.2g'}} % of the limit"
        )

    @property
    def outcome(self) -> str:
        """`ok`, or what is wrong with the output but for its numbers, and one line on that."""
        if self.is_by_reading or self.reason == "no-reading":
            return "ok"
        return f"{self.reason}: {self.detail}" if self.detail else self.reason

    @property
    def message(self) -> str:
        """One line for a busy engineer."""
        if self.reason == "no-reading":
            return f"{self.decision}: no reading in the gauge {self.gauge}"
        if not self.is_by_reading:
            return f"{self.decision}: {self.outcome}"
        assert self.reading is not None
        limit = "none" if self.limit is None else f"{self.limit:.4g}"
        relation = "within" if self.decision == "go" else "above"
        where = f"leaf {self.leaf} " if self.leaf else ""
        compared = f"{where}reads {self.reading:.4g} {self.gauge}, {relation} the limit {limit} ({self.limit_from})"
        return f"{self.decision}: {compared}{self._tell_again()}"

    def _tell_again(self) -> str:
        seeds = f"{len(self.again)} fresh seed{'' if len(self.again) == 1 else 's'}"
        if not self.again:
            return ""
        if self.reason != "repeated":
            return f"; not again on {seeds}"
        readings = ", ".join(f"{reading:.4g}" for reading in self.again)
        return f"; repeatedly above what any correct kernel read, with {readings} on {seeds}"


def judge(
    outcome: str,
    reading: float | None,
    limit: float | None,
    *,
    deterministic: float | None = None,
    gauge: str = "bound",
    limit_from: str = "",
    detail: str | None = None,
    leaf: str | None = None,
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
    return Verdict(DECISIONS[int(code)], reason, gauge, reading, limit, limit_from, detail, leaf)
