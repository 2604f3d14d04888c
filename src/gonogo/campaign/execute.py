"""One case, its kernels → rows. Runs inside a worker; whatever a kernel does must stay here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gonogo.campaign.measurement import (
    Reference,
    compare_outputs,
    count_non_finite,
    make_reference,
    measure_output,
)
from gonogo.campaign.poison import poison_bits, poisoned_memory
from gonogo.cases import Case, make_inputs
from gonogo.formats import get_format
from gonogo.measure.stats import measure
from gonogo.ops import Kernel, Op, get_op
from gonogo.policies import Twin
from gonogo.records import MEASURED, Row
from gonogo.schema import Contract

REFUSED_BY_INTERPRETER = {
    "bfloat16": "Triton's interpreter computes bfloat16 as integers and truncates on conversion"
}


@dataclass(frozen=True, slots=True)
class Job:
    """A case of a plan and the kernels still to be run on it."""

    number: int
    case: Case
    strategy: str
    kernels: tuple[str, ...]
    device: str


@dataclass
class Bench:
    """A case set up: inputs, references by contract, and the controls' outputs."""

    job: Job
    op: Op
    inputs: list[torch.Tensor]
    pristine: list[torch.Tensor]
    references: dict[Contract, Reference] = field(default_factory=dict)
    outputs: dict[str, torch.Tensor | None] = field(default_factory=dict)
    """Of kernels, as far as they have run; None of one that gave nothing to measure."""
    twins: dict[str, Twin | None] = field(default_factory=dict)

    def reference(self, contract: Contract) -> Reference:
        """Expected output and scales for a contract, computed once."""
        if contract not in self.references:
            self.references[contract] = make_reference(self.op, self.pristine, contract)
        return self.references[contract]

    @property
    def reduced_length(self) -> int:
        """Terms of the op's sums; 1 for none."""
        sizes = self.job.case.axis_sizes(self.op)
        return math.prod(sizes[axis] for axis in self.op.reduced)


def prepare(job: Job) -> Bench:
    """Inputs and the reference of the default contract."""
    op = get_op(job.case.op)
    inputs = make_inputs(job.case, job.device)
    bench = Bench(job, op, inputs, [_copy(x) for x in inputs])
    bench.reference(Contract())
    return bench


def run_job(job: Job, announce: Callable[[str], None]) -> Iterator[Row]:
    """Rows of a case, kernel by kernel; `announce` is told each kernel before it runs."""
    bench = prepare(job)
    for name in job.kernels:
        announce(name)
        yield run_kernel(bench, bench.op.kernel(name))


def run_kernel(bench: Bench, kernel: Kernel) -> Row:
    """Call a kernel twice on the case and record all there is to say."""
    row = describe(bench.job, bench.op, kernel)
    interpreted = bench.job.device == "cpu" and kernel.framework == "triton"
    if interpreted and bench.job.case.dtype in REFUSED_BY_INTERPRETER:
        return row | {"outcome": "refused", "detail": REFUSED_BY_INTERPRETER[bench.job.case.dtype]}
    try:
        function = bench.op.load_kernel(kernel.name)
        first, again, elapsed = _call_twice(function, kernel, bench)
    except BaseException as error:  # noqa: BLE001  the one place where a kernel may do what it likes
        row |= _explain(error, bench.job.device)
        if row["outcome"] != "crashed":
            _restore_inputs(bench)
        return row
    row["time_us"] = elapsed * 1e6
    outcome, detail = _find_fault(first, again, kernel, bench)
    if outcome not in MEASURED:
        return row | {"outcome": outcome, "detail": detail}
    assert isinstance(first, torch.Tensor)
    output, reference = first.detach(), bench.reference(kernel.contract_for(bench.job.case.dtype))
    bench.outputs[kernel.name] = output
    row |= measure_output(
        bench.op, bench.job.case.dtype, output, reference, bench.reduced_length,
        kernel.current.get(bench.job.case.dtype), bench.pristine, _find_twin(bench),
    )  # fmt: skip
    row |= _compare(bench, kernel, output)
    if outcome == "ok":
        mismatched = count_non_finite(output, reference, bench.job.case.dtype)
        if mismatched:
            outcome, detail = "non-finite", f"{mismatched} elements"
    return row | {"outcome": outcome, "detail": detail}


