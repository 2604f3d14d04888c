"""A prefix or an object in a store that speaks S3: read, listed, written whole, created once.

What is written appears whole or not at all. `create` is one conditional write (If-None-Match: *): of several
writers one succeeds.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gonogo.errors import BackendMissing, InputError
from gonogo.records.places.failures import find_code, tell_failure
from gonogo.records.places.settings import Settings, read_settings

if TYPE_CHECKING:
    from obstore.store import S3Config

Answer = TypeVar("Answer")
SCHEME = "s3://"
GAP_BYTES = 2**20
"""Ranges nearer to each other than this are fetched by one request: it costs less than to ask again."""
CONFLICTS = 5
"""How often a store may answer that two writes met, before that counts as a failure."""


@dataclass(frozen=True, order=True)
class S3Place:
    """A prefix or an object, by what Path has for a folder or a file."""

    bucket: str
    key: str = ""
    """Without slashes at its ends."""

    @staticmethod
    def parse(text: str) -> S3Place:
        """From s3://bucket/prefix. What could hold a password is refused, and not shown."""
        bucket, _, key = text[len(SCHEME) :].partition("/")
        if "@" in bucket or ":" in bucket:
            raise InputError(
                "an address of the form s3://user:password@… is refused: secrets in it would be recorded. Set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL for the host"
            )
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bucket):
            raise InputError(f"{text} names no bucket: give s3://bucket/prefix")
        key = key.strip("/")
        if any(part in ("", ".", "..") for part in key.split("/")) and key:
            raise InputError(f"{text} has an empty part, or one of dots: give s3://bucket/prefix")
        if re.search(r"[\x00-\x1f\x7f#%\\]", key):
            raise InputError(
                f"{text!r} has a character that keys of runs may not have: # % \\ or a control character"
            )
        return S3Place(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> S3Place:
        return S3Place(self.bucket, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """The last part; of a bucket its own name."""
        return PurePosixPath(self.key).name or self.bucket

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return PurePosixPath(self.key).stem

    @property
    def parent(self) -> S3Place:
        """The prefix it is in."""
        return S3Place(self.bucket, self.key.rpartition("/")[0])

    def resolve(self) -> S3Place:
        """Itself: keys have no links."""
        return self

    def absolute(self) -> S3Place:
        """Itself: keys are never relative."""
        return self

    def exists(self) -> bool:
        """Whether there is such an object."""
        try:
            # Not by HEAD, whose answer says of a failure only that it is one.
            self._ask(lambda store: store.get(self.key))
        except FileNotFoundError:
            return False
        return True

    def read_bytes(self) -> bytes:
        """The whole object."""
        return self._ask(lambda store: bytes(store.get(self.key).bytes()))

    def write(self, content: bytes | Path) -> None:
        """Write the object whole, in the place of what may be there; a file is sent piece by piece."""
        self._ask(lambda store: store.put(self.key, content))

    def create(self, content: bytes) -> None:
        """Write the object whole, unless there is one: then FileExistsError."""
        for attempt in range(CONFLICTS):
            try:
                self._ask(lambda store: store.put(self.key, content, mode="create", use_multipart=False))
                return
            except FileExistsError:
                # The answer to this very write may have been lost, and the write been tried again.
                if self.read_bytes() == content:
                    return
                raise
            except _Conflict:
                if attempt + 1 == CONFLICTS:
                    raise InputError(f"{self} is being created by others over and over. Try again later") from None

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the object; one that is not there is no failure to a store."""
        self._ask(lambda store: store.delete(self.key))

    def list_below(self) -> tuple[list[S3Place], list[S3Place]]:
        """(prefixes, objects) right below, in the order of their keys."""
        found = self._ask(lambda store: store.list_with_delimiter(self.key or None))
        prefixes = [S3Place(self.bucket, prefix.rstrip("/")) for prefix in found["common_prefixes"]]
        return sorted(prefixes), sorted(S3Place(self.bucket, entry["path"]) for entry in found["objects"])

    def fill(self, into: npt.NDArray[np.uint8], ranges: Sequence[tuple[int, int]]) -> None:
        """Ranges of the object, each where it lies in it; near ones by one request, all at the same time."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        found = self._ask(lambda store: store.get_ranges(self.key, starts=starts, ends=ends, coalesce=GAP_BYTES))
        for (start, end), content in zip(ranges, found, strict=True):
            if len(content) != end - start:
                raise ValueError("it ends too early")
            into[start:end] = np.frombuffer(content, np.uint8)

    def _ask(self, request: Callable[[Any], Answer]) -> Answer:
        """What a client answers to one request, and what it raises in words."""
        settings = read_settings()
        store, exceptions = open_store(self.bucket, settings)
        try:
            return _wait_for(partial(request, store))
        except exceptions.AlreadyExistsError:
            raise FileExistsError(17, "it exists already", str(self)) from None
        except FileNotFoundError as error:
            if find_code(error) == "NoSuchBucket":
                raise tell_failure(error, self, self.bucket, settings) from None
            raise FileNotFoundError(2, "there is no such object", str(self)) from None
        except exceptions.BaseError as error:
            if find_code(error) == "ConditionalRequestConflict":
                raise _Conflict from None
            raise tell_failure(error, self, self.bucket, settings) from None


def _wait_for(work: Callable[[], Answer]) -> Answer:
    """What work returns or raises.

    A client that waits for its store hears no Ctrl-C: the main thread, which does, leaves the waiting to another,
    and the process ends without that one.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    done: Future[Answer] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result()


class _Conflict(Exception):
    """Two conditional writes to one key met: the store wants one of them tried again."""


@lru_cache(maxsize=16)
def open_store(bucket: str, settings: Settings) -> tuple[Any, Any]:
    """The client of a bucket, and its exceptions; one client keeps its connections."""
    try:
        from obstore import exceptions
        from obstore.store import S3Store
    except ModuleNotFoundError:
        raise BackendMissing("obstore", f"{SCHEME}{bucket}", extra="s3") from None
    given: dict[str, Any] = {
        "endpoint": settings.endpoint, "region": settings.region, "access_key_id": settings.key_id,
        "secret_access_key": settings.secret, "session_token": settings.token,
    }  # fmt: skip
    store = S3Store(
        bucket,
        config=cast("S3Config", {name: value for name, value in given.items() if value is not None}),
        client_options={
            "allow_http": (settings.endpoint or "").startswith("http://"),
            "timeout": timedelta(minutes=5),
            "read_timeout": timedelta(seconds=30),
            "connect_timeout": timedelta(seconds=5),
        },
        retry_config={
            "max_retries": settings.attempts - 1,
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=4),
                "base": 2,
            },
            "retry_timeout": timedelta(minutes=1),
        },
    )
    return store, exceptions
