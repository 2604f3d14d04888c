"""Switches of this process that change what is computed → their values; set to known ones, and put back.

The one place that knows them. A kernel may set any; whatever runs behind it finds them as they were.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import overrides
from torch.backends import ContextProp
from torch.utils import _device, _python_dispatch

PRECISE = {
    "backends.cuda.matmul.allow_tf32": False,
    "backends.cudnn.allow_tf32": False,
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction": False,
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction": False,
}
"""torch's switches that change numerics, as every kernel of a worker or guest finds them."""
WORDS = {
    f"backends.{owner}.fp32_precision": "ieee"
    for owner in ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")
}
"""torch's newer words for the first two; it refuses to mix them, so that these go first where it has them."""
MIXED = "mixed"
QUIET = ("threads", "backends.cudnn.benchmark")
"""Put back, and nothing is said: they decide how fast something is computed, and by themselves not what."""
SMALLEST, ONE, HALF = (np.float64(value).item() for value in (5e-324, 1.0, 2.0**-53))
"""Not written where they are used: Python would compute with them when it reads the file."""
MODES = {"x86_64": (0x800, 0x400, 0xC00), "aarch64": (0x400000, 0x800000, 0xC00000)}
"""What C calls rounding up, down and to zero."""

_of_functions: Any = overrides
_of_dispatch: Any = _python_dispatch
_library = ctypes.CDLL(None)
_guards: list[Any] = []
_outside: list[dict[str, Any]] = []
"""What a process had set before `known`, the first of these its user."""


