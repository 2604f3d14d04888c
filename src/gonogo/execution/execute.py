"""One case, its kernels → records. Runs inside a worker; whatever a kernel does must stay here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from gonogo.cases import Call, is_out_of_memory, refuse_without_room
from gonogo.errors import BadArguments, BadKernelFile, BadModule, CampaignFailed, GonogoError
from gonogo.execution.bench import Bench, prepare
from gonogo.execution.call import Leaves, call_twice
from gonogo.execution.error_map import map_errors
from gonogo.execution.functions import load_function, open_kernel
from gonogo.execution.job import OWN, Job, describe
from gonogo.execution.judging import judge_leaves, read_leaves, settle_leaves
from gonogo.execution.leaves import as_tensor
from gonogo.execution.measurement import compare_outputs, measure_output
from gonogo.execution.outcome import explain, find_fault
from gonogo.formats import FORMATS
from gonogo.guest import flags
from gonogo.guest.launches import Launches, RefusedLaunch, WrongDevice
from gonogo.instrument.stats import measure
from gonogo.ops import AtHand, Elsewhere, Kernel
from gonogo.policies import Twin
from gonogo.records import MEASURED
from gonogo.schema import ULP_SATURATED, Contract, Element, Outcome, Record

if TYPE_CHECKING:
    from gonogo.execution.kept import Kept
    from gonogo.execution.remote import Guests

REFUSED_BY_INTERPRETER = {
    "bfloat16": "Triton's interpreter computes bfloat16 as integers and truncates on conversion"
}


def run_job(
    job: Job,
    announce: Callable[[str], None],
    *,
    call: Call | None = None,
    kept: Kept | None = None,
    keep_error: Callable[[Kernel, BaseException], None] = lambda kernel, error: None,
    guests: Guests | None = None,
) -> Iterator[Record]:
    """Records of a case, kernel by kernel; `announce` is told each before it runs, `keep_error` what it raised.

    Refused where memory runs out but for a kernel.
    """
    with refuse_without_room(job.case, job.op, job.device):
        bench = prepare(job, announce, call=call, kept=kept, keep_error=keep_error, guests=guests)
        for kernel in job.kernels:
            announce(kernel.name)
            record = run_kernel(bench, kernel)
            yield look_at(record, bench, kernel, job.worst) if job.worst else record


def run_kernel(bench: Bench, kernel: Kernel) -> Record:
    """Call a kernel twice on the case and record all there is to say."""
    record = describe(bench.job, kernel)
    bench.outputs.setdefault(kernel.name, None)
    interpreted = bench.job.device == "cpu" and kernel.framework == "triton"
    refused = next((why for dtype, why in REFUSED_BY_INTERPRETER.items() if dtype in bench.dtypes), None)
    if interpreted and refused:
        return record.end(Outcome("refused", refused))
    if isinstance(kernel.source, Elsewhere):
        return _run_elsewhere(bench, kernel, record, refused)
    launches = Launches(bench.job.device, refused)
    try:
        if kernel.name not in bench.opened:
            bench.opened[kernel.name] = open_kernel(load_function(kernel), bench.op, bench.job.device)
        function = bench.opened[kernel.name]
        with flags.outside() if isinstance(kernel.source, AtHand) else flags.keep() as changed:
            first, again, elapsed = launches.watch(lambda: call_twice(function, kernel, bench))
    except KeyboardInterrupt:  # a worker ignores the signal, so it is the user's, who runs this by hand
        raise
    except (BadKernelFile, BadModule, BadArguments):  # there is no kernel, or none for this device or op
        raise
    except WrongDevice as error:
        raise BadKernelFile(error.name, error.problem).with_traceback(error.__traceback__) from None
    except RefusedLaunch as refusal:
        bench.restore_inputs()
        return replace(record, framework="triton").end(Outcome("refused", str(refusal)))
    except BaseException as error:  # noqa: BLE001  the one place where a kernel may do what it likes
        bench.keep_error(kernel, error)
        outcome = explain(error, bench.job.device)
        if outcome.word != "crashed":
            bench.restore_inputs()
        return replace(record, error=outcome.error).end(outcome)
    if launches.seen and record.framework != "triton":  # whatever it was declared as
        record = replace(record, framework="triton")
    if changed:
        bench.restore_inputs()
        return record.end(_tell_changed(changed))
    try:
        return _measure(bench, kernel, record, first, again, elapsed)
    except GonogoError:
        raise
    except Exception as error:  # whatever an output does that is looked at
        if is_out_of_memory(error):
            raise
        bench.outputs[kernel.name] = None
        outcome = explain(error, bench.job.device)
        if outcome.word == "raised":
            bench.restore_inputs()
            outcome = replace(outcome, word="no-output", detail=f"its output cannot be read: {outcome.detail}")
        return replace(record, error=outcome.error).end(outcome)


def _tell_changed(switches: Sequence[str]) -> Outcome:
    return Outcome("state-changed", "; ".join(switches)[:300])


def _run_elsewhere(bench: Bench, kernel: Kernel, record: Record, refused: str | None) -> Record:
    """The record of a stranger's kernel, which runs in a process of its own."""
    from gonogo.execution.remote import GuestEnded
    from gonogo.execution.replies import GuestRefused, Raised

    assert bench.guests is not None
    assert isinstance(kernel.source, Elsewhere)
    try:
        called = bench.guests.call(kernel, bench, refused)
    except GuestEnded as ended:
        return record.end(Outcome(ended.word, ended.detail))
    except GuestRefused as refusal:
        if refused is None:  # nothing here is to be refused: it is a lie
            return record.end(Outcome("broken-protocol", "a launch was refused that is not to be"))
        return replace(record, framework="triton").end(Outcome("refused", str(refusal)))
    if isinstance(called, Raised):
        if called.word == "crashed":  # the GPU's context is gone with the kernel
            bench.guests.drop(kernel.source)
        return replace(record, error=called.error).end(Outcome(called.word, called.detail, error=called.error))
    if called.launched:
        record = replace(record, framework="triton")
    if called.flags:
        bench.guests.drop(kernel.source)  # the next case would begin with what this one left
        return record.end(_tell_changed(called.flags))
    bench.strays, bench.aliases, bench.changed = called.strays, dict(called.aliases), list(called.parameters)
    bench.told_changed, bench.told_shared, bench.unrepeated = called.changed, called.shared, called.unrepeated
    record = replace(record, passes_own=passes_own(bench, called.first))
    return _measure(bench, kernel, record, called.first, called.again, called.elapsed_s)


