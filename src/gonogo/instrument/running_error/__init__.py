"""Reference and inputs → expected output and error scale S, one rounding at a time.

Every torch op of the reference runs once in float64 and carries beside its value a first-order bound of the
rounding error a correct kernel would have made so far, in units of u_c. Inputs carry error 0: they were
rounded before the kernel saw them. Invariants: the value is what the plain float64 reference computes, bit
for bit (narrowing casts inside the reference are left out and charged to the error instead); the error is
never negative and never NaN; an op without a rule raises, it never counts as exact.

This module imports no torch: the machinery is imported on the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gonogo.contracts import find_contract
from gonogo.errors import BackendMissing, BadReference, GonogoError, check_type

if TYPE_CHECKING:
    from torch import Tensor

    from gonogo.schema import Contract

    Scaled = Tensor | tuple[Tensor, ...]

Value = TypeVar("Value")

__all__ = ["allow", "error_scale"]


def allow(value: Value, *, absolute: Any) -> Value:
    """Let kernels err on `value` by so many u_c more than its op says; outside error_scale, `value` as it is.

    A reference states the function it means, and by this what a common other form of it loses: where, and how much.
    """
    if type(value).__name__ != "Tracked":  # an array, or no torch at all
        return value
    from gonogo.instrument.running_error.companion import allow_error

    allowed: Value = allow_error(value, absolute)  # type: ignore[arg-type, assignment]
    return allowed


def error_scale(
    reference: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    contract: Contract | str | None = None,
    rules: Mapping[str, Callable[..., Any]] | None = None,
) -> tuple[Scaled, Scaled]:
    """Run `reference` in float64 and return its output and the error scale S of that output, in units of u_c.

    >>> import torch
    >>> expected, scale = error_scale(lambda x: x + x / 3, [torch.tensor([3.0, 6.0])])
    >>> expected, scale
    (tensor([4., 8.], dtype=torch.float64), tensor([ 6., 12.], dtype=torch.float64))
    """
    try:
        import torch  # noqa: F401
    except ImportError:
        raise BackendMissing("torch", "gonogo.error_scale") from None
    from gonogo.instrument.running_error.trace import trace_reference

    check_type("reference", reference, Callable, "a function of torch tensors")  # type: ignore[arg-type]
    check_type("rules", {} if rules is None else rules, Mapping, "names of torch ops with a function each")
    keeps = find_contract(contract)
    try:
        return trace_reference(reference, inputs, keeps, {} if rules is None else rules)
    except GonogoError:
        raise
    except Exception as error:  # whatever a reference or a rule of a user's does
        raise BadReference(f"raised {type(error).__name__}: {error}".partition("\n")[0]) from error
