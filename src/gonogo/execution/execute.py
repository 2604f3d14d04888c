"""One case, its kernels → rows. Runs inside a worker; whatever a kernel does must stay here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch

from gonogo.errors import BadKernelFile, CampaignFailed
from gonogo.execution.bench import Bench, Job, prepare
from gonogo.execution.call import call_twice
from gonogo.execution.launches import Launches, RefusedLaunch
from gonogo.execution.measurement import (
    compare_outputs,
    find_non_finite,
    measure_output,
    read_bounds,
    settle_outcome,
)
from gonogo.execution.outcome import explain, find_fault
from gonogo.formats import get_format
from gonogo.instrument.stats import measure
from gonogo.ops import Kernel, Op
from gonogo.policies import Twin
from gonogo.records import MEASURED
from gonogo.schema import Contract, Row

REFUSED_BY_INTERPRETER = {
    "bfloat16": "Triton's interpreter computes bfloat16 as integers and truncates on conversion"
}


def run_job(
    job: Job,
    announce: Callable[[str], None],
    *,
    inputs: list[torch.Tensor] | None = None,
    keep_error: Callable[[Kernel, BaseException], None] = lambda kernel, error: None,
) -> Iterator[Row]:
    """Rows of a case, kernel by kernel; `announce` is told each before it runs, `keep_error` what it raised."""
    bench = prepare(job, announce, inputs=inputs, keep_error=keep_error)
    for kernel in job.kernels:
        announce(kernel.name)
        row = run_kernel(bench, kernel)
        yield row | {"worst": find_worst(bench, kernel, job.worst)} if job.worst else row


def run_kernel(bench: Bench, kernel: Kernel) -> Row:
    """Call a kernel twice on the case and record all there is to say."""
    described = describe(bench.job, kernel)
    row = described.copy()
    bench.outputs.setdefault(kernel.name, None)
    interpreted = bench.job.device == "cpu" and kernel.framework == "triton"
    if interpreted and bench.job.case.dtype in REFUSED_BY_INTERPRETER:
        return row | {"outcome": "refused", "detail": REFUSED_BY_INTERPRETER[bench.job.case.dtype]}
    launches = Launches(bench.job.device, REFUSED_BY_INTERPRETER.get(bench.job.case.dtype))
    try:
        function = kernel.load()
        first, again, elapsed = launches.watch(lambda: call_twice(function, kernel, bench))
    except KeyboardInterrupt:  # a worker ignores the signal, so it is the user's, who runs this by hand
        raise
    except BadKernelFile:  # there is no kernel, or none for this device
        raise
    except RefusedLaunch as refusal:
        bench.restore_inputs()
        return row | {"framework": "triton", "outcome": "refused", "detail": str(refusal)}
    except BaseException as error:  # noqa: BLE001  the one place where a kernel may do what it likes
        bench.keep_error(kernel, error)
        row |= explain(error, bench.job.device)
        if row["outcome"] != "crashed":
            bench.restore_inputs()
        return row
    if launches.seen:  # whatever it was declared as
        described["framework"] = row["framework"] = "triton"
    row["time_us"] = elapsed * 1e6
    outcome, detail = find_fault(first, again, kernel, bench)
    if outcome not in MEASURED:
        return row | {"outcome": outcome, "detail": detail}
    assert isinstance(first, torch.Tensor)
    output, reference = first.detach(), bench.reference(kernel.contract_for(bench.job.case.dtype))
    bench.outputs[kernel.name] = output
    row |= read_bounds(output, reference, bench.job.settled)
    if not bench.job.bounds_only:
        row |= measure_output(
            bench.op, bench.job.case.dtype, output, reference, bench.reduced_length,
            kernel.current.get(bench.job.case.dtype), bench.pristine, find_twin(bench, kernel),
        )  # fmt: skip
        row |= _compare(bench, kernel, output)
    if outcome == "ok":
        settled = settle_outcome(output, reference, reference.contract.output or bench.job.case.dtype)
        return (described if settled["outcome"] == "refused" else row) | settled  # a reading of nothing is none
    return row | {"outcome": outcome, "detail": detail}


def describe(job: Job, kernel: Kernel) -> Row:
    """The columns that are known before anything has run."""
    op, case = job.op, job.case
    sizes = case.axis_sizes(op)
    return {
        "number": job.number, "case": case.id, "op": op.name, "dtype": case.dtype,
        "shape": "x".join(map(str, case.sizes)), "layout": case.layout, "distribution": case.distribution,
        "strategy": job.strategy, "seed": case.seed,
        "reduced_length": math.prod(sizes[axis] for axis in op.reduced),
        "kernel": kernel.name, "role": kernel.role, "framework": kernel.framework,
        "contract": kernel.contract_for(case.dtype).describe(),
        "calibrate_against": kernel.calibrate_against, "current_atol": kernel.current.get(case.dtype),
    }  # fmt: skip


def _compare(bench: Bench, kernel: Kernel, output: torch.Tensor) -> Row:
    """Bits and signal against the control that a kernel names; a control is held against the op's first."""
    dtype = bench.job.case.dtype
    first = next(k for k in bench.op.kernels if k.role == "control").name
    against = kernel.calibrate_against or first
    if kernel.role != "control" and _control_output(bench, against, kernel) is None:
        against = first  # the one it names does not run here
    if against == kernel.name:
        return {}
    control = _control_output(bench, against, kernel)
    if control is None or control.dtype != output.dtype:  # a contract may name an output format of its own
        return {}
    reference = bench.reference(bench.op.kernel(against).contract_for(dtype))
    if control.device != output.device:
        control, output = control.cpu(), output.cpu()
    return {"compared_with": against} | compare_outputs(output, control, reference, dtype)


