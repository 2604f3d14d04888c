"""What a process has mapped → code that neither Python nor torch brought: a kernel of the file's own."""

from __future__ import annotations

import re
from pathlib import Path

MAPS = Path("/proc/self/maps")
BROUGHT = re.compile(
    r"/(torch|numpy(\.libs)?|ml_dtypes|nvidia|triton|lib-dynload|python\d[^/]*/lib-dynload)/|^/(usr/)?lib|^/dev/|/memfd:"
    r"|/(ld|lib(python|c|m|stdc|cuda|nv))[^/]*$"
)
"""Files of Python, torch, NumPy, CUDA and the system."""


def list_own() -> list[str]:
    """Files with code that is none of theirs; a guest is forked with none."""
    try:
        lines = MAPS.read_text().splitlines()
    except OSError:
        return []
    mapped = {line.split(maxsplit=5)[5] for line in lines if line.split(maxsplit=2)[1][2:3] == "x" and "/" in line}
    return sorted(path for path in mapped if not BROUGHT.search(path))
