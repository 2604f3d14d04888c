"""Reference and inputs → expected value and scale: prepares inputs, runs the mode, settles the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gonogo.errors import BadReference, NoErrorRule, UnsupportedArray, WritesInPlace
from gonogo.formats import get_format
from gonogo.guest import flags
from gonogo.guest.nests import list_leaves, map_leaves
from gonogo.instrument.host_copies import fetch
from gonogo.instrument.running_error.accuracy import underflow_floor
from gonogo.instrument.running_error.companion import EXACT, Error, Tracked, is_inexact, total, widen
from gonogo.instrument.running_error.doubt import Allows
from gonogo.instrument.running_error.facts import REPEATED_HINT
from gonogo.instrument.running_error.mode import Rule, RunningErrorMode
from gonogo.instrument.running_error.rules import PASSIVE, RULES, TAKES_COMPLEX
from gonogo.instrument.running_error.sampling import NoisyMode, needs_runs, sample_scales
from gonogo.instrument.running_error.writes import exchange, keep_modules, run_wide, widen_tensor
from gonogo.schema import Contract

Scaled = Tensor | tuple[Tensor, ...]

RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
"""Functions of torch that are many steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """One leaf of what a reference returned."""

    path: str
    value: Any
    """A float64 tensor, an integer or boolean one, or a plain value."""
    scale: Tensor | None = None
    """S of a float64 tensor."""
    doubt: Tensor | None = None
    """Where an integer or boolean may be another, for computed values are nearly tied."""
    allows: Allows | None = None
    """Tells which others it may be, where that is known."""
    is_cast: bool = False
    """Whether a cast to a narrower format was the last that was done to it."""
    is_finite: bool = True
    """Whether the scale is finite wherever the value is."""
    is_sampled: bool = False
    """Whether the scale is from runs with roundings drawn at random, for no bound is finite."""
    in_format: tuple[str, Tensor] | None = None
    """Of what was cast and then written to a tensor: the format, and S without that cast.

    Which format the tensor has is not known here: the rounding to it is in the cells of an output of that format.
    """


def trace_reference(
    reference: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    contract: Contract,
    rules: Mapping[str, Rule],
) -> tuple[Scaled, Scaled]:
    """Value and scale of a reference whose output is one floating tensor, or a tuple or list of them."""
    if not isinstance(inputs, (Mapping, list, tuple)):
        kind = type(inputs).__name__
        raise UnsupportedArray("inputs", f"one {kind} where a list, tuple or mapping of arrays is expected")
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    output, leaves, _ = trace_call(reference, args, kwargs, contract, rules, loaded=True)
    check_outputs(output)
    expected, scales = tuple(leaf.value for leaf in leaves), tuple(leaf.scale for leaf in leaves)
    return (expected[0], scales[0]) if isinstance(output, Tensor) else (expected, scales)  # type: ignore[return-value]


def trace_call(
    reference: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    contract: Contract,
    rules: Mapping[str, Rule] = MappingProxyType({}),
    *,
    loaded: bool = False,
    near: int = 0,
) -> tuple[Any, list[Leaf], bool]:
    """Run the reference once; once more, guarded, where 0·inf left a finite output without a finite scale.

    Arguments are nests of arrays and plain values. Gives the output as the reference returned it, its leaves, and
    whether anything was added up. `loaded` is whether a kernel has its inputs as they are, in a format as wide.
    Floating leaves of up to `near` elements come in host memory: one wait for a GPU brings value and scale.
    """
    with flags.known():
        prepared = map_leaves(partial(prepare_input, contract, loaded), (args, dict(kwargs)))
        floor = underflow_floor(contract)
        merged, passive = ({**RULES, **rules}, PASSIVE - rules.keys()) if rules else (RULES, PASSIVE)
        for guarded in (False, True):
            mode = RunningErrorMode(contract, merged, passive, guarded=guarded, takes_complex=TAKES_COMPLEX)
            output = run_tracked(reference, prepared, mode)
            leaves = [settle_leaf(path, leaf, mode, floor, loaded, near) for path, leaf in list_leaves(output)]
            if all(leaf.is_finite for leaf in leaves):
                break
        if mode.advice is not None and any(map(is_lost, leaves)):
            raise NoErrorRule(*mode.advice)
        if needs_runs(mode, leaves):

            def run(number: int) -> list[Any]:
                noisy = NoisyMode(contract, merged, passive, guarded=False, takes_complex=TAKES_COMPLEX)
                noisy.begin(number)
                made = run_tracked(reference, prepared, noisy, checked=False)
                return [split_output(one)[0] if isinstance(one, Tensor) else one for _, one in list_leaves(made)]

            if near:  # what runs come to stays where they run
                leaves = [settle_leaf(path, leaf, mode, floor, loaded, 0) for path, leaf in list_leaves(output)]
            leaves = sample_scales(run, leaves, mode, floor)
        return output, leaves, mode.summed


