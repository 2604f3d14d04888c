"""Reference and inputs → expected value and scale: prepares inputs, runs the mode, settles the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gonogo.errors import BadReference, UnsupportedArray
from gonogo.formats import get_format
from gonogo.instrument.running_error.accuracy import underflow_floor
from gonogo.instrument.running_error.companion import EXACT, Error, Tracked, total
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.rules import PASSIVE, RULES
from gonogo.instrument.running_error.subnormals import keep_subnormals
from gonogo.schema import Contract

Scaled = Tensor | tuple[Tensor, ...]


def trace_reference(
    reference: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    contract: Contract,
    rules: Mapping[str, Rule],
    load_ulps: float = 0.0,
) -> tuple[Scaled, Scaled, bool]:
    """Run the reference once; once more, guarded, where 0·inf left a finite output without a finite scale.

    Gives value, scale, and whether anything was added up. `load_ulps` is the error floating inputs begin with,
    besides the rounding of each that a backward contract allows.
    """
    load_ulps += float(contract.backward)
    with keep_subnormals():
        return _trace_reference(reference, inputs, contract, rules, load_ulps)


def _trace_reference(
    reference: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    contract: Contract,
    rules: Mapping[str, Rule],
    load_ulps: float,
) -> tuple[Scaled, Scaled, bool]:
    prepared = prepare_inputs(inputs)
    floor = underflow_floor(contract)
    merged, passive = ({**RULES, **rules}, PASSIVE - rules.keys()) if rules else (RULES, PASSIVE)
    results: list[tuple[Tensor, Tensor]] = []
    for guarded in (False, True):
        mode = RunningErrorMode(contract, merged, passive, guarded=guarded)
        output = run_tracked(reference, prepared, mode, load_ulps)
        settled = [settle_scale(*split_output(one), floor) for one in list_outputs(output)]
        results = [(expected, scale) for expected, scale, _ in settled]
        if all(finite for _, _, finite in settled):
            break
    if isinstance(output, Tensor):
        return *results[0], mode.summed
    return tuple(expected for expected, _ in results), tuple(scale for _, scale in results), mode.summed


def prepare_inputs(inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any] | list[Any]:
    """Every floating array as an exact float64 tensor, the rest as it is."""
    if not isinstance(inputs, (Mapping, list, tuple)):
        kind = type(inputs).__name__
        raise UnsupportedArray("inputs", f"one {kind} where a list, tuple or mapping of arrays is expected")
    if isinstance(inputs, Mapping):
        return {name: prepare_input(name, one) for name, one in inputs.items()}
    return [prepare_input(str(position), one) for position, one in enumerate(inputs)]


def prepare_input(name: str, given: Any) -> Any:
    """One input as the reference will see it."""
    if isinstance(given, np.generic):
        given = given.item() if given.dtype.kind in "biuf" else np.asarray(given)
    if isinstance(given, np.ndarray):
        given = read_numpy(name, given)
    if isinstance(given, Tensor):
        if given.is_complex() or given.layout != torch.strided:
            raise UnsupportedArray(f"input {name!r}", f"a {given.layout} tensor of {given.dtype}")
        if given.requires_grad:
            given = given.detach()
        return given.to(torch.float64) if given.is_floating_point() else given
    return given


def read_numpy(name: str, array: np.ndarray[Any, Any]) -> Tensor:
    """Take a NumPy array to a torch tensor; formats of ml_dtypes are decoded from their bits."""
    if array.dtype.kind in "biu":
        return torch.from_numpy(np.ascontiguousarray(array))
    if array.dtype.kind not in "fV" or array.dtype.names:
        raise UnsupportedArray(f"input {name!r}", f"an array of {array.dtype}")
    fmt = get_format(array.dtype.name, role=f"input {name!r}")
    bits = np.ascontiguousarray(array).view(f"u{fmt.bits // 8}").reshape(array.shape)
    decoded = fmt.decode(bits)
    return torch.from_numpy(decoded if decoded.flags.writeable else decoded.copy())


def run_tracked(
    reference: Callable[..., Any], prepared: dict[str, Any] | list[Any], mode: RunningErrorMode, load_ulps: float
) -> Any:
    """Run the reference with every floating input tracked."""

    def track(one: Any) -> Any:
        return mode.wrap(one, Error(None, load_ulps), aliased=True) if isinstance(one, Tensor) else one

    # Composite ops reach a dispatch mode in parts only where autograd's own dispatch is switched on.
    with torch.inference_mode(False), torch.no_grad():
        if isinstance(prepared, dict):
            named = {name: track(one) for name, one in prepared.items()}
            with mode:
                return reference(**named)
        listed = [track(one) for one in prepared]
        with mode:
            return reference(*listed)


def list_outputs(output: Any) -> list[Tensor]:
    """Check the reference's output and list its tensors."""
    outputs = list(output) if isinstance(output, (tuple, list)) else [output]
    for one in outputs:
        if not isinstance(one, Tensor):
            raise BadReference(
                f"returned {type(one).__name__}; return one floating tensor, or a tuple or list of them"
            )
        if not one.is_floating_point():
            raise BadReference(f"returned a {one.dtype} tensor; S is defined for floating outputs only")
    return outputs


def split_output(output: Tensor) -> tuple[Tensor, Error]:
    """One output as float64 value and error."""
    if isinstance(output, Tracked):
        return output.value, output.error
    return output.detach().to(torch.float64), EXACT


def settle_scale(value: Tensor, error: Error, floor: float) -> tuple[Tensor, Tensor, bool]:
    """Value, scale, and whether the scale is finite wherever the value is."""
    whole = total(value, error)
    if whole is None:
        return value, torch.zeros_like(value, memory_format=torch.contiguous_format), True
    if whole.shape != value.shape or not whole.is_contiguous():
        whole = whole.expand(value.shape).contiguous()
    if value.numel() == 0:
        return value, whole, True
    # One look at all three: each is a wait for the device.
    low, high, sum_ = torch.stack([*torch.aminmax(whole), value.sum()]).tolist()
    if not (math.isfinite(high) and math.isfinite(sum_)):
        reached = value.isfinite()
        whole = torch.where(reached, whole, 0.0)
        finite = bool(whole.isfinite().all())
        whole.nan_to_num_(nan=torch.inf, posinf=torch.inf)
        floored = torch.where(reached, floor, 0.0)
        return value, whole.add_(floored), finite
    # Beyond 2^53 floors, adding one changes no bit: the pass over memory is left out.
    if low < floor * 2.0**53:
        whole = whole + floor if error.ulps == 0 else whole.add_(floor)  # without ulps it may be another's too
    return value, whole, True
