"""BackendBench with torch's own samples: `--problem opinfo`, and a solution with OP__OVERLOAD_kernel_impl.

Which op is meant follows from the solution's function. Its calls are those that reach the op when torch's tests
call their own functions, or those functions' arguments, where the op is one that torch takes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.errors import BackendMissing, InputError
from gonogo.guest.arguments import Call
from gonogo.problems.formats import backendbench
from gonogo.problems.problem import (
    OWN_SEEDS,
    Options,
    Problem,
    find_dtype,
    list_bound,
    make_op,
    name_problem,
    read_text,
)
from gonogo.problems.values import copy_nest, vary_nest
from gonogo.user.target import split_target

NAME = "backendbench-opinfo"
KNOWN_BY = f"the word opinfo, for a solution with OP__OVERLOAD{backendbench.SUFFIX}"
WORD = "opinfo"
SAMPLES = 20
"""Of torch's, that are looked through for calls of an op."""


def detect(path: Path) -> bool:
    """By its name: there is no file."""
    return str(path) == WORD and not path.exists()


def list_problems(path: Path) -> list[Path]:
    """None: what there is to judge, solutions say."""
    return []


def choose(path: Path, target: str, options: Options) -> Options:
    """The op that a solution's function is named after."""
    file, name = split_target(target)
    bound = [name] if name else list_bound(read_text(file, "solution"), file)
    own = next((each for each in bound if each.endswith(backendbench.SUFFIX)), None)
    if own is None:
        raise InputError(f"{file} has no function OP__OVERLOAD{backendbench.SUFFIX}")
    op, _, overload = own.removesuffix(backendbench.SUFFIX).partition("__")
    return replace(options, op=f"aten.{op}.{overload or 'default'}")


def open_problems(path: Path, options: Options) -> list[Problem]:
    """The problem of the op that is asked for."""
    if options.op is None:
        raise InputError("opinfo is a problem of whatever op a solution is of, and there is no solution")
    calls = list_calls(options)
    name = name_problem(options.op)
    count = min(backendbench.MOST, len(calls))
    return [Problem(
        name, NAME, make_op(name, __name__, WORD, options, dtype=find_dtype(calls[0].by_name)),
        f"assert_close(atol = rtol = {backendbench.TOLERANCE:g}) on samples of torch's tests",
        tuple(range(OWN_SEEDS, OWN_SEEDS + count)), partial(backendbench.read_solution, options.op),
    )]  # fmt: skip


def make_reference(where: str, options: Options) -> Callable[..., Any]:
    """The op itself."""
    return backendbench.make_reference(where, options)


def make_draw(where: str, options: Options) -> Callable[..., Any]:
    """One of the calls, with values drawn by the seed."""

    def draw(seed: int) -> Call:
        calls = list_calls(options)
        call = calls[seed % min(backendbench.MOST, len(calls))]
        return vary_nest(call, seed) if options.vary else call

    return draw


def make_check(where: str, options: Options) -> Callable[[Call, Mapping[str, Any]], bool]:
    """assert_close, leaf by leaf."""
    return backendbench.make_check(where, options)


class _Recorded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the arguments of every call of one op."""

    def __init__(self, op: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._op = op
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op; keep what it is given."""
        if func is self._op:
            self.calls.append(copy_nest((tuple(args), dict(kwargs or {}))))
        return func(*args, **(kwargs or {}))


def list_calls(options: Options) -> list[Call]:
    """Calls of an op, as torch's generator draws them from where it stands."""
    op = backendbench.make_reference(WORD, options)
    wanted = getattr(torch, options.dtype or "float32")
    recorded = _Recorded(op)
    for info in _list_infos(str(options.op)):
        if wanted not in info.supported_dtypes("cpu"):
            continue
        for sample in islice(info.sample_inputs("cpu", wanted), SAMPLES):
            given = (sample.input, *sample.args), dict(sample.kwargs)
            before = len(recorded.calls)
            with torch.no_grad(), recorded:
                _try(info.op, *given)
            if len(recorded.calls) == before and _try(op, *copy_nest(given)):
                recorded.calls.append(given)
    calls = [(args, kwargs) for args, kwargs in recorded.calls if any(map(_is_filled, args))]
    if not calls:
        raise InputError(f"torch's own tests have no {str(wanted).removeprefix('torch.')} samples of {options.op}")
    return [Call(args, kwargs, backendbench.name_places(str(options.op), len(args))) for args, kwargs in calls]


def _is_filled(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.numel() > 0 and not x.is_sparse


def _try(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function takes them."""
    try:
        function(*args, **kwargs)
    except Exception:  # noqa: BLE001  torch refuses in many words
        return False
    return True


def _list_infos(op: str) -> list[Any]:
    """What torch's tests have for an op, by its name without an overload."""
    try:
        from gonogo.atlas.entries import list_entries
    except ImportError as error:
        raise BackendMissing(str(error.name), "--problem opinfo", extra="atlas") from None
    _, name, _ = op.split(".")
    infos = [entry.info for entry in list_entries().values()]
    return [info for info in infos if name in (info.aten_name, info.name.rpartition(".")[2])]
