"""A case set up for its kernels: inputs, references by contract, and what has come out so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from gonogo.cases import Case, make_inputs
from gonogo.errors import ReferenceFailed
from gonogo.execution.measurement import Reference, make_reference
from gonogo.ops import Kernel, Op
from gonogo.policies import Twin
from gonogo.schema import Contract


@dataclass(frozen=True, slots=True)
class Job:
    """A case of a plan and the kernels still to be run on it."""

    number: int
    case: Case
    strategy: str
    op: Op
    kernels: tuple[Kernel, ...]
    device: str
    gave_nothing: tuple[str, ...] = ()
    """Names of kernels that ended a worker on this case; none is run again for the others to be compared with."""
    worst: int = 0
    """How many of its worst elements to put into a row, beside what is recorded."""
    bounds_only: bool = False
    """Whether to read no more than a verdict needs: no ErrorStats, policies or other kernels to compare with."""
    settled: float = -math.inf
    """A bound reading up to this is go without a deterministic one beside it."""


@dataclass
class Bench:
    """A case set up."""

    job: Job
    inputs: list[torch.Tensor]
    pristine: list[torch.Tensor]
    announce: Callable[[str], None]
    """Told every kernel before it runs."""
    keep_error: Callable[[Kernel, BaseException], None] = lambda kernel, error: None
    """Told what a kernel raised."""
    references: dict[Contract, Reference] = field(default_factory=dict)
    outputs: dict[str, torch.Tensor | None] = field(default_factory=dict)
    """Of kernels, as far as they have run; None of one that gave nothing to measure."""
    twins: dict[str, Twin | None] = field(default_factory=dict)
    strays: int = 0
    """Elements that the last kernel wrote outside of what it had allocated."""

    @property
    def op(self) -> Op:
        """Whose case it is."""
        return self.job.op

    def reference(self, contract: Contract) -> Reference:
        """Expected output and scales for a contract, computed once."""
        if contract not in self.references:
            shape = self.job.case.shape_of(self.op, self.op.output)
            try:
                self.references[contract] = make_reference(self.op, self.pristine, contract, shape)
            except (MemoryError, torch.OutOfMemoryError):
                raise  # the case is too large for this machine: no mistake of the op
            except Exception as error:  # whatever the code of an own op raises
                raise ReferenceFailed(self.op.name, self.job.case.id, error) from error
        return self.references[contract]

    def restore_inputs(self) -> None:
        """Make them anew, after a kernel that may have written to them."""
        self.inputs = make_inputs(self.job.case, self.job.device, self.op)

    @property
    def reduced_length(self) -> int:
        """Terms of the op's sums; 1 for none."""
        sizes = self.job.case.axis_sizes(self.op)
        return math.prod(sizes[axis] for axis in self.op.reduced)


def prepare(
    job: Job,
    announce: Callable[[str], None] = lambda kernel: None,
    *,
    inputs: list[torch.Tensor] | None = None,
    keep_error: Callable[[Kernel, BaseException], None] = lambda kernel, error: None,
) -> Bench:
    """Inputs, unless at hand, and the references of all contracts that are in force.

    All of that is done before any kernel is announced: what a reference takes is not to be counted as a kernel's.
    """
    inputs = inputs or make_inputs(job.case, job.device, job.op)
    # The copies are in memory of their own; the layout stays with the inputs.
    bench = Bench(job, inputs, [x.contiguous().clone() for x in inputs], announce, keep_error)
    bench.outputs |= dict.fromkeys(job.gave_nothing)
    contracts = [kernel.contract_for(job.case.dtype) for kernel in job.kernels]
    others = [] if job.bounds_only else [Contract()]  # what a policy and the framework's own op are held against
    for contract in dict.fromkeys([*contracts, *others]):
        reference = bench.reference(contract)
        if job.settled == -math.inf:
            reference.sequential_scale  # noqa: B018  computed once it is asked for
    return bench
