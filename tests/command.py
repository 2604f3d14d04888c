"""Words as a user types them → what gonogo prints and its exit code, in this process or in one of its own.

A process of its own loads torch twice, itself and the server that its workers come from, which takes seconds. Most
tests are of what is said: `gonogo` says it here, where both are loaded. A test of each command spawns it.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from unittest import mock

from gonogo import ops
from gonogo.cli import main
from gonogo.execution.precision import FLAGS

Ended = subprocess.CompletedProcess[str]


def gonogo(*words: object, cwd: Path | None = None) -> Ended:
    """The command, run in this process and through its entry point; what it changes here is put back."""
    given = ["gonogo", *map(str, words)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        stack.enter_context(mock.patch.dict(os.environ))
        for name, value in (("argv", given), ("path", list(sys.path)), ("stdout", out), ("stderr", err)):
            stack.enter_context(mock.patch.object(sys, name, value))
        stack.enter_context(_keep_ops())
        stack.enter_context(_keep_torch())
        for number in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.getsignal(number))
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int), "a code, which a shell is given as it is"
    said, aside = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(given, code, said, aside)


def spawn(*words: object, cwd: Path | None = None) -> Ended:
    """The command in a process of its own, where any warning is an error, in its workers too."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "gonogo", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


@contextlib.contextmanager
def _keep_ops() -> Iterator[None]:
    """Folders of ops that are added inside are gone afterwards."""
    before = list(ops.more_folders)
    try:
        yield
    finally:
        if ops.more_folders != before:
            ops.more_folders[:] = before
            ops.get_op.cache_clear()


@contextlib.contextmanager
def _keep_torch() -> Iterator[None]:
    """Threads and switches of torch that are set inside are as before afterwards."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    switches = [path.removeprefix("torch.").rpartition(".")[::2] for path in FLAGS]
    owners = [(attrgetter(owner)(torch), name) for owner, name in switches]
    threads, before = torch.get_num_threads(), [getattr(owner, name) for owner, name in owners]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for (owner, name), value in zip(owners, before, strict=True):
            setattr(owner, name, value)
