"""The loop of a worker process: jobs in, rows out, one message each. It holds no state between cases."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any

from gonogo.campaign.bench import Job
from gonogo.campaign.execute import run_job
from gonogo.campaign.printed import Printed
from gonogo.errors import BadKernelFile, ReferenceFailed

FLAGS = {
    "torch.backends.cuda.matmul.allow_tf32": False,
    "torch.backends.cudnn.allow_tf32": False,
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": False,
}
"""torch's switches that change numerics, as every worker sets them."""


def work(
    pipe: Connection,
    ops_folders: list[str],
    gpu_memory_share: float,
    switches: Mapping[str, str | None],
    transcript: str,
) -> None:
    """Serve jobs until the other end hangs up; `transcript` is the file that kernels print to."""
    _detach()
    printed = Printed(transcript)
    _set_environment(switches)
    from gonogo.ops import add_folder

    for folder in ops_folders:
        add_folder(Path(folder))
    configure_torch()
    _limit_gpu_memory(gpu_memory_share)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(("ready", None))
        while True:
            _serve(pipe, pipe.recv(), printed)


def _serve(pipe: Connection, job: Job, printed: Printed) -> None:
    def announce(kernel: str) -> None:
        printed.begin(kernel)
        pipe.send(("begin", kernel))

    try:
        for row in run_job(job, announce):
            text = printed.take(row["kernel"])
            pipe.send(("row", row | {"printed": text} if text else row))
            if row["outcome"] == "crashed":  # the GPU's context is gone with the kernel
                os._exit(1)
    except (BadKernelFile, ReferenceFailed) as error:
        pipe.send(("failed", error))
    else:
        pipe.send(("done", job.number))


def _set_environment(switches: Mapping[str, str | None]) -> None:
    """As it is in the campaign: the server that workers are forked from keeps that of the first campaign."""
    for name, value in switches.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _detach() -> None:
    """No terminal, no Ctrl-C, and no life after the campaign."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def configure_torch() -> None:
    """One thread, and the switches of FLAGS."""
    import torch

    torch.set_num_threads(1)
    os.environ["GONOGO_NUM_THREADS"] = "1"  # there is a worker per core
    for path, value in FLAGS.items():
        owner, _, name = path.removeprefix("torch.").rpartition(".")
        setattr(attrgetter(owner)(torch), name, value)


@contextlib.contextmanager
def keep_precision() -> Iterator[None]:
    """Inside, torch's own kernels keep their contracts, as they do in a worker; afterwards all is as it was."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    switches: list[tuple[Any, str, Any]] = [(matmul, "allow_tf32", False), (cudnn, "allow_tf32", False)]
    if hasattr(matmul, "fp32_precision"):  # torch refuses to mix these words with the older switches
        switches = [(matmul, "fp32_precision", "ieee"), (cudnn.conv, "fp32_precision", "ieee")]
    switches += [(matmul, f"allow_{name}_reduced_precision_reduction", False) for name in ("fp16", "bf16")]
    with contextlib.ExitStack() as stack:
        for owner, name, value in switches:
            before = getattr(owner, name)
            if before != value:
                stack.callback(setattr, owner, name, before)
                setattr(owner, name, value)
        yield


def _limit_gpu_memory(gpu_memory_share: float) -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(gpu_memory_share)
