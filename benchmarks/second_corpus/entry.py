"""What an entry of the second corpus is: a kernel written from outside, faulty or correct, and where it is from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One kernel of the second corpus."""

    op: str
    kernel: Callable[..., Any]
    """Its docstring says what it does: for a fault, the bug, a colon, and where it shows."""
    source: str
    """The public report it is from, as repository#number with a few words; for a correct one, what it follows."""
    faulty: bool = True
    witness: Callable[[], tuple[Any, ...]] | None = None
    """Inputs (CPU tensors, float32 unless the fault needs another dtype) on which a fault visibly differs; None for
    a correct one."""
    dtypes: tuple[str, ...] = ("float16", "bfloat16", "float32")
    """Dtypes in which it is faulty, or correct."""
