"""Two outputs of a kernel, or what it raised → its outcome, short of its numbers."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb, format_exception
from typing import Any

import torch

from gonogo.cases import GUARD_BITS, find_guard
from gonogo.execution.bench import Bench
from gonogo.execution.poison import poison_bits
from gonogo.ops import Kernel
from gonogo.schema import Outcome


def find_fault(first: Any, again: Any, kernel: Kernel, bench: Bench) -> Outcome:
    """The first thing wrong with an output, short of its numbers. Inputs it has changed are restored."""
    wrong = find_wrong_kind(first, kernel, bench) or find_wrong_kind(again, kernel, bench)
    pairs: list[tuple[torch.Tensor, Any]] = [
        (_bits(now), _bits(before)) for now, before in zip(bench.inputs, bench.pristine, strict=True)
    ]
    if not wrong:
        pairs += [(_bits(first), _bits(again).to(first.device)), (_bits(first), poison_bits(first.dtype))]
    differ = _count_different(pairs)
    changed = [given.name for given, count in zip(bench.op.inputs, differ, strict=False) if count]
    aliased = not wrong and any(_shares_memory(again, x) for x in bench.inputs)
    strays = bench.strays + _count_behind(bench.inputs)
    if changed or strays:
        bench.restore_inputs()
    if wrong:
        return wrong
    if strays:
        return Outcome("out-of-bounds", f"{strays} elements before or behind an array were written")
    if aliased and (changed or not _is_exact(first, bench, kernel)):
        return Outcome("aliased", "the output is a view of an input")
    if changed:
        return Outcome("inputs-changed", ", ".join(changed))
    unrepeated, unwritten = differ[-2], first.numel() - differ[-1]
    if unwritten:
        return Outcome("unwritten", f"{unwritten} of {first.numel()} elements")
    if unrepeated and not kernel.contract.atomics:
        return Outcome("not-repeatable", f"{unrepeated} elements differ in a second call")
    return Outcome("ok")


def _count_behind(inputs: Sequence[torch.Tensor]) -> int:
    """Elements behind inputs that were written."""
    guards = [guard for guard in map(find_guard, inputs) if guard is not None]
    return sum(_count_different([(guard, GUARD_BITS[guard.dtype.itemsize]) for guard in guards])) if guards else 0


def _is_exact(output: torch.Tensor, bench: Bench, kernel: Kernel) -> bool:
    """Whether an output is the rounded reference: a view of an input may be, as a sum of one term is that term."""
    expected = bench.reference(kernel.contract_for(bench.job.case.dtype)).expected
    return torch.equal(output.to(expected.device), expected.to(output.dtype))


def find_wrong_kind(output: Any, kernel: Kernel, bench: Bench) -> Outcome | None:
    """What keeps an output from being measured at all."""
    case = bench.job.case
    shape = case.shape_of(bench.op, bench.op.output)
    if not isinstance(output, torch.Tensor):
        return Outcome("no-output", f"returned {type(output).__name__}")
    if output.layout is not torch.strided:
        return Outcome("no-output", f"returned a tensor of layout {str(output.layout).removeprefix('torch.')}")
    if output.device.type not in ("cpu", bench.job.device):
        return Outcome("no-output", f"returned a tensor on device {output.device.type}")
    if tuple(output.shape) != shape:
        return Outcome("wrong-shape", f"{tuple(output.shape)}, not {shape}")
    dtype = str(output.dtype).removeprefix("torch.")
    expected = kernel.contract_for(case.dtype).output or case.dtype
    return None if dtype == expected else Outcome("wrong-dtype", f"{dtype}, not {expected}")


def explain(error: BaseException, device: str) -> Outcome:
    """Outcome of a call that did not return: one line of it, and the whole error."""
    detail = f"{type(error).__name__}: {error}".partition("\n")[0][:300] + _tell_line(error)
    word = "raised"
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        word = "out-of-memory"
    elif _is_gpu_lost(device):
        word = "crashed"
    return Outcome(word, detail, error=_format_error(error))


def _format_error(error: BaseException) -> str:
    """Traceback and message as Python prints them, from where the kernel begins."""
    frames, ours = error.__traceback__, str(Path(__file__).parent)
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(ours):
        frames = frames.tb_next
    return "".join(format_exception(type(error), error, frames))


def _tell_line(error: BaseException) -> str:
    """Where it came from: the innermost line that is no library's."""
    libraries = (str(Path(__file__).parent), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"])
    lines = [one for one in extract_tb(error.__traceback__) if not one.filename.startswith(libraries)]
    return f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""


def _is_gpu_lost(device: str) -> bool:
    if device == "cpu":
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _count_different(pairs: Sequence[tuple[torch.Tensor, Any]]) -> list[int]:
    """How many elements of each pair differ, in one wait for the GPU."""
    counts = torch.stack([(first != second).sum().to(pairs[0][0].device) for first, second in pairs])
    return [int(count) for count in counts.tolist()]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(integers[tensor.dtype.itemsize])


def _shares_memory(output: torch.Tensor, given: torch.Tensor) -> bool:
    return output.numel() > 0 and output.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
