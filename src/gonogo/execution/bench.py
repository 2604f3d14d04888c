"""A case set up for its kernels: its call, references by contract, and what has come out so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from gonogo.cases import Call, check_room, is_out_of_memory, make_call
from gonogo.errors import BadArguments, ReferenceFailed
from gonogo.execution.job import Job
from gonogo.execution.reference import Reference, make_reference, make_references
from gonogo.guest import flags
from gonogo.ops import Kernel, Op
from gonogo.policies import Twin
from gonogo.schema import Contract

if TYPE_CHECKING:
    from gonogo.execution.judging import Judged
    from gonogo.execution.kept import Kept
    from gonogo.execution.remote import Guests


@dataclass
class Bench:
    """A case set up."""

    job: Job
    call: Call
    pristine: Call
    """The same arguments in memory of their own, contiguous."""
    announce: Callable[[str], None]
    """Told every kernel before it runs."""
    keep_error: Callable[[Kernel, BaseException], None] = lambda kernel, error: None
    """Told what a kernel raised."""
    by_contract: dict[Contract, tuple[Reference, ...]] = field(default_factory=dict)
    outputs: dict[str, dict[str, torch.Tensor] | None] = field(default_factory=dict)
    """Of kernels, as far as they have run, by leaf; None of one that gave nothing to measure."""
    judged: dict[str, list[Judged]] = field(default_factory=dict)
    """Of the same kernels, the leaves as they are judged."""
    twins: dict[str, Twin | None] = field(default_factory=dict)
    opened: dict[str, Callable[..., Any]] = field(default_factory=dict)
    """Kernels as they are called, by name: of a module a copy."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Of the last call: leaves that stand in the memory of an argument that was to be written, and its leaf."""
    changed: list[str] = field(default_factory=list)
    """Parameters of a module that the last call has changed."""
    guests: Guests | None = None
    """Where strangers' kernels run."""
    reformed: list[str] = field(default_factory=list)
    """Arguments that the last calls have left in another form."""
    told_changed: tuple[str, ...] = ()
    """Arguments that a guest has changed: those of this process are as they were."""
    told_shared: tuple[str, ...] = ()
    """Leaves that stood in the memory of an argument there."""
    unrepeated: int = 0
    """Of many calls there on the same arguments, those that gave something else."""
    strays: int = 0
    """Elements that the last kernel, run by a guest, wrote outside of what it had allocated."""
    guards: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    """Memory around what the last kernel run here had allocated, and what it holds unless it was written."""
    kept: Kept | None = None
    """What the call is a copy of, or what was kept of it."""

    @property
    def op(self) -> Op:
        """Whose case it is."""
        return self.job.op

    @property
    def dtypes(self) -> set[str]:
        """Of the case, and of all arguments."""
        return {self.job.case.dtype, *(str(x.dtype).removeprefix("torch.") for _, x in self.call.tensors)}

    def references(self, contract: Contract) -> tuple[Reference, ...]:
        """Expected values and scales for a contract, leaf by leaf, computed once."""
        if contract not in self.by_contract:
            try:
                # The reference itself is traced with known switches; only a nest is asked for its dtypes before.
                with flags.keep() if self.op.is_nest else nullcontext():
                    self.by_contract[contract] = self._make_references(contract)
            except BadArguments:
                raise
            except Exception as error:  # whatever the code of an own op raises
                if is_out_of_memory(error):
                    raise  # the case is too large for this machine: no mistake of the op
                raise ReferenceFailed(self.op.name, self.job.case.id, error) from error
        return self.by_contract[contract]

    def _make_references(self, contract: Contract) -> tuple[Reference, ...]:
        case = self.job.case
        if self.op.is_nest:
            return make_references(self.op, self.pristine, contract, case.id)
        shape = case.shape_of(self.op, self.op.output)
        return (make_reference(self.op, self.pristine, contract, shape, contract.output or case.dtype),)

    def reference(self, contract: Contract) -> Reference:
        """The one leaf of an op whose output is a tensor."""
        (reference,) = self.references(contract)
        return reference

    def output(self, kernel: str) -> torch.Tensor | None:
        """What a kernel of such an op gave, as it is judged; None where that cannot be measured."""
        return None if self.outputs.get(kernel) is None else self.judged[kernel][0].output

    def restore_inputs(self) -> None:
        """Make them anew, after a kernel that may have written to them."""
        job = self.job
        self.call = make_call(job.case, job.device, self.op) if self.kept is None else _copy_kept(self.kept, job)

    @property
    def reduced_length(self) -> int:
        """Terms of the op's sums; 1 for none."""
        sizes = self.job.case.axis_sizes(self.op)
        return math.prod(sizes[axis] for axis in self.op.reduced)


def prepare(
    job: Job,
    announce: Callable[[str], None] = lambda kernel: None,
    *,
    call: Call | None = None,
    kept: Kept | None = None,
    keep_error: Callable[[Kernel, BaseException], None] = lambda kernel, error: None,
    guests: Guests | None = None,
) -> Bench:
    """The call, unless at hand or kept, and the references of all contracts that are in force.

    All of that is done before any kernel is announced: what a reference takes is not to be counted as a kernel's.
    """
    if kept is not None and (call is None or not kept.far):
        call = _copy_kept(kept, job)
    call = call or make_call(job.case, job.device, job.op)
    pristine, by_contract = (copy_call(call), {}) if kept is None else (kept.pristine, kept.by_contract)
    bench = Bench(job, call, pristine, announce, keep_error, by_contract, guests=guests, kept=kept)
    bench.outputs |= dict.fromkeys(job.gave_nothing)
    contracts = [kernel.contract_for(job.case.dtype) for kernel in job.kernels]
    others = [] if job.bounds_only else [Contract()]  # what a policy and the framework's own op are held against
    for contract in dict.fromkeys([*contracts, *others]):
        references = bench.references(contract)
        if job.settled == -math.inf:
            for reference in references:
                reference.sequential_scale  # noqa: B018  computed once it is asked for
    return bench


def _copy_kept(kept: Kept, job: Job) -> Call:
    """The arguments of a case that is kept; rows far apart take gigabytes, which must be there."""
    if kept.far:
        check_room(job.case, job.op, job.device)
    return kept.copy_laid()


def copy_call(call: Call) -> Call:
    """The same arguments in memory of their own, contiguous: the layout stays with the inputs."""
    return call.map(lambda path, x: x.contiguous() if not x.is_contiguous() else x.clone())
