"""A process as it is → one whose floating point is IEEE 754's default, for as long as something is measured.

Without torch, whose own switches are in `flags`. A library built with -ffast-math is enough to have this thread
flush subnormal values.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

DEFAULT = ctypes.c_void_p(-1)
"""What Linux' C libraries call FE_DFL_ENV."""
MOST_BYTES = 64
"""More than fenv_t takes anywhere."""

_library = ctypes.CDLL(None) if sys.platform == "linux" else None


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Inside, sums are rounded to nearest, subnormals are kept, and NumPy raises and warns of nothing."""
    before = ctypes.create_string_buffer(MOST_BYTES)
    can_set = hasattr(_library, "fesetenv")
    if _library is not None and can_set:
        _library.fegetenv(before)
        _library.fesetenv(DEFAULT)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        if _library is not None and can_set:
            _library.fesetenv(before)
