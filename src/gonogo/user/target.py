"""FILE[:NAME], as a user gives it → the file's path and the name in it; a drive's colon belongs to the path."""

from __future__ import annotations

import os
from pathlib import Path


def split_target(target: str) -> tuple[Path, str]:
    r"""`FILE` or `FILE:NAME` → path and name, which is empty where none is given.

    What exists as it stands is a path, and so is what has a \ or / behind its last colon, or a single letter before
    it: a drive, on every system, so that a message names the file that was meant.

    >>> split_target("kernel.py:softmax")[1], split_target(r"C:\kernel.py")[1], split_target("C:/k.py:softmax")[1]
    ('softmax', '', 'softmax')
    """
    before, colon, name = target.rpartition(":")
    is_drive = len(before) == 1 and before.isalpha() and not os.path.exists(before)  # noqa: PTH110  takes any text
    if not colon or is_drive or "/" in name or "\\" in name or os.path.exists(target):  # noqa: PTH110
        return Path(target), ""
    return Path(before), name
