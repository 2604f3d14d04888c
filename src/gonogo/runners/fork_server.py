"""The process that workers are forked from: started once for all threads, and whether it has ended."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from typing import Any

SAFE_PATH = "PYTHONSAFEPATH"
SOCKET_ADDRESS_BYTES = 103
"""What the address of a Unix socket holds on macOS; on Linux it is 107."""
_starting = threading.Lock()
LOADED = ["torch", "gonogo.execution.execute", "gonogo.execution.remote", "gonogo.runners.worker"]
"""By the server, once for all workers."""


def start_fork_server() -> None:
    """Start it deaf to Ctrl-C, and blind to files of the current folder that are named like modules.

    While it loads torch it would end in a traceback of its own; and it begins with the folder on its path.
    """
    with _starting:
        _start()


def find_fork_server() -> int | None:
    """Its process, where it was started."""
    server: Any = forkserver._forkserver
    number: int | None = server._forkserver_pid
    return number


def has_ended(number: int | None) -> bool:
    """Whether a fork server is gone: then no worker of it was ended by its kernel."""
    if number is None or number != find_fork_server():  # another thread has started the next one
        return number is not None
    try:  # it is left to be waited for
        return os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _start() -> None:
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
    safe = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        with _near_temporary_folder():
            forkserver.set_forkserver_preload(LOADED)
            forkserver.ensure_running()
    finally:
        if safe is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = safe
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _near_temporary_folder() -> Iterator[None]:
    """Have the server's socket lie where its address fits: it is a path in the folder for temporary files."""
    far = len(os.fsencode(tempfile.gettempdir())) + len("/pymp-xxxxxxxx/listener-xxxxxxxx") > SOCKET_ADDRESS_BYTES
    near = next((folder for folder in ("/tmp", "/var/tmp") if os.access(folder, os.W_OK | os.X_OK)), None)
    before = tempfile.tempdir
    tempfile.tempdir = near if far and near else before
    try:
        yield
    finally:
        tempfile.tempdir = before
