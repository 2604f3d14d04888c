"""Two outputs of a kernel, or what it raised → its outcome, short of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gonogo.cases import GUARD_BITS, find_guard
from gonogo.execution.bench import Bench
from gonogo.execution.call import FILLINGS, Leaves, shares_memory
from gonogo.execution.functions import list_parameters
from gonogo.execution.leaves import Pair, as_tensor, find_wrong_kind, pair_leaves
from gonogo.execution.reference import Reference
from gonogo.guest.calling import WRITTEN
from gonogo.guest.failure import format_error, tell_error
from gonogo.guest.poison import poison_bits
from gonogo.instrument.host_copies import fetch
from gonogo.instrument.looks import Look, count_unlike, view_bits
from gonogo.ops import Kernel
from gonogo.schema import Outcome


def find_fault(first: Leaves, again: Leaves, kernel: Kernel, bench: Bench) -> tuple[Outcome, list[Pair], Leaves]:
    """The first thing wrong with an output, short of its numbers, and its leaves, if they can be measured.

    Inputs it has changed are restored. The leaves are those of the first call; what is measured in host memory
    comes there together with what was counted on a GPU, which is waited for once.
    """
    references = bench.references(kernel.contract_for(bench.job.case.dtype))
    pairs = pair_leaves(
        list(first), bench.op, references, parameters=list_parameters(bench.op), aliases=bench.aliases
    )
    if not isinstance(pairs, Outcome):
        pairs = [_hold_to_argument(pair, bench) for pair in pairs]
    wrong = pairs if isinstance(pairs, Outcome) else _find_wrong_kind(first, again, pairs, bench)
    usable = [] if wrong or isinstance(pairs, Outcome) else pairs
    before, written = dict(bench.pristine.tensors), (*bench.op.mutates, *bench.op.scratch)
    kept = [(path, x) for path, x in bench.call.tensors if not _is_of(path, written)]
    compared = [Look(_make_contiguous(x), _make_contiguous(before[path])) for path, x in kept]
    for pair in usable:
        leaf, repeated = as_tensor(first[pair.path]), as_tensor(again[pair.path])
        compared.append(Look(_make_contiguous(leaf), _make_contiguous(repeated).to(leaf.device)))
        compared.append(_find_unwritten(leaf, repeated, bench))
    guards = [guard for guard in (find_guard(x) for _, x in bench.call.tensors) if guard is not None]
    around = [Look(guard, GUARD_BITS[guard.dtype.itemsize]) for guard in guards]
    around += [Look(guard, held) for guard, held in bench.guards]
    differ, leaves = _count_different([*compared, *around], _list_wanted(first, usable))
    changed = [path for (path, _), count in zip(kept, differ, strict=False) if count] + list(bench.told_changed)
    changed = list(dict.fromkeys([*changed, *bench.reformed]))
    aliased = [
        pair for pair in usable
        if (pair.path in bench.told_shared or any(shares_memory(again[pair.path], x) for path, x in kept))
        and not pair.path.startswith(WRITTEN)
    ]  # fmt: skip
    strays = bench.strays + sum(differ[len(compared) :])
    if changed or strays:
        bench.restore_inputs()
    if wrong:
        return _tell_written(wrong, changed), [], first
    if strays:
        told = f"{strays} elements before or behind an array were written"
        return Outcome("out-of-bounds", told), usable, first | leaves
    for pair in aliased:
        if changed or not _is_exact(first[pair.path], pair.reference):
            return pair.tell("aliased", "the output is a view of an input"), usable, first | leaves
    if changed or bench.changed:
        return Outcome("inputs-changed", ", ".join([*changed, *bench.changed])), usable, first | leaves
    outcome = _find_incomplete(first, usable, differ[len(kept) : len(compared)], kernel)
    if outcome.word == "ok" and bench.unrepeated:
        outcome = Outcome(
            "not-repeatable", f"{bench.unrepeated} of many calls on the same inputs gave something else"
        )
    return outcome, usable, first | leaves


def _hold_to_argument(pair: Pair, bench: Bench) -> Pair:
    """A leaf that stands in an argument has its dtype, whatever the reference's is."""
    path = bench.aliases.get(pair.path, pair.path)
    argument = dict(bench.call.tensors).get(path.removeprefix(WRITTEN))
    if not path.startswith(WRITTEN) or argument is None:  # a kernel may call its leaves as it likes
        return pair
    dtype = str(argument.dtype).removeprefix("torch.")
    if dtype == pair.reference.dtype:
        return pair
    return replace(pair, reference=replace(pair.reference, dtype=dtype, is_declared=True))


