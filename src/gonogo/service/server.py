"""A store and its judges as one: what requests ask of it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gonogo.errors import InputError
from gonogo.ops import InFile, OfOp
from gonogo.runners.environment import name_machine, read_versions
from gonogo.service.judges import Judge, Terms, hash_file
from gonogo.service.metrics import Metrics
from gonogo.service.protocol import ENDED, Submission
from gonogo.service.store import Entry, Store

LOG = logging.getLogger("gonogo.service")
MOST_WAIT_S = 60.0
END_S = 30.0


class Server:
    """Accepts, judges and tells."""

    def __init__(self, store: Store, terms: Terms, gpus: Sequence[str | None]) -> None:
        self.store, self.terms, self.metrics = store, terms, Metrics(store)
        self._setting = _describe(terms)
        self._awake = threading.Condition()
        shares = {gpu: 0.9 / gpus.count(gpu) for gpu in gpus}
        self._judges = [Judge(store, terms, gpu, shares[gpu], self._awake, self._finish) for gpu in gpus]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def start(self) -> None:
        """Begin to judge; called in the loop that serves requests."""
        self._loop = asyncio.get_running_loop()
        for judge in self._judges:
            judge.start()

    def end(self) -> None:
        """Put back what is running, and end."""
        for judge in self._judges:
            judge.end()
        with self._awake:
            self._awake.notify_all()
        for judge in self._judges:
            judge.join(END_S)
        self.store.close()

    def submit(self, submissions: Sequence[Submission]) -> list[Entry]:
        """Accept them, all or none; InputError where a word means nothing, QueueFull where there is no room."""
        for at, submission in enumerate(submissions):
            try:
                self.terms.check(submission)
            except InputError as error:
                if len(submissions) == 1:
                    raise
                raise InputError(f"submissions[{at}]: {error}") from None
        entries = self.store.accept([(each.find_id(self._setting), each) for each in submissions])
        with self._awake:
            self._awake.notify_all()
        return entries

    def cancel(self, each: str) -> Entry | None:
        """Cancel it, if it has not ended."""
        entry = self.store.cancel(each)
        if entry is not None and entry.state == "running":
            for judge in self._judges:
                judge.stop_current(entry.place, "cancelled")
        if entry is not None and entry.state == "cancelled":
            self._wake(each)
        return entry

    def tell(self, entry: Entry) -> dict[str, Any]:
        """An entry as clients are told of it."""
        told = entry.to_dict()
        return told | {"before": self.store.find_place(entry)} if entry.state == "queued" else told

    async def wait(self, each: str, seconds: float) -> Entry | None:
        """The entry once it has ended, or as it is after some time."""
        event = asyncio.Event()
        self._waiting.setdefault(each, set()).add(event)
        try:
            entry = await asyncio.to_thread(self.store.find, each)
            if entry is None or entry.state in ENDED or seconds <= 0:
                return entry
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), min(seconds, MOST_WAIT_S))
            return await asyncio.to_thread(self.store.find, each)
        finally:
            self._waiting[each].discard(event)
            if not self._waiting[each]:
                del self._waiting[each]

    def describe(self) -> dict[str, Any]:
        """Its health."""
        alive = sum(judge.is_alive() for judge in self._judges)
        states = self.store.count()
        return {
            "status": "ok" if alive == len(self._judges) else "degraded", "judges": alive,
            "queued": states["queued"], "running": states["running"], "device": self.terms.device,
        }  # fmt: skip

    def _finish(self, entry: Entry, seconds: float) -> None:
        decision = (entry.answer or {}).get("verdict", {}).get("decision", entry.state)
        self.metrics.verdicts.labels(decision).inc()
        self.metrics.judge_s.observe(seconds)
        waited = (entry.started or entry.accepted) - entry.accepted
        self.metrics.wait_s.observe(waited)
        LOG.info("judged", extra={"facts": {
            "id": entry.id, "op": entry.submission.op, "end": decision, "waited_s": round(waited, 3),
            "judged_s": round(seconds, 3),
        }})  # fmt: skip
        self._wake(entry.id)

    def _wake(self, each: str) -> None:
        """Tell those that wait for it; from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._set_events, each)

    def _set_events(self, each: str) -> None:
        for event in self._waiting.get(each, ()):
            event.set()


def _describe(terms: Terms) -> str:
    """What verdicts of this server depend on, besides the submission."""
    own = terms.own_ops or {}
    sources = [source for op in own.values() for source in (op.reference, op.draw)]
    paths = {source.path for source in sources if isinstance(source, InFile | OfOp)}
    facts = {
        "machine": name_machine(terms.device), "versions": read_versions(triton=True), "terms": terms.limits,
        "files": [terms.lock_hash, *(hash_file(Path(path)) for path in sorted(paths))],
    }  # fmt: skip
    return json.dumps(facts, sort_keys=True)
