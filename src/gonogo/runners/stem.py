"""The program that kernels' processes are forked from, as a judge starts and ends it."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gonogo.runners.environment import SWITCHES

PACKAGE = str(Path(__file__).resolve().parent.parent)
"""What no guest may look into: references, limits, what judges."""
_BESIDE = [Path(entry, "gonogo").resolve() for entry in sys.path]
COPIES = tuple({PACKAGE, *(str(folder) for folder in _BESIDE if (folder / "guest" / "stem.py").is_file())})
"""All that could be imported in its stead."""
PROGRAM = Path(PACKAGE, "guest", "stem.py")
KEPT = (
    "PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CC", "CXX", "CUDA_HOME", "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", *SWITCHES,
)  # fmt: skip
"""Of the environment, what finds compilers, libraries and devices, and what changes numerics."""
_stems: dict[tuple[Any, ...], Stem] = {}
_lock = threading.Lock()
EMPTY_S = 10.0
PRELOADED = ("torch", "numpy", "ml_dtypes")


def find_stem(switches: Mapping[str, str] = {}, *, triton: bool = False) -> Stem:
    """The stem of this process and its environment, which is started when first asked for, and ends with it.

    With Triton where a file is known to import it: half a second for each of its guests, or once.
    """
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | dict(switches)
    key = os.getpid(), triton, *sorted(environment.items())
    with _lock:
        if key not in _stems or not _stems[key].is_alive:
            _stems[key] = Stem(environment, (*PRELOADED, "triton") if triton else PRELOADED)
            atexit.register(_stems[key].close)
        return _stems[key]


class Stem:
    """Started at once; it loads torch while its judge does other things."""

    def __init__(self, environment: dict[str, str], preloaded: tuple[str, ...]) -> None:
        self._folder = tempfile.mkdtemp(prefix="gonogo-")
        scratch = Path(self._folder, "scratch")
        scratch.mkdir()
        self._control, theirs = socket.socketpair()
        environment = environment | {"OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-B", str(PROGRAM)], stdin=theirs.fileno(), env=environment,
            cwd=self._folder, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        from gonogo.guest import wire  # with torch, which the stem loads meanwhile

        here = str(Path.cwd())
        path = [entry for entry in sys.path if entry and str(Path(entry).resolve()) != here]
        wire.send(self._control, {"path": path, "preload": preloaded, "scratch": str(scratch)})

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked for guests."""
        return self._process.poll() is None

    def open_client(self) -> socket.socket:
        """A way for one worker to ask for guests."""
        from gonogo.guest import wire

        ours, theirs = socket.socketpair()
        with _lock:
            wire.send(self._control, {"client": True}, [theirs.fileno()])
        theirs.close()
        return ours

    def wait_until_empty(self) -> None:
        """Back when all guests are gone whose workers have ended: keepers see to it, and it takes them a moment."""
        from gonogo.guest.stem import list_family

        end = time.monotonic() + EMPTY_S
        while len(list_family(self._process.pid)) > 1 and time.monotonic() < end:
            time.sleep(0.01)

    def close(self) -> None:
        """End it; guests end with the workers that asked for them."""
        self._control.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
