"""Value and error → tracked tensor: the pair every op of the running-error mode takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from gonogo.errors import BadReference, NoErrorRule, WritesInPlace
from gonogo.instrument.running_error.fused import add_total
from gonogo.instrument.running_error.origins import Origin

FUNCTIONAL_HINT = "it writes in place; use the functional form (x + y, torch.where, torch.cat, torch.stack)"
EPSILON_PROBLEM = (
    "calls rms_norm without eps, which then is that of the inputs' dtype: float64's here, another in every kernel; "
    "pass eps="
)
PYTHON_HINT = (
    "it takes a computed value out to Python, where no error can follow; keep it a tensor, "
    "or pass the number as an input"
)


@dataclass(frozen=True, slots=True, eq=False)
class Error:
    """First-order error of a value in units of u_c: `extra` + `ulps`·|value|.

    Most roundings are relative, and products and quotients pass relative errors on as plain numbers: keeping
    `ulps` apart saves one pass over memory for nearly every op.
    """

    extra: Tensor | None = None
    """Non-negative float64 that broadcasts to the value's shape; None: zero. Shared, so never written to."""
    ulps: float = 0.0
    origin: Origin | None = None
    """What the value was made of, where errors of it may cancel against another's."""
    whole: bool = False
    """Whether the value was rounded to whole numbers: small ones are added and multiplied without rounding."""
    uncast: Error | None = None
    """Of what was cast to a narrower format, the error before: an output has its own rounding in its cell."""
    cast_to: str | None = None
    """That format."""
    buffered: bool = False
    """Whether it was written to a tensor afterwards, which may have another format."""

    @property
    def exact(self) -> bool:
        """Whether the value carries no error at all."""
        return self.extra is None and self.ulps == 0


EXACT = Error()
CONSTANT = Error()
"""Error of what depends on no value at all (zeros_like): it stays a plain tensor, which may be written to."""


