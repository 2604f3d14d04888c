"""A table: columns and rows of plain values, as Markdown, CSV or for a terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    note: str = ""

    def to_markdown(self) -> str:
        """As Markdown, with the title as a heading."""
        align = ["---" if i == 0 else "---:" for i in range(len(self.columns))]
        lines = [f"## {self.title}", ""] + ([self.note, ""] if self.note else [])
        lines += ["| " + " | ".join(cells) + " |" for cells in (self.columns, align)]
        lines += ["| " + " | ".join(format_cell(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """As CSV, with numbers in full."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return out.getvalue()

    def to_rich(self) -> rich.table.Table:
        """As a table for a console."""
        import rich.table

        table = rich.table.Table(title=self.title, caption=self.note or None)
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
        for row in self.rows:
            table.add_row(*(format_cell(cell) for cell in row))
        return table


@dataclass(frozen=True)
class Share:
    """So many of so many, shown with the rate."""

    part: int
    whole: int
    digits: int = 1

    def __str__(self) -> str:
        if not self.whole:
            return "–"
        return f"{100 * self.part / self.whole:.{self.digits}f} % ({self.part:,}/{self.whole:,})"


def format_cell(cell: Any) -> str:
    """One cell as a short text, for people."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
