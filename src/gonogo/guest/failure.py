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
    try:
        return tell_briefly(error) + _find_line(error)
    except BaseException:  # noqa: BLE001  a stranger's class, in a process that may have no file left to open
        return tell_briefly(error)


def tell_briefly(error: BaseException) -> str:
    """Its class and the first line of its message."""
    return f"{_name(error)}: {_tell(error)}".partition("\n")[0][:300]


def _find_line(error: BaseException) -> str:
    libraries = (OURS, sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"])
    lines = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(libraries)]
    return f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""


def _name(error: BaseException) -> str:
    return str(type.__dict__["__name__"].__get__(type(error)))  # whatever its class says


def _tell(error: BaseException) -> str:
    try:
        return "".join(str(error))  # of a subclass the characters
    except BaseException as why:  # noqa: BLE001
        return f"its text raises {_name(why)}"


def format_error(error: BaseException) -> str:
    """Traceback and message as Python prints them, from where the kernel begins."""
    try:
        frames: TracebackType | None = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OURS):
            frames = frames.tb_next
        return "".join(format_exception(type(error), error, frames))
    except BaseException as why:  # noqa: BLE001
        return f"{_name(error)}, and its text raises {_name(why)}\n"
