"""Tables → stdout, as wide as the terminal and never cut; Markdown or CSV on request.

Where a terminal has no room for all columns, a table shows its essential ones and says so; one row, or a terminal
with no room for even these, is printed downwards. What is no terminal gets everything.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeVar

import click
import rich.table
from rich.console import Console
from rich.text import Text

from gonogo.cli._output import echo, write_plainly
from gonogo.cli._parse import split_words
from gonogo.errors import InputError, UnknownWord
from gonogo.table import Table, format_cell

BREAKS_FROM = 16
"""Characters from which a cell may be broken, between words: numbers with their units are shorter."""
FRAME = 3
"""Characters of a frame per column, and one more."""
NOTE_WIDTH = 116
"""Of the note below a table, where there is no terminal to fit into."""
DOWNWARDS_FROM = 5
"""Columns from which a table of one row is easier to read downwards."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class View:
    """How a user wants tables."""

    columns: tuple[str, ...] = ()
    """Only these; none: as many as there is room for."""
    wide: bool = False
    """All columns, whatever the terminal."""
    form: Literal["text", "markdown", "csv"] = "text"


def table_options(command: F) -> F:
    """The options of every command that prints tables; the command gets them as one `view`."""

    @wraps(command)
    def with_view(*, columns: str, wide: bool, markdown: bool, as_csv: bool, **rest: Any) -> Any:
        if markdown and as_csv:
            raise InputError("--markdown and --csv are two forms of the same table: give one of them")
        if (markdown or as_csv or columns or wide) and rest.get("as_json"):
            raise InputError(
                "--json is whole and a form of its own: leave out --columns, --wide, --markdown and --csv"
            )
        if columns and not split_words(columns):
            raise InputError("--columns names nothing: give a word, or leave it out")
        form: Literal["text", "markdown", "csv"] = "markdown" if markdown else "csv" if as_csv else "text"
        return command(view=View(split_words(columns), wide, form), **rest)

    for option in (
        click.option("--csv", "as_csv", is_flag=True, help="Print as CSV."),
        click.option("--markdown", is_flag=True, help="Print as Markdown."),
        click.option("--wide", is_flag=True, help="All columns, also where the terminal has no room for them."),
        click.option("--columns", default="", metavar="A,B", help="Only these columns, by their names."),
    ):
        with_view = option(with_view)
    return with_view  # type: ignore[return-value]


USUAL = View()


def print_tables(tables: Sequence[Table], view: View = USUAL) -> None:
    """Print tables, one below the other."""
    check_columns([column for table in tables for column in table.columns], view.columns)
    for place, table in enumerate(_choose(table, view.columns) for table in tables):
        if view.form == "text":
            _print_table(table, wide=view.wide, chosen=bool(view.columns))
            continue
        if place:
            echo("")  # one table ends, and another begins
        echo(table.to_markdown() if view.form == "markdown" else table.to_csv())


def make_console(width: int | None = None) -> Console:
    """A console on stdout; colour is for terminals, and NO_COLOR turns it off there, too."""
    colourless = not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR"))
    return Console(width=width, color_system=None if colourless else "auto")


def find_room() -> int | None:
    """Columns of the terminal; None where there is none to fit into."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def check_columns(columns: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a name that no column has."""
    known = list(dict.fromkeys(columns))
    for name in names:
        if not any(_is_named(column, name) for column in known):
            raise UnknownWord("column", name, known)


def _is_named(column: str, name: str) -> bool:
    return column.casefold() == name.casefold()


def _choose(table: Table, names: Sequence[str]) -> Table:
    """The columns asked for, behind the first, which tells the rows apart; all where it has none of them."""
    asked_for = [column for name in names for column in table.columns if _is_named(column, name)]
    return table.choose(list(dict.fromkeys([table.columns[0], *asked_for]))) if asked_for else table


