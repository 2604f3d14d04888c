"""Arrays, and what they must hold → how many elements of each do not, in one launch where they are on a GPU.

Looking at an array by torch's ops takes three launches; a kernel that is checked has some ten arrays around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gonogo.instrument.paths import triton_works

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element, the integers that hold its bits."""
BLOCK = 1024
MOST_PROGRAMS = 256
"""That walk one array."""


@dataclass(frozen=True)
class Look:
    """A contiguous array, and the bits that it must hold: of as much of another array, or a number's everywhere."""

    array: torch.Tensor
    wanted: torch.Tensor | int

    def count(self) -> torch.Tensor:
        """Elements that are not what they must be."""
        wanted = view_bits(self.wanted) if isinstance(self.wanted, torch.Tensor) else self.wanted
        return (view_bits(self.array) != wanted).sum()


def view_bits(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous array's bits as integers."""
    return tensor.detach().view(INTEGERS[tensor.dtype.itemsize])


def count_unlike(looks: Sequence[Look]) -> torch.Tensor:
    """Of each look, how many elements are not what they must be: int64, on the GPU where a look is at one."""
    device = next((look.array.device for look in looks if look.array.is_cuda), torch.device("cpu"))
    if device.type == "cuda" and triton_works() and all(_is_near(look, device) for look in looks):
        return launch_looks(looks, device)
    counts = [look.count().to(device) for look in looks]
    return torch.stack(counts) if counts else torch.zeros(0, dtype=torch.int64)


def _is_near(look: Look, device: torch.device) -> bool:
    """Whether all of a look is on the one device, in elements of one width, of which there are integers."""
    if look.array.itemsize not in INTEGERS:
        return False
    if not isinstance(look.wanted, torch.Tensor):
        return look.array.device == device
    alike = look.wanted.itemsize == look.array.itemsize and look.wanted.numel() == look.array.numel()
    return alike and look.array.device == look.wanted.device == device


def launch_looks(looks: Sequence[Look], device: torch.device) -> torch.Tensor:
    """The same by one kernel, which finds the arrays by a table of their addresses."""
    from gonogo.instrument.launch_triton import launch, on_device
    from gonogo.instrument.triton_kernels.look import look_kernel

    rows = [_describe(look) for look in looks]
    # One copy brings the table and, before it, zeros to count from: cheaper than a launch to clear them.
    words = np.zeros(6 * len(looks), np.int64)
    words[len(looks) :] = np.array(rows, np.int64).reshape(-1)
    table = torch.from_numpy(words).to(device)
    most = max((row[3] for row in rows), default=0)
    programs = max(1, min(MOST_PROGRAMS, -(-most // BLOCK)))
    with on_device(device):
        launch(look_kernel, programs * len(looks), table, len(looks), programs, BLOCK=BLOCK)
    return table[: len(looks)]


def _describe(look: Look) -> tuple[int, int, int, int, int]:
    """A row of the table: see look_kernel."""
    first = look.array.data_ptr()
    count, width = look.array.numel(), look.array.element_size()
    if not isinstance(look.wanted, torch.Tensor):
        return first, first, int(look.wanted), count, width
    second = look.wanted.data_ptr()
    return first, second, 0, count if second != first else 0, width  # nothing differs from itself
