"""Jobs → records, by worker processes that may crash, hang, exit or eat memory without harm to the rest.

A worker tells which kernel it is about to run. If it dies or must be killed, that kernel gets the outcome and a new
worker takes up the case behind it, without running that kernel again. Where workers share a GPU it may have died of
another's kernel: then a worker that shares with nobody takes its place, and begins with that kernel. A job that
waits in the pipe of a worker that dies goes to another.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from gonogo.errors import CampaignFailed, InputError
from gonogo.execution.job import Job, make_records
from gonogo.execution.told import Told, describe_exit
from gonogo.runners.environment import read_switches
from gonogo.runners.fork_server import find_fork_server, has_ended, start_fork_server
from gonogo.runners.job_queue import JobQueue, Queue
from gonogo.runners.keeper import measure_family
from gonogo.runners.printed import Transcript
from gonogo.runners.sharing import Sharing
from gonogo.runners.stem import COPIES, find_stem
from gonogo.runners.worker import GuestSetting, Stranger, work
from gonogo.schema import Outcome, Record

POLL_S = 0.05
"""How often time-outs and memory are looked at."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
GRACE_S = 90.0
"""What a judge may take beyond the time of its guest: to start it, load it, and to end it."""
SERVER_ENDED = (
    "the process that workers are forked from has ended, and they with it: killed by somebody, or for memory"
)
START_UP_S = 120.0
"""What importing torch and reaching a GPU may take on a busy machine."""
START_SHARING_S = 45.0
"""The same where a GPU is shared: a service that does not answer is not waited for as long."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a kernel may use."""

    timeout_s: float = 60.0
    """Per kernel and case, compilation included."""
    memory_bytes: float = 8 * 2**30
    """Resident memory of a worker, with that of all processes that its kernels have started."""
    shares_gpu: bool = True
    """Whether kernels of other workers may be at work on its GPU at the same time, where a machine can do that."""

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise InputError(f"a time limit of {self.timeout_s:g} s: it must be above 0")
        if not self.memory_bytes > 0:
            raise InputError(f"{self.memory_bytes / 2**30:g} GiB of memory for a worker: it must be above 0")


SHARED_FATE = ("crashed", "timed-out")
"""What may befall a worker through another that shares its GPU."""


class PoolInterrupted(Exception):
    """Somebody does not want the rest any more."""


class Worker:
    """A process and what it is doing."""

    def __init__(
        self, context: Any, gpu_memory_share: float, switches: dict[str, str], guest_setting: GuestSetting | None,
        *, shares: bool = False,
    ) -> None:  # fmt: skip
        self.shares = shares
        self.pipe, theirs = context.Pipe()
        self.transcript = Transcript()
        arguments = (
            theirs,
            gpu_memory_share,
            read_switches() | switches,
            self.transcript.hand_over(),
            guest_setting,
        )
        self.process = context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        self.server = find_fork_server()
        theirs.close()
        self.job: Job | None = None
        self.next: Job | None = None
        """A job that waits in its pipe, so that it need not wait for the campaign between two."""
        self.kernel: str | None = None
        self.records: list[Record] = []
        self.ready = False
        self.owed: Job | None = None
        """A job that ended another worker, through no kernel's fault as far as is known: it is this one's first."""
        self.last_words: str | None = None
        """What it said of its own end."""
        self.since = time.monotonic()

    def start(self, job: Job) -> None:
        """Hand it a job."""
        self.job, self.kernel, self.records, self.since = job, None, [], time.monotonic()
        self.pipe.send(job)

    def hand_ahead(self, job: Job) -> None:
        """Hand it the job that follows the one it is at: one alone, which its pipe takes while nobody reads."""
        self.next = job
        self.pipe.send(job)

    def finish(self) -> None:
        """Take note that it is done with its job, and at the next, if it has one."""
        self.job, self.next, self.kernel, self.records = self.next, None, None, []

    def terminate(self) -> None:
        """Tell it to end, whatever it is doing, and all that it has started."""
        if self.process.is_alive():  # else its number may be another's by now
            self.process.terminate()  # its keeper, which ends the rest

    def kill(self) -> str:
        """End it, and wait until it has; what it printed last."""
        self.terminate()
        self.process.join()
        self.pipe.close()
        return self.transcript.close()


