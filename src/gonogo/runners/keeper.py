"""A worker process → one that is kept: it ends with the campaign, and all that its kernels have started with it.

The keeper is the process that the fork server has made, the worker a child of it. Whatever a kernel starts stays a
descendant of the keeper, even where its own parent has ended.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NoReturn

from gonogo.guest import walls
from gonogo.guest.stem import list_family

WATCHED = {signal.SIGTERM, signal.SIGCHLD}


def fork_worker(close: Callable[[], None]) -> None:
    """Go on in a child of this process, which stays behind as its keeper; the keeper calls `close`."""
    os.setsid()  # what a terminal sends goes to gonogo alone
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    walls.control(walls.SET_SUBREAPER, 1)
    walls.control(walls.SET_PDEATHSIG, signal.SIGTERM)
    _let_fork_server_end()
    keeper = os.getpid()
    worker = os.fork()
    if worker:
        try:
            close()
            _end_like(_keep(worker))
        finally:
            os._exit(1)
    walls.control(walls.SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)


def _let_fork_server_end() -> None:
    """Let go of what it lives by: it is to end with gonogo, of which keepers learn so, not with the last worker."""
    server: Any = forkserver._forkserver
    alive, server._forkserver_alive_fd = server._forkserver_alive_fd, None
    os.close(alive)


def _keep(worker: int) -> int:
    """Wait until the worker ends, or is to end; its status, once all that it has started has ended as well."""
    status = None
    while status is None and signal.sigwait(WATCHED) != signal.SIGTERM:
        status = _reap(worker)
    with suppress(ChildProcessError):  # none is left
        while True:
            for process in list_family(os.getpid())[1:]:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            ended, how = os.waitpid(-1, 0)
            status = how if ended == worker else status
    return 1 if status is None else status


def _reap(worker: int) -> int | None:
    """Take note of children that have ended; the worker's status, where it is one of them."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == worker:
            return status
        if not ended:
            return None


def _end_like(status: int) -> NoReturn:
    """End this process as another has ended, without another core dump."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # of SIGKILL there is nothing to set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def measure_family(keeper: int, limit: float) -> int:
    """Resident bytes of a worker and of all that it has started; 0 once they are gone."""
    family = list_family(keeper)[1:]
    resident = sum(map(_read_resident, family))
    # A page that two processes share counts twice in what is quick to read: then it is counted exactly.
    return sum(map(_read_share, family)) if len(family) > 1 and resident > limit else resident


def _read_resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _read_share(process: int) -> int:
    """Resident bytes, of pages that others share a part."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _read_resident(process)
