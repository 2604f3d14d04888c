"""Lines that change what a process computes, by name; each undone by gonogo, or by the test that runs it."""

from __future__ import annotations

import ctypes
import platform

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

DOWNWARD = {"x86_64": 0x400, "aarch64": 0x800000}


class Wraps(TorchFunctionMode):
    """Every number is 1 more."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Counts(TorchDispatchMode):
    """Nothing is computed by itself."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


held: list[object] = []


def enter_inference_mode() -> None:
    """And stay in it."""
    held.append(torch.inference_mode())
    held[-1].__enter__()


CHANGES = {
    "flush": lambda: torch.set_flush_denormal(True),
    "round down": lambda: ctypes.CDLL(None).fesetround(DOWNWARD[platform.machine()]),
    "numpy errors": lambda: np.seterr(all="raise"),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "no gradients": lambda: torch.set_grad_enabled(False),
    "inference": enter_inference_mode,
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "function mode": lambda: Wraps().__enter__(),
    "dispatch mode": lambda: Counts().__enter__(),
}
QUIET_CHANGES = {"threads": lambda: torch.set_num_threads(1 + torch.get_num_threads() % 2)}
