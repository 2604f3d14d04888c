"""Submissions that wait → verdicts, by threads that have a warm pool of workers each."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gonogo.errors import CampaignFailed, CaseTooLarge, GonogoError, InputError, ReferenceFailed
from gonogo.ops import DTYPES, Op
from gonogo.runners.pool import Allowance, Pool, PoolInterrupted
from gonogo.service.protocol import Submission
from gonogo.service.store import Entry, Store
from gonogo.user.isolated import check_file
from gonogo.user.kernel_file import find_in_text
from gonogo.user.planning import DEFAULT_CASES
from gonogo.words import find_contract, find_dtypes, find_op

KERNEL = Path("/kernel.py")
"""What the file of a submission is called in tracebacks; there is none, and none can be made there."""
LOG = logging.getLogger("gonogo.service")
PAUSE_S = 1.0
"""Before another try at what the disk did not take."""


@dataclass(frozen=True)
class Terms:
    """What submissions are judged by, and what they may use."""

    device: str = "cpu"
    lock: Path | None = None
    timeout_s: float = 60.0
    """Per case, at most."""
    memory_gb: float = 8.0
    """At most."""
    submission_s: float = 900.0
    """Per submission, whatever its cases take."""
    hidden: tuple[str, ...] = ()
    """Files of the server's own, which no kernel may read."""
    lock_hash: str | None = None
    """Of the lock file, when the server was started."""
    own_ops: Mapping[str, Op] | None = None
    """Ops that whoever runs the server has named, beside the package's."""

    @property
    def limits(self) -> dict[str, float]:
        """What a submission may use."""
        return {name: getattr(self, name) for name in ("timeout_s", "memory_gb", "submission_s")}

    def find_op(self, name: str) -> Op:
        """An op by its name."""
        own = self.own_ops or {}
        return own[name] if name in own else find_op(name)

    def check(self, submission: Submission) -> None:
        """Refuse words that mean nothing here; what is wrong with the source is told of the submission."""
        self.find_op(submission.op)
        find_contract(submission.contract)
        find_dtypes(submission.dtypes or DTYPES)
        for name in ("timeout_s", "memory_gb"):
            asked, most = getattr(submission, name), getattr(self, name)
            if asked is not None and asked > most:
                raise InputError(f"{name} is {asked:g}; this server allows {most:g}")

    def judge(self, submission: Submission, pool: Pool) -> dict[str, Any]:
        """The verdict on a kernel, as plain data. A fresh seed is nowhere before: a kernel may read files."""
        if hash_file(self.lock) != self.lock_hash:
            raise CampaignFailed(f"{self.lock} was changed: start the server again")
        seed = secrets.randbits(64) if submission.seed is None else submission.seed
        op, memory_gb = self.find_op(submission.op), submission.memory_gb or self.memory_gb
        verification = check_file(
            find_in_text(submission.source, KERNEL, submission.function, op.name), op, contract=submission.contract,
            dtypes=submission.dtypes or DTYPES, cases=submission.cases or DEFAULT_CASES, seed=seed,
            device=self.device, lock=self.lock,
            allowance=Allowance(submission.timeout_s or self.timeout_s, memory_gb * 2**30),
            suspects="fail" if submission.strict else "rerun", pool=pool, hidden=self.hidden,
        )  # fmt: skip
        return verification.to_dict()