def is_lost(leaf: Leaf) -> bool:
    """Whether nothing is known of any element."""
    return leaf.scale is not None and bool(leaf.scale.numel()) and bool(leaf.scale.isinf().all())


class Loaded:
    """A floating input in float64, and the error a kernel makes as it loads it. No dataclass, which is a nest."""

    def __init__(self, value: Tensor, ulps: float) -> None:
        self.value, self.ulps = value, ulps


def prepare_input(contract: Contract, loaded: bool, path: str, given: Any) -> Any:
    """One leaf of the arguments as the reference will see it: every floating array an exact float64 tensor."""
    name = path.partition(".")[2] or path  # of the argument, without whether it is given by place or by name
    if isinstance(given, np.generic):
        given = given.item() if given.dtype.kind in "biuf" else np.asarray(given)
    if isinstance(given, np.ndarray):
        given = read_numpy(name, given)
    if not isinstance(given, Tensor):
        return given
    if given.layout != torch.strided:
        raise UnsupportedArray(f"input {name!r}", f"a {given.layout} tensor of {given.dtype}")
    if given.requires_grad:
        given = given.detach()
    if not is_inexact(given):
        return given
    ulps = 0.0 if loaded else find_load_error(given.dtype.to_real(), contract)
    return Loaded(widen(given.resolve_conj()), float(contract.backward) + ulps)


def find_load_error(dtype: torch.dtype, contract: Contract) -> float:
    """In u_c: a kernel with a narrow accumulator rounds wider inputs as it loads them."""
    held, own = get_format(contract.accumulate), get_format(str(dtype).removeprefix("torch."))
    return 1.0 if own.unit_roundoff < held.unit_roundoff else 0.0


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
    reference: Callable[..., Any], prepared: Any, mode: RunningErrorMode, *, checked: bool = True
) -> Any:
    """Run the reference with every floating input tracked; what it writes is `checked` against a run as it is."""

    def track(path: str, leaf: Any) -> Any:
        if isinstance(leaf, Loaded):
            return mode.load(leaf.value, leaf.ulps)
        return leaf.clone() if isinstance(leaf, Tensor) else leaf  # a reference may count in its integers

    # Composite ops reach a dispatch mode in parts only where autograd's own dispatch is switched on.
    with torch.inference_mode(False), torch.no_grad():
        args, kwargs = map_leaves(track, prepared)
        mode.outside.take([leaf for _, leaf in list_leaves((args, kwargs))])
        try:
            with keep_modules(reference), mode, step_by_step():
                return reference(*args, **kwargs)
        except WritesInPlace:
            pass
        finally:
            mode.outside.restore()
        plain, outside = run_plain(reference, prepared)
        args, kwargs = map_leaves(track, prepared)
        mode.begin_again()
        mode.outside.take([leaf for _, leaf in list_leaves((args, kwargs))])
        try:
            with keep_modules(reference), step_by_step():
                output = mode.run_functional(reference, args, kwargs, outside)
        finally:
            mode.outside.restore()
        if checked:
            check_writes(plain, output)
        return output


