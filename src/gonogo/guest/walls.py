"""A process that is about to run a stranger's code → walled in, as far as the system lets it; the walls' names.

None of it needs root. What a system refuses is left out, and is missing from the names.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Sequence
from pathlib import Path

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
AT_FDCWD, AT_RECURSIVE, RDONLY = -100, 0x8000, 0x1
SYS_MOUNT_SETATTR, SYS_LANDLOCK = 442, 444
"""Of every architecture that Linux has had these calls on: they were given one number."""
SET_PDEATHSIG, SET_DUMPABLE, CAPBSET_DROP, SET_SUBREAPER, NO_NEW_PRIVS = 1, 4, 24, 36, 38
WRITES = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14))
"""Landlock's rights to change files: write, remove, make, link, truncate."""
BY_VERSION = {1: WRITES & ~(0b11 << 13), 2: WRITES & ~(1 << 14)}
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
MOST_FILES, MOST_FILE_BYTES, MOST_PROCESSES = 1024, 2**30, 512
SCRATCH_BYTES = 2**29
ALL = (
    "own processes", "no network", "read-only files", "no view of the judge", "limited processes", "limits",
    "no rights", "refused calls", "landlock",
)  # fmt: skip
"""Every wall there is, by its name."""
SHARED = "/dev/shm"

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: object) -> None:
    """A function of the C library; OSError where it refuses."""
    function = getattr(_libc, name)
    function.restype = ctypes.c_long
    if function(*args) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def control(option: int, value: int) -> None:
    """Prctl, where there is one."""
    try:
        _call("prctl", option, ctypes.c_ulong(value), 0, 0, 0)
    except (OSError, AttributeError):
        return


def enter_namespaces() -> list[str]:
    """Leave those of the parent for new ones; the process must have one thread. Its children are in them."""
    user, group = os.getuid(), os.getgid()
    for flags in (NEWUSER | NEWPID | NEWNET | NEWIPC, NEWUSER | NEWPID, NEWUSER):
        try:
            _call("unshare", flags)
        except (OSError, AttributeError):
            continue
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        except OSError:
            pass  # nobody's number then; all that matters is that it has no rights
        names = {NEWPID: "own processes", NEWNET: "no network"}
        return [name for flag, name in names.items() if flags & flag]
    return []


def close_files(scratch: str, hidden: Sequence[str], *, own_processes: bool) -> list[str]:
    """All files read-only but a scratch folder in memory; `hidden` folders and files are empty."""
    try:
        _call("unshare", NEWNS)  # here, not in the keeper: it must go on seeing the processes outside
        _call("mount", b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
        attributes = struct.pack("<QQQQ", RDONLY, 0, 0, 0)
        _call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes))
        _mount_memory(scratch, SCRATCH_BYTES)
        if Path(SHARED).is_dir():  # semaphores of multiprocessing lie there
            _mount_memory(SHARED, SCRATCH_BYTES)
    except (OSError, AttributeError):
        return []
    names = ["read-only files"]
    try:
        for path in hidden:
            if not Path(path).exists():
                continue
            if Path(path).is_dir():
                _mount_memory(path, 2**12)
            else:
                _call("mount", b"/dev/null", os.fsencode(path), None, ctypes.c_ulong(0x1000), None)  # MS_BIND
        names.append("no view of the judge")
    except OSError:
        pass
    if own_processes:
        # Refused where /proc is masked already; the judge's processes are another user namespace's all the same.
        with contextlib.suppress(OSError):
            _call("mount", b"proc", b"/proc", b"proc", ctypes.c_ulong(MS_NOSUID | MS_NODEV), None)
            Path("/proc/sys/kernel/pid_max").write_text(
                str(MOST_PROCESSES)
            )  # this namespace's own, from Linux 6.14
            names.append("limited processes")
    return names


def _mount_memory(path: str, size: int) -> None:
    options = f"size={size},mode=0700".encode()
    _call("mount", b"tmpfs", os.fsencode(path), b"tmpfs", ctypes.c_ulong(MS_NOSUID | MS_NODEV), options)


def offer_to_end() -> None:
    """Be what the system ends first where memory runs out: not all that a process has shows in its own sizes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def limit_resources(*, own_processes: bool) -> list[str]:
    """Processes, open files, sizes of files, core dumps."""
    limits = {
        resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: MOST_FILES, resource.RLIMIT_FSIZE: MOST_FILE_BYTES,
    }  # fmt: skip
    if own_processes:  # elsewhere all of the user's processes would count; root's never do
        limits[resource.RLIMIT_NPROC] = MOST_PROCESSES
    for what, most in limits.items():
        _, hard = resource.getrlimit(what)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, least))
    return ["limits"]


def drop_rights() -> list[str]:
    """No capability, and no program that would give one."""
    control(NO_NEW_PRIVS, 1)
    for capability in range(64):
        control(CAPBSET_DROP, capability)
    header, none = struct.pack("<II", 0x20080522, 0), bytes(24)
    try:
        _call("capset", header, none)
    except (OSError, AttributeError):
        return []
    return ["no rights"]


def _list_devices() -> list[str]:
    """Those that are written to: no terminals, no disks."""
    devices = [str(path) for name in ("nvidia*", "dri", "kfd") for path in Path("/dev").glob(name)]
    return [*(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")), *devices]


def lock_land(folders: Sequence[str]) -> list[str]:
    """Landlock: writes to folders, devices and names of threads alone; no TCP, signals to others or ptrace."""
    try:
        version = int(_libc.syscall(SYS_LANDLOCK, None, ctypes.c_size_t(0), 1))
        if version < 1:
            return []
        handled = BY_VERSION.get(version, WRITES)
        attributes = struct.pack("<QQQ", handled, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
        size = 24 if version >= 6 else 16 if version >= 4 else 8
        rules = int(_libc.syscall(SYS_LANDLOCK, attributes, ctypes.c_size_t(size), 0))
        if rules < 0:
            return []
        # CUDA names its threads by files of /proc/self/task.
        files = (WRITE_FILE | TRUNCATE) & handled
        allowed = [(path, handled) for path in folders]
        allowed += [(path, files) for path in ("/proc/self/task", *_list_devices())]
        for path, rights in allowed:
            with contextlib.suppress(FileNotFoundError):
                folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
                _call("syscall", SYS_LANDLOCK + 1, rules, 1, struct.pack("<Qi", rights, folder), 0)
                os.close(folder)
        control(NO_NEW_PRIVS, 1)
        _call("syscall", SYS_LANDLOCK + 2, rules, 0)
        os.close(rules)
    except (OSError, AttributeError):
        return []
    # Without TCP before its version 4, without signals before 6.
    return ["landlock" if version >= 6 else f"landlock {version}"]
