"""What is known of a stranger's processes, besides outputs. Without torch: those who wait for them need none."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class Told:
    """What is known of a stranger, besides its outputs."""

    walls: tuple[str, ...] | None = None
    """Those that stood around all of its guests; None where there was none."""
    at_import: tuple[str, ...] = ()
    """Switches that the file set when it was loaded."""
    own: bool = False
    """Whether code of its own was seen to run."""
    overwritten: bool = False
    """Whether it writes to what an earlier call has returned."""

    def join(self, other: Told) -> Told:
        """The same of all guests of both."""
        both = [told.walls for told in (self, other) if told.walls is not None]
        walls = tuple(wall for wall in both[0] if all(wall in each for each in both)) if both else None
        at_import = tuple(dict.fromkeys(self.at_import + other.at_import))
        return Told(walls, at_import, self.own or other.own, self.overwritten or other.overwritten)


def describe_exit(code: int | None) -> str:
    """An exit code, or the signal that ended a process."""
    if code is None:
        return "it ended, and did not say how"
    try:
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    except ValueError:
        return f"killed by signal {-code}"
