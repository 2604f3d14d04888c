"""Aligned operands → the fastest path that fits them: native or NumPy on the host, Triton on a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

from gonogo.formats import Format
from gonogo.instrument import path_native, path_numpy
from gonogo.instrument.operands import Aligned
from gonogo.instrument.partials import Bracket, Moments, Pair, Scan, Unit, WorstError

HOST_SIZE = 2**15
"""GPU tensors up to this size are copied to the host: no kernel launch beats two small copies."""


class Path(Protocol):
    """What a path offers: four passes over a contiguous piece. Each path is a module."""

    def scan(self, pair: Pair, atol: float, brackets: Sequence[Bracket]) -> Scan:
        """Partial ErrorStats."""
        ...

    def read(self, pair: Pair, scale: Any, scale_format: Format | None, unit: Unit) -> WorstError:
        """Worst error in a gauge's unit."""
        ...

    def read_units(self, pair: Pair, units: Sequence[Unit]) -> list[float]:
        """Worst error in each of several units, without a scale or cells."""
        ...

    def measure_moments(self, values: Any, fmt: Format, factor: float) -> Moments:
        """Size of the finite values."""
        ...


def pick_path(aligned: Aligned) -> tuple[Aligned, Path]:
    """The path to take, and the operands on the device it reads."""
    if aligned.device != "cpu":
        if aligned.count > HOST_SIZE and triton_works():
            from gonogo.instrument import path_triton

            return aligned, path_triton
        aligned = _to_host(aligned)
    return aligned, path_native if path_native.available() else path_numpy


@cache
def triton_works() -> bool:
    """Whether the kernels can run: they hold PTX, which only NVIDIA's GPUs take, and no interpreter."""
    try:
        import torch
        import triton  # noqa: F401
    except ImportError:
        return False
    return torch.version.cuda is not None and os.environ.get("TRITON_INTERPRET") != "1"


def _to_host(aligned: Aligned) -> Aligned:
    """The same operands in host memory."""
    operands = tuple(
        replace(x, bits=x.bits.cpu().numpy().view(f"u{x.format.bits // 8}"), device="cpu") for x in aligned.operands
    )
    return replace(aligned, operands=operands)
