"""Fresh memory → filled with a NaN that no arithmetic makes, and guarded: unwritten and stray elements show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

PATTERNS = {2: 0x7FDA, 4: 0x7FC5A5A5, 8: 0x7FF8A5A5A5A5A5A5}
"""By element size: a quiet NaN in float16 and bfloat16 alike, one in float32, and one in float64."""
GUARD = 128
"""Elements before and behind what is allocated: 256 bytes or more, so that alignment stays what it was."""
LARGEST_GUARDED = 2**26
"""Elements above which an allocation has no guards: for a moment they take a second one of the same size."""
_TORCH_EMPTY = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty}
_TORCH_ZEROS = {torch.zeros, torch.zeros_like, torch.Tensor.new_zeros}
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def poison_bits(dtype: torch.dtype) -> int | None:
    """The pattern for a dtype, None where there is none: what still holds it was never written."""
    return PATTERNS.get(dtype.itemsize) if dtype.is_floating_point else None


class Memory(TorchFunctionMode):
    """Inside, memory that torch hands out is poisoned and guarded."""

    def __init__(self) -> None:
        super().__init__()
        self._guarded: list[tuple[torch.Tensor, int]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace what an allocation returned by guarded memory of the same form."""
        out = func(*args, **(kwargs or {}))
        if func in _TORCH_EMPTY:
            return self._replace(out, poison_bits(out.dtype))
        return self._replace(out, 0) if func in _TORCH_ZEROS else out

    def _replace(self, out: torch.Tensor, inside: int | None) -> torch.Tensor:
        """The same shape, strides, dtype and device in memory with guards; as it is where that cannot be."""
        bits = poison_bits(out.dtype)
        if bits is None or inside is None or type(out) is not torch.Tensor or out.layout is not torch.strided:
            return out
        if not 0 < out.numel() <= LARGEST_GUARDED or not (out.is_cuda or (out.is_cpu and not out.is_pinned())):
            return out
        with torch.no_grad():
            span = 1 + sum((size - 1) * stride for size, stride in zip(out.shape, out.stride(), strict=True))
            whole = out.new_empty(span + 2 * GUARD).view(_INTEGERS[out.dtype.itemsize]).fill_(bits)
            if inside != bits:
                whole[GUARD : GUARD + span] = inside
            self._guarded.append((whole, span))
            # No view, which autograd would forbid a kernel to write to.
            made = out.new_empty(0).set_(whole.untyped_storage(), GUARD, out.shape, out.stride())
        return made.requires_grad_(out.requires_grad)

    def take_guards(self) -> list[tuple[torch.Tensor, int]]:
        """Guards of all that was allocated, and what each must hold everywhere; nothing is kept after this."""
        guards = [
            (guard, PATTERNS[whole.dtype.itemsize]) for whole, span in self._guarded
            for guard in (whole[:GUARD], whole[GUARD + span :])
        ]  # fmt: skip
        self._guarded.clear()
        return guards


def _poisoned(make: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        array = make(*args, **kwargs)
        if array.dtype.itemsize in PATTERNS and array.dtype.kind in "fV":
            array.view(f"u{array.dtype.itemsize}").fill(PATTERNS[array.dtype.itemsize])
        return array

    return call


@contextmanager
def poisoned_memory() -> Iterator[Memory]:
    """Inside, torch.empty and np.empty and their kin come poisoned, and torch's guarded."""
    memory = Memory()
    module: Any = np
    before = np.empty, np.empty_like
    module.empty, module.empty_like = _poisoned(np.empty), _poisoned(np.empty_like)
    try:
        with memory:
            yield memory
    finally:
        module.empty, module.empty_like = before
