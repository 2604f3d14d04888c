"""What a benchmark's problem is to gonogo: an op, the benchmark's own check of it, and how a solution is called."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gonogo.errors import InputError
from gonogo.guest.arguments import Call
from gonogo.guest.nests import list_leaves
from gonogo.ops import INPUT_DTYPES, Kernel, Made, Op, Out, op_names
from gonogo.parsing import parse_source
from gonogo.user.kernel_file import KernelFile

SOLUTION = "_gonogo_solution"
WRITES = frozenset(
    f"aten.{name}" for name in (
        "_to_copy", "copy", "clone", "fill", "zero", "empty", "zeros", "ones", "full", "empty_like", "zeros_like",
        "ones_like", "full_like", "empty_strided", "new_empty", "new_zeros", "index_put", "scatter", "where",
        "masked_fill", "lift_fresh",
    )
)  # fmt: skip
"""Ops that compute nothing, and store in whatever format is there."""
"""What a solution's function is called once it is made callable by what is appended to its source."""

OWN_SEEDS = 2**32
"""From here on, seeds are numbers of a benchmark's own tests, where those have seeds of their own."""


@dataclass(frozen=True)
class Options:
    """What is asked of a problem, in plain values that travel to workers."""

    device: str = "cpu"
    dtype: str | None = None
    """Of its floating inputs and weights; None for its own."""
    scale: float = 1.0
    """What its sizes are multiplied by."""
    vary: bool = False
    """Whether inputs have other values, and sizes, than the problem draws."""
    reference: str | None = None
    """FILE:FUNC, a twin in plain torch of a reference that calls a library."""
    part: int = 0
    """Of a problem with several shapes, which."""
    op: str | None = None
    """Of a file with several ops, which."""
    drawn_on: str = "cpu"
    """Where values are drawn: on the CPU for the same bits everywhere, on a GPU for large ones in little time."""


@dataclass(frozen=True)
class Solution:
    """A solution as it is judged."""

    kernel: KernelFile
    name: str
    hands_outputs: bool = False
    """Whether it is handed its outputs behind its arguments."""
    folder: TemporaryDirectory[str] | None = None
    """Its files, where it has several."""

    def close(self) -> None:
        """Remove its files."""
        if self.folder is not None:
            self.folder.cleanup()


@dataclass(frozen=True)
class Problem:
    """One problem of a benchmark."""

    name: str
    format: str
    op: Op
    rule: str
    """The benchmark's own check, in words."""
    seeds: tuple[int, ...]
    """Of the benchmark's own trials."""
    read_solution: Callable[[str], Solution] = field(repr=False)
    """`FILE`, or `FILE:NAME` → the solution in it."""
    contract: str | None = None
    """What its own dtype promises."""
    notes: tuple[str, ...] = ()
    workloads: tuple[Mapping[str, Any], ...] = ()
    """What the benchmark says of its own trials, one for each seed; none where it says nothing."""


def make_op(
    name: str,
    module: str,
    path: str,
    options: Options,
    *,
    dtype: str,
    leaves: dict[str, Out] | None = None,
    scratch: tuple[str, ...] = (),
    is_given: bool = False,
) -> Op:
    """The op of a problem: a format's module has make_reference, make_draw and make_check of path and options."""
    reference = Made(module, "make_reference", path, options)
    return Op(
        name=name, inputs=(), output="", sizes={}, main="", is_nest=True, is_given=is_given,
        draw=Made(module, "make_draw", path, options), reference=reference,
        kernels=(Kernel(f"{name}_torch", "torch", source=reference, dtypes=(dtype,)),), dtypes=(dtype,),
        leaves=leaves or {}, scratch=scratch, own_check=Made(module, "make_check", path, options), is_uneven=True,
    )  # fmt: skip


def name_problem(*words: str) -> str:
    """The name of a problem's op: of a file and its folder, say.

    >>> name_problem("level1", "1_Square matrix")
    'level1_1_Square_matrix'
    """
    name = re.sub(r"\W+", "_", "_".join(word for word in words if word)).strip("_") or "problem"
    return f"problem_{name}" if name in op_names() else name


