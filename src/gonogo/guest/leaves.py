"""What a kernel gave, leaf by leaf → places in a file of memory; of what is no plain tensor, what it is."""

from __future__ import annotations

from typing import Any

import torch

from .calling import Leaves, has_memory, is_vast
from .wire import TensorFile

NUMBERS = (bool, int, float)


def pack_leaves(leaves: Leaves, device: str, answer: TensorFile) -> list[dict[str, Any]]:
    """What a kernel gave, leaf by leaf; of what is no plain tensor its name."""
    packed: list[dict[str, Any]] = []
    for path, leaf in leaves.items():
        problem = find_unusable(leaf, device)
        if problem is not None:
            packed.append({"path": path, "other": problem})
        elif isinstance(leaf, torch.Tensor) and is_vast(leaf):  # larger than what it is held against
            dtype = str(leaf.dtype).removeprefix("torch.")
            packed.append({"path": path, "dtype": dtype, "shape": list(leaf.shape), "at": 0})
        elif isinstance(leaf, torch.Tensor):
            content = leaf.detach().resolve_conj().contiguous().cpu()
            flat = content.reshape(-1).view(torch.uint8) if content.numel() else content
            at = answer.write(memoryview(flat.numpy().data)) if content.numel() else 0
            dtype = str(leaf.dtype).removeprefix("torch.")
            packed.append({"path": path, "dtype": dtype, "shape": list(leaf.shape), "at": at})
        else:
            packed.append({"path": path, "number": leaf})
    return packed


def find_unusable(leaf: Any, device: str) -> str | None:
    """What keeps a leaf from being measured at all; numbers may stand for tensors without axes."""
    if type(leaf) in NUMBERS:
        return "an int past 64 bits" if type(leaf) is int and not -(2**63) <= leaf < 2**63 else None
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter):  # whose own words may be anything, or raise
        return f"a {type(leaf).__name__}, a subclass of torch.Tensor"
    if leaf.is_nested or leaf.layout is not torch.strided:
        return f"a tensor of layout {'nested' if leaf.is_nested else str(leaf.layout).removeprefix('torch.')}"
    if leaf.device.type not in ("cpu", device):
        return f"a tensor on device {leaf.device.type}"
    if leaf.is_quantized:
        return "a quantized tensor"
    return None if has_memory(leaf) else "a tensor whose memory was given back"