def passes_own(bench: Bench, leaves: Leaves) -> bool | None:
    """Whether an output passes the check of the benchmark that its op is from, on a case of that benchmark."""
    if bench.op.own_check is None or bench.job.strategy != OWN:
        return None
    try:
        with flags.keep():
            copied = bench.pristine.map(lambda path, x: x.clone())  # the reference itself may write to them
            return bool(bench.op.own_check.load()(copied, leaves))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return False  # where the check itself stumbles over an output, that does not pass


def _measure(
    bench: Bench, kernel: Kernel, record: Record, first: Leaves, again: Leaves, elapsed_s: float | None
) -> Record:
    """The record of a kernel that has run, with whatever can be read of its output."""
    time_us = None if elapsed_s is None else elapsed_s * 1e6
    outcome, pairs, near = find_fault(first, again, kernel, bench)
    if outcome.word not in MEASURED:
        return replace(record, time_us=time_us).end(outcome)
    leaves = bench.judged[kernel.name] = judge_leaves(pairs, near, dict(bench.pristine.tensors))
    bench.outputs[kernel.name] = {pair.path: as_tensor(first[pair.path]).detach() for pair in pairs}
    settled = settle_leaves(leaves) if outcome.word == "ok" else outcome
    measured = record.take(read_leaves(leaves, bench.job.settled), settled, time_us)
    if not bench.job.bounds_only and not bench.op.is_nest:
        output = leaves[0].output
        inputs = [x for _, x in bench.pristine.tensors]
        measured = measure_output(
            measured, bench.op, bench.job.case.dtype, output, leaves[0].reference, bench.reduced_length,
            kernel.current.get(bench.job.case.dtype), inputs, find_twin(bench, kernel),
        )  # fmt: skip
        measured = _compare(measured, bench, kernel, output)
    elif bench.job.stats and not bench.op.is_nest:
        output = leaves[0].output
        expected = leaves[0].reference.expected
        measured = replace(measured, stats=measure(output.to(expected.device), expected))
    return record.end(settled) if settled.word == "refused" else measured  # a reading of nothing is none