def run_plain(reference: Callable[..., Any], prepared: Any) -> tuple[Any, list[Tensor]]:
    """What a reference gives in float64, and tensors that it writes to and neither made nor was given."""

    def copy(path: str, leaf: Any) -> Any:
        leaf = leaf.value if isinstance(leaf, Loaded) else leaf
        return leaf.clone() if isinstance(leaf, Tensor) else leaf

    def run(outside: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
        args, kwargs = map_leaves(copy, prepared)
        given = [leaf for _, leaf in list_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        wide = [widen_tensor(tensor).clone() for tensor in outside]
        with keep_modules(reference), exchange(outside, wide) as swap:
            return run_wide(lambda: swap(reference(*args, **kwargs)), [*given, *wide])

    plain, outside = run([])
    return (run(outside)[0] if outside else plain), outside


def step_by_step() -> AbstractContextManager[Any]:
    """Inside, recurrent layers are many ops on a GPU, too."""
    return StepByStep() if torch.cuda.is_initialized() else nullcontext()  # type: ignore[no-untyped-call]


class StepByStep(TorchFunctionMode):
    """Has torch's own steps taken through recurrent layers, where cuDNN has all of a layer in one op."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function, without cuDNN if it is such a layer."""
        if getattr(func, "__name__", "") not in RECURRENT:
            return func(*args, **(kwargs or {}))
        before = torch.backends.cudnn.enabled
        torch._C._set_cudnn_enabled(False)  # torch's own context also sets what it does not name
        try:
            return func(*args, **(kwargs or {}))
        finally:
            torch._C._set_cudnn_enabled(before)


def check_writes(plain: Any, output: Any) -> None:
    """Refuse what is not what the reference gives as it is: a wrong expected value is worse than none.

    Where a tensor repeats its memory torch writes each place once; without writes what meets there is added up.
    """
    expected = dict(list_leaves(plain))
    for path, leaf in list_leaves(output):
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            continue
        (value, error), other = split_output(leaf), expected.get(path)
        if not isinstance(other, Tensor) or other.shape != value.shape:
            raise NoErrorRule("aten.copy_", REPEATED_HINT)
        apart, whole = (value - other.to(torch.float64)).abs(), total(value, error)
        room = value.abs() * 2**-20
        room = room if whole is None else room + whole * 2**-44  # what float64 itself rounds, in another order
        if not bool(((apart <= room) | (value == other) | (value.isnan() & other.isnan())).all()):
            raise NoErrorRule("aten.copy_", REPEATED_HINT)


def check_outputs(output: Any) -> None:
    """Refuse what has no scale."""
    for one in output if isinstance(output, (tuple, list)) else [output]:
        if not isinstance(one, Tensor):
            raise BadReference(
                f"returned {type(one).__name__}; return one floating tensor, or a tuple or list of them"
            )
        if not one.is_floating_point():
            raise BadReference(f"returned a {one.dtype} tensor; S is defined for floating outputs only")


def settle_leaf(path: str, output: Any, mode: RunningErrorMode, floor: float, loaded: bool, near: int) -> Leaf:
    """A leaf of the output with its scale, or its doubt; the last cast of a kernel is in its format's cells."""
    if not isinstance(output, Tensor):
        return Leaf(path, output)
    if output.is_complex():
        raise BadReference("returned a complex tensor; return its parts: torch.view_as_real")
    if not output.is_floating_point():
        return Leaf(path, output, doubt=mode.doubts.find(output), allows=mode.doubts.find_allowed(output))
    value, error = split_output(output)
    is_cast = error.uncast is not None and not error.buffered
    uncast = None if loaded else error.uncast
    if uncast is not None and not error.buffered:
        error, uncast = uncast, None
    settled, scale, finite = settle_scale(value, error, floor, near)
    narrow = None if uncast is None else (str(error.cast_to), settle_scale(value, uncast, floor, near)[1])
    return Leaf(path, settled, scale, is_cast=is_cast, is_finite=finite, in_format=narrow)


def split_output(output: Tensor) -> tuple[Tensor, Error]:
    """One output as float64 value and error."""
    if isinstance(output, Tracked):
        return output.value, output.error
    return output.detach().to(torch.float64), EXACT


def settle_scale(value: Tensor, error: Error, floor: float, near: int) -> tuple[Tensor, Tensor, bool]:
    """Value, scale, and whether the scale is finite wherever the value is; in host memory up to `near` elements."""
    whole = total(value, error)
    if whole is None:
        (value,) = fetch([value]) if value.numel() <= near else [value]
        return value, torch.zeros_like(value, memory_format=torch.contiguous_format), True
    if whole.shape != value.shape or not whole.is_contiguous():
        whole = whole.expand(value.shape).contiguous()
    if value.numel() <= near:
        value, whole = fetch([value, whole])
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
