"""Processes that tests start and see end; `gonogo serve` as one of them."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

from gonogo import Client
from gonogo.errors import ServiceError

DEADLINE_S = 60.0
"""After which a process is taken to live for ever."""


def wait_for_end(process: int) -> bool:
    """Whether a process has ended, or ends before the deadline."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], DEADLINE_S)[0])
    finally:
        os.close(handle)


def heed_signals() -> None:
    """In a child before it begins: tests may be run by what ignores these, as nohup or a shell's background."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def leave_progress_out(said: str) -> str:
    """What a campaign said beside how far it is, which is told every ten seconds."""
    return "".join(line for line in said.splitlines(True) if not re.match(r"\d+/\d+ records, ", line))


class Running:
    """A server on a Unix socket in a folder; started again, it has the same state."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder, self._options = folder, options
        self.client = Client(f"unix:{folder / 'g.sock'}")
        self.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def start(self) -> None:
        """Start it; back when it answers."""
        words = ["serve", "--socket", "g.sock", "--state", "state.sqlite", "--device", "cpu", *self._options]
        with Path(self._folder, "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gonogo", *words], cwd=self._folder, stderr=log, start_new_session=True
            )
        while True:
            try:
                self.client.check_health()
                return
            except ServiceError:
                assert self.process.poll() is None, Path(self._folder, "log").read_text()
                select.select([], [], [], 0.1)

    def kill(self) -> None:
        """End it as a machine does that goes down."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        """End it as a service manager does; its exit code."""
        self.process.terminate()
        return self.process.wait()