class Judge(threading.Thread):
    """Takes one submission after the other, until it is told to end."""

    def __init__(
        self, store: Store, terms: Terms, gpu: str | None, share: float, awake: threading.Condition,
        tell: Callable[[Entry, float], None],
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._share = share
        self._store, self._terms, self._gpu, self._awake, self._tell = store, terms, gpu, awake, tell
        self._pool: Pool | None = None
        self._ending = False
        self.current: int | None = None
        """Place of the submission it is at: sent again, one has another."""
        self._why = ""
        self._unwanted: set[int] = set()
        """Cancelled before it was at them."""
        self._lock = threading.Lock()

    def run(self) -> None:
        """Judge, and wait where there is nothing to judge."""
        while not self._ending:
            try:
                entry = self._store.take()
                if entry is None:
                    with self._awake:
                        self._awake.wait(1.0)
                    continue
                self._judge(entry)
            except Exception:  # the state cannot be read, say
                LOG.exception("judge failed")
                time.sleep(PAUSE_S)
        if self._pool is not None:
            self._pool.close()

    def _judge(self, entry: Entry) -> None:
        begun = time.monotonic()
        with self._lock:
            if self._ending:
                self._store.put_back(entry.id)
                return
            self.current, self._why = entry.place, "cancelled" if entry.place in self._unwanted else ""
            self._unwanted.clear()
            if self._pool is not None and not self._why:
                self._pool.interrupted.clear()
        timer = threading.Timer(self._terms.submission_s, self.stop_current, (entry.place, "out of time"))
        timer.daemon = True
        timer.start()
        state, answer = "failed", {}
        try:
            pool = self._open_pool()
            if self._why:
                raise PoolInterrupted
            verdict = self._terms.judge(entry.submission, pool)
            state, answer = "done", {"verdict": verdict}
        except PoolInterrupted:
            state, answer = self._tell_interrupted()
        except (CampaignFailed, ReferenceFailed, CaseTooLarge) as error:  # not by a fault of the kernel's
            self._drop_pool()
            state, answer = "failed", tell_error(error)
        except GonogoError as error:
            state, answer = "refused", tell_error(error)
        except Exception as error:  # ours, then
            LOG.exception("submission %s", entry.id)
            self._drop_pool()
            state, answer = "failed", tell_error(error)
        finally:
            timer.cancel()
            with self._lock:
                self.current = None
        if state == "queued":
            self._store.put_back(entry.id)
            return
        ended = self._keep(entry.id, state, answer, time.monotonic() - begun)
        if ended is not None:
            self._tell(ended, time.monotonic() - begun)

    def _keep(self, each: str, state: str, answer: dict[str, Any], seconds: float) -> Entry | None:
        """Write what became of a submission, until the disk takes it; after a restart it would be judged again."""
        while True:
            try:
                self._store.finish(each, state, answer, seconds)
                return self._store.find(each)
            except sqlite3.OperationalError:
                LOG.exception("verdict cannot be kept")
                if self._ending:
                    return None
                time.sleep(PAUSE_S)

    def _tell_interrupted(self) -> tuple[str, dict[str, Any]]:
        if self._why == "cancelled":
            return "cancelled", {"error": {"kind": "cancelled", "message": "cancelled while it was judged"}}
        if self._why == "out of time":
            message = (
                f"it took more than the {self._terms.submission_s:g} s that a submission may. Ask for fewer cases"
            )
            return "failed", {"error": {"kind": "out-of-time", "message": message}}
        return "queued", {}

    def _open_pool(self) -> Pool:
        with self._lock:
            if self._pool is None:
                allowance = Allowance(self._terms.timeout_s, self._terms.memory_gb * 2**30)
                self._pool = Pool(
                    1, allowance, guests_of=(), device=self._terms.device, gpu=self._gpu,
                    gpu_memory_share=self._share, triton=True,
                )  # fmt: skip
                self._pool.set_up_s = self._terms.timeout_s
            return self._pool

    def _drop_pool(self) -> None:
        """Have the next one begin with workers of its own: nobody knows what state these are in."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def stop_current(self, place: int, why: str) -> None:
        """End what it is at, if it is at this one."""
        with self._lock:
            if self.current != place:
                self._unwanted.add(place)  # it may have taken it this moment
                return
            self._why = self._why or why
            if self._pool is not None:
                self._pool.interrupted.set()

    def end(self) -> None:
        """End after putting back what it is at."""
        self._ending = True
        with self._lock:
            if self.current is not None and self._pool is not None:
                self._pool.interrupted.set()


def hash_file(path: Path | None) -> str | None:
    """Of its content; None of none, and of one that is gone."""
    try:
        return None if path is None else sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def tell_error(error: Exception) -> dict[str, Any]:
    """What is kept of an error: its kind and its message."""
    return {"error": {"kind": type(error).__name__, "message": str(error)[:2000]}}
