"""Fresh memory filled with a NaN that no arithmetic makes: what still holds it was never written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

PATTERNS = {2: 0x7FDA, 4: 0x7FC5A5A5}
"""By element size: a quiet NaN in float16 and bfloat16 alike, and one in float32."""
_TORCH_EMPTY = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty}


def poison_bits(dtype: torch.dtype) -> int | None:
    """The pattern for a dtype, None where there is none: what still holds it was never written."""
    return PATTERNS.get(dtype.itemsize) if dtype.is_floating_point else None


def _fill(tensor: torch.Tensor) -> torch.Tensor:
    bits = poison_bits(tensor.dtype)
    if bits is not None and tensor.numel():
        with torch.no_grad():
            tensor.view(torch.int16 if tensor.dtype.itemsize == 2 else torch.int32).fill_(bits)
    return tensor


class _PoisonTorch(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        return _fill(out) if func in _TORCH_EMPTY else out


def _poisoned(make: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        array = make(*args, **kwargs)
        if array.dtype.itemsize in PATTERNS and array.dtype.kind in "fV":
            array.view(f"u{array.dtype.itemsize}").fill(PATTERNS[array.dtype.itemsize])
        return array

    return call


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Inside, torch.empty and np.empty and their kin come poisoned."""
    with (
        patch.object(np, "empty", _poisoned(np.empty)),
        patch.object(np, "empty_like", _poisoned(np.empty_like)),
        _PoisonTorch(),
    ):
        yield
