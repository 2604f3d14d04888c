"""Workers of one GPU → at work on it at the same time, by NVIDIA's MPS, where this machine has it.

Without it a GPU has kernels of one process at a time, and most of a campaign is waiting for a turn. With it a
kernel that touches memory where none is takes the GPU from all processes that share it. So what a worker that
shares says of its end is not believed: the kernel is run again by one that does not share (see Pool).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gonogo.guest import walls

PIPES, LOGS, VISIBLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"
USUAL_PIPES = "/tmp/nvidia-mps"
"""Where CUDA looks for it."""
PROGRAM, CONTROL = "nvidia-cuda-mps-control", "control"
"""The service, and what it is reached by in its folder."""
USUAL_FOLDERS = ("/usr/bin", "/usr/local/nvidia/bin", "/usr/local/cuda/bin")
"""Where it lies besides the path: containers have the driver's programs mounted."""
START_S, QUIT_S = 5.0, 10.0
"""What the service may take to be there, and to end."""
NOWHERE = "/nonexistent"
"""Pipes of no service: a process that is told of these has the GPU to itself when it has its turn."""


@dataclass
class Sharing:
    """Environment variables of workers that share a GPU, and of those that do not."""

    together: dict[str, str]
    apart: dict[str, str]
    service: subprocess.Popen[bytes] | None = None
    """Where it was started for these workers."""
    folder: Path | None = None

    def wait_until_there(self) -> bool:
        """Whether the service can be reached; one that has just been started gets a moment for it.

        Workers that come before that would have the GPU in turns with all others.
        """
        if self.service is None or self.folder is None:
            return True
        late = time.monotonic() + START_S
        while self.service.poll() is None and time.monotonic() < late:
            if (self.folder / CONTROL).exists():
                return True
            time.sleep(0.01)
        return False

    def close(self) -> None:
        """End the service, if it is of these workers alone, with all that it has started; once, however often."""
        service, self.service = self.service, None
        if service is None or self.folder is None:
            return
        service.terminate()
        with suppress(subprocess.TimeoutExpired):
            service.wait(QUIT_S)
        with suppress(ProcessLookupError, PermissionError):  # its group is its own, and mostly gone with it
            os.killpg(service.pid, signal.SIGKILL)
        service.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def find_sharing() -> Sharing | None:
    """What somebody else has started on this machine, which any process on a GPU takes part in.

    Where a GPU takes that service's processes alone, as NVIDIA advises with it, there is no way apart from it.
    """
    pipes = Path(os.environ.get(PIPES) or USUAL_PIPES)
    if not (pipes / CONTROL).exists():
        return None
    return Sharing({}, {} if _takes_one_process() else {PIPES: NOWHERE})


def start_sharing() -> Sharing | None:
    """Start the service for workers of this process alone; None where there is none."""
    program = _find_program(PROGRAM)
    if program is None:
        return None
    try:
        folder = Path(tempfile.mkdtemp(prefix="gonogo-mps-", dir="/tmp"))  # the address of a socket is short
    except OSError:
        return None
    # It counts GPUs by itself: workers choose among all of them, as they would without it.
    environment = {name: value for name, value in os.environ.items() if name != VISIBLE}
    try:
        service = subprocess.Popen(
            [program, "-f"], env=environment | {PIPES: str(folder), LOGS: str(folder)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=_end_with_parent,
        )  # fmt: skip
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return Sharing({PIPES: str(folder)}, {PIPES: NOWHERE}, service, folder)


def _find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(USUAL_FOLDERS))


def _takes_one_process() -> bool:
    """Whether a GPU of this machine is in the mode in which one process, or the service, has it to itself."""
    program = _find_program("nvidia-smi")
    if program is None:
        return False
    words = [program, "--query-gpu=compute_mode", "--format=csv,noheader"]
    try:
        told = subprocess.run(words, capture_output=True, text=True, timeout=QUIT_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "Exclusive_Process" in told


def _end_with_parent() -> None:
    walls.control(walls.SET_PDEATHSIG, signal.SIGTERM)
