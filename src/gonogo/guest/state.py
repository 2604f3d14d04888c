"""A module and the state of its reference → the module with that state, or what does not fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from .calling import list_state, list_trained


class UnfitState(Exception):
    """A state that is not the module's."""


def set_state(module: torch.nn.Module, state: Mapping[str, torch.Tensor], trained: Collection[str]) -> None:
    """Give a module parameters and buffers, of which `trained` are parameters; UnfitState where they do not fit."""
    target = list_state(module)
    for path, x in state.items():
        if path in target and target[path].shape != x.shape:
            shapes = tuple(target[path].shape), tuple(x.shape)
            raise UnfitState(f"{path} is {shapes[0]} in the kernel and {shapes[1]} in the reference")
    extra = [path for path in target if path not in state]
    if extra:  # a table that its state_dict leaves out is its own
        kept = module.state_dict()
        extra = [path for path in extra if path in kept]
    lacking = [path for path in state if path not in target]
    if target and state and extra:
        raise UnfitState(
            f"the kernel has {', '.join(extra)}, which the reference has not"
            + (f"; of its {', '.join(lacking)} the kernel has none" if lacking else "")
        )
    parameters = [path for path in lacking if path in trained]
    if parameters:
        raise UnfitState(f"the reference has {', '.join(parameters)}, which the kernel has not")
    with torch.no_grad():
        for path, x in state.items():
            if path in target:
                target[path].copy_(x)


def find_changed(module: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> list[str]:
    """Parameters that are not what they were set to. Buffers may change: batch norm counts its calls, say."""
    return [
        path for path, x in list_trained(module).items()
        if path in state and not torch.equal(x.detach(), state[path].detach().to(x.device, x.dtype))
    ]  # fmt: skip
