"""A running gonogo serve, from Python: kernels in, verdicts out. Needs nothing but Python."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from gonogo.errors import InputError, ServiceError

ADDRESS = "http://127.0.0.1:8420"
TOKEN = "GONOGO_TOKEN"
ENDED = ("done", "refused", "failed", "cancelled")
POLL_S = 30.0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Client:
    """A server at an address: `http://HOST:PORT`, or `unix:PATH`. The token is $GONOGO_TOKEN's by default.

    `client.judge(source, op="softmax")["verdict"]["decision"]` is all that most have a use for. An entry is a dict:
    `id`, `state`, and once it is `done` the `verdict`, as `gonogo check --json` has it. A
    submission is known by its content, so that it is safe to send it again.
    """

    address: str = ADDRESS
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 90.0
    """Of one request."""

    def judge(self, source: str, op: str, *, patience_s: float = 3600.0, **options: Any) -> dict[str, Any]:
        """Submit a kernel and wait for its end; waits, too, where the queue is full."""
        end = time.monotonic() + patience_s
        return self.wait(self.submit(source, op, patience_s=patience_s, **options)["id"], end - time.monotonic())

    def submit(self, source: str, op: str, *, patience_s: float = 0.0, **options: Any) -> dict[str, Any]:
        """Submit a kernel; options are those of a submission: function, contract, dtypes, cases, seed and more."""
        body = {"source": source, "op": op, **options}
        return self._try("POST", "/v1/submissions", body, time.monotonic() + patience_s)

    def submit_batch(self, submissions: Sequence[Mapping[str, Any]], *, patience_s: float = 0.0) -> list[str]:
        """Submit many, all or none; their ids, in order."""
        body = {"submissions": [dict(each) for each in submissions]}
        told = self._try("POST", "/v1/batches", body, time.monotonic() + patience_s)
        return [each["id"] for each in told["submissions"]]

    def wait(self, each: str, patience_s: float = 3600.0) -> dict[str, Any]:
        """The entry of a submission once it has ended; ServiceError where that takes too long."""
        end = time.monotonic() + patience_s
        while True:
            left = max(end - time.monotonic(), 0.0)
            path = f"/v1/submissions/{quote(each, safe='')}?wait={min(left, POLL_S):.3f}"
            entry = self._try("GET", path, None, end)
            if entry["state"] in ENDED:
                return entry
            if time.monotonic() >= end:
                raise ServiceError(0, f"{each} is {entry['state']} after {patience_s:g} s")

    def find(self, each: str) -> dict[str, Any]:
        """The entry of a submission, as it stands."""
        return self._ask("GET", f"/v1/submissions/{quote(each, safe='')}")

    def cancel(self, each: str) -> dict[str, Any]:
        """Cancel a submission that has not ended."""
        return self._ask("DELETE", f"/v1/submissions/{quote(each, safe='')}")

    def check_health(self) -> dict[str, Any]:
        """Whether the server judges, and how much waits."""
        return self._ask("GET", "/health")

    def _try(self, method: str, path: str, body: Any, end: float) -> dict[str, Any]:
        """Ask until there is an answer: a full queue says when to come back, and a server may be restarted."""
        while True:
            try:
                return self._ask(method, path, body)
            except ServiceError as error:
                if error.status not in (0, 429, 503) or time.monotonic() + error.retry_s > end:
                    raise
                time.sleep(error.retry_s)

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        token = self.token or os.environ.get(TOKEN)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection = self._connect()
        try:
            try:
                content = None if body is None else json.dumps(body).encode()
            except (TypeError, ValueError) as error:
                raise InputError(f"a submission is plain data: {error}") from None
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            content, retry = response.read(), response.getheader("Retry-After", "")
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ServiceError(0, f"no answer from {self.address}: {reason}. Is gonogo serve running?") from None
        finally:
            connection.close()
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if response.status >= 400 or not isinstance(answer, dict):
            failure = answer.get("error") if isinstance(answer, dict) else None
            message = failure.get("message") if isinstance(failure, dict) else None
            retry_s = float(retry) if retry.isdigit() else 1.0
            said = f"{response.status} {response.reason} from {self.address}"
            raise ServiceError(response.status, str(message or said), retry_s)
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        if self.address.startswith("unix:"):
            return _UnixConnection(self.address.removeprefix("unix:"), self.timeout_s)
        try:
            parts = urlsplit(self.address)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"address {self.address!r}: give http://HOST:PORT, https://HOST:PORT or unix:PATH")
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.hostname, port, timeout=self.timeout_s)
        return http.client.HTTPConnection(parts.hostname, port, timeout=self.timeout_s)
