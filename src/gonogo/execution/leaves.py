"""Leaves that a kernel gave and those of its reference → pairs of them, or what is wrong with their form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from gonogo.execution.reference import Reference
from gonogo.guest.calling import GRAD, WRITTEN
from gonogo.guest.leaves import find_unusable
from gonogo.guest.wire import Foreign
from gonogo.ops import Op
from gonogo.schema import Outcome


@dataclass(frozen=True)
class Pair:
    """A leaf and what it is held against."""

    path: str
    """Of the kernel's leaf."""
    reference: Reference
    shown: str = ""
    """What a message calls it; nothing where the output has but one leaf."""

    def tell(self, word: str, detail: str) -> Outcome:
        """An outcome of this leaf."""
        return Outcome(word, f"leaf {self.shown}: {detail}" if self.shown else detail)


def pair_leaves(
    paths: Sequence[str],
    op: Op,
    references: Sequence[Reference],
    *,
    parameters: Collection[str] = (),
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> list[Pair] | Outcome:
    """Every leaf beside its reference; an outcome where one side has what the other has not.

    `parameters` are those of a reference that is a module; `aliases` are leaves in the memory of arguments that are
    written to, with the leaves of these.
    """
    # A kernel that is no module has no parameters, and of what its reference has no gradients either.
    by_path = {
        reference.path: reference for reference in references
        if reference.path in paths or reference.path.removeprefix(GRAD) not in parameters
    }  # fmt: skip
    absent = [path for path in by_path if path.startswith(GRAD) and path not in paths]
    if absent:
        return Outcome("wrong-structure", f"gives no {', '.join(absent)}: its output is cut off from autograd")
    pairs = _pair_written(paths, by_path, aliases) if op.mutates and not op.out else _pair_plainly(paths, by_path)
    if pairs is None:
        told = f"gives {_list(paths)}; the reference gives {_list(list(by_path))}"
        if op.mutates:
            told += f", and has to give what is returned, then what {', '.join(op.mutates)} hold afterwards"
        return Outcome("wrong-structure", told)
    return pairs if len(pairs) == 1 else [replace(pair, shown=pair.path or "output") for pair in pairs]


def _pair_plainly(paths: Sequence[str], by_path: Mapping[str, Reference]) -> list[Pair] | None:
    if set(paths) == set(by_path):
        return [Pair(path, by_path[path]) for path in by_path]
    if len(paths) == len(by_path) == 1:  # a tensor, and a tuple of one
        return [Pair(paths[0], next(iter(by_path.values())))]
    return None


def _pair_written(
    paths: Sequence[str], by_path: Mapping[str, Reference], aliases: Mapping[str, str]
) -> list[Pair] | None:
    """A reference gives what is returned, then what arguments hold afterwards; or these alone, under their names.

    What is returned in the memory of such an argument is held to the same, and need not be given twice.
    """
    written = [path for path in paths if path.startswith(WRITTEN)]
    gradients = [path for path in paths if path.startswith(GRAD)]
    returned = [path for path in paths if path not in (*written, *gradients)]
    fresh = [path for path in returned if path not in aliases]
    expected = [path for path in by_path if not path.startswith(GRAD)]
    if set(expected) == {path.removeprefix(WRITTEN) for path in written} and not fresh:
        target = {path: path.removeprefix(WRITTEN) for path in written}
    elif len(expected) == len(fresh) + len(written):
        # By name where the names fit, and the rest in order.
        target = {path: path.removeprefix(WRITTEN) for path in written if path.removeprefix(WRITTEN) in expected}
        target |= {path: path for path in fresh if path in expected and path not in target.values()}
        rest = [path for path in expected if path not in target.values()]
        target |= dict(zip([path for path in (*fresh, *written) if path not in target], rest, strict=True))
    elif len(expected) == len(returned) + len(written):  # what is returned in that memory is given all the same
        target = dict(zip((*returned, *written), expected, strict=True))
    elif len(expected) == len(returned) and set(aliases.values()) >= set(written):
        target = dict(zip(returned, expected, strict=True))
        target |= {path: target[alias] for alias, path in aliases.items()}
    else:
        return None
    target |= {alias: target[path] for alias, path in aliases.items() if alias not in target}
    pairs = [Pair(path, by_path[target[path]]) for path in (*returned, *written)]
    return [*pairs, *(Pair(path, by_path[path]) for path in gradients if path in by_path)]


def _list(paths: Sequence[str]) -> str:
    if list(paths) == [""]:
        return "one tensor"
    return f"leaves {', '.join(path or 'output' for path in paths)}" if paths else "nothing"


def as_tensor(leaf: Any) -> torch.Tensor:
    """A leaf that may be a plain number, which is one of float64."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    return torch.as_tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)


def find_wrong_kind(output: Any, pair: Pair, device: str) -> Outcome | None:
    """What keeps a leaf from being measured at all."""
    reference = pair.reference
    shape = tuple(reference.expected.shape)
    problem = output.told if isinstance(output, Foreign) else find_unusable(output, device)
    if problem is not None:
        return pair.tell("no-output", f"returned {problem}")
    if not isinstance(output, torch.Tensor):  # a number, which stands for a tensor without axes alone
        return pair.tell("no-output", f"returned {type(output).__name__}") if shape else None
    if tuple(output.shape) != shape:
        return pair.tell("wrong-shape", f"{tuple(output.shape)}, not {shape}")
    dtype = str(output.dtype).removeprefix("torch.")
    return None if reference.accepts(dtype) else pair.tell("wrong-dtype", f"{dtype}, not {reference.dtype}")
