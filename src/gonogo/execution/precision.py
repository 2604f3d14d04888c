"""torch's switches → as kernels of ours need them, to keep what they promise."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

FLAGS = {
    "torch.backends.cuda.matmul.allow_tf32": False,
    "torch.backends.cudnn.allow_tf32": False,
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": False,
}
"""torch's switches that change numerics, as every worker sets them."""


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
