"""The loop of a worker process: jobs in, records out, one message each. It holds no state between cases."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from gonogo.errors import BadArguments, BadKernelFile, BadModule, CaseTooLarge, ReferenceFailed
from gonogo.execution.job import Job, make_records
from gonogo.guest.failure import tell_error
from gonogo.runners.keeper import fork_worker
from gonogo.runners.printed import Handed, Printed
from gonogo.schema import Outcome

if TYPE_CHECKING:
    from gonogo.execution.remote import Guests


@dataclass(frozen=True)
class Stranger:
    """What the next kernel may use, and must not see; sent to a worker, it ends the guests of the one before."""

    timeout_s: float
    memory_bytes: float
    hidden: tuple[str, ...]


@dataclass(frozen=True)
class GuestSetting:
    """What a worker needs to have strangers' kernels run elsewhere."""

    stem: socket.socket
    device: str
    first: Stranger

    def open(self, printed: int) -> Guests:
        """Guests whose standard output is a file of the worker's."""
        from gonogo.execution.remote import Guests

        first = self.first
        return Guests(self.stem, self.device, first.timeout_s, first.memory_bytes, printed, first.hidden)


def work(
    pipe: Connection,
    gpu_memory_share: float,
    switches: Mapping[str, str | None],
    transcript: Handed,
    guest_setting: GuestSetting | None = None,
) -> None:
    """Serve jobs until the other end hangs up; `transcript` is the file that kernels print to."""
    from gonogo.execution.precision import configure_torch  # with torch, which whoever waits here does not load

    _detach(pipe, guest_setting)
    printed = Printed(transcript)
    guests = None if guest_setting is None else guest_setting.open(printed.file)
    _set_environment(switches)
    configure_torch()
    _limit_gpu_memory(gpu_memory_share)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(("ready", None))
        while True:
            message = pipe.recv()
            if isinstance(message, Stranger) and guests is not None:
                guests.close()
                guests.timeout_s, guests.memory_bytes = message.timeout_s, message.memory_bytes
                guests.hidden = message.hidden
                pipe.send(("ready", None))
            else:
                _serve(pipe, message, printed, guests)


def _serve(pipe: Connection, job: Job, printed: Printed, guests: Guests | None) -> None:
    def announce(kernel: str) -> None:
        printed.begin(kernel)
        pipe.send(("begin", kernel))

    from gonogo.execution.execute import run_job
    from gonogo.execution.outcome import is_gpu_lost

    sent = 0
    try:
        for record in run_job(job, announce, guests=guests):
            sent += 1
            pipe.send(("record", replace(record, printed=printed.take(record.kernel) or None)))
            if record.outcome == "crashed" and guests is None:  # the GPU's context is gone with the kernel
                os._exit(1)
    except CaseTooLarge as error:
        # Rows far apart are asked for where a GPU has room: one that others use, too, may have none after all.
        is_spared = "far" in job.case.layout and error.where == "cuda"
        for record in make_records(job, job.kernels[sent:], Outcome("refused", str(error))):
            pipe.send(("record", replace(record, set_up=is_spared)))
        pipe.send(("done", job.number))
    except (BadArguments, BadKernelFile, BadModule, ReferenceFailed) as error:
        if is_gpu_lost(job.device):  # by another's kernel, with whom it is shared, most likely: begin again apart
            pipe.send(("broken", f"the GPU is lost: {tell_error(error)}"))
            os._exit(1)
        if job.op.is_uneven and isinstance(error, ReferenceFailed):
            for record in make_records(job, job.kernels[sent:], Outcome("refused", error.why)):
                pipe.send(("record", replace(record, set_up=True)))
            pipe.send(("done", job.number))
        else:
            pipe.send(("failed", error))
    except Exception as error:
        pipe.send(("broken", f"gonogo failed: {tell_error(error)}"))
        raise
    else:
        if guests is not None:
            pipe.send(("told", guests.told))
        pipe.send(("done", job.number))


def _set_environment(switches: Mapping[str, str | None]) -> None:
    """Set switches as this campaign has them: the server that workers are forked from has those of the first.

    Keys of an object store are for whoever writes records: no kernel is to see them.
    """
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    for name, value in switches.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _detach(pipe: Connection, guest_setting: GuestSetting | None) -> None:
    """No terminal, no Ctrl-C, and no life after the campaign."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)

    def close() -> None:
        """In the keeper: others are to see that the worker has ended."""
        pipe.close()
        if guest_setting is not None:
            guest_setting.stem.close()

    fork_worker(close)


def _limit_gpu_memory(gpu_memory_share: float) -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(gpu_memory_share)