def _control_output(bench: Bench, name: str, wanted_by: Kernel) -> torch.Tensor | None:
    """A control's output on the case; run again where an earlier worker had recorded it. None where it fails."""
    if name not in bench.outputs:
        bench.outputs[name] = None
        control = bench.op.kernel(name)
        if control.takes(bench.job.case.dtype, bench.job.case.axis_sizes(bench.op)):
            bench.announce(name)  # what it does to the worker is no fault of the kernel that wants it
            row = run_kernel(bench, control)
            if row["outcome"] == "crashed":
                raise CampaignFailed(f"control {name} lost the GPU's context: {row['detail']}")
            bench.announce(wanted_by.name)
    return bench.outputs[name]


def find_twin(bench: Bench, wanted_by: Kernel) -> Twin | None:
    """Error of the framework's own op on the case; None where there is none, or it failed."""
    name = f"{bench.op.name}_torch"
    if name not in bench.twins and any(kernel.name == name for kernel in bench.op.kernels):
        bench.twins[name] = _measure_twin(bench, _control_output(bench, name, wanted_by))
    return bench.twins.get(name)


def _measure_twin(bench: Bench, output: torch.Tensor | None) -> Twin | None:
    if output is None:
        return None
    expected = bench.reference(Contract()).expected
    error = (output.to(expected.device).double() - expected).abs()
    if not error.numel() or not bool(error.isfinite().all()):
        return None
    return Twin(float(error.max()), float(error.square().mean().sqrt()))


def find_worst(bench: Bench, kernel: Kernel, count: int) -> list[Row]:
    """The worst elements of a kernel that has run: index, expected, actual, ULPs apart, bound reading.

    Those that are not finite on one side only come first, whatever the others read; those not judged never come.
    """
    output = bench.outputs.get(kernel.name)
    if output is None:
        return []
    dtype = bench.job.case.dtype
    reference = bench.reference(kernel.contract_for(dtype))
    expected, actual = reference.expected.cpu().reshape(-1), output.cpu().reshape(-1)
    scale = reference.scale.cpu().reshape(-1)
    distance = get_format(dtype).cell_distance(actual.double().numpy(), expected.numpy())
    with np.errstate(all="ignore"):
        readings = np.where(distance == 0, 0.0, distance / (reference.unit_roundoff * scale.numpy()))
    mismatched = find_non_finite(output, reference, dtype).cpu().reshape(-1).numpy()
    order = np.lexsort((-readings, ~mismatched))
    if reference.unjudged is not None:
        order = order[~reference.unjudged.cpu().reshape(-1).numpy()[order]]
    elements: list[Row] = []
    for at in order[:count].tolist():
        place = slice(at, at + 1)
        index = np.unravel_index(at, tuple(output.shape))
        elements.append({
            "index": [int(i) for i in index], "expected": float(expected[at]), "actual": float(actual[at]),
            "ulp": measure(actual[place], expected[place]).max_ulp, "bound": float(readings[at]),
        })  # fmt: skip
    return elements


def order_kernels(op: Op, dtype: str, sizes: Mapping[str, int]) -> tuple[Kernel, ...]:
    """Kernels that take a dtype and sizes, controls first: the others are compared with them."""
    usable = [kernel for kernel in op.kernels if kernel.takes(dtype, sizes)]
    return tuple(sorted(usable, key=lambda kernel: kernel.role != "control"))


def make_rows(job: Job, kernels: Sequence[Kernel], outcome: str, detail: str) -> list[Row]:
    """Rows of kernels whose worker did not live to tell."""
    return [describe(job, kernel) | {"outcome": outcome, "detail": detail} for kernel in kernels]
