"""Hypothesis strategies and fixed arrays of bit patterns, and the paths to run them through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from exact import LAYOUTS
from hypothesis import strategies as st

from gonogo.formats import FORMATS
from gonogo.instrument import path_native, path_numpy
from gonogo.instrument.operands import Aligned, align, as_operand

NUMPY_DTYPES = {
    name: np.dtype(name) if name in ("float16", "float32", "float64") else np.dtype(getattr(ml_dtypes, name))
    for name in FORMATS
}


def patterns(name: str) -> st.SearchStrategy[int]:
    """Bit patterns of a format, the delicate ones more often than chance would draw them."""
    layout = LAYOUTS[name]
    sign = 1 << (layout.bits - 1)
    one = layout.bias << layout.fraction_bits
    magnitudes = [
        0,
        1,
        2,
        (1 << layout.fraction_bits) - 1,
        1 << layout.fraction_bits,
        one,
        one + 1,
        layout.top,
    ]
    magnitudes += [min(layout.top + k, sign - 1) for k in (1, 2)]  # infinity and NaN, or NaN alone
    special = [m | s for m in magnitudes for s in (0, sign)]
    return st.sampled_from(special) | st.integers(0, 2**layout.bits - 1)


def as_array(pattern_list: list[int], name: str) -> np.ndarray[Any, Any]:
    """Patterns as an array of their own dtype."""
    bits = FORMATS[name].bits
    return np.array(pattern_list, dtype=f"u{bits // 8}").view(NUMPY_DTYPES[name])


class NativeIsa:
    """The native path pinned to one instruction set."""

    def __init__(self, isa: int) -> None:
        self.isa = isa

    def scan(self, *args: Any) -> Any:
        return path_native.scan(*args, isa=self.isa)

    def read(self, *args: Any) -> Any:
        return path_native.read(*args, isa=self.isa)

    def read_units(self, *args: Any) -> Any:
        return path_native.read_units(*args, isa=self.isa)

    def measure_moments(self, *args: Any) -> Any:
        return path_native.measure_moments(*args, isa=self.isa)


HOST_PATHS: dict[str, Any] = {"numpy": path_numpy} | {
    name: NativeIsa(isa) for isa, name in enumerate(path_native.instruction_sets())
}


@contextmanager
def triton_path(block: int = 1024) -> Iterator[ModuleType]:
    """The Triton path, interpreted where there is no GPU; larger blocks there keep the interpreter quick."""
    import torch

    from gonogo.instrument import first_pass_triton, path_triton

    was = path_triton.BLOCK, path_triton.READ_BLOCK
    if not torch.cuda.is_available():
        path_triton.BLOCK = path_triton.READ_BLOCK = block
    first_pass_triton._plan_pass.cache_clear()  # of blocks of another size
    try:
        with np.errstate(all="ignore"):  # the interpreter computes with NumPy
            yield path_triton
    finally:
        path_triton.BLOCK, path_triton.READ_BLOCK = was
        first_pass_triton._plan_pass.cache_clear()


def align_arrays(*arrays: Any) -> Aligned:
    """Operands as the public functions make them."""
    return align([as_operand(x, role) for x, role in zip(arrays, ("actual", "expected", "scale"), strict=False)])


def on_device(aligned: Aligned) -> Aligned:
    """The same operands as torch tensors, on the GPU where there is one."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    signed = {8: np.uint8, 16: np.int16, 32: np.int32, 64: np.int64}
    operands = tuple(
        replace(
            x,
            bits=torch.from_numpy(np.ascontiguousarray(x.bits).view(signed[x.format.bits])).to(device),
            device="triton",
        )
        for x in aligned.operands
    )
    return replace(aligned, operands=operands)
