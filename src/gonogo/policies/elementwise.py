"""An output and its reference → the error of every element, in float64 where the arrays are; no verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gonogo.instrument.operands import Operand, align, as_operand


@dataclass(frozen=True, slots=True)
class Errors:
    """|actual − expected| and |expected|: NumPy arrays, or torch tensors on a GPU."""

    sizes: Any
    """0 where both are NaN or the same infinity, +inf at any other non-finite difference."""
    magnitudes: Any
    module: Any
    """numpy or torch, whichever the arrays belong to."""
    finite: bool = False
    """Whether all are known to be finite; a GPU would have to be waited for to know."""

    @property
    def count(self) -> int:
        """Elements compared."""
        return int(np.prod(self.sizes.shape))


@np.errstate(all="ignore")
def find_errors(actual: object, expected: object) -> Errors:
    """Errors of every element, in no particular order of the axes."""
    aligned = align([as_operand(actual, "actual"), as_operand(expected, "expected")])
    y, r = (_decode(operand) for operand in aligned.operands)
    xp = _module_of(aligned.device)
    sizes = xp.abs(y - r)
    if xp is np and np.isfinite(sizes.sum()):
        return Errors(sizes, np.abs(r), np, finite=True)
    agree = (y == r) | (xp.isnan(y) & xp.isnan(r))
    sizes = xp.where(agree, 0.0, xp.where(xp.isnan(sizes), xp.inf, sizes))
    return Errors(sizes, xp.abs(r), xp)


def _decode(operand: Operand) -> Any:
    if operand.device == "cpu":
        return operand.format.decode(operand.bits)
    import torch

    return operand.bits.view(getattr(torch, operand.format.name)).to(torch.float64)


def _module_of(device: str) -> Any:
    if device == "cpu":
        return np
    import torch

    return torch


def take_numbers(errors: Errors, numbers: Sequence[Any]) -> list[float]:
    """Numbers that were computed where the errors are, in one wait for a GPU."""
    if errors.module is np:
        return [float(number) for number in numbers]
    fetched: list[float] = errors.module.stack([number.double() for number in numbers]).tolist()
    return fetched


def rmse(actual: object, expected: object) -> float:
    """Root of the mean square of |actual − expected|; inf where one error is.

    >>> rmse(np.float32([1.0, 2.0]), np.array([4.0, 6.0])) == 12.5**0.5
    True
    """
    sizes = find_errors(actual, expected).sizes
    return root_mean_square(sizes, float(sizes.max()) if np.prod(sizes.shape) else 0.0)


def root_mean_square(sizes: Any, top: float) -> float:
    """Root mean square of an array of numbers ≥ 0, of which `top` is the largest, free of overflow; 0 of none."""
    if top in (0.0, math.inf):
        return top
    return math.sqrt(float(((sizes / top) ** 2).mean())) * top