def describe(job: Job, op: Op, kernel: Kernel) -> Row:
    """The columns that are known before anything has run."""
    case, sizes = job.case, job.case.axis_sizes(op)
    return {
        "number": job.number, "case": case.id, "op": op.name, "dtype": case.dtype,
        "shape": "x".join(map(str, case.sizes)), "layout": case.layout, "distribution": case.distribution,
        "strategy": job.strategy, "seed": case.seed,
        "reduced_length": math.prod(sizes[axis] for axis in op.reduced),
        "kernel": kernel.name, "role": kernel.role, "framework": kernel.framework,
        "contract": kernel.contract_for(case.dtype).describe(),
        "calibrate_against": kernel.calibrate_against, "current_atol": kernel.current.get(case.dtype),
    }  # fmt: skip


def _call_twice(function: Callable[..., Any], kernel: Kernel, bench: Bench) -> tuple[Any, Any, float]:
    """Two outputs on the same inputs in freshly poisoned memory, and the seconds of the second call."""
    outputs, elapsed = [], 0.0
    for _ in range(2):
        args = [_to_numpy(x) for x in bench.inputs] if kernel.framework == "numpy" else bench.inputs
        with poisoned_memory():
            started = time.perf_counter()
            output = function(*args)
            if bench.job.device != "cpu":
                torch.cuda.synchronize()
            elapsed = time.perf_counter() - started
        outputs.append(_to_torch(output) if isinstance(output, np.ndarray) else output)
    return outputs[0], outputs[1], elapsed


def _find_fault(first: Any, again: Any, kernel: Kernel, bench: Bench) -> tuple[str, str | None]:
    """The first thing wrong with an output, short of its numbers."""
    case, shape = bench.job.case, bench.job.case.shape_of(bench.op, bench.op.output)
    wrong = _find_wrong_kind(first, shape, case.dtype) or _find_wrong_kind(again, shape, case.dtype)
    pairs: list[tuple[torch.Tensor, Any]] = [
        (_bits(now), _bits(before)) for now, before in zip(bench.inputs, bench.pristine, strict=True)
    ]
    if not wrong:
        pairs += [(_bits(first), _bits(again)), (_bits(first), poison_bits(first.dtype))]
    differ = _count_different(pairs)
    changed = [given.name for given, count in zip(bench.op.inputs, differ, strict=False) if count]
    if changed:
        _restore_inputs(bench)
    if wrong:
        return wrong
    unrepeated, unwritten = differ[-2], first.numel() - differ[-1]
    if any(_shares_memory(first, x) for x in bench.inputs):
        return "aliased", "the output is a view of an input"
    if changed:
        return "inputs-changed", ", ".join(changed)
    if unwritten:
        return "unwritten", f"{unwritten} of {first.numel()} elements"
    if unrepeated and not kernel.contract.atomics:
        return "not-repeatable", f"{unrepeated} elements differ in a second call"
    return "ok", None


def _find_wrong_kind(output: Any, shape: tuple[int, ...], dtype: str) -> tuple[str, str] | None:
    if not isinstance(output, torch.Tensor):
        return "no-output", f"returned {type(output).__name__}"
    if tuple(output.shape) != shape:
        return "wrong-shape", f"{tuple(output.shape)}, not {shape}"
    found = str(output.dtype).removeprefix("torch.")
    return None if found == dtype else ("wrong-dtype", f"{found}, not {dtype}")


def _count_different(pairs: Sequence[tuple[torch.Tensor, Any]]) -> list[int]:
    """How many elements of each pair differ, in one wait for the GPU."""
    counts = torch.stack([(first != second).sum().to(pairs[0][0].device) for first, second in pairs])
    return [int(count) for count in counts.tolist()]


def _compare(bench: Bench, kernel: Kernel, output: torch.Tensor) -> Row:
    """Bits and signal against the control a faulty kernel names; a control is held against the op's first."""
    dtype = bench.job.case.dtype
    first = next(k for k in bench.op.kernels if k.role == "control").name
    against = kernel.calibrate_against or first
    if kernel.role == "faulty" and _control_output(bench, against) is None:
        against = first  # the one it names does not run here
    if against == kernel.name:
        return {}
    control = _control_output(bench, against)
    if control is None:
        return {}
    reference = bench.reference(bench.op.kernel(against).contract_for(dtype))
    if control.device != output.device:
        control, output = control.cpu(), output.cpu()
    return {"compared_with": against} | compare_outputs(output, control, reference, dtype)


