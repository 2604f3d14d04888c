"""Tables and JSON → stdout. Tables are never cut: wide where the output is no terminal, and plain there.

Colour is for terminals, and NO_COLOR turns it off there, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from gonogo.plain import to_plain

if TYPE_CHECKING:
    from gonogo.evaluate.table import Table

PIPED_WIDTH = 400
"""Columns where there is no terminal to fit into."""


def make_console() -> Console:
    """A console on stdout: as wide as the terminal; where there is none, so wide that nothing is cut."""
    terminal = sys.stdout.isatty()
    colourless = not terminal or bool(os.environ.get("NO_COLOR"))
    return Console(width=None if terminal else PIPED_WIDTH, color_system=None if colourless else "auto")


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables, one below the other."""
    console = make_console()
    for table in tables:
        console.print(table.to_rich())


def print_json(value: Any) -> None:
    """Print strict JSON, whatever numbers are in it."""
    click.echo(json.dumps(to_plain(value), indent=1, allow_nan=False))
