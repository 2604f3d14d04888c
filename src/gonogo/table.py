"""A table: columns and rows of plain values, as Markdown, CSV or plain data; the command line lays it out."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    note: str = ""
    essential: tuple[str, ...] = ()
    """Columns that say most, for where there is no room for all; none: the table is narrow."""

    def to_markdown(self) -> str:
        """As Markdown, with the title as a heading."""
        align = ["---" if i == 0 else "---:" for i in range(len(self.columns))]
        lines = [f"## {self.title}", ""] + ([self.note, ""] if self.note else [])
        lines += ["| " + " | ".join(cells) + " |" for cells in (self.columns, align)]
        lines += ["| " + " | ".join(format_cell(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """As CSV, for programs: numbers in full; what is made of several, as a share is, has a column for each."""
        spread = [[_spread(*pair) for pair in zip(self.columns, row, strict=True)] for row in self.rows]
        columns: list[str] = []
        for place, column in enumerate(self.columns):
            columns += dict.fromkeys(name for cells in spread for name in cells[place]) or [column]
        out = io.StringIO()
        writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: value for cell in cells for name, value in cell.items()} for cells in spread)
        return out.getvalue()

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per row, for JSON: numbers are numbers, a share is its two counts and their rate."""
        return [dict(zip(self.columns, map(_make_plain, row), strict=True)) for row in self.rows]

    def choose(self, columns: Sequence[str]) -> Table:
        """Only some of the columns, in the order given."""
        places = [self.columns.index(column) for column in columns]
        rows = [tuple(row[place] for place in places) for row in self.rows]
        return replace(self, columns=tuple(columns), rows=rows, essential=())


@dataclass(frozen=True)
class Share:
    """So many of so many, shown with the rate."""

    part: int
    whole: int
    digits: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the two counts and their rate, which is null of nothing."""
        return {"part": self.part, "whole": self.whole, "rate": self.part / self.whole if self.whole else None}

    def __str__(self) -> str:
        if not self.whole:
            return "–"
        return f"{100 * self.part / self.whole:.{self.digits}f} % ({self.part:,}/{self.whole:,})"


@dataclass(frozen=True)
class Shown:
    """A value of plain data, and how people read it."""

    value: Any
    text: str

    def __str__(self) -> str:
        return self.text


def percent(share: float | None, digits: int = 1) -> Shown | None:
    """A share between 0 and 1, shown in percent."""
    return None if share is None else Shown(share, f"{100 * share:.{digits}f} %")


def format_cell(cell: Any) -> str:
    """One cell as a short text, for people."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _make_plain(cell: Any) -> Any:
    if isinstance(cell, Shown):
        return cell.value
    if isinstance(cell, Share):
        return cell.to_dict()
    return cell


def _spread(column: str, cell: Any) -> dict[str, Any]:
    """A cell by the columns of a CSV file that it fills."""
    plain = _make_plain(cell)
    if isinstance(plain, dict):
        return {f"{column}: {part}": value for part, value in plain.items()}
    return {} if plain is None else {column: plain}
