"""A device's name → where kernels run: which one, by how many workers, and with which switches of Triton."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gonogo.errors import InputError

lost_on: list[str] = []
"""The case on which a kernel run in this process has taken the GPU's context with it: no call brings it back."""


def find_device(name: str) -> str:
    """`auto` → cuda where there is a GPU, else cpu; anything else is checked."""
    if not isinstance(name, str) or name not in ("auto", "cpu", "cuda"):
        raise InputError(f"unknown device {name!r}; known: auto, cpu, cuda")
    if name == "cpu":
        return name
    if lost_on:
        raise InputError(
            f"device {name}: a kernel's fault on {lost_on[0]} has lost the GPU to this process. Start another, or "
            "run the kernel by gonogo check, which has a process for each case"
        )
    if has_driver() and _torch_sees_one():
        return "cuda"
    if name == "cuda":
        raise InputError("device cuda: torch sees no CUDA device on this machine")
    return "cpu"


def has_driver() -> bool:
    """Whether NVIDIA's library is there, without which torch sees no GPU: nobody need load torch to know."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def _torch_sees_one() -> bool:
    import torch

    return torch.cuda.is_available()


def set_switches(device: str) -> None:
    """Set Triton's switches for good: read when a kernel is decorated, they must stand before any is imported.

    For processes of our own. Where a user's kernels are imported, the switches are the user's: a kernel decorated
    during a call of gonogo must be no other than one decorated before it.
    """
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    else:
        os.environ.pop("TRITON_INTERPRET", None)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # its default changes between versions


@contextmanager
def keep_switches(device: str) -> Iterator[None]:
    """Inside, the switches are set, for workers are given them as they stand; afterwards all is as it was."""
    names = ("TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION")
    before = {name: os.environ.get(name) for name in names}
    set_switches(device)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:  # not taken away even for a moment: other threads have workers started
                os.environ[name] = value


def count_workers(device: str) -> int:
    """One worker per core; on a GPU machine one core is left for the campaign itself."""
    cores = os.cpu_count() or 1
    return cores if device == "cpu" else max(cores - 1, 1)
