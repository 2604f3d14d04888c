"""What a judge asks for → kernels' processes, forked from one that has torch loaded and has run nothing.

Started as a program of its own, by its path: gonogo is not imported. For each guest there are three processes: the
keeper, which stays outside, sees to memory and ends the rest; the first process inside, which takes away what a
stranger must not have, and waits; and the guest, which runs the stranger's code.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

PACKAGE = "gonogo_guest"
if __name__ == "__main__":  # siblings are found by a package of this folder alone
    package = sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
    package.__path__ = [str(Path(__file__).parent)]
    __package__ = PACKAGE

from . import walls  # noqa: E402
from .calls import refuse_calls  # noqa: E402
from .wire import Gone, receive, send  # noqa: E402

POLL_S = 0.1
"""How often a keeper looks at memory."""
END_S = 5.0
"""What processes may take to die."""


def main() -> None:
    """Serve until the judge is gone; its socket is standard input."""
    control = socket.socket(fileno=os.dup(0))
    setting, _ = receive(control)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    sys.path[:] = [path for path in setting["path"] if path != str(Path(__file__).parent)]
    sys.dont_write_bytecode = True
    for name in setting["preload"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module(f"{PACKAGE}.serve")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    walls.control(walls.SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError):  # whoever asked may be gone by now, which is seen below
        send(control, {"ready": True})
    clients: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([control, *clients], [], [])
        for channel in ready:
            try:
                message, files = receive(channel, 10.0)
            except Gone:
                if channel is control:
                    os._exit(0)  # torch takes half a second to be taken down
                clients.remove(channel)
                channel.close()
                continue
            if channel is control:
                clients.append(socket.socket(fileno=files[0]))
            elif os.fork() == 0:
                _leave(_keep, message, files, setting, [control, *clients])
            else:
                for file in files:
                    os.close(file)


def _leave(run: Any, *args: Any) -> None:
    """Run it and end this process, whatever it does."""
    code = 1
    try:
        code = run(*args) or 0
    except BaseException as error:  # noqa: BLE001  nothing of this copy may go on as the stem
        os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
    finally:
        os._exit(code)


def _keep(message: dict[str, Any], files: list[int], setting: dict[str, Any], others: list[socket.socket]) -> None:
    """The keeper: start the guest, and end it when it must, or when nobody waits for it any more."""
    for other in others:
        other.close()
    channel, lifeline, printed = files
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    walls.control(walls.SET_SUBREAPER, 1)
    told, tell = os.pipe()
    scratch = setting["scratch"]
    spare = tempfile.mkdtemp(dir=Path(scratch).parent)
    in_force = walls.enter_namespaces()
    first = os.fork()
    if first == 0:
        os.close(told)
        os.close(lifeline)
        _leave(_begin, channel, printed, tell, scratch, spare, message, in_force)
    os.close(channel)
    os.close(tell)
    line = socket.socket(fileno=lifeline)
    why = _watch(first, line, int(message["memory_bytes"]))
    shutil.rmtree(spare, ignore_errors=True)
    status = b"".join(iter(lambda: os.read(told, 4096), b"")).decode(errors="replace")
    with contextlib.suppress(OSError):
        send(line, {"ended": why or "", "status": status[:200]})


def _watch(first: int, line: socket.socket, memory_bytes: int) -> str | None:
    """Wait for the first process inside; why it was killed, where it was."""
    why = None
    handle = os.pidfd_open(first)
    while True:
        ready, _, _ = select.select([handle, line.fileno()], [], [], POLL_S)
        if handle in ready:
            break
        if line.fileno() in ready:
            why = "closed"
            break
        family = list_family(first)
        if len(family) > walls.MOST_PROCESSES:
            why = f"processes {len(family)}"
            break
        # A page that two processes share counts twice in what is quick to read: then it is counted exactly.
        resident = sum(map(_read_resident, family)) + _read_files(family)
        if resident > memory_bytes and (resident := _read_exactly(family)) > memory_bytes:
            why = f"memory {resident}"
            break
    _end_family(first)
    os.waitpid(first, 0)
    return why


def list_family(first: int) -> list[int]:
    """A process and all that it has started, as far as they are its descendants still."""
    family, new = [first], [first]
    while new:
        new = [child for parent in new for child in _list_children(parent)]
        family += new
    return family


def _list_children(process: int) -> list[int]:
    """Of all of its threads; none once it is gone."""
    children: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children


def _read_resident(process: int) -> int:
    """Resident bytes of a process; 0 once it is gone."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _read_exactly(family: list[int]) -> int:
    """The same of all, each page once, and files of memory that no process has mapped."""
    total, mapped = 0, 0
    for process in family:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
            total, mapped = total + sizes["Pss:"], mapped + sizes.get("Pss_Shmem:", 0)
        except (OSError, IndexError, ValueError, KeyError):  # as it is where the system does not tell
            total += _read_resident(process)
    return total + max(_read_files(family) - mapped, 0)