def _get(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (RuntimeError, AttributeError):  # torch refuses to mix two kinds of words for one switch
        return MIXED


def _find_reader(owner: Any, name: str) -> Callable[[], Any]:
    """What reads a switch of an owner: at once, where Python would look elsewhere first."""
    held = next((vars(kind)[name] for kind in type(owner).__mro__ if name in vars(kind)), None)
    if isinstance(held, ContextProp):
        return held.getter  # type: ignore[no-any-return]
    computed = getattr(type(owner), "__getattr__", None)
    if computed is None or held is not None or name in vars(owner):
        return partial(getattr, owner, name)
    return partial(computed, owner, name)


def _set(path: str, value: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(attrgetter(owner)(torch), name, value)


def _find_owner(path: str) -> tuple[str, Any, str]:
    """A switch by its path, what it belongs to, and its name there: they are read some hundred times a second."""
    owner, _, name = path.rpartition(".")
    return path, attrgetter(owner)(torch), name


def _has(path: str) -> bool:
    owner, _, name = path.rpartition(".")
    try:
        return hasattr(attrgetter(owner)(torch), name)
    except (RuntimeError, AttributeError):
        return False


def _get_matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return MIXED


def _get_rounding() -> str:
    """To which side sums are rounded, as it shows in sums."""
    above, below, nearer = ONE + HALF > ONE, -ONE - HALF < -ONE, ONE + 3 * HALF / 2 > ONE
    return "up" if above else "down" if below else "nearest" if nearer else "to zero"


def _set_rounding(side: str) -> None:
    modes = MODES.get(platform.machine())
    known = {"nearest": 0} | (dict(zip(("up", "down", "to zero"), modes, strict=True)) if modes else {})
    if side in known and hasattr(_library, "fesetround"):
        _library.fesetround(known[side])


def _set_inference(wanted: bool) -> None:
    """Leave the mode that was entered here, or enter one: torch can only nest them."""
    if _guards:
        _guards.pop().__exit__(None, None, None)
    if torch.is_inference_mode_enabled() != wanted:
        _guards.append(torch.inference_mode(wanted))
        _guards[-1].__enter__()


class Modes(NamedTuple):
    """Modes of torch that are entered; a default device is one of them, and stands in two more places."""

    functions: tuple[Any, ...] = ()
    dispatched: tuple[Any, ...] = ()
    device_context: Any = None
    device: Any = None

    def keep_device(self) -> Modes:
        """Without any but a default device."""
        functions = tuple(mode for mode in self.functions if isinstance(mode, _device.DeviceContext))
        return self._replace(functions=functions, dispatched=())

    def __str__(self) -> str:
        names = [type(mode).__name__ for mode in (*self.functions, *self.dispatched)]
        return ", ".join(names + ([] if self.device is None else [f"device {self.device}"])) or "none"


def _list_modes() -> Modes:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return Modes(
        tuple(_of_functions._get_current_function_mode_stack()),
        tuple(_of_dispatch._get_current_dispatch_mode_stack()), context, _device.CURRENT_DEVICE,
    )  # fmt: skip


def _set_modes(modes: Modes) -> None:
    now = _list_modes()
    for stack, entered, wanted in (
        (_of_functions, now.functions, modes.functions), (_of_dispatch, now.dispatched, modes.dispatched)
    ):  # fmt: skip
        for _ in entered:
            stack._pop_mode()
        for mode in wanted:
            stack._push_mode(mode)
    torch._GLOBAL_DEVICE_CONTEXT.device_context = modes.device_context
    _device.CURRENT_DEVICE = modes.device


def _set_deterministic(wanted: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(wanted[0], warn_only=wanted[1])


SWITCHES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "modes": (_list_modes, _set_modes),
    "inference mode": (torch.is_inference_mode_enabled, _set_inference),
    "gradients": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": (
        lambda: (
            torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        ),
        _set_deterministic,
    ),
    "matmul precision": (_get_matmul_precision, torch.set_float32_matmul_precision),
    **{
        path: (partial(_get, _find_reader(owner, name)), partial(setattr, owner, name))
        for path, owner, name in map(_find_owner, filter(_has, (
            *(WORDS if _has("backends.cuda.matmul.fp32_precision") else tuple(PRECISE)[:2]), *tuple(PRECISE)[2:],
            "backends.cudnn.enabled", "backends.cudnn.deterministic", "backends.cudnn.benchmark",
        )))
    },
    **{
        f"autocast on {device}": (
            partial(torch.is_autocast_enabled, device), partial(torch.set_autocast_enabled, device)
        ) for device in ("cpu", "cuda")
    },
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "numpy errors": (lambda: tuple(np.geterr().items()), lambda errors: np.seterr(**dict(errors))),
    "subnormals": (lambda: SMALLEST * ONE > 0, lambda kept: torch.set_flush_denormal(not kept)),
    "rounding": (_get_rounding, _set_rounding),
}  # fmt: skip
"""How each is read and set, in an order in which they can be: matmul precision sets others, a mode gradients."""
KNOWN: dict[str, Any] = {
    "modes": Modes(), "inference mode": False, "gradients": True, "default dtype": torch.float32,
    "deterministic": (False, False), "matmul precision": "highest",
    **{path: value for path, value in (WORDS | PRECISE).items() if path in SWITCHES},
    "backends.cudnn.enabled": True, "backends.cudnn.deterministic": False, "autocast on cpu": False,
    "autocast on cuda": False,
    "numpy errors": (("divide", "warn"), ("over", "warn"), ("under", "ignore"), ("invalid", "warn")),
    "subnormals": True, "rounding": "nearest",
}  # fmt: skip
"""What references, measurements and kernels of gonogo's own find; threads are left as they are."""


def set_precise() -> None:
    """Set torch's switches so that float32 means float32."""
    for path, value in PRECISE.items():
        _set(path, value)


def capture() -> dict[str, Any]:
    """Each switch and its value."""
    return {name: get() for name, (get, _) in SWITCHES.items()}


def put(state: Mapping[str, Any]) -> list[str]:
    """Set switches to those values; those that had others, as `compare` tells them."""
    changed = []
    for name, value in state.items():
        get, set_ = SWITCHES[name]
        if (now := get()) == value or _are_alike(now, value):
            continue
        set_(value)
        if name not in QUIET:
            changed.append(f"{name} is {now}, was {value}")
    return changed


def _are_alike(now: Any, wanted: Any) -> bool:
    """Whether a switch need not be set; one that torch does not tell cannot be."""
    return bool(now == wanted) or wanted == MIXED or _mean_same(now, wanted)


def _mean_same(one: Any, other: Any) -> bool:
    """Whether two values are torch's two words for full precision."""
    return {one, other} == {"none", "ieee"}


@contextmanager
def keep(state: Mapping[str, Any] | None = None) -> Iterator[list[str]]:
    """Inside, switches are as they are, or as in a state; afterwards as before. The list has what was changed."""
    before = capture()
    other = {
        name: value for name, value in (state or {}).items()
        if before[name] != value and not _mean_same(before[name], value)
    }  # fmt: skip
    put(other)
    seen = before | other
    changed: list[str] = []
    try:
        yield changed
    finally:
        if capture() != seen:  # mostly not, and then one look at all of them is enough
            changed += put(before | dict(state or {}))
        put({name: before[name] for name in other})


@contextmanager
def known() -> Iterator[None]:
    """Inside, switches are as in KNOWN, whatever the process has set; afterwards as before.

    A default device stays: a user's reference may make tensors beside its arguments by it.
    """
    before = capture()
    put(KNOWN | {"modes": before["modes"].keep_device()})
    if not before["subnormals"]:  # of this thread; others were started with it, so none of them may take part
        torch.set_num_threads(1)
    _outside.append(before)
    try:
        yield
    finally:
        _outside.pop()
        put(before)


def outside() -> AbstractContextManager[list[str]]:
    """Inside `known`, as before it: for what is a user's own. The list is that of `keep`."""
    return keep(_outside[0] if _outside else None)


def read() -> dict[str, str]:
    """Each switch that is told of and its value, as text."""
    return {name: str(value) for name, value in capture().items() if name not in QUIET}


def compare(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Those that are not what they were."""
    return [f"{name} is {after[name]}, was {before[name]}" for name in before if before[name] != after[name]]