def _compare(record: Record, bench: Bench, kernel: Kernel, output: torch.Tensor) -> Record:
    """With bits and signal against the control that a kernel names; a control is held against the op's first."""
    dtype = bench.job.case.dtype
    first = next(k for k in bench.op.kernels if k.role == "control").name
    against = kernel.calibrate_against or first
    if kernel.role != "control" and _control_output(bench, against, kernel) is None:
        against = first  # the one it names does not run here
    if against == kernel.name:
        return record
    control = _control_output(bench, against, kernel)
    if control is None or control.dtype != output.dtype:  # a contract may name an output format of its own
        return record
    reference = bench.reference(bench.op.kernel(against).contract_for(dtype))
    if control.device != output.device:
        control, output = control.cpu(), output.cpu()
    bits_equal, signal = compare_outputs(output, control, reference, dtype)
    return replace(record, compared_with=against, bits_equal=bits_equal, signal=signal)


def _control_output(bench: Bench, name: str, wanted_by: Kernel) -> torch.Tensor | None:
    """A control's output on the case; run again where an earlier worker had recorded it. None where it fails."""
    if name not in bench.outputs:
        bench.outputs[name] = None
        control = bench.op.kernel(name)
        if control.takes(bench.job.case.dtype, bench.job.case.axis_sizes(bench.op)):
            bench.announce(name)  # what it does to the worker is no fault of the kernel that wants it
            record = run_kernel(bench, control)
            if record.outcome == "crashed":
                raise CampaignFailed(f"control {name} lost the GPU's context: {record.detail}")
            bench.announce(wanted_by.name)
    return bench.output(name)


def find_twin(bench: Bench, wanted_by: Kernel) -> Twin | None:
    """Error of the framework's own op on the case; None where there is none, or it failed."""
    name = bench.op.twin
    if name is None:
        return None
    if name not in bench.twins:
        bench.twins[name] = _measure_twin(bench, _control_output(bench, name, wanted_by))
    return bench.twins[name]


def _measure_twin(bench: Bench, output: torch.Tensor | None) -> Twin | None:
    if output is None:
        return None
    expected = bench.reference(Contract()).expected
    error = (output.to(expected.device).double() - expected).abs()
    if not error.numel() or not bool(error.isfinite().all()):
        return None
    return Twin(float(error.max()), float(error.square().mean().sqrt()))


def look_at(record: Record, bench: Bench, kernel: Kernel, count: int) -> Record:
    """With the worst elements of a kernel that has run, of its worst leaf, and where in that the error lies.

    Those that are not finite on one side only come first, whatever the others read; those not judged never come.
    """
    leaves = bench.judged.get(kernel.name)
    if not leaves:
        return record
    readings, mismatched = zip(*(leaf.find_readings() for leaf in leaves), strict=True)
    largest = [float(of_leaf.max()) if of_leaf.numel() else 0.0 for of_leaf in readings]
    worst = max(range(len(leaves)), key=lambda at: (bool(mismatched[at].any()), largest[at], -at))
    leaf = leaves[worst]
    reference = leaf.reference
    order = np.lexsort((-readings[worst].numpy(), ~mismatched[worst].numpy()))
    read = np.where(mismatched[worst].numpy(), np.inf, readings[worst].numpy())
    if reference.unjudged is not None:
        unjudged = reference.unjudged.cpu().reshape(-1).numpy()
        order, read = order[~unjudged[order]], np.where(unjudged, np.nan, read)
    expected, actual = reference.expected.cpu().reshape(-1), leaf.output.cpu().reshape(-1)
    elements = []
    for at in order[:count].tolist():
        index = tuple(int(i) for i in np.unravel_index(at, tuple(leaf.output.shape)))
        ulp = (
            measure(actual[at : at + 1], expected[at : at + 1]).max_ulp if leaf.dtype in FORMATS else ULP_SATURATED
        )
        elements.append(Element(
            index, expected[at].item(), actual[at].item(), ulp, float(readings[worst][at]), leaf.pair.shown or None
        ))  # fmt: skip
    shown = map_errors(read, tuple(leaf.output.shape), leaf.pair.shown or None) if read.size else None
    return replace(record, worst=tuple(elements), error_map=shown)
