"""Tables → the terminal, never cut: wide where the output is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from gonogo.evaluate.table import Table

PIPED_WIDTH = 200


def print_tables(tables: Sequence[Table]) -> None:
    """One below the other."""
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    for table in tables:
        console.print(table.to_rich())
