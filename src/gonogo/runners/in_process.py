"""An op with its functions at hand, and cases → records, in this process: for code a user trusts."""

from __future__ import annotations

import math
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from gonogo.cases import Call, Case, Planned, make_call, refuse_without_room
from gonogo.errors import CaseTooLarge
from gonogo.ops import Kernel, Op
from gonogo.runners.device import lost_on
from gonogo.schema import Outcome, Record

if TYPE_CHECKING:
    from gonogo.execution.job import Job
    from gonogo.execution.remote import Guests

MAKERS = 2
"""Threads that draw inputs: drawing lets go of the interpreter, but not between two calls."""
AHEAD = 2 * MAKERS
"""Cases whose inputs are made before they are asked for."""

MOST_RESERVED = 1 / 4
"""Of a GPU's memory, what torch may hold without need: after cases of gigabytes it is looked at."""

NO_ROOM = "the GPU has no room for rows 2^31 elements from the first"
LOST = (
    "the kernel's fault on {} has lost the GPU to this process. gonogo check runs each case in a process that can "
    "be replaced"
)

Made = TypeVar("Made")

TURN_S = 1e-4
"""Seconds for which a thread that draws may keep the interpreter to itself; Python's own 5 ms are those of a case.

Whoever calls torch lets go of the interpreter at every call, and then waits so long for it."""
_intervals_lock = threading.RLock()
_intervals_s: list[float] = []
"""What the interval was at first, once for each that is inside `quick_turns`."""


@contextmanager
def quick_turns() -> Iterator[None]:
    """Inside, threads take turns quickly; the interval is put back when the last of several leaves."""
    with _intervals_lock:
        first = _intervals_s[0] if _intervals_s else sys.getswitchinterval()
        _intervals_s.append(first)
        sys.setswitchinterval(min(TURN_S, first))
    try:
        yield
    finally:
        with _intervals_lock:
            _intervals_s.pop()
            if not _intervals_s:
                sys.setswitchinterval(first)


def make_ahead(
    make: Callable[[Case], Made], cases: Sequence[Case], start: Callable[[], None] = lambda: None
) -> Generator[Made]:
    """What `make` makes of each case, in order, by threads that are some cases ahead; each begins with `start`."""
    if not cases:
        return
    maker = ThreadPoolExecutor(MAKERS, initializer=start)
    coming: deque[Future[Made]] = deque()
    try:
        with quick_turns():
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


DECOYS: dict[int, Literal["same", "new"]] = {1: "same", 2: "new"}
"""On which cases of each dtype a kernel is called on other values first: see Job.decoy.

One that keeps what it has made by the shape or the address of its inputs is wrong on all of them.
"""
MAX_TIMEOUTS = 3
"""Time-outs after which the rest is left undone: a kernel that hangs, hangs on most cases."""


def _try_call(case: Case, device: str, op: Op) -> Call | None:
    """The arguments of a case; None where there is no room for them ahead of their turn."""
    try:
        return make_call(case, device, op)
    except CaseTooLarge:
        return None


def _refuse(job: Job, error: CaseTooLarge) -> list[Record]:
    """Records of a case whose rows far apart find no room, as others may use the GPU, too; else it is raised."""
    from gonogo.execution.job import make_records

    if "far" not in job.case.layout or error.where != "cuda":
        raise error
    return make_records(job, job.kernels, Outcome("refused", NO_ROOM))


def _let_go() -> None:
    """Give gigabytes back that nothing else here would use, unless they are a small part of the GPU's."""
    from torch.cuda import empty_cache, mem_get_info, memory_reserved

    if memory_reserved() > MOST_RESERVED * mem_get_info()[1]:
        empty_cache()  # of all sizes: what is allocated next takes far longer


