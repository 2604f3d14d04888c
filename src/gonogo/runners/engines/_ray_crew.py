"""Jobs → records, by actors of a Ray cluster: one on each node, or one for each of its GPUs.

An actor is a `Site`: it has killable workers on its node, and one call at a time in flight, which brings it jobs
and takes away what has finished. Of each worker few jobs are under way, so that neither side has many. Jobs of an
actor that is lost are run again, whole: what it had not sent is recorded nowhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gonogo._version import __version__
from gonogo.errors import CampaignFailed, GonogoError, InputError
from gonogo.execution.job import Job
from gonogo.runners.device import keep_switches
from gonogo.runners.engines import Order
from gonogo.runners.environment import read_switches
from gonogo.runners.job_queue import JobQueue
from gonogo.runners.site import Posting, Reply, Site
from gonogo.schema import Record, name_device

AHEAD = 3
"""Jobs of each worker that are under way: one runs, and the next is there when it ends."""
STEP_S = 0.25
"""How long to wait for an answer before other things are looked after."""
RECRUIT_S = 2.0
"""How often nodes are looked for that have no actor."""
START_S = 180.0
"""After which, without an actor that has started, nobody will come any more."""
SILENT_S = 120.0
"""After which an actor is lost that should answer within half a second."""
MOST_LOSSES = 3
"""How often a place, or a job, may lose its actor: then it is not by chance."""
SOFTWARE = ("gonogo", "commit", "torch", "triton", "numpy", "cuda")
"""Facts of an environment that all nodes of a run must share; the device's name is another."""
CLOSE_S = 10.0


class ClusterLost(CampaignFailed):
    """A cluster that is not there any more, of which nothing can be asked."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster."""

    id: str
    name: str
    kind: str
    is_named: bool
    """Whether its kind is known by a name, and not by its device alone."""
    cpus: int
    gpus: int

    def list_places(self, device: str) -> list[Place]:
        """Where actors may be: all of its CPUs, or each GPU with a share of them, less one for the actor itself."""
        if device == "cpu":
            return [Place(self, 0, self.cpus, 0, self.cpus)]
        share = self.cpus // self.gpus
        return [Place(self, index, share, 1, max(share - 1, 1)) for index in range(self.gpus)]


@dataclass(frozen=True, slots=True)
class Place:
    """What one actor has of a node."""

    node: Node
    index: int
    cpus: int
    gpus: int
    workers: int

    @property
    def key(self) -> tuple[str, int]:
        """The same whenever the node is looked at."""
        return self.node.id, self.index


@dataclass
class Member:
    """An actor and what it is at."""

    place: Place
    workers: int
    actor: Any
    call: Any
    """The answer that is waited for; None where it has nothing to do."""
    ready: bool = False
    since: float = field(default_factory=time.monotonic)
    in_flight: dict[int, tuple[int, Job]] = field(default_factory=dict)
    """Number of a case → the worker it was sent to, and the job."""

    def choose(self, queue: JobQueue) -> list[tuple[int, Job]]:
        """Jobs for workers that have fewer than they may, the idle first."""
        chosen = []
        load = Counter(worker for worker, _ in self.in_flight.values())
        for level in range(1, AHEAD + 1):
            for worker in range(self.workers):
                if load[worker] < level and (job := queue.take((self.place.key, worker))) is not None:
                    load[worker] += 1
                    self.in_flight[job.number] = worker, job
                    chosen.append((worker, job))
        return chosen

    def count_wanted(self) -> int:
        """Workers that have nothing to do."""
        return max(self.workers - len(self.in_flight), 0) if self.ready else 0

    def ask(self, jobs: list[tuple[int, Job]], release: int) -> None:
        """Send jobs, ask for some back, and wait for what has finished."""
        self.call, self.since = self.actor.exchange.remote(jobs, release), time.monotonic()


