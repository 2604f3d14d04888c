"""A process that is about to run a stranger's code → system calls that no kernel needs are refused.

They reach past the other walls: connections by a path or to the machine below, user namespaces with all
rights in them, other processes' memory, the user's keys, memory that outlives its process.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from dataclasses import dataclass

from .walls import NO_NEW_PRIVS, control

LOAD, EQUAL, AT_LEAST, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
"""Instructions of the kernel's filter machine."""
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST, SECOND, THIRD, FOURTH = 0, 4, 16, 24, 32, 40
"""Where a call's number, architecture and the low halves of its arguments lie."""
SET_SECCOMP, FILTER = 22, 2
NEWUSER, UNIX, KIND, DATAGRAM, RAW = 0x10000000, 1, 0xF, 2, 3
FASTOPEN = 0x20000000
FAMILIES = (2, 10, 16)
"""Of sockets: IP, which is closed by other walls, and what asks for interfaces. CUDA listens on one of UNIX."""


@dataclass(frozen=True)
class Numbers:
    """Of calls, on one architecture."""

    architecture: int
    socket: int
    socketpair: int
    sendto: int
    sendmsg: int
    unshare: int
    clone: int
    refused: tuple[int, ...]
    """connect, sendmmsg, ptrace, process_vm_readv and -writev, kcmp, setns, shmget, msgget, semget, add_key,
    request_key,
    keyctl, perf_event_open, bpf, userfaultfd."""


BY_MACHINE = {
    "x86_64": Numbers(
        0xC000003E,
        41,
        53,
        44,
        46,
        272,
        56,
        (42, 307, 101, 310, 311, 312, 308, 29, 68, 64, 248, 249, 250, 298, 321, 323),
    ),
    "aarch64": Numbers(
        0xC00000B7,
        198,
        199,
        206,
        211,
        97,
        220,
        (203, 269, 117, 270, 271, 272, 268, 194, 186, 190, 217, 218, 219, 241, 280, 282),
    ),
}
CLONE3, EVERYWHERE = 435, (425, 426, 427, 438)
"""Calls that have one number on all machines: io_uring's three, pidfd_getfd."""


def refuse_calls() -> list[str]:
    """Set the filter, for this process and all that it starts."""
    numbers = BY_MACHINE.get(platform.machine())
    if numbers is None:
        return []
    program = _write_filter(numbers)
    code = ctypes.create_string_buffer(program)
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    control(NO_NEW_PRIVS, 1)
    done = libc.prctl(SET_SECCOMP, ctypes.c_ulong(FILTER), head, ctypes.c_ulong(0), ctypes.c_ulong(0))
    return ["refused calls"] if done == 0 else []


def _write_filter(numbers: Numbers) -> bytes:
    """Test by test: each returns, or goes on behind its own returns."""
    refuse, allow = _return(REFUSE | errno.EPERM), _return(ALLOW)
    lines = [_load(ARCHITECTURE), _step(EQUAL, numbers.architecture, 1, 0), refuse]
    lines += [_load(NUMBER), _step(AT_LEAST, 0x40000000, 0, 1), refuse]  # x32, a second table of calls
    for number in (*numbers.refused, *EVERYWHERE):
        lines += [_step(EQUAL, number, 0, 1), refuse]
    # Its flags lie in memory, where a filter does not see them; the C library goes on with clone.
    lines += [_step(EQUAL, CLONE3, 0, 1), _return(REFUSE | errno.ENOSYS)]
    for number in (numbers.unshare, numbers.clone):
        lines += [_step(EQUAL, number, 0, 4), _load(FIRST), _step(ANY_BIT, NEWUSER, 0, 1), refuse, allow]
    # A connection that is opened by the first bytes sent.
    for number, flags in ((numbers.sendto, FOURTH), (numbers.sendmsg, THIRD)):
        lines += [_step(EQUAL, number, 0, 4), _load(flags), _step(ANY_BIT, FASTOPEN, 0, 1), refuse, allow]
    # Datagrams go to any path without a connection, those of a pair as well.
    plain = [_load(SECOND), _step(AND, KIND), _step(EQUAL, DATAGRAM, 1, 0), _step(EQUAL, RAW, 0, 1), refuse, allow]
    families = [_step(EQUAL, family, len(FAMILIES) - at + 1, 0) for at, family in enumerate(FAMILIES)]
    families = [_load(FIRST), *families, _step(EQUAL, UNIX, 2, 0), refuse, allow]
    lines += [_step(EQUAL, numbers.socket, 0, len(families) + len(plain)), *families, *plain]
    lines += [_step(EQUAL, numbers.socketpair, 0, len(plain)), *plain, allow]
    return b"".join(lines)


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_so, if_not, value)


def _load(at: int) -> bytes:
    return _step(LOAD, at)


def _return(value: int) -> bytes:
    return _step(RETURN, value)