def _control_output(bench: Bench, name: str) -> torch.Tensor | None:
    """A control's output on the case; run again where an earlier worker had recorded it. None where it fails."""
    if name not in bench.outputs:
        bench.outputs[name] = None
        run_kernel(bench, bench.op.kernel(name))
    return bench.outputs[name]


def _find_twin(bench: Bench) -> Twin | None:
    """Error of the framework's own op on the case."""
    name = f"{bench.op.name}_torch"
    if name not in bench.twins and any(kernel.name == name for kernel in bench.op.kernels):
        bench.twins[name] = _measure_twin(bench, _control_output(bench, name))
    return bench.twins.get(name)


def _measure_twin(bench: Bench, output: torch.Tensor | None) -> Twin | None:
    if output is None:
        return None
    expected = bench.reference(Contract()).expected
    error = (output.to(expected.device).double() - expected).abs()
    if not error.numel() or not bool(error.isfinite().all()):
        return None
    return Twin(float(error.max()), float(error.square().mean().sqrt()))


def _explain(error: BaseException, device: str) -> Row:
    """Outcome of a call that did not return."""
    detail = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return {"outcome": "out-of-memory", "detail": detail}
    if _is_gpu_lost(device):
        return {"outcome": "crashed", "detail": detail}
    return {"outcome": "raised", "detail": detail}


def _is_gpu_lost(device: str) -> bool:
    if device == "cpu":
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _restore_inputs(bench: Bench) -> None:
    bench.inputs = make_inputs(bench.job.case, bench.job.device)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements in memory of their own; the layout stays with the inputs."""
    return tensor.contiguous().clone()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(integers[tensor.dtype.itemsize])


def _shares_memory(output: torch.Tensor, given: torch.Tensor) -> bool:
    return output.numel() > 0 and output.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()


def _to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    host = tensor.cpu()
    if host.dtype is torch.bfloat16:
        import ml_dtypes

        return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray[Any, Any] = host.numpy()
    return array


def _to_torch(array: np.ndarray[Any, Any]) -> Any:
    """As a tensor over the same memory; as it is where torch has no such dtype."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        return array


def find_worst(bench: Bench, kernel: Kernel, count: int) -> list[Row]:
    """The worst elements of a kernel that has run: index, expected, actual, ULPs apart, bound reading."""
    output = bench.outputs.get(kernel.name)
    if output is None:
        return []
    reference = bench.reference(kernel.contract_for(bench.job.case.dtype))
    expected, actual = reference.expected.cpu().reshape(-1), output.cpu().reshape(-1)
    scale = reference.scale.cpu().reshape(-1)
    distance = get_format(bench.job.case.dtype).cell_distance(actual.double().numpy(), expected.numpy())
    with np.errstate(all="ignore"):
        readings = np.where(distance == 0, 0.0, distance / (reference.unit_roundoff * scale.numpy()))
    elements: list[Row] = []
    for at in np.argsort(-readings, kind="stable")[:count].tolist():
        one = slice(at, at + 1)
        index = np.unravel_index(at, tuple(output.shape))
        elements.append({
            "index": [int(i) for i in index], "expected": float(expected[at]), "actual": float(actual[at]),
            "ulp": measure(actual[one], expected[one]).max_ulp, "bound": float(readings[at]),
        })  # fmt: skip
    return elements


def order_kernels(op: Op, dtype: str) -> tuple[str, ...]:
    """Kernels that take a dtype, controls first: the others are compared with them."""
    usable = [kernel for kernel in op.kernels if dtype in kernel.dtypes]
    return tuple(kernel.name for kernel in sorted(usable, key=lambda kernel: kernel.role != "control"))


def make_rows(job: Job, names: Sequence[str], outcome: str, detail: str) -> list[Row]:
    """Rows of kernels whose worker did not live to tell."""
    op = get_op(job.case.op)
    return [describe(job, op, op.kernel(name)) | {"outcome": outcome, "detail": detail} for name in names]
