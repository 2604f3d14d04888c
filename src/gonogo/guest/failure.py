"""An exception of a kernel → what is told of it: one line, and the whole of it from where the kernel begins."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from traceback import extract_tb, format_exception
from types import TracebackType

OURS = str(Path(__file__).parent.parent)
"""Everything of gonogo."""


def tell_error(error: BaseException) -> str:
    """Its class, the first line of its message, and where it came from: the innermost line that is no library's."""
    libraries = (OURS, sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"])
    lines = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(libraries)]
    where = f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""
    return f"{type(error).__name__}: {_tell(error)}".partition("\n")[0][:300] + where


def _tell(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as why:  # noqa: BLE001  a stranger's class
        return f"its text raises {type(why).__name__}"


def format_error(error: BaseException) -> str:
    """Traceback and message as Python prints them, from where the kernel begins."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OURS):
        frames = frames.tb_next
    try:
        return "".join(format_exception(type(error), error, frames))
    except Exception as why:  # noqa: BLE001  a stranger's class
        return f"{type(error).__name__}, and its text raises {type(why).__name__}\n"