class RayCrew:
    """Actors on the nodes of one kind; nodes that join meanwhile get theirs, too."""

    def __init__(self, order: Order, list_nodes: Callable[[], list[Node]]) -> None:
        self._order, self._list_nodes = order, list_nodes
        with keep_switches(order.device):
            self._switches = read_switches()
        self._members: dict[tuple[str, int], Member] = {}
        self._queue: JobQueue | None = None
        self._environment: dict[str, Any] | None = None
        self._described_by = ""
        self._place_losses: Counter[tuple[str, int]] = Counter()
        self._job_losses: Counter[int] = Counter()
        self._last_loss = ""
        self._looked = -RECRUIT_S
        self._last_ready = time.monotonic()
        self._recruit()

    def describe(self) -> dict[str, Any]:
        """The environment of the first node that has started, with the kind that all are of."""
        while self._environment is None:
            self._step()
        return self._environment

    def run(self, jobs: Iterator[Job]) -> Iterator[list[Record]]:
        """All records of each case, as cases complete; an empty list where nothing has come for a moment."""
        queue = self._queue = JobQueue(jobs)
        while not queue.is_ended or any(member.in_flight for member in self._members.values()):
            self._hand_out(queue)
            yield from self._step() or [[]]

    def _hand_out(self, queue: JobQueue) -> None:
        """Send jobs to who waits for some; where none is left, have those with many give some back."""
        waiting = [member for member in self._members.values() if member.ready and member.call is None]
        waiting.sort(key=lambda member: len(member.in_flight) / member.workers)
        chosen = [(member, member.choose(queue)) for member in waiting]
        wanted = sum(member.count_wanted() for member in self._members.values())
        for member, jobs in chosen:
            spare = min(max(len(member.in_flight) - member.workers, 0), wanted)
            if member.in_flight:
                member.ask(jobs, spare)

    def _step(self) -> list[list[Record]]:
        """Wait a moment for an answer; the cases that it brings."""
        import ray

        self._recruit()
        calls = {member.call: member for member in self._members.values() if member.call is not None}
        if not calls:
            time.sleep(STEP_S)
            return []
        answered, _ = ray.wait(list(calls), timeout=STEP_S)
        for member in calls.values():
            if member.call not in answered and member.ready and time.monotonic() - member.since > SILENT_S:
                self._lose(member, f"it has not answered for {SILENT_S:g} s")
        return [records for call in answered for records in self._take(calls[call], call)]

    def _take(self, member: Member, call: Any) -> tuple[list[Record], ...]:
        """What an actor has answered."""
        import ray

        try:
            answer = ray.get(call)
        except ray.exceptions.RayTaskError as error:
            raise self._tell_failure(member, error) from error
        except ray.exceptions.RayError as error:
            self._lose(member, str(error).strip().partition("\n")[0])
            return ()
        member.call = None
        if isinstance(answer, GonogoError):
            raise answer
        if not isinstance(answer, Reply):
            self._welcome(member, answer)
            return ()
        for job in answer.released:
            del member.in_flight[job.number]
            assert self._queue is not None
            self._queue.put(job)
        for records in answer.finished:
            del member.in_flight[records[0].number]
            self._place_losses[member.place.key] = 0
        self._last_ready = time.monotonic()
        if isinstance(answer.error, CampaignFailed):  # of its pool: another place may do better
            self._lose(member, str(answer.error))
        elif answer.error is not None:
            raise answer.error
        return answer.finished

    def _tell_failure(self, member: Member, error: Any) -> BaseException:
        """Why an actor failed by itself: what is not installed where it is, or a fault of ours."""
        cause: BaseException = error.cause if isinstance(error.cause, BaseException) else error
        if member.ready:
            return cause
        why = f"{type(cause).__name__}: {cause}".strip().partition("\n")[0]
        return CampaignFailed(
            f"node {member.place.node.name} cannot start workers: {why}. It needs gonogo {__version__} with torch"
        )

    def _welcome(self, member: Member, environment: dict[str, Any]) -> None:
        """Take note of where an actor is; refuse what cannot be in one run with the others."""
        node = member.place.node
        member.ready, self._last_ready = True, time.monotonic()
        if node.is_named:
            environment = environment | {"kind": node.kind}
        if environment["gonogo"] != __version__:
            raise InputError(
                f"node {node.name} has gonogo {environment['gonogo']}, and this is {__version__}: install the same"
            )
        if self._environment is None:
            self._environment, self._described_by = environment, node.name
            return
        first, here = name_device(self._environment), name_device(environment)
        if first != here:
            raise InputError(
                f"node {self._described_by} has {first}, node {node.name} has {here}: a run is of one kind. Name "
                "kinds when nodes are started, as in ray start --resources '{\"gonogo_kind:NAME\": 1}', and run on "
                "each by --per-device-kind"
            )
        for fact in SOFTWARE:
            if environment.get(fact) != self._environment.get(fact):
                raise InputError(
                    f"node {self._described_by} has {fact} {self._environment.get(fact)}, node {node.name} has "
                    f"{environment.get(fact)}: a run has one environment. Install the same on both"
                )

    def _lose(self, member: Member, why: str) -> None:
        """Give the jobs of an actor that is gone to others."""
        import ray

        key = member.place.key
        self._members.pop(key)
        with suppress(ray.exceptions.RayError, ValueError):
            ray.kill(member.actor)
        self._looked = -RECRUIT_S
        self._place_losses[key] += 1
        self._last_loss = f": node {member.place.node.name} was lost, {why.removesuffix('.')}"
        for number, (worker, job) in member.in_flight.items():
            assert self._queue is not None
            self._queue.forget((key, worker))
            self._job_losses[number] += 1
            if self._job_losses[number] >= MOST_LOSSES:
                raise CampaignFailed(
                    f"case {job.case.id} was under way on {MOST_LOSSES} nodes as each was lost, the last because "
                    f"{why.removesuffix('.')}"
                )
            self._queue.put(job)

    def _recruit(self) -> None:
        """Start actors in places that have none; give up where none has been there for long."""
        now = time.monotonic()
        if now - self._looked < RECRUIT_S:
            return
        self._looked = now
        try:
            nodes = self._list_nodes()
        except ClusterLost:
            self._members.clear()  # gone with it
            raise
        places = [place for node in nodes for place in node.list_places(self._order.device)]
        free = [place for place in places if self._place_losses[place.key] < MOST_LOSSES]
        vacant = [place for place in free if place.key not in self._members]
        left = None if self._order.workers is None else self._order.workers - self._count_workers()
        for position, place in enumerate(vacant):
            workers = place.workers if left is None else -(-left // (len(vacant) - position))
            left = None if left is None else left - workers
            if workers:
                self._members[place.key] = self._start(place, workers)
        if any(member.ready for member in self._members.values()):
            self._last_ready = now
        elif not self._members and places and not free:
            raise CampaignFailed(f"no node keeps its workers{self._last_loss}")
        elif now - self._last_ready > START_S:
            taken = "its CPUs or GPUs are taken by others: see ray status, or ask for fewer by --workers"
            kind = "" if self._order.kind is None else f" of kind {self._order.kind}"
            reason = taken if self._members else f"it has no node{kind} that is alive{self._last_loss}"
            raise CampaignFailed(f"the cluster has started no worker{kind} in {START_S:g} s: {reason}")

    def _count_workers(self) -> int:
        return sum(member.workers for member in self._members.values())

    def _start(self, place: Place, workers: int) -> Member:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        order = self._order
        posting = Posting(
            place.node.name, order.device, workers, order.allowance, self._switches, order.ops_folders
        )
        actor = (
            ray.remote(Site)
            .options(
                num_cpus=min(place.cpus, workers) if order.device == "cpu" else place.cpus,
                num_gpus=place.gpus,
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node.id, soft=False),
            )
            .remote(posting)
        )
        return Member(place, workers, actor, actor.start.remote())

    def close(self) -> None:
        """End all actors, and their workers before them."""
        import ray

        members, self._members = list(self._members.values()), {}
        with suppress(ray.exceptions.RayError):
            ended = []
            for member in members:
                if member.ready:  # else it is loading torch, and would answer late
                    member.actor.close.remote()
                    ended.append(
                        member.actor.__ray_terminate__.remote()
                    )  # temporary files go, as they do not by kill
            if ended:
                ray.wait(ended, num_returns=len(ended), timeout=CLOSE_S)
        for member in members:
            with suppress(ray.exceptions.RayError, ValueError):
                ray.kill(member.actor)
