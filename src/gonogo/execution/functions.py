"""References and kernels, functions or modules → one function of state and arguments, with gradients or without."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gonogo.cases import Call
from gonogo.cases.stream import open_stream
from gonogo.errors import BadArguments, BadModule, BadReference, NoErrorRule
from gonogo.formats import get_format
from gonogo.guest import flags
from gonogo.guest.calling import GRAD, list_state, list_trained
from gonogo.guest.nests import list_leaves
from gonogo.guest.state import UnfitState, find_changed, set_state
from gonogo.ops import AtHand, InFolder, Kernel, Op

_LOADED: set[InFolder] = set()
"""Functions of ops' folders that have been loaded: Python runs their files once."""

Forward = Callable[[Mapping[str, torch.Tensor], Sequence[Any], Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Function:
    """A reference as a function of its state and its arguments."""

    forward: Forward
    state: dict[str, torch.Tensor]
    """Parameters and buffers of a module; of a function none."""
    wanted: tuple[str, ...] = ()
    """Paths of the arguments and parameters whose gradients are asked for."""
    call: Call | None = None
    name: str = ""
    """What cotangents are drawn by."""
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def with_dtypes(self, dtypes: Mapping[str, str]) -> Function:
        """A function that knows the dtypes of its leaves, to which cotangents are rounded."""
        return replace(self, dtypes=dtypes)

    def run(self, state: Mapping[str, torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Its output; with gradients, all leaves by path, of which those of gradients begin with `grad.`."""
        if not self.wanted or self.call is None:
            return self.forward(state, args, kwargs)
        call = replace(self.call, args=tuple(args), kwargs=dict(kwargs))
        every = dict(call.tensors) | dict(state)
        primals = {path: every[path] for path in self.wanted}
        rest: dict[str, Any] = {}

        def forward(primals: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            chosen = call.map(lambda path, x: primals.get(path, x))
            # Buffers as copies made here: torch lets nothing from outside be written to, as batch norm does.
            held = {path: primals[path] if path in primals else x.clone() for path, x in state.items()}
            leaves = dict(list_leaves(self.forward(held, chosen.args, chosen.kwargs)))
            floating = {path: x for path, x in leaves.items() if _is_floating(x)}
            if not floating:
                raise BadArguments("grads: no output of the reference is floating point: none has a gradient")
            rest.update({path: x for path, x in leaves.items() if path not in floating})
            return floating

        made, pull, *_ = torch.func.vjp(forward, primals)
        cotangents = {
            path: make_cotangent(self.name, path, x, self.dtypes.get(path, "float32")) for path, x in made.items()
        }
        try:
            (gradients,) = pull(cotangents)
        except NoErrorRule as error:
            raise BadReference(f"has a gradient that cannot be followed: {error.problem}") from error
        return {**made, **rest, **{f"{GRAD}{path}": gradients[path] for path in self.wanted}}


def _is_floating(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def make_cotangent(name: str, path: str, output: torch.Tensor, dtype: str) -> torch.Tensor:
    """What a leaf is multiplied by, in float64: drawn by its name, about normal, rounded to a dtype."""
    # Rounded by NumPy: inside the running-error mode a cast of torch's would change nothing.
    drawn = get_format(dtype).round(open_stream(f"{name}/cotangent/{path}").normal(output.numel()))
    return torch.from_numpy(drawn).reshape(output.shape).to(output.device)


def find_wanted(op: Op, call: Call, state: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Paths of the arguments whose gradients are asked for; of a module's parameters too, where all are."""
    if op.grads is False:
        return ()
    floating = [path for path, x in call.tensors if x.is_floating_point() and x.dtype.itemsize > 1]
    parameters = [path for path, x in state.items() if isinstance(x, torch.nn.Parameter) and x.requires_grad]
    if op.grads is True:
        if not floating and not parameters:
            raise BadArguments("grads: no argument is floating point, and none has a gradient")
        return (*floating, *parameters)
    known = [*(path for path, _ in call.tensors), *state]
    chosen: list[str] = []
    for name in op.grads:
        paths = [path for path in known if path == name or path.startswith(f"{name}.")]
        if not paths:
            raise BadArguments(f"grads: {name!r} is none of the arguments {', '.join(known)}")
        wrong = [path for path in paths if path not in floating and path not in parameters]
        if wrong:
            raise BadArguments(f"grads: {wrong[0]} is not floating point, and has no gradient")
        chosen += paths
    return tuple(chosen)


def load_function(owner: Kernel | Op) -> Callable[..., Any]:
    """A kernel's function, or an op's reference; what its file sets when it is loaded is no part of a call."""
    source = owner.source if isinstance(owner, Kernel) else owner.reference
    load = owner.load if isinstance(owner, Kernel) else owner.load_reference
    if isinstance(source, AtHand) or (isinstance(source, InFolder) and source in _LOADED):
        return load()
    with flags.keep():
        function = load()
    if isinstance(source, InFolder):
        _LOADED.add(source)
    return function


def open_reference(op: Op, call: Call, name: str) -> Function:
    """The op's reference, in whatever form it is."""
    reference = load_function(op)
    if not isinstance(reference, torch.nn.Module):
        wanted = find_wanted(op, call, {})
        return Function(lambda state, args, kwargs: reference(*args, **kwargs), {}, wanted, call, name)
    device = next((x.device for _, x in call.tensors), torch.device("cpu"))
    # Copies: batch norm counts its calls, say.
    state = {path: x.detach().to(device, copy=True) for path, x in list_state(reference).items()}
    wanted = find_wanted(op, call, list_state(reference))

    def forward(held: Mapping[str, torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return torch.func.functional_call(reference, dict(held), tuple(args), dict(kwargs))

    return Function(forward, state, wanted, call, name)


def list_parameters(op: Op) -> list[str]:
    """Those of a reference that is a module."""
    reference = op.load_reference() if op.grads else None
    return [path for path, _ in reference.named_parameters()] if isinstance(reference, torch.nn.Module) else []


def open_kernel(function: Callable[..., Any], op: Op, device: str) -> Callable[..., Any]:
    """A kernel as it can be called: a module as a copy on the device, with the reference's state."""
    if not isinstance(function, torch.nn.Module):
        return function
    try:
        with flags.keep():
            made = copy.deepcopy(function).to(device)
    except Exception as error:
        raise BadModule(f"it cannot be copied, {type(error).__name__}: {error}") from error
    reference = op.load_reference()
    if isinstance(reference, torch.nn.Module):
        copy_state(reference, made)
    return made


def copy_state(reference: torch.nn.Module, kernel: torch.nn.Module) -> None:
    """Give a kernel the state of its reference; refused where that does not fit."""
    try:
        set_state(kernel, list_state(reference), list_trained(reference))
    except UnfitState as error:
        raise BadModule(str(error)) from None


def restore_state(kernel: Any, op: Op) -> list[str]:
    """Give a module the state again that it had before a call; those of its parameters that were changed."""
    reference = op.load_reference() if isinstance(kernel, torch.nn.Module) else None
    if not isinstance(reference, torch.nn.Module):
        return []
    changed = find_changed(kernel, list_state(reference))
    copy_state(reference, kernel)
    return changed