def find_changed(function: Callable[..., Any], given: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Arguments, by name, that a reference writes to itself; none where it does not run: that is told elsewhere."""
    import torch

    call = _take_call(given, names)
    copied = call.map(lambda path, x: x.clone())
    try:
        with torch.no_grad():
            function(*copied.args, **copied.kwargs)
    except Exception:  # noqa: BLE001  whatever a problem does
        return ()
    after = dict(copied.tensors)
    changed = [path for path, x in call.tensors if _differ(x, after[path])]
    return tuple(dict.fromkeys(path.partition(".")[0] for path in changed))


def _take_call(given: Any, names: Sequence[str]) -> Call:
    """Arguments as a call: a mapping by name, a sequence by place."""
    if isinstance(given, Call):
        return given
    return Call((), given, ()) if isinstance(given, Mapping) else Call(tuple(given), {}, tuple(names))


def find_stored(function: Callable[..., Any], given: Any, names: Sequence[str]) -> str | None:
    """The contract of a reference that keeps results in half precision between its ops; None where it does not.

    One that goes to float32 first, and back at its end, promises float32.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from gonogo.instrument.running_error.rules import PASSIVE

    made: Counter[torch.dtype] = Counter()

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            returned = func(*args, **(kwargs or {}))
            name = func._schema.name.partition("::")[2].removesuffix("_")
            for _, x in list_leaves(returned) if f"aten.{name}" not in PASSIVE | WRITES else ():
                if isinstance(x, torch.Tensor) and x.dtype in (torch.float16, torch.bfloat16):
                    made[x.dtype] += 1
            return returned

    copied = _take_call(given, names).map(lambda path, x: x.clone())
    watch = Watch()  # type: ignore[no-untyped-call]
    with suppress(Exception), torch.no_grad(), watch:  # what a problem raises is told elsewhere
        function(*copied.args, **copied.kwargs)
    dtype, count = made.most_common(1)[0] if made else (None, 0)
    return f"eager-{str(dtype).removeprefix('torch.')}" if count > 1 else None


def _differ(x: Any, y: Any) -> bool:
    import torch

    bits = [one.contiguous().reshape(-1).view(torch.uint8) for one in (x, y)] if x.numel() else []
    return bool(bits) and not torch.equal(*bits)


def tell_unjudged(changed: Sequence[str]) -> str:
    """A note on arguments that a kernel may write to."""
    return f"what a kernel writes to {', '.join(changed)} is not judged, as the reference writes there itself"


def choose_contract(dtype: str) -> str | None:
    """What a problem's dtype promises: in half precision its own reference rounds between ops."""
    return f"eager-{dtype}" if dtype in ("float16", "bfloat16") else "float64" if dtype == "float64" else None


def check_dtype(dtype: str | None, usual: str) -> str:
    """The dtype asked for, or the problem's own."""
    if dtype is None:
        return usual
    if dtype not in INPUT_DTYPES:
        raise InputError(f"dtype {dtype!r} is none of {', '.join(INPUT_DTYPES)}")
    return dtype


def read_text(path: Path, what: str) -> str:
    """A file's text; refused where it cannot be read."""
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"there is no {what} {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{what} {path} cannot be read: {error}") from None


def list_bound(text: str, path: Path) -> list[str]:
    """Names that a source binds at its top level by def, class or =."""
    try:
        tree = parse_source(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise InputError(f"{path}{line} is no Python: {next(iter(error.args), '')}") from None
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return names


def need_bound(text: str, path: Path, wanted: Sequence[str], what: str) -> str:
    """The first of the wanted names that a source binds; refused where it binds none."""
    bound = list_bound(text, path)
    for name in wanted:
        if name in bound:
            return name
    raise InputError(f"{path} has no {' or '.join(wanted)}: it is no {what}")


def make_kernel_file(
    path: Path, text: str, appended: str = "", function: str = SOLUTION, folders: tuple[str, ...] = ()
) -> KernelFile:
    """A solution's source with what makes a function of it, and where it may import from."""
    resolved = path.resolve()
    beside = (*folders, str(resolved.parent), str(Path.cwd()))
    return KernelFile(resolved, function, f"{text}\n{appended}" if appended else text, beside)


def find_dtype(drawn: Any) -> str:
    """What cases are called by: the dtype of the first floating tensor, or of the first at all."""
    import torch

    dtypes = [(x.is_floating_point(), x.dtype) for _, x in list_leaves(drawn) if isinstance(x, torch.Tensor)]
    ordered = [str(dtype).removeprefix("torch.") for floats, dtype in sorted(dtypes, key=lambda each: not each[0])]
    return next((dtype for dtype in ordered if dtype in INPUT_DTYPES), "float32")
