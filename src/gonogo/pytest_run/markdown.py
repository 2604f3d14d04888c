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
ROWS, LINES, LETTERS = 1000, 12, 8000
"""Most rows of the table, most lines of a text that is not folded, most letters of one that is."""
FAILURE_BYTES = 500_000
"""Most that failures take together: GitHub takes a page of up to 1 MiB and shows nothing of a longer one."""


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
        if self.outcome == "failed":
            return "no-go"
        return "no-go but allowed" if judged.decision == "no-go" else judged.decision  # by strict=False, xfail

    @property
    def is_no_go(self) -> bool:
        """Whether it failed for a kernel that is no-go: the last it judged, for that ends it."""
        return self.outcome == "failed" and bool(self.judged) and bool(self.judged[-1].report)


def tell_notes(tests: Mapping[str, Result]) -> list[str]:
    """Why some cases were not judged, a line for each reason: a suite of many tests has it many times."""
    named: dict[str, list[str]] = {}
    for name, test in sorted(tests.items()):
        for note in dict.fromkeys(note for one in test.judged for note in one.notes):
            named.setdefault(note, []).append(name)
    return [f"{_name_tests(names)}: {note}" for note, names in named.items()]


def _name_tests(names: Sequence[str]) -> str:
    more = len(names) - 1
    return f"{names[0]} and {more:,} more test{'s' * (more > 1)}" if more else names[0]


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
        *_write_lines("Not judged", tell_notes(tests)),
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
    failed = {name: test for name, test in tests.items() if test.outcome == "failed"}
    parts: list[str] = []
    room = FAILURE_BYTES
    for place, (name, test) in enumerate(failed.items()):
        told = _write_failure(name, test)
        room -= sum(len(part.encode()) for part in told)
        if room < 0:
            return [*parts, f"{len(failed) - place:,} more tests failed; pytest's output has them."]
        parts += told
    return parts


def _write_failure(name: str, test: Result) -> list[str]:
    """What is no-go in a test, and how it failed where that is not all."""
    parts = [f"### {quote_code(name)}"]
    for one in test.judged:
        if one.report:
            parts.append(quote_block(one.report))
            parts += [fold("What it raised", one.error)] if one.error else []
    if not test.is_no_go:
        long = len(test.said.splitlines()) > LINES
        last = next(reversed(test.said.strip().splitlines()), "")
        parts.append(fold(last, test.said) if long else quote_block(test.said))
    return parts


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
