"""Python's source → its tree, also from several threads at once."""

from __future__ import annotations

import ast
import threading
from typing import Any

_LOCK = threading.Lock()
"""CPython 3.11.2, for one, counts the depth of all threads' trees in one place, and raises SystemError."""


def parse_source(text: str, mode: str = "exec") -> Any:
    """As ast.parse does."""
    with _LOCK:
        return ast.parse(text, mode=mode)