@dataclass(frozen=True)
class InProcess:
    """Runs kernels here."""

    op: Op
    device: str
    bounds_only: bool = False
    """Whether records are for verdicts alone, and not to be kept."""
    settled: float = -math.inf
    """A bound reading up to this is go without a deterministic one beside it."""
    guests: Guests | None = field(default=None, repr=False)
    """Where a kernel runs that is not to run here."""
    raised: list[BaseException] = field(default_factory=list, repr=False)
    """The first error of the candidate, where it raised one; no more, for each keeps the tensors of its case."""
    timed_out: list[str] = field(default_factory=list, repr=False)
    """Cases on which a kernel has hung: after MAX_TIMEOUTS of them it is not run any more."""
    in_vain: list[str] = field(default_factory=list, repr=False)
    """Cases on which memory ran out though nothing was kept any more: from then on nothing is let go of."""
    decoyed: list[str] = field(default_factory=list, repr=False)
    """Cases before which a kernel was to be called on other values."""
    lost: list[str] = field(default_factory=list, repr=False)
    """The case on which a kernel read or wrote where no memory is: nothing runs on the GPU from here on."""

    def run(self, planned: Sequence[Planned], kernels: Sequence[Kernel], *, worst: int = 0) -> list[list[Record]]:
        """Records of each case, of those kernels that take its dtype."""
        return list(self.run_each(planned, kernels, worst=worst))

    def run_each(
        self, planned: Sequence[Planned], kernels: Sequence[Kernel], *, worst: int = 0
    ) -> Iterator[list[Record]]:
        """Records of each case, of those kernels that take its dtype, as soon as the case is done."""
        from gonogo.execution import kept

        fresh = [kept.STORE.find(self.op, case, self.device) is None for case, _ in planned]
        calls = self._make_calls([case for (case, _), is_fresh in zip(planned, fresh, strict=True) if is_fresh])
        with closing(calls):  # an error that somebody keeps would keep its threads, too
            yield from self._run_planned(planned, fresh, calls, kernels, worst)

    def _run_planned(
        self, planned: Sequence[Planned], fresh: Sequence[bool], calls: Iterator[Call | None],
        kernels: Sequence[Kernel], worst: int,
    ) -> Iterator[list[Record]]:  # fmt: skip
        from gonogo.execution.job import Job, make_records

        seen: Counter[str] = Counter()
        for number, (case, strategy) in enumerate(planned):
            seen[case.dtype] += 1
            usable = tuple(kernel for kernel in kernels if case.dtype in kernel.dtypes)
            decoy: Literal["", "same", "new"] = "" if self.op.is_given else DECOYS.get(seen[case.dtype], "")
            self.decoyed.extend([case.id] if decoy else [])
            job = Job(
                number, case, strategy, self.op, usable, self.device, worst=worst, bounds_only=self.bounds_only,
                settled=self.settled, decoy=decoy,
            )  # fmt: skip
            if self.lost:
                yield make_records(job, usable, Outcome("refused", LOST.format(self.lost[0])))
                continue
            if len(self.timed_out) >= MAX_TIMEOUTS:
                yield make_records(job, usable, Outcome("timed-out", f"not run: it has hung {MAX_TIMEOUTS} times"))
                continue
            records = self._run_job(job, next(calls) if fresh[number] else None)
            self.timed_out.extend(case.id for record in records if record.outcome == "timed-out")
            if "far" in case.layout and self.device == "cuda" and not self.lost:
                _let_go()
            yield records

    def _run_job(self, job: Job, call: Call | None) -> list[Record]:
        """Its records; where memory runs out, those of a second try, when no case is kept any more."""
        from gonogo.execution import kept

        noted = len(self.raised)
        try:
            records = self._try_job(job, call)
            if all(record.outcome != "out-of-memory" for record in records) or not self._can_let_go():
                return records
        except CaseTooLarge as error:
            if not self._can_let_go():
                return _refuse(job, error)
        # Out of the handler, and without the call: an error and its frames hold the tensors of the case.
        call = None
        del self.raised[noted:]
        kept.forget_cases()
        try:
            records = self._try_job(job, None)
        except CaseTooLarge as error:
            return _refuse(job, error)
        self.in_vain.extend(job.case.id for record in records if record.outcome == "out-of-memory")
        return records

    def _can_let_go(self) -> bool:
        from gonogo.execution import kept

        return kept.STORE.is_used and not self.in_vain and not self.lost

    def _try_job(self, job: Job, call: Call | None) -> list[Record]:
        """Its records, from a call that was made ahead, if one was, or from what is kept of the case."""
        from gonogo.execution import kept
        from gonogo.execution.execute import run_job

        known = kept.STORE.find(self.op, job.case, self.device)
        if known is None:
            call = call or make_call(job.case, self.device, self.op)
            with refuse_without_room(job.case, self.op, self.device):
                known = kept.start_keeping(self.op, call)
        with _one_thread() if self.device == "cuda" else nullcontext():
            records = list(run_job(
                job, lambda kernel: None, call=call, kept=known, keep_error=self._keep_error, guests=self.guests
            ))  # fmt: skip
        if self.guests is None and any(record.outcome == "crashed" for record in records):
            self.lost.append(job.case.id)
            lost_on.append(job.case.id)
        elif known is not None:
            kept.STORE.keep(self.op, job.case, self.device, known)
        return records

    def _keep_error(self, kernel: Kernel, error: BaseException) -> None:
        if kernel.role == "candidate" and not self.raised:
            self.raised.append(error)

    def _make_calls(self, cases: Sequence[Case]) -> Generator[Call | None]:
        """The arguments of each case; while a GPU is at work on one, those of the next are drawn."""
        make = partial(_try_call, device=self.device, op=self.op)
        # Cores are the kernel's; and a generator of a user's may draw from what all threads share.
        if self.device == "cpu" or self.op.draw is not None:
            return (make(case) for case in cases)
        from torch.cuda import current_device, set_device

        return make_ahead(make, cases, partial(set_device, current_device()))  # a thread has a device of its own

    def find_narrow_casts(self, case: Case) -> tuple[str, ...]:
        """Formats narrower than float64 that the reference of the op casts to, on one case."""
        from gonogo.execution.reference import find_narrow_casts

        return find_narrow_casts(self.op, make_call(case, self.device, self.op))
