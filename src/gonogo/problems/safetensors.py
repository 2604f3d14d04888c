"""A file of tensors in the safetensors format → one of them, without the library: a header in JSON, then bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gonogo.errors import InputError

if TYPE_CHECKING:
    import torch

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "BOOL": "bool",
}  # fmt: skip
LONGEST_HEADER = 2**26
POINTER = b"version https://git-lfs"


def read_tensor(path: Path, key: str) -> torch.Tensor:
    """The tensor of a name; refused where the file has none, or is not what it says."""
    import torch

    with path.open("rb") as file:
        begun = file.read(8)
        if POINTER.startswith(begun):
            raise InputError(f"{path} is a pointer of Git LFS, without the tensors: git lfs pull")
        length = int.from_bytes(begun, "little")
        if not 0 < length <= LONGEST_HEADER:
            raise InputError(f"{path} is no safetensors file")
        try:
            facts = json.loads(file.read(length))[key]
            dtype, shape, (start, end) = DTYPES[facts["dtype"]], facts["shape"], facts["data_offsets"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} has no tensor {key!r} that can be read: {error}") from None
        file.seek(8 + length + start)
        content = bytearray(file.read(end - start))
    if len(content) != end - start:
        raise InputError(f"{path} is cut off: {key!r} has {len(content)} of {end - start} bytes")
    if not content:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(content, dtype=torch.uint8).view(getattr(torch, dtype)).reshape(shape)
