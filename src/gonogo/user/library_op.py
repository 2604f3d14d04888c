"""NAMESPACE::OP, registered by torch.library in a reference's file → a kernel to judge, and what opcheck says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gonogo.cases import draw_arguments, take_arguments
from gonogo.errors import InputError
from gonogo.ops import Op, load_file
from gonogo.user.kernel_file import KernelFile, decode_source
from gonogo.user.target import split_target

NAME = re.compile(r"(?P<namespace>[A-Za-z_]\w*)::(?P<op>[A-Za-z_]\w*)(\.(?P<overload>\w+))?")
FUNCTION = "_gonogo_library_op"


def is_library_op(target: str) -> bool:
    """Whether a target is the name of a registered op, and no file."""
    return NAME.fullmatch(target) is not None and not Path(target).exists()


def find_library_op(target: str, reference: str) -> KernelFile:
    """The op as a kernel: the file of its reference registers it, or imports what does, and runs with it."""
    path = split_target(reference)[0].resolve()
    load_file(str(path))
    _find(target, path)
    words = NAME.fullmatch(target)
    assert words is not None
    attribute = ".".join(word for word in (words["namespace"], words["op"], words["overload"]) if word)
    text = f"{decode_source(path)}\n\nimport torch as _gonogo_torch\n{FUNCTION} = _gonogo_torch.ops.{attribute}\n"
    return KernelFile(path, FUNCTION, text, (str(path.parent), str(Path.cwd())), told=target)


def _find(target: str, path: Path) -> Any:
    """The op that torch knows by a name."""
    import torch

    words = NAME.fullmatch(target)
    assert words is not None
    try:
        found = getattr(getattr(torch.ops, words["namespace"]), words["op"])
        return getattr(found, words["overload"]) if words["overload"] else found
    except (AttributeError, RuntimeError):
        raise InputError(
            f"torch knows no op {target} once {path} is loaded: have that file register it, or import what does"
        ) from None


def check_registration(target: str, op: Op, reference: str, seed: int) -> Mapping[str, str]:
    """What torch.library.opcheck finds on the arguments of a case: by test, SUCCESS or what is wrong."""
    import torch

    path = split_target(reference)[0].resolve()
    call = take_arguments(op, draw_arguments(op, seed, op.dtypes[-1]))
    found = torch.library.opcheck(_find(target, path), call.args, dict(call.kwargs), raise_exception=False)
    return {name: str(result).partition("\n")[0] for name, result in found.items()}
