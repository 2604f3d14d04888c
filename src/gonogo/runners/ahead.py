"""What takes longest to start → begun before anything else: it loads torch while this process reads and plans."""

from __future__ import annotations

from importlib.util import find_spec

from gonogo.runners.device import has_driver, keep_switches
from gonogo.runners.fork_server import start_fork_server
from gonogo.runners.stem import find_stem


def start_ahead(device: str, *, triton: bool) -> None:
    """Start the processes that a check of a file has workers and guests from; on a GPU, those of workers alone."""
    if find_spec("torch") is None:
        return  # it is missed, and told of, where it is needed
    start_fork_server()
    if device == "cpu" or (device == "auto" and not has_driver()):
        with keep_switches("cpu"):
            find_stem(triton=triton)