class Pool:
    """A fixed number of workers, kept alive; one that ends is replaced."""

    def __init__(
        self,
        workers: int,
        allowance: Allowance,
        *,
        guests_of: tuple[str, ...] | None = None,
        device: str = "cpu",
        gpu: str | None = None,
        gpu_memory_share: float = 0.9,
        triton: bool = False,
        sharing: Sharing | None = None,
    ) -> None:
        self.allowance = allowance
        self._sharing = sharing
        self._hidden, self._device = guests_of, device
        self.set_up_s = 0.0
        """What setting up a case may take at least, however little a stranger asks for."""
        self.told = Told()
        """What is known of the kernel whose guests these are."""
        self._switches = {} if gpu is None else {VISIBLE: gpu}
        self._stem = None if guests_of is None else find_stem(self._switches, triton=triton)
        self.gpu_memory_share = gpu_memory_share / workers
        self._failed_starts = 0
        self.interrupted = threading.Event()
        """Set from another thread, it ends what runs by PoolInterrupted, within a moment."""
        self._begun_again: set[int] = set()
        self._checked = 0.0
        shares = sharing is not None and allowance.shares_gpu
        self._context = multiprocessing.get_context("forkserver")
        self._workers = [self._make_worker(shares=shares) for _ in range(workers)]

    def _make_worker(self, *, shares: bool = False) -> Worker:
        try:
            start_fork_server()
            return self._fork_worker(shares)
        except (EOFError, ConnectionError) as error:
            raise CampaignFailed(SERVER_ENDED) from error
        except OSError as error:  # a temporary folder with too long a path for a socket, no more processes or files
            raise CampaignFailed(f"no worker can be started: {error}") from error

    def _fork_worker(self, shares: bool) -> Worker:
        if self._stem is None:
            switches = self._switches
            if self._sharing is not None:
                switches = switches | (self._sharing.together if shares else self._sharing.apart)
            return Worker(self._context, self.gpu_memory_share, switches, None, shares=shares)
        client = self._stem.open_client()
        setting = GuestSetting(client, self._device, self._describe_stranger())
        try:
            return Worker(self._context, self.gpu_memory_share, self._switches, setting)
        finally:
            client.close()  # the worker has it

    def _describe_stranger(self) -> Stranger:
        allowed = self.allowance
        return Stranger(allowed.timeout_s, allowed.memory_bytes, (*COPIES, *(self._hidden or ())))

    def change_stranger(self, allowance: Allowance, hidden: tuple[str, ...]) -> None:
        """End the guests of one stranger, before the kernel of another comes."""
        self.allowance, self._hidden = allowance, hidden
        self.end_guests()

    def end_guests(self) -> None:
        """Have the next job run by a fresh guest; back when those that are there are gone."""
        self.told = Told()
        for worker in self._workers:
            worker.ready, worker.since = False, time.monotonic()
            with suppress(BrokenPipeError, ConnectionResetError):  # it died idle: _poll sees to it
                worker.pipe.send(self._describe_stranger())
        while not all(worker.ready for worker in self._workers):
            list(self._poll())

    def restart(self) -> None:
        """End what workers are at, of which nobody waits for the end; those that wait stay."""
        for position, worker in enumerate(self._workers):
            if worker.job is not None or not worker.ready:
                worker.kill()
                self._workers[position] = self._make_worker(shares=worker.shares)

    def run(self, jobs: Iterator[Job]) -> Iterator[list[Record]]:
        """All records of each case, as cases complete."""
        return self.serve(JobQueue(jobs))

    def serve(self, queue: Queue) -> Iterator[list[Record]]:
        """All records of each case of a queue, which may be filled meanwhile, until it has ended."""
        self._begun_again.clear()
        records_of: dict[int, list[Record]] = {}  # of cases whose worker died half-way
        while not queue.is_ended or any(worker.job or worker.owed for worker in self._workers):
            # Not to judges of strangers, whose guests end between two jobs; the last jobs go to whoever is free.
            hands_ahead = self._stem is None and queue.can_spare(len(self._workers))
            for position, worker in enumerate(self._workers):
                if worker.ready and worker.job is None:
                    job, worker.owed = worker.owed or queue.take(position), None
                    if job is not None:
                        self._send(worker.start, job)
                elif worker.job is not None and worker.next is None and hands_ahead:
                    job = queue.take(position)
                    if job is not None:
                        self._send(worker.hand_ahead, job)
            for number, records, rest in self._poll():
                records_of[number] = records_of.pop(number, []) + records
                if rest is None:
                    yield records_of.pop(number)
                elif all(worker.owed is not rest for worker in self._workers):  # else it is some worker's first
                    queue.put(rest)

    def _send(self, hand: Callable[[Job], None], job: Job) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has died: _poll sees the job and its end
            hand(job)

    def _poll(self) -> Iterator[tuple[int, list[Record], Job | None]]:
        """(number of a case, its records, what is left to run of it)."""
        if self.interrupted.is_set():
            raise PoolInterrupted
        by_pipe = {worker.pipe: worker for worker in self._workers}
        for pipe in wait(list(by_pipe), timeout=POLL_S):
            assert isinstance(pipe, Connection)
            yield from self._listen(by_pipe[pipe])
        if time.monotonic() - self._checked < POLL_S:  # looking at all of them takes as long as many messages
            return
        self._checked = time.monotonic()
        for worker in list(self._workers):
            # What it has sent meanwhile is read first: it may be at another job than the one that is known.
            verdict = None if worker.pipe.poll() else self._check(worker)
            if verdict is not None:
                yield from self._replace(worker, *verdict)

    def _listen(self, worker: Worker) -> Iterator[tuple[int, list[Record], Job | None]]:
        try:
            while worker.pipe.poll():
                kind, content = worker.pipe.recv()
                worker.since = time.monotonic()
                if kind == "ready":
                    worker.ready = True
                    self._check_own_size(worker)
                elif kind == "failed":
                    worker.finish()  # it waits for the next one, or is at it
                    raise content
                elif kind == "told":
                    self.told = self.told.join(content)
                elif kind == "broken":
                    worker.last_words = content
                elif kind == "begin":
                    worker.kernel, self._failed_starts = content, 0
                elif kind == "record":
                    worker.kernel = None
                    worker.records.append(content)
                else:
                    assert worker.job is not None
                    number, records = worker.job.number, worker.records
                    worker.finish()
                    yield number, records, None
        except (EOFError, ConnectionResetError, OSError):
            yield from self._replace(worker, "crashed", None)

    def _check(self, worker: Worker) -> tuple[str, str] | None:
        """Whether a worker must go, and why."""
        worker.transcript.empty_if_large()
        # Before the time: on a busy machine both may be past their limits when they are looked at.
        resident = measure_family(worker.process.pid, self._worker_bytes)
        if worker.ready and resident > self._worker_bytes:
            return "out-of-memory", self._compare_memory(resident)
        idle_s = time.monotonic() - worker.since
        if worker.job is not None or not worker.ready:
            start_up_s = START_SHARING_S if worker.shares else START_UP_S
            allowed_s = self._kernel_s(worker) if worker.ready else start_up_s
            # A judge that has announced a kernel sees to the time of its guest by itself.
            if idle_s > allowed_s + (0 if self._stem is None or worker.kernel is None else GRACE_S):
                return "timed-out", f"no answer in {allowed_s:g} s"
        return None

    def _kernel_s(self, worker: Worker) -> float:
        """What a worker may be silent for: while it sets up a case, what that may take."""
        allowed = self.allowance.timeout_s
        return allowed if worker.kernel is not None else max(allowed, self.set_up_s)

    def _check_own_size(self, worker: Worker) -> None:
        """Refuse a limit that no worker can keep, even before it runs anything."""
        resident = measure_family(worker.process.pid, self._worker_bytes)
        if resident > self._worker_bytes:
            raise CampaignFailed(
                f"a worker does not fit: {self._compare_memory(resident)} before it has run a kernel. "
                "Allow more by --memory-gb"
            )

    def _compare_memory(self, resident: int) -> str:
        return f"{resident / 2**30:.3g} GiB resident, {self._worker_bytes / 2**30:.3g} allowed"

    @property
    def _worker_bytes(self) -> float:
        """What a worker may use; one that judges a guest has its reference to compute, whatever the guest may."""
        allowed = self.allowance.memory_bytes
        return allowed if self._stem is None else max(allowed, Allowance().memory_bytes)

    def _replace(
        self, worker: Worker, outcome: str, detail: str | None
    ) -> Iterator[tuple[int, list[Record], Job | None]]:
        """Kill a worker, start another, and say what became of its case."""
        if worker not in self._workers:
            return
        job, kernel, records = worker.job, worker.kernel, worker.records
        printed = worker.kill()
        if has_ended(worker.server):
            raise CampaignFailed(SERVER_ENDED)
        detail = detail or worker.last_words or describe_exit(worker.process.exitcode)
        if job is None:
            self._count_failed_start(detail)
        may_be_anothers = worker.shares and outcome in SHARED_FATE
        fresh = self._make_worker(shares=worker.shares and not may_be_anothers)
        self._workers[self._workers.index(worker)] = fresh
        fresh.owed = worker.owed
        if job is None:
            return
        if worker.next is not None:  # it was not begun
            yield worker.next.number, [], worker.next
        if may_be_anothers:
            if records and records[-1].outcome == "crashed":  # its own word on that is not believed
                records = records[:-1]
            left = job.kernels[len(records) :]
            fresh.owed = replace(job, kernels=left) if left else None
            yield job.number, records, fresh.owed
            return
        if kernel is None and not records:
            if job.number not in self._begun_again:  # it may have died of what an earlier kernel left behind
                self._begun_again.add(job.number)
                fresh.owed = job
                return
            # It died before any kernel ran, a fresh worker too: the case itself cannot be set up.
            made = make_records(job, job.kernels, Outcome(outcome, f"{detail}, while the case was set up"))
            yield job.number, [replace(record, set_up=False) for record in made], None
            return
        lost = kernel
        if kernel is None and records[-1].outcome == "crashed":
            lost = records[-1].kernel
        elif kernel is not None and kernel == job.kernels[len(records)].name:  # else a control, to compare with
            (record,) = make_records(job, [job.kernels[len(records)]], Outcome(outcome, detail))
            records = [*records, replace(record, printed=printed or None)]
        rest = job.kernels[len(records) :]
        gave_nothing = job.gave_nothing if lost is None else (*job.gave_nothing, lost)
        yield job.number, records, replace(job, kernels=rest, gave_nothing=gave_nothing) if rest else None

    def _count_failed_start(self, detail: str) -> None:
        """Give up on workers that end without a job, time and again."""
        self._failed_starts += 1
        if self._failed_starts > 3 * len(self._workers):
            raise CampaignFailed(
                f"workers do not start: {detail}. The usual cause is a script that starts the campaign when it is "
                'imported; start it under: if __name__ == "__main__":'
            )

    def close(self) -> None:
        """End all workers: at once, for one that has used a GPU takes a while."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.kill()
        if self._stem is not None:
            self._stem.wait_until_empty()