def _read_files(family: list[int]) -> int:
    """Bytes of the files of memory that processes have open, each once."""
    sizes: dict[int, int] = {}
    for process in family:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(entry.readlink()).startswith("/memfd:"):
                        facts = entry.stat()
                        sizes[facts.st_ino] = 512 * facts.st_blocks
    return sum(sizes.values())


def _end_family(first: int) -> None:
    """Kill them all: the first takes its namespace with it; without one they are looked for until there is none.

    They are stopped before they are killed: what is stopped starts no other.
    """
    with contextlib.suppress(OSError):
        os.kill(first, signal.SIGKILL)
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        family = [process for process in list_family(os.getpid()) if process != os.getpid()]
        alive = [process for process in family if not _is_dead(process)]
        if not alive:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in alive:
                with contextlib.suppress(OSError):
                    os.kill(process, number)
        for process in family:
            if process != first:
                with contextlib.suppress(OSError):
                    os.waitpid(process, os.WNOHANG)
        time.sleep(0.001)


def _is_dead(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def _begin(
    channel: int, printed: int, tell: int, scratch: str, spare: str, message: dict[str, Any], in_force: list[str]
) -> None:
    """The first process inside: take rights away, start the guest, wait for it and for all that it leaves."""
    own_processes = "own processes" in in_force
    walls.offer_to_end()
    files_closed = walls.close_files(scratch, message["hide"], own_processes=own_processes)
    folder = scratch if files_closed else spare  # the one is memory of this namespace, the other on disk
    in_force = [*in_force, *files_closed, *walls.limit_resources(own_processes=own_processes)]
    in_force += walls.drop_rights()
    in_force += refuse_calls()
    os.chdir(folder)
    walls.control(walls.SET_DUMPABLE, 0)
    walls.control(walls.SET_PDEATHSIG, signal.SIGKILL)
    guest = os.fork()
    if guest == 0:
        os.close(tell)
        _leave(_become_guest, channel, printed, folder, message, in_force)
    os.close(channel)
    while True:
        ended, status = os.wait()
        if ended == guest:
            break
    code = os.waitstatus_to_exitcode(status)
    os.write(tell, str(code).encode())


def _become_guest(channel: int, printed: int, folder: str, message: dict[str, Any], in_force: list[str]) -> None:
    for descriptor in (1, 2):
        os.dup2(printed, descriptor)
    os.closerange(3, channel)
    os.closerange(channel + 1, walls.MOST_FILES)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    walls.control(walls.SET_PDEATHSIG, signal.SIGKILL)
    # Here, and not in what started it: that is then outside, and cannot be reached.
    shared = [walls.SHARED] if "read-only files" in in_force else []
    in_force = [*in_force, *walls.lock_land([folder, *shared])]
    walls.control(walls.SET_DUMPABLE, 1)  # its keeper may look into it; nobody may look into what started it
    os.environ.update(
        GONOGO_GUEST="1", HOME=folder,
        TMPDIR=folder, TRITON_CACHE_DIR=f"{folder}/triton", XDG_CACHE_HOME=f"{folder}/cache",
        TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor", CUDA_CACHE_PATH=f"{folder}/cuda",
    )  # fmt: skip
    tempfile.tempdir = None
    from .serve import serve

    serve(socket.socket(fileno=channel), message, in_force)


if __name__ == "__main__":
    main()