class Tracked(torch.Tensor):
    """A float64 tensor with its error beside it; a reference sees an ordinary tensor.

    Of complex numbers the error is a distance in the plane: each part is off by no more.
    """

    value: Tensor
    error: Error
    aliased: bool
    """Whether another tensor may share its memory: then nothing can be written to it soundly."""

    @staticmethod
    def __new__(cls, value: Tensor, error: Error, *, aliased: bool = False) -> Tracked:
        """Wrap `value` with its own sizes, strides and device, so that composites take the same path."""
        made: Tracked = torch.Tensor._make_wrapper_subclass(
            cls,
            value.size(),
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device=value.device,
        )
        made.value, made.error, made.aliased = value, error, aliased
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Tracked({tuple(self.shape)}, {'exact' if self.error.exact else 'with error'})"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Have what the author of a reference writes in place run without writes; what torch writes is sound."""
        name = getattr(func, "__name__", "")
        if name in PYTHON_EXITS:
            raise NoErrorRule(f"Tensor.{name}", PYTHON_HINT)
        if name == "rms_norm" and (kwargs or {}).get("eps", args[3] if len(args) > 3 else None) is None:
            raise BadReference(EPSILON_PROBLEM)
        if is_in_place(name) or (kwargs and kwargs.get("out") is not None):
            raise WritesInPlace(name_in_place(name), FUNCTIONAL_HINT)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Only reached when a tracked tensor outlives its error_scale call."""
        raise NoErrorRule(
            str(func), "a tensor kept from inside error_scale was used after it ended; return it instead"
        )


PYTHON_EXITS = frozenset({"numpy", "tolist", "data_ptr", "__array__", "__dlpack__", "untyped_storage", "storage"})


@lru_cache(maxsize=1024)
def is_in_place(name: str) -> bool:
    """Whether a Python-level torch function of this name writes to its first argument."""
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in NOT_IN_PLACE)
    return name.endswith("_") and not name.endswith("__") and name not in NOT_IN_PLACE


NOT_IN_PLACE = frozenset(
    {"requires_grad_", "__index__", "__int__", "__invert__", "__iter__", "__init__", "__init_subclass__"}
)


def name_in_place(name: str) -> str:
    """Give the aten name of a Python-level in-place function: __iadd__ → aten.add_."""
    if name == "__setitem__":
        return "aten.index_put_"
    if name.startswith("__i"):
        name = name[3:-2].replace("truediv", "div") + "_"
    return f"aten.{name}"


def total(value: Any, error: Error) -> Tensor | None:
    """Give the error as one tensor, None for zero; a fresh one exactly where `error.ulps` is not 0."""
    if error.ulps == 0:
        return error.extra
    if not isinstance(value, Tensor):
        return torch.tensor(abs(value) * error.ulps, dtype=torch.float64)
    if error.extra is not None and (made := add_total(value, error.extra, error.ulps)) is not None:
        return made
    spread = value.abs()
    if error.extra is None:
        return spread if error.ulps == 1 else spread.mul_(error.ulps)
    if not covers(spread, error.extra) or spread.dtype != error.extra.dtype:
        return spread.mul_(error.ulps).add_(error.extra)
    return torch.add(error.extra, spread, alpha=error.ulps, out=spread)  # in one pass


def allow_error(value: Tracked, absolute: Any) -> Tracked:
    """The same value with an error larger by `absolute`, a number or a tensor."""
    added = absolute.value if isinstance(absolute, Tracked) else absolute
    added = torch.as_tensor(added, dtype=torch.float64, device=value.value.device)
    with _disable_current_modes():  # else the sum of two errors would be tracked as a value of the reference
        extra = added if value.error.extra is None else value.error.extra + added
    return Tracked(value.value, Error(extra, value.error.ulps), aliased=True)


def is_inexact(x: Any) -> bool:
    """Whether x is a tensor of numbers that are rounded."""
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def widen(x: Tensor) -> Tensor:
    """In float64; complex numbers in pairs of it."""
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def magnitude(x: Any) -> Any:
    """|x| of a tensor or a number, booleans as they are."""
    return x if isinstance(x, Tensor) and x.dtype == torch.bool else abs(x)


def times(error: Tensor | None, factor: Any) -> Tensor | None:
    """error·|factor|, None for zero; written into |factor| where that has the result's shape."""
    if error is None:
        return None
    weight = magnitude(factor)
    fresh = isinstance(weight, Tensor) and weight is not factor and weight.is_floating_point()
    made: Tensor = weight.mul_(error) if fresh and covers(weight, error) else error * weight
    return made


def join(first: Tensor | None, second: Tensor | None, *borrowed: Tensor | None) -> Tensor | None:
    """First + second, None for zero, written into whichever is large enough and not `borrowed`."""
    if first is None or second is None:
        return second if first is None else first
    for mine, other in ((first, second), (second, first)):
        if covers(mine, other) and all(mine is not kept for kept in borrowed):
            return mine.add_(other)
    return first + second


def covers(large: Tensor, small: Tensor) -> bool:
    """Whether `small` broadcasts to the shape of `large`."""
    if large.dim() < small.dim() or large.device != small.device:
        return False
    return all(
        width in (1, full) for width, full in zip(reversed(small.shape), reversed(large.shape), strict=False)
    )


def find_cast(errors: Sequence[Error]) -> str | None:
    """The one format that all of them were cast to last; None where there are several, or one was not cast."""
    formats = {error.cast_to if error.uncast is not None else None for error in errors if not error.exact}
    return formats.pop() if len(formats) == 1 else None


def before_cast(error: Error) -> Error:
    """Without the last cast, if there was one."""
    return error if error.uncast is None else error.uncast


def spread_out(extra: Tensor, shape: torch.Size) -> Tensor:
    """`extra` as a view with the shape of its value."""
    return extra if extra.shape == shape else extra.expand(shape)


def widen_error(x: Tensor, err: Error) -> Tensor:
    """All of an error, in the shape of its value, in memory of that shape."""
    whole = total(x, err)
    return torch.zeros_like(x, dtype=torch.float64) if whole is None else spread_out(whole, x.shape).contiguous()