def _print_table(table: Table, *, wide: bool, chosen: bool) -> None:
    room = None if wide else find_room()
    if not table.rows:
        echo(table.title)
        _print_note(table.note, room)
        return
    if len(table.rows) == 1 and len(table.columns) >= DOWNWARDS_FROM:
        _print_downwards(table, room)
        return
    shown, widths = table, _fit(table, room)
    if widths is None and table.essential and not chosen:
        shown = table.choose(table.essential)
        widths = _fit(shown, room)
    if widths is None:
        _print_downwards(table, room)
        return
    _print_across(shown, widths)
    _print_note(table.note, room)
    left_out = len(table.columns) - len(shown.columns)
    if left_out:
        plural = "" if left_out == 1 else "s"
        _print_note(f"{left_out} more column{plural}: --wide shows all, --columns A,B some", room)


def _fit(table: Table, room: int | None) -> list[int] | None:
    """The width of each column; None where they do not fit. Heads are broken first, then long cells."""
    columns = [[_show(row[place]) for row in table.rows] for place in range(len(table.columns))]
    longest = [max(map(len, cells), default=0) for cells in columns]
    least = [
        max(
            len(part)
            for parts in (_split(head, 0), *(_split(cell, BREAKS_FROM) for cell in cells))
            for part in parts
        )
        for head, cells in zip(map(write_plainly, table.columns), columns, strict=True)
    ]
    if room is None:
        return [max(longest[place], least[place]) for place in range(len(columns))]
    spare = room - sum(least) - FRAME * len(least) - 1
    if spare < 0:
        return None
    widths = list(least)
    while spare > 0 and any(width < most for width, most in zip(widths, longest, strict=True)):
        neediest = max(range(len(widths)), key=lambda place: longest[place] - widths[place])
        widths[neediest] += 1
        spare -= 1
    return widths


def _show(cell: Any) -> str:
    """A cell as it will stand there: its width counts."""
    return write_plainly(format_cell(cell))


def _split(text: str, breaks_from: int) -> list[str]:
    """What of a text must stay on one line."""
    return (text.split() if len(text) > breaks_from else [text]) or [""]


def _print_across(table: Table, widths: Sequence[int]) -> None:
    shown = rich.table.Table(title=Text(table.title), title_justify="left")
    for place, (column, width) in enumerate(zip(table.columns, widths, strict=True)):
        is_text = any(isinstance(row[place], str) for row in table.rows)
        shown.add_column(
            Text(write_plainly(column)), justify="left" if is_text else "right", width=width, overflow="fold"
        )
    for row in table.rows:
        shown.add_row(*(Text(_show(cell)) for cell in row))  # Text: a name may look like markup
    console = make_console(max(sum(widths) + FRAME * len(widths) + 1, 1))
    with console.capture() as printed:
        console.print(shown)
    echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def _print_downwards(table: Table, room: int | None) -> None:
    """A line per column, a paragraph per row."""
    echo(table.title)
    name_width = max(map(len, table.columns))
    for number, row in enumerate(table.rows):
        if number:
            echo("")
        for column, cell in zip(table.columns, row, strict=True):
            start = f"  {column:<{name_width}}  "
            echo(_wrap(format_cell(cell), room, start=start, indent=" " * len(start)))
    _print_note(table.note, room)


def _print_note(note: str, room: int | None) -> None:
    if note:
        echo(_wrap(note, min(room or NOTE_WIDTH, NOTE_WIDTH)))


def fill(text: str, *, start: str = "", indent: str = "", less: int = 0) -> str:
    """A text in lines as wide as the terminal, or so many columns less; broken between words."""
    room = find_room()
    return _wrap(text, None if room is None else room - less, start=start, indent=indent)


def _wrap(text: str, width: int | None, *, start: str = "", indent: str = "") -> str:
    if width is None or not text:
        return start + text
    return textwrap.fill(
        text, max(width, len(indent) + BREAKS_FROM), initial_indent=start, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
