"""Two outputs of a kernel, or what it raised → its outcome, short of its numbers."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch

from gonogo.campaign.bench import Bench
from gonogo.campaign.poison import poison_bits
from gonogo.ops import Kernel
from gonogo.records import Row


def find_fault(first: Any, again: Any, kernel: Kernel, bench: Bench) -> tuple[str, str | None]:
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
    if changed:
        bench.restore_inputs()
    if wrong:
        return wrong
    if aliased and (changed or not _moves_only(bench, kernel)):
        return "aliased", "the output is a view of an input"
    if changed:
        return "inputs-changed", ", ".join(changed)
    unrepeated, unwritten = differ[-2], first.numel() - differ[-1]
    if unwritten:
        return "unwritten", f"{unwritten} of {first.numel()} elements"
    if unrepeated and not kernel.contract.atomics:
        return "not-repeatable", f"{unrepeated} elements differ in a second call"
    return "ok", None


def _moves_only(bench: Bench, kernel: Kernel) -> bool:
    """Whether nothing is computed in this case: then a view of an input may well be the output."""
    return not bool(bench.reference(kernel.contract_for(bench.job.case.dtype)).scale.any())


def find_wrong_kind(output: Any, kernel: Kernel, bench: Bench) -> tuple[str, str] | None:
    """What keeps an output from being measured at all."""
    case = bench.job.case
    shape = case.shape_of(bench.op, bench.op.output)
    if not isinstance(output, torch.Tensor):
        return "no-output", f"returned {type(output).__name__}"
    if output.layout is not torch.strided:
        return "no-output", f"returned a tensor of layout {str(output.layout).removeprefix('torch.')}"
    if output.device.type not in ("cpu", bench.job.device):
        return "no-output", f"returned a tensor on device {output.device.type}"
    if tuple(output.shape) != shape:
        return "wrong-shape", f"{tuple(output.shape)}, not {shape}"
    dtype = str(output.dtype).removeprefix("torch.")
    expected = kernel.contract_for(case.dtype).output or case.dtype
    return None if dtype == expected else ("wrong-dtype", f"{dtype}, not {expected}")


def explain(error: BaseException, device: str) -> Row:
    """Outcome of a call that did not return."""
    detail = f"{type(error).__name__}: {error}".partition("\n")[0][:300] + _tell_line(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return {"outcome": "out-of-memory", "detail": detail}
    if _is_gpu_lost(device):
        return {"outcome": "crashed", "detail": detail}
    return {"outcome": "raised", "detail": detail}


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