def _tell_written(wrong: Outcome, changed: Sequence[str]) -> Outcome:
    """The same; of a kernel that gives too little and wrote to its arguments, how that is declared."""
    if wrong.word != "wrong-structure" or not changed:
        return wrong
    declared = f"mutates={tuple(changed)}"
    return replace(
        wrong, detail=f"{wrong.detail}; it writes to {', '.join(changed)}: if it is meant to, {declared}"
    )


def _find_wrong_kind(first: Leaves, again: Leaves, pairs: Sequence[Pair], bench: Bench) -> Outcome | None:
    for pair in pairs:
        for leaves in (first, again):
            if pair.path not in leaves:
                return Outcome("wrong-structure", f"{pair.path or 'the output'} comes in one of two calls alone")
            wrong = find_wrong_kind(leaves[pair.path], pair, bench.job.device)
            if wrong is not None:
                return wrong
    return None


def _find_incomplete(first: Leaves, pairs: Sequence[Pair], differ: Sequence[int], kernel: Kernel) -> Outcome:
    """Unwritten elements before those that differ in a second call."""
    sizes = [as_tensor(first[pair.path]).numel() for pair in pairs]
    for pair, size, written in zip(pairs, sizes, differ[1::2], strict=True):
        if written < size:
            return pair.tell("unwritten", f"{size - written} of {size} elements")
    for pair, unrepeated in zip(pairs, differ[0::2], strict=True):
        if unrepeated and not kernel.contract.atomics:
            return pair.tell("not-repeatable", f"{unrepeated} elements differ in a second call")
    return Outcome("ok")


def _find_unwritten(leaf: torch.Tensor, again: torch.Tensor, bench: Bench) -> Look:
    """An array that is what it is looked at for where the kernel has written nothing."""
    if not bench.op.out:
        pattern = poison_bits(leaf.dtype)
        # Memory of other formats is not poisoned: what stands there may well be a value.
        if pattern is None:
            return Look(torch.ones(leaf.numel(), dtype=torch.int8, device=leaf.device), 0)
        return Look(_make_contiguous(leaf), pattern)
    first, second = view_bits(_make_contiguous(leaf)), view_bits(_make_contiguous(again)).to(leaf.device)
    if leaf.dtype is torch.bool:
        return Look(second * 2 + first, 2)  # false in the first call, true in the second
    width = leaf.dtype.itemsize
    fillings = [int.from_bytes(bytes([filling]) * width, "little", signed=True) for filling in FILLINGS]
    return Look((first == fillings[0]) & (second == fillings[1]), True)


def _is_of(path: str, names: Sequence[str]) -> bool:
    """Whether a path is that of an argument, or within one."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _list_wanted(first: Leaves, pairs: Sequence[Pair]) -> dict[str, torch.Tensor]:
    """Leaves that are measured in host memory, by path: floating ones whose reference is there."""
    wanted = [pair for pair in pairs if not pair.reference.is_discrete and pair.reference.index is None]
    return {
        pair.path: as_tensor(first[pair.path]).detach() for pair in wanted
        if pair.reference.expected.device.type == "cpu"
    }  # fmt: skip


def _is_exact(output: torch.Tensor, reference: Reference) -> bool:
    """Whether an output is the rounded reference: a view of an input may be, as a sum of one term is that term."""
    return torch.equal(output.to(reference.expected.device), reference.expected.to(output.dtype))


def explain(error: BaseException, device: str) -> Outcome:
    """Outcome of a call that did not return: one line of it, and the whole error."""
    word = "raised"
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        word = "out-of-memory"
    elif is_gpu_lost(device):
        word = "crashed"
    return Outcome(word, tell_error(error), error=format_error(error))


def is_gpu_lost(device: str) -> bool:
    """Whether nothing will run on the GPU any more in this process: a kernel has touched memory where none is."""
    if device == "cpu":
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _count_different(
    looks: Sequence[Look], leaves: dict[str, torch.Tensor]
) -> tuple[list[int], dict[str, torch.Tensor]]:
    """How many elements differ in each look, and leaves in host memory: in one wait for the GPU."""
    counted, *fetched = fetch([count_unlike(looks), *leaves.values()])
    return counted.tolist(), dict(zip(leaves, fetched, strict=True))


def _make_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements in one stretch of memory; the tensor itself where they are: a view takes the host time."""
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()
