"""Switches of this process that change what is computed → their values; those that a kernel has changed."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np
import torch

PRECISE = {
    "backends.cuda.matmul.allow_tf32": False,
    "backends.cudnn.allow_tf32": False,
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction": False,
}
"""torch's switches that change numerics, as every kernel finds them."""
SMALLEST = np.float64(5e-324)


def set_precise() -> None:
    """Set torch's switches so that float32 means float32."""
    for path, value in PRECISE.items():
        owner, _, name = path.rpartition(".")
        setattr(attrgetter(owner)(torch), name, value)


def read() -> dict[str, str]:
    """Each switch and its value, as text."""
    read: dict[str, Any] = {path: _get(path) for path in PRECISE}
    read |= {
        "default dtype": torch.get_default_dtype(), "default device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(), "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "numpy errors": sorted(np.geterr().items()),
        # What flushes subnormals, and what rounds another way, shows in a sum.
        "subnormals": bool(torch.tensor(float(SMALLEST), dtype=torch.float64) * 1 > 0),
        "rounding": (1.0 + 2.0**-53).hex() + (-1.0 - 2.0**-53).hex() + (1.0 + 3 * 2.0**-54).hex(),
    }  # fmt: skip
    return {name: str(value) for name, value in read.items()}


def _get(path: str) -> Any:
    try:
        return attrgetter(path)(torch)
    except (RuntimeError, AttributeError):  # torch refuses to mix two kinds of words for one switch
        return "mixed"


def compare(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Those that are not what they were."""
    return [f"{name} is {after[name]}, was {before[name]}" for name in before if before[name] != after[name]]
