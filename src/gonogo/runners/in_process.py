"""An op with its functions at hand, and cases → records, in this process: for code a user trusts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gonogo.cases import Case, Planned, make_inputs
from gonogo.ops import Kernel, Op
from gonogo.schema import Outcome, Record

if TYPE_CHECKING:
    import torch

MAKERS = 3
"""Threads that draw inputs: NumPy lets go of the interpreter while it draws."""
AHEAD = 2 * MAKERS
"""Cases whose inputs are made before they are asked for."""

NO_ROOM = "the GPU has no room for rows 2^31 elements from the first"
LOST = (
    "the kernel's fault on {} has lost the GPU to this process. gonogo check runs each case in a process that can "
    "be replaced"
)

Made = TypeVar("Made")


def make_ahead(
    make: Callable[[Case], Made], cases: Sequence[Case], start: Callable[[], None] = lambda: None
) -> Iterator[Made]:
    """What `make` makes of each case, in order, by threads that are some cases ahead; each begins with `start`."""
    maker = ThreadPoolExecutor(MAKERS, initializer=start)
    coming: deque[Future[Made]] = deque()
    try:
        for case in cases:
            coming.append(maker.submit(make, case))
            if len(coming) == AHEAD:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        maker.shutdown(cancel_futures=True)  # nobody waits for the rest


@contextmanager
def _one_thread() -> Iterator[None]:
    """Inside, torch has one thread: what comes back from a GPU is small, and waking others takes longer."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _try_inputs(case: Case, device: str, op: Op) -> list[torch.Tensor] | None:
    """The inputs of a case; None where rows far apart find no room: others may use the GPU, too."""
    import torch

    try:
        return make_inputs(case, device, op)
    except torch.OutOfMemoryError:
        if "far" not in case.layout:
            raise
        return None


@dataclass(frozen=True)
class InProcess:
    """Runs kernels here."""

    op: Op
    device: str
    bounds_only: bool = False
    """Whether records are for verdicts alone, and not to be kept."""
    settled: float = -math.inf
    """A bound reading up to this is go without a deterministic one beside it."""
    raised: list[BaseException] = field(default_factory=list, repr=False)
    """The first error of the candidate, where it raised one; no more, for each keeps the tensors of its case."""
    lost: list[str] = field(default_factory=list, repr=False)
    """The case on which a kernel read or wrote where no memory is: nothing runs on the GPU from here on."""

    def run(self, planned: Sequence[Planned], kernels: Sequence[Kernel], *, worst: int = 0) -> list[list[Record]]:
        """Records of each case, of those kernels that take its dtype."""
        return list(self.run_each(planned, kernels, worst=worst))

    def run_each(
        self, planned: Sequence[Planned], kernels: Sequence[Kernel], *, worst: int = 0
    ) -> Iterator[list[Record]]:
        """The same, as they come."""
        from gonogo.execution.bench import Job
        from gonogo.execution.execute import make_records, run_job

        made = self._make_inputs([case for case, _ in planned])
        for number, (case, strategy) in enumerate(planned):
            inputs = None if self.lost else next(made)
            usable = tuple(kernel for kernel in kernels if case.dtype in kernel.dtypes)
            job = Job(
                number, case, strategy, self.op, usable, self.device, worst=worst, bounds_only=self.bounds_only,
                settled=self.settled,
            )  # fmt: skip
            if inputs is None:
                why = LOST.format(self.lost[0]) if self.lost else NO_ROOM
                yield make_records(job, usable, Outcome("refused", why))
                continue
            with _one_thread() if self.device == "cuda" else nullcontext():
                records = list(run_job(job, lambda kernel: None, inputs=inputs, keep_error=self._keep_error))
            if any(record.outcome == "crashed" for record in records):
                self.lost.append(case.id)
            elif "far" in case.layout:
                from torch.cuda import empty_cache

                del inputs
                empty_cache()  # gigabytes that nothing else here would use
            yield records

    def _keep_error(self, kernel: Kernel, error: BaseException) -> None:
        if kernel.role == "candidate" and not self.raised:
            self.raised.append(error)

    def _make_inputs(self, cases: Sequence[Case]) -> Iterator[list[torch.Tensor] | None]:
        """The inputs of each case; while a GPU is at work on one, those of the next are drawn."""
        make = partial(_try_inputs, device=self.device, op=self.op)
        if self.device == "cpu":  # cores are the kernel's
            return map(make, cases)
        from torch.cuda import current_device, set_device

        return make_ahead(make, cases, partial(set_device, current_device()))  # a thread has a device of its own

    def find_narrow_casts(self, case: Case) -> tuple[str, ...]:
        """Formats narrower than float64 that the reference of the op casts to, on one case."""
        from gonogo.instrument.running_error import error_scale
        from gonogo.instrument.running_error.rules import RULES

        found: set[str] = set()

        def watch(context: Any, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
            dtype = kwargs.get("dtype")
            if dtype is not None and dtype.is_floating_point and dtype.itemsize < 8:
                found.add(str(dtype).removeprefix("torch."))
            return RULES["aten._to_copy"](context, func, args, kwargs)

        inputs = make_inputs(case, self.device, self.op)
        error_scale(self.op.load_reference(), inputs, rules={"aten._to_copy": watch})
        return tuple(sorted(found))
