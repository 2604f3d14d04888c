"""Escape codes are for terminals, and not even there where NO_COLOR is set."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "gonogo", "ops", "softmax"]
KEPT = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}


def run_on_terminal(**environment: str) -> bytes:
    """What a terminal would be sent."""
    pty = pytest.importorskip("pty", reason="needs a pseudo-terminal")
    ours, theirs = pty.openpty()
    with subprocess.Popen(COMMAND, stdout=theirs, stderr=subprocess.PIPE, env=KEPT | environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 2**16)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            shown += piece
    os.close(ours)
    assert process.returncode == 0
    return shown


def test_a_pipe_gets_no_escape_codes() -> None:
    for more in ({}, {"FORCE_COLOR": "1"}, {"TERM": "xterm-256color"}):
        done = subprocess.run(COMMAND, capture_output=True, timeout=60, env=KEPT | more)
        assert done.returncode == 0
        assert b"softmax_torch" in done.stdout
        assert b"\x1b" not in done.stdout + done.stderr


def test_a_terminal_does_unless_it_is_told_not_to() -> None:
    assert b"\x1b[" in run_on_terminal(TERM="xterm-256color")
    plain = run_on_terminal(TERM="xterm-256color", NO_COLOR="1")
    assert b"softmax_torch" in plain
    assert b"\x1b" not in plain
