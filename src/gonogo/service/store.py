"""Submissions and their verdicts ↔ one SQLite file: what was accepted is on the disk before anybody is told so."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.errors import GonogoError, InputError
from gonogo.service.protocol import ENDED, PROTOCOL, STATES, Submission

FORMAT = 1
"""Of the file; another one is refused."""
MOST_ATTEMPTS = 3
"""Times that a submission is begun: one that a server does not survive must not end every server after it."""
_TABLES = """
create table if not exists submissions (
    place integer primary key autoincrement, id text not null unique, body text not null,
    state text not null, attempts integer not null default 0, accepted real not null, started real, finished real,
    answer blob
);
create index if not exists by_state on submissions (state, place);
create table if not exists batches (id text primary key, members text not null);
"""


class QueueFull(GonogoError):
    """No more is taken for now; in so many seconds it is worth another try."""

    def __init__(self, waiting: int, most: int, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(f"{waiting:,} submissions wait, and {most:,} may; come back in {seconds} s")


@dataclass(frozen=True)
class Entry:
    """A submission and what became of it so far."""

    id: str
    place: int
    submission: Submission
    state: str
    attempts: int
    accepted: float
    started: float | None
    finished: float | None
    answer: dict[str, Any] | None
    """Once it has ended: `verdict` or `error`."""

    def to_dict(self) -> dict[str, Any]:
        """As clients are told of it."""
        return {
            "protocol": PROTOCOL, "id": self.id, "state": self.state, "op": self.submission.op,
            "accepted": self.accepted, "started": self.started, "finished": self.finished,
            "verdict": None, "error": None,
        } | (self.answer or {})  # fmt: skip


class Store:
    """One file, one connection, one thread at a time."""

    def __init__(self, path: Path, most_waiting: int = 1000, most_kept: int = 100_000, judges: int = 1) -> None:
        self._lock = threading.Lock()
        self._most_waiting, self._most_kept, self._judges = most_waiting, most_kept, judges
        self.files = tuple(f"{path.resolve()}{end}" for end in ("", "-wal", "-shm", "-journal"))
        """What nobody else should read: sources of all clients are in it."""
        self._seconds_each = 1.0
        """What one submission keeps all judges for, lately: how long a full queue takes to have room."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._database.execute("pragma locking_mode = exclusive")  # two servers on one file judge all twice
            self._database.execute("pragma journal_mode = wal")
            self._database.execute("pragma synchronous = full")
            found = self._database.execute("pragma user_version").fetchone()[0]
            if found not in (0, FORMAT):
                raise InputError(f"{path} is of format {found}; this gonogo reads {FORMAT}")
            self._database.executescript(f"begin immediate;{_TABLES}pragma user_version = {FORMAT};commit;")
        except OSError as error:
            raise InputError(f"{path} cannot be opened: {error.strerror}") from None
        except sqlite3.OperationalError as error:
            locked = "another server has it open. Give this one a state file of its own by --state"
            raise InputError(f"{path}: {locked if 'locked' in str(error) else error}") from None
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path} is no state file of gonogo serve: {error}") from None
        self._resume()

    def _resume(self) -> None:
        """Put back what a server was at when it ended."""
        with self._change() as database:
            lost = json_bytes({"error": {"kind": "failed", "message": f"{MOST_ATTEMPTS} servers ended over it"}})
            database.execute(
                "update submissions set state = 'failed', finished = ?, answer = ? "
                "where state = 'running' and attempts >= ?", (time.time(), lost, MOST_ATTEMPTS),
            )  # fmt: skip
            database.execute("update submissions set state = 'queued', started = null where state = 'running'")

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """A transaction, on the disk at its end."""
        with self._lock:
            self._database.execute("begin immediate")
            try:
                yield self._database
                self._database.execute("commit")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("rollback")
                raise

    def accept(self, submissions: Iterable[tuple[str, Submission]]) -> list[Entry]:
        """Take submissions by their ids, all or none; one that is known stays what it is, unless given up."""
        listed = list(submissions)
        with self._change() as database:
            known = {each: self._find(database, each) for each, _ in listed}
            fresh = {
                each: submission for each, submission in listed
                if (entry := known[each]) is None or entry.state in ("failed", "cancelled")
            }  # fmt: skip
            waiting = database.execute("select count(*) from submissions where state = 'queued'").fetchone()[0]
            if len(fresh) > self._most_waiting:
                raise InputError(f"{len(fresh):,} at once; this server has {self._most_waiting:,} wait at most")
            if fresh and waiting + len(fresh) > self._most_waiting:
                seconds = max(1, round(self._seconds_each * min(waiting, 100)))
                raise QueueFull(waiting, self._most_waiting, seconds)
            for each, submission in fresh.items():
                database.execute("delete from submissions where id = ?", (each,))
                database.execute(
                    "insert into submissions (id, body, state, accepted) values (?, ?, 'queued', ?)",
                    (each, submission.to_json(), time.time()),
                )
            return [entry for each, _ in listed if (entry := self._find(database, each)) is not None]

    def keep_batch(self, members: Sequence[str]) -> str:
        """The id of a batch of submissions."""
        batch = secrets.token_hex(16)
        with self._change() as database:
            database.execute("insert into batches values (?, ?)", (batch, json.dumps(list(members))))
        return batch

    def find_batch(self, batch: str) -> list[str] | None:
        """Ids of its submissions; None where there is none."""
        with self._lock:
            row = self._database.execute("select members from batches where id = ?", (batch,)).fetchone()
        return None if row is None else json.loads(row[0])

    def take(self) -> Entry | None:
        """The next one to judge, which is running from now on."""
        with self._change() as database:
            row = database.execute(
                "select id from submissions where state = 'queued' order by place limit 1"
            ).fetchone()
            if row is None:
                return None
            database.execute(
                "update submissions set state = 'running', attempts = attempts + 1, started = ? where id = ?",
                (time.time(), row[0]),
            )
            return self._find(database, row[0])

    def put_back(self, each: str) -> None:
        """Have it judged later: the server ends."""
        with self._change() as database:
            database.execute(
                "update submissions set state = 'queued', attempts = attempts - 1, started = null "
                "where id = ? and state = 'running'", (each,),
            )  # fmt: skip

    def finish(self, each: str, state: str, answer: dict[str, Any], seconds: float = 0.0) -> None:
        """Keep what became of a running one; the oldest are forgotten where too many are kept."""
        with self._change() as database:
            database.execute(
                "update submissions set state = ?, finished = ?, answer = ? where id = ? and state = 'running'",
                (state, time.time(), json_bytes(answer), each),
            )
            self._forget(database)
        self._seconds_each += 0.1 * (seconds / self._judges - self._seconds_each)

    def _forget(self, database: sqlite3.Connection) -> None:
        ended = ", ".join(f"'{state}'" for state in ENDED)
        database.execute(
            f"delete from submissions where state in ({ended}) and place <= "
            "(select max(place) from submissions) - ?", (self._most_kept,),
        )  # fmt: skip
        database.execute(
            "delete from batches where rowid <= (select max(rowid) from batches) - ?", (self._most_kept,)
        )

    def cancel(self, each: str) -> Entry | None:
        """Give up one that waits; of one that runs only its judge can say that it has ended."""
        with self._change() as database:
            database.execute(
                "update submissions set state = 'cancelled', finished = ? where id = ? and state = 'queued'",
                (time.time(), each),
            )
            return self._find(database, each)

    def find(self, each: str) -> Entry | None:
        """One of them; None where it was never accepted, or is forgotten."""
        with self._lock:
            return self._find(self._database, each)

    def count(self) -> Counter[str]:
        """How many there are in each state."""
        with self._lock:
            return self._count(self._database)

    def find_place(self, entry: Entry) -> int:
        """How many are judged before one that waits."""
        with self._lock:
            return int(self._database.execute(
                "select count(*) from submissions where state = 'queued' and place < ?", (entry.place,)
            ).fetchone()[0])  # fmt: skip

    def _count(self, database: sqlite3.Connection) -> Counter[str]:
        rows = database.execute("select state, count(*) from submissions group by state")
        return Counter(dict.fromkeys(STATES, 0) | dict(rows))

    def _find(self, database: sqlite3.Connection, each: str) -> Entry | None:
        row = database.execute(
            "select id, place, body, state, attempts, accepted, started, finished, answer "
            "from submissions where id = ?", (each,),
        ).fetchone()  # fmt: skip
        if row is None:
            return None
        body = json.loads(row[2])
        body["dtypes"] = None if body["dtypes"] is None else tuple(body["dtypes"])
        answer = None if row[8] is None else json.loads(zlib.decompress(row[8]))
        each, place, _, state, attempts, accepted, started, finished, _ = row
        return Entry(each, place, Submission(**body), state, attempts, accepted, started, finished, answer)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


def json_bytes(value: Any) -> bytes:
    """Plain data as bytes of few."""
    return zlib.compress(json.dumps(value).encode(), 1)
