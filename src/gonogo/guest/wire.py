"""Messages and tensors ↔ bytes of a bounded size, between two processes that do not trust each other.

A message is a JSON object behind its length, never a pickle. Tensors lie in a file of memory that comes with it.
Whoever receives checks every field: `take` refuses what is not of the kind that is asked for.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .arguments import Call
from .nests import list_parts

if TYPE_CHECKING:
    import torch

MOST_BYTES = 2**20
"""Of one message: facts and names; what is large lies in the file of memory."""
MOST_FILES = 4
ALIGNED = 256
"""Bytes by which tensors in the file are aligned."""
SPARSE = 4
"""A storage this many times as large as its tensor travels as the tensor's elements alone."""

Kind = TypeVar("Kind")


class BrokenProtocol(Exception):
    """What came is no message, or not one that was asked for."""


class Late(Exception):
    """Nothing whole came in time."""


class Gone(Exception):
    """The other side has closed."""


@dataclass(frozen=True)
class Foreign:
    """A leaf that is nothing to measure, as its process tells it."""

    told: str


def send(channel: socket.socket, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
    """One message, with descriptors of open files."""
    body = json.dumps(message).encode()
    if len(body) > MOST_BYTES:
        raise BrokenProtocol(f"a message of {len(body):,} bytes: at most {MOST_BYTES:,} are taken")
    head = struct.pack("<I", len(body))
    if files:
        socket.send_fds(channel, [head], list(files))
    else:
        channel.sendall(head)
    channel.sendall(body)


def receive(
    channel: socket.socket, within_s: float | None = None, *, most_files: int = MOST_FILES
) -> tuple[dict[str, Any], list[int]]:
    """One message and its files, whole and in time, or an exception of this module; further files are closed."""
    end = None if within_s is None else time.monotonic() + within_s
    head, files = _receive_head(channel, end, most_files)
    (size,) = struct.unpack("<I", head)
    if size > MOST_BYTES:
        raise BrokenProtocol(f"a message of {size:,} bytes: at most {MOST_BYTES:,} are taken")
    body = _receive_exactly(channel, size, end)
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise BrokenProtocol("a message that is not JSON") from None
    if not isinstance(message, dict):
        raise BrokenProtocol(f"a message that is a {type(message).__name__}")
    return message, files


def _receive_head(channel: socket.socket, end: float | None, most_files: int) -> tuple[bytes, list[int]]:
    if not most_files:  # the system closes what comes all the same
        return _receive_exactly(channel, 4, end), []
    _wait_until(channel, end)
    try:
        head, files, _, _ = socket.recv_fds(channel, 4, most_files)
    except TimeoutError:
        raise Late from None
    except OSError:
        raise Gone from None
    if not head:
        raise Gone
    return head + _receive_exactly(channel, 4 - len(head), end), list(files)


def _receive_exactly(channel: socket.socket, size: int, end: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        _wait_until(channel, end)
        try:
            part = channel.recv(size - len(parts))
        except TimeoutError:
            raise Late from None
        except OSError:
            raise Gone from None
        if not part:
            raise Gone
        parts += part
    return bytes(parts)


def _wait_until(channel: socket.socket, end: float | None) -> None:
    left = None if end is None else end - time.monotonic()
    if left is not None and left <= 0:
        raise Late
    channel.settimeout(left)


def take(message: Mapping[str, Any], name: str, kind: type[Kind]) -> Kind:
    """A field of a message, which must be there and of a kind; a truth value is no number."""
    value = message.get(name)
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)  # type: ignore[return-value]
    if type(value) is not kind:
        raise BrokenProtocol(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def take_count(message: Mapping[str, Any], name: str, most: int = 2**48) -> int:
    """A field that counts something."""
    value = take(message, name, int)
    if not 0 <= value <= most:
        raise BrokenProtocol(f"{name} is not from 0 to {most}")
    return value


def take_texts(message: Mapping[str, Any], name: str, most: int = 1000) -> list[str]:
    """A field that is a list of texts."""
    values = take(message, name, list)
    if len(values) > most or not all(type(value) is str for value in values):
        raise BrokenProtocol(f"{name} is not a list of at most {most} texts")
    return [clean(value) for value in values]


def clean(text: str, most: int = 300) -> str:
    """A text of somebody else's, which must not steer a terminal nor break a file."""
    shown = "".join(sign if sign.isprintable() or sign in "\n\t" else "?" for sign in text[-8 * most :])
    return shown[:most]


class TensorFile:
    """A file of memory that tensors lie in, one behind the other."""

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = os.memfd_create("gonogo") if descriptor is None else descriptor
        self.end = 0

    def close(self) -> None:
        """Let go of it; the other side may still have it."""
        os.close(self.descriptor)

    def write(self, content: bytes | memoryview) -> int:
        """Bytes behind what is there; where they begin."""
        at, done = self.end, 0
        view = memoryview(content).cast("B")
        while done < len(view):
            done += os.pwrite(self.descriptor, view[done:], at + done)
        self.end = -(-(at + len(view)) // ALIGNED) * ALIGNED
        return at

    def read(self, at: int, size: int) -> bytearray:
        """A copy of so many bytes: what is written to the file later changes nothing."""
        content = bytearray(size)
        view, done = memoryview(content), 0
        while done < size:
            count = os.preadv(self.descriptor, [view[done:]], at + done)
            if count == 0:
                raise BrokenProtocol(f"{size:,} bytes at {at:,} are not there")
            done += count
        return content

    def map(self) -> mmap.mmap:
        """All of it, as memory to copy from."""
        return mmap.mmap(self.descriptor, 0, prot=mmap.PROT_READ)


def pack_tensor(tensor: torch.Tensor, file: TensorFile) -> dict[str, Any]:
    """A tensor with all of the memory that it is in, as a place in the file."""
    import torch

    storage = tensor.untyped_storage()
    facts: dict[str, Any] = {
        "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
        "stride": list(tensor.stride()), "offset": tensor.storage_offset(), "size": storage.nbytes(),
    }  # fmt: skip
    if storage.nbytes() > SPARSE * tensor.nbytes + 2**20:
        whole = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
        facts["sparse"] = True
    else:
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        whole = whole[: storage.nbytes()].cpu()
    facts["at"] = file.write(whole.numpy().data) if whole.numel() else file.end
    return facts


def unpack_tensor(facts: Mapping[str, Any], memory: mmap.mmap | None, device: str, guard: int) -> torch.Tensor:
    """The tensor in memory of its own, laid out as it was; `guard` fills what of a sparse one is no element."""
    import torch

    dtype, shape, stride = getattr(torch, facts["dtype"]), facts["shape"], facts["stride"]
    width = dtype.itemsize
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
    if not facts["size"]:
        return torch.empty(shape, dtype=dtype, device=device)
    if facts.get("sparse"):
        count = 1
        for size in shape:
            count *= size
        values = _copy_bytes(memory, facts["at"], count * width).view(dtype).reshape(shape)
        stored = torch.full((facts["size"] // width,), guard, dtype=integers, device=device).view(dtype)
        laid = stored.as_strided(shape, stride, facts["offset"])
        target, source = laid, values.to(device)
        for axis in (axis for axis, step in enumerate(stride) if step == 0):  # of what is repeated, each once
            target, source = target.narrow(axis, 0, 1), source.narrow(axis, 0, 1)
        target.copy_(source)
        return laid
    stored = _copy_bytes(memory, facts["at"], facts["size"] // width * width).view(dtype).to(device)
    return stored.as_strided(shape, stride, facts["offset"])


def _copy_bytes(memory: mmap.mmap | None, at: int, size: int) -> torch.Tensor:
    import torch

    if memory is None or not size:
        return torch.empty(0, dtype=torch.uint8)
    copied = torch.empty(size, dtype=torch.uint8)
    copied.numpy()[:] = memoryview(memory)[at : at + size]
    return copied


def pack_call(call: Call, file: TensorFile) -> dict[str, Any]:
    """Arguments as JSON, with their tensors in the file; TypeError for what cannot travel."""
    return {
        "args": [_pack(value, name, file) for name, value in zip(call.names, call.args, strict=True)],
        "kwargs": {name: _pack(value, name, file) for name, value in call.kwargs.items()},
        "names": list(call.names),
    }


def _pack(value: Any, path: str, file: TensorFile) -> Any:
    import torch

    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    if isinstance(value, torch.Tensor):
        return {"tensor": pack_tensor(value, file)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.Size) or type(value) in (tuple, list):
        word = "list" if type(value) is list else "tuple"
        return {word: [_pack(part, f"{path}.{at}", file) for at, part in enumerate(value)]}
    if type(value) is dict:
        return {"dict": [[key, _pack(value[key], f"{path}.{key}", file)] for key in value]}
    kind = "a nest of its own class" if list_parts(value) is not None else "no tensor and no plain value"
    raise TypeError(f"argument {path} is a {type(value).__name__}, {kind}")


def unpack_call(
    packed: Mapping[str, Any], memory: mmap.mmap | None, device: str, guards: Mapping[int, int]
) -> Call:
    """The arguments, with tensors of their own."""

    def unpack(value: Mapping[str, Any]) -> Any:
        import torch

        ((word, content),) = value.items()
        if word == "tensor":
            width = getattr(torch, content["dtype"]).itemsize
            return unpack_tensor(content, memory, device, guards.get(width, 0))
        if word == "dtype":
            return getattr(torch, content)
        if word in ("tuple", "list"):
            parts = [unpack(part) for part in content]
            return tuple(parts) if word == "tuple" else parts
        return {key: unpack(part) for key, part in content} if word == "dict" else content

    args = tuple(unpack(value) for value in packed["args"])
    kwargs = {name: unpack(value) for name, value in packed["kwargs"].items()}
    return Call(args, kwargs, tuple(packed["names"]))
