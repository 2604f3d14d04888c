"""A call → the Triton kernels it launches, seen as they are launched: what they are wrapped in does not matter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

COMPILED, INTERPRETED = "JITFunction", "InterpretedFunction"
LAUNCHERS = {"triton.runtime.jit": COMPILED, "triton.runtime.interpreter": INTERPRETED}
"""By module of Triton, the class whose `run` every launch goes through, a tuned one too."""

Returned = TypeVar("Returned")


class WrongDevice(Exception):
    """A kernel compiled for a GPU is launched where there is none."""

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(f"{name} {problem}")


class RefusedLaunch(BaseException):
    """Ends a call at a launch whose output could not be judged; no handler of the kernel's is meant to catch it."""


@dataclass
class Launches:
    """What a kernel may launch on a device, and whether it has."""

    device: str
    refused: str | None
    """Why what Triton's interpreter makes of the case is not judged; None where it is."""
    seen: bool = False

    def watch(self, call: Callable[[], Returned]) -> Returned:
        """What the call returns; a launch that is not to be is stopped before it begins."""
        known = _find_launchers()
        try:
            returned = self._watch(call, known)
        except Exception:
            if _find_launchers() == known:
                raise
        else:
            if _find_launchers() == known:
                return returned
        return self.watch(call)  # Triton came in during the call, when nobody watched

    def _watch(self, call: Callable[[], Returned], launchers: list[Any]) -> Returned:
        before = [launcher.run for launcher in launchers]
        try:
            for launcher in launchers:
                launcher.run = self._told(launcher)
            return call()
        finally:
            for launcher, run in zip(launchers, before, strict=True):
                launcher.run = run

    def _told(self, launcher: Any) -> Callable[..., Any]:
        run, kind = launcher.run, launcher.__name__

        def tell(launched: Any, *args: Any, **kwargs: Any) -> Any:
            self._check(kind, launched.__name__)
            return run(launched, *args, **kwargs)

        return tell

    def _check(self, kind: str, name: str) -> None:
        self.seen = True
        if kind == COMPILED and self.device == "cpu":
            raise WrongDevice(
                name,
                "is compiled for a GPU, and this is the CPU. Set TRITON_INTERPRET=1 in the environment, before "
                "triton is imported, to have it interpreted",
            )
        if kind == INTERPRETED and self.refused:
            raise RefusedLaunch(self.refused)


def _find_launchers() -> list[Any]:
    """Those of Triton's classes that are there: nothing is imported to look for them."""
    modules = [(sys.modules.get(module), kind) for module, kind in LAUNCHERS.items()]
    return [getattr(module, kind) for module, kind in modules if hasattr(module, kind)]
