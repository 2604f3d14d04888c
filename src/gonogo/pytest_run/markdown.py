"""Tests with the fixture, and what there is to say of their limits → a page of Markdown, for the page of a CI job.

Whatever may hold any character stands in a code block or, in the table, in a code span: no other text is escaped.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from gonogo.pytest_run.judged import Judged

FIRST = ("no-go", "failed", "suspect")
"""Rows that stand on top."""
COLUMNS = ("test", "op", "contract", "decision", "cases", "largest reading, of its limit")
ROWS, FAILURES, LINES, LETTERS = 1000, 50, 12, 8000
"""Most rows and failures of a page, most lines of a text that is not folded, most letters of one that is.

GitHub takes a page of up to 1 MiB and shows nothing of a longer one.
"""


@dataclass(frozen=True)
class Result:
    """What became of a test, and what it judged."""

    outcome: Literal["passed", "failed", "skipped", "xfailed"]
    judged: tuple[Judged, ...] = ()
    said: str = ""
    """Why it was skipped, or how it failed."""

    def list_labels(self) -> list[str]:
        """A word for each thing it judged; for itself, where it got to none."""
        labels = [self._label(one) for one in self.judged]
        if self.outcome == "failed" and not self.is_no_go:
            return [*labels, "failed"]
        return labels or ([self.outcome] if self.outcome != "passed" else [])

    def _label(self, judged: Judged) -> str:
        if not judged.report:
            return judged.decision
        return "no-go" if self.outcome == "failed" else "no-go but allowed"  # by strict=False, or by xfail

    @property
    def is_no_go(self) -> bool:
        """Whether it failed, and a kernel of it is no-go."""
        return self.outcome == "failed" and any(one.report for one in self.judged)


def write_page(tests: Mapping[str, Result], limits: Sequence[str]) -> str:
    """The whole page; `tests` are by id, `limits` are lines on what was written and what is to be noted."""
    suspects = [f"{name}: {one.suspect}" for name, test in tests.items() for one in test.judged if one.suspect]
    skipped = [f"{name}: {test.said}" for name, test in tests.items() if test.outcome == "skipped"]
    settings = sorted({one.setting for test in tests.values() for one in test.judged if one.setting})
    parts = [
        f"## gonogo: {_count_labels(tests)}",
        *_write_table(tests),
        *_write_failures(tests),
        *_write_lines("Suspect, but passed", suspects),
        *_write_lines("Skipped", skipped),
        *_write_lines("Limits", limits),
        *_write_lines("Judged on", settings),
    ]
    return "\n\n".join(parts) + "\n"


def _count_labels(tests: Mapping[str, Result]) -> str:
    counts = Counter(label for test in tests.values() for label in test.list_labels())
    words = {"failed": "failed without a no-go", "xfailed": "failed as expected"}
    order = (*FIRST, "go", "no-go but allowed", "xfailed", "skipped")
    told = [f"{counts[label]:,} {words.get(label, label)}" for label in order if counts[label]]
    return ", ".join(told) or "no verdicts"


def _write_table(tests: Mapping[str, Result]) -> list[str]:
    rows = [row for name, test in tests.items() for row in _list_rows(name, test)]
    rows.sort(key=lambda row: FIRST.index(row[3]) if row[3] in FIRST else len(FIRST))
    if not rows:
        return []
    lines = [_write_row(COLUMNS), _write_row(["---"] * 4 + ["---:"] * 2), *map(_write_row, rows[:ROWS])]
    left = [f"{len(rows) - ROWS:,} more are not shown."] if len(rows) > ROWS else []
    return ["\n".join(lines), *left]


def _list_rows(name: str, test: Result) -> list[tuple[str, ...]]:
    labels = test.list_labels()
    rows: list[tuple[str, ...]] = [
        (
            quote_code(name), quote_code(one.op), quote_code(one.contract), label,
            f"{one.cases} of {one.cases + one.not_judged}" if one.not_judged else f"{one.cases}",
            _tell_share(one.share),
        )
        for one, label in zip(test.judged, labels, strict=False)
    ]  # fmt: skip
    return rows + [(quote_code(name), "–", "–", label, "–", "–") for label in labels[len(test.judged) :]]


def _tell_share(share: float | None) -> str:
    if share is None:
        return "–"
    percent = 100 * share
    return f"{percent:{'.0f' if 10 <= percent < 1000 else '.2g'}} %" if math.isfinite(percent) else "∞"


def _write_row(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _write_failures(tests: Mapping[str, Result]) -> list[str]:
    failed = [(name, test) for name, test in tests.items() if test.outcome == "failed"]
    parts: list[str] = []
    for name, test in failed[:FAILURES]:
        parts.append(f"### {quote_code(name)}")
        for one in test.judged:
            if one.report:
                parts.append(quote_block(one.report))
                parts += [fold("What it raised", one.error)] if one.error else []
        if not test.is_no_go:
            long = len(test.said.splitlines()) > LINES
            last = next(reversed(test.said.strip().splitlines()), "")
            parts.append(fold(last, test.said) if long else quote_block(test.said))
    left = len(failed) - FAILURES
    return [*parts, f"{left:,} more tests failed; pytest's output has them."] if left > 0 else parts


def _write_lines(head: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    text = "\n".join(lines)
    return [f"### {head}", quote_block(text) if len(lines) <= LINES else fold(f"{len(lines):,} lines", text)]


def quote_code(text: str) -> str:
    """A code span that holds any text, in one line."""
    flat = " ".join(text.split())
    ticks = _choose_ticks(flat, 1)
    space = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{space}{flat}{space}{ticks}"


def quote_block(text: str) -> str:
    """A code block that holds any text."""
    cut = text if len(text) <= LETTERS else f"…\n{text[-LETTERS:]}"  # an error's last lines say what it is
    ticks = _choose_ticks(cut, 3)
    return f"{ticks}text\n{cut.strip(chr(10))}\n{ticks}"


def fold(head: str, text: str) -> str:
    """A text that is shown on a click."""
    return f"<details><summary>{escape(head)}</summary>\n\n{quote_block(text)}\n\n</details>"


def _choose_ticks(text: str, least: int) -> str:
    """Backticks, more of them than stand together in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
