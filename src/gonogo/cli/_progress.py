"""How far work is → a bar on a terminal, a line now and then elsewhere; on stderr both."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from gonogo.cli._output import echo

if TYPE_CHECKING:
    from gonogo.campaign import Progress

PLAIN_EVERY_S = 10.0


class Reporter:
    """Shows how many of how many are done, and how fast; inside a `with`."""

    def __init__(self, unit: str = "records") -> None:
        self.terminal = sys.stderr.isatty()
        self.has_reported = False
        """Whether it was told how far it is."""
        self._unit = unit
        self._said = self._started = time.monotonic()
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}/s"), TimeRemainingColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), disable=not self.terminal, transient=True)

    def __enter__(self) -> Reporter:
        self._bar.start()
        self._task = self._bar.add_task(self._unit, total=None, rate="–")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def report(self, done: int, total: int, made: int | None = None) -> None:
        """Take note of how far it is; `made` now, where some of what is done was there before."""
        now, self.has_reported = time.monotonic(), True
        rate = (done if made is None else made) / max(now - self._started, 1e-9)
        self._bar.update(self._task, completed=done, total=total, rate=f"{rate:.0f}")
        if not self.terminal and rate and now - self._said > PLAIN_EVERY_S:
            self._said = now
            left_s = (total - done) / max(rate, 1e-9)
            echo(f"{done}/{total} {self._unit}, {rate:.0f}/s, {left_s:.0f} s left", aside=True)


def report_records(reporter: Reporter, progress: Progress) -> None:
    """Of a campaign: what a run had before it was resumed was not made now."""
    reporter.report(progress.rows, progress.total, sum(progress.outcomes.values()))
