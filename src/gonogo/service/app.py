"""Requests → what the server is asked, and its answers: JSON, with a status that says which kind."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gonogo.errors import GonogoError, InputError
from gonogo.ops import op_names
from gonogo.plain import to_plain
from gonogo.service.openapi import make_openapi, make_page
from gonogo.service.protocol import MOST_SOURCE, PROTOCOL, read_batch, read_json, read_submission
from gonogo.service.server import MOST_WAIT_S, Server
from gonogo.service.store import QueueFull

LOG = logging.getLogger("gonogo.service")
MOST_BODY = 2 * MOST_SOURCE + 2**16
"""Bytes of one submission; a character of a source may take several."""
MOST_BATCH_BODY = 2**26
BODY_S = 60.0
"""What a client may take to send a body."""
OPEN = ("/health",)
"""Paths that need no token."""


def make_app(server: Server, token: str | None) -> ASGIApp:
    """The application; `token` is None where only a Unix socket leads to it."""

    async def submit(request: Request) -> Response:
        submission = await _read(request, MOST_BODY, read_submission)
        (entry,) = await run_in_threadpool(server.submit, [submission])
        return _answer(
            await run_in_threadpool(server.tell, entry), 202 if entry.state in ("queued", "running") else 200
        )

    async def submit_batch(request: Request) -> Response:
        submissions = await _read(request, MOST_BATCH_BODY, read_batch)
        entries = await run_in_threadpool(server.submit, submissions)
        batch = await run_in_threadpool(server.store.keep_batch, [entry.id for entry in entries])
        members = [{"id": entry.id, "state": entry.state} for entry in entries]
        return _answer({"protocol": PROTOCOL, "id": batch, "submissions": members}, 202)

    async def find(request: Request) -> Response:
        entry = await server.wait(request.path_params["id"], _read_wait(request))
        if entry is None:
            raise HTTPException(404, "there is no submission of this id")
        return _answer(await run_in_threadpool(server.tell, entry))

    async def find_batch(request: Request) -> Response:
        members = await run_in_threadpool(server.store.find_batch, request.path_params["id"])
        if members is None:
            raise HTTPException(404, "there is no batch of this id")
        return _answer({"protocol": PROTOCOL, "submissions": await run_in_threadpool(_list, server, members)})

    async def cancel(request: Request) -> Response:
        entry = await run_in_threadpool(server.cancel, request.path_params["id"])
        if entry is None:
            raise HTTPException(404, "there is no submission of this id")
        return _answer(await run_in_threadpool(server.tell, entry))

    async def list_ops(request: Request) -> Response:
        return _answer({"ops": sorted({*op_names(), *(server.terms.own_ops or {})})})

    async def tell_health(request: Request) -> Response:
        return _answer(await run_in_threadpool(server.describe))

    async def tell_metrics(request: Request) -> Response:
        return Response(await run_in_threadpool(server.metrics.write), media_type="text/plain; version=0.0.4")

    async def tell_openapi(request: Request) -> Response:
        return _answer(make_openapi())

    async def show_page(request: Request) -> Response:
        return HTMLResponse(make_page())

    @asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        server.start()
        yield
        await asyncio.to_thread(server.end)

    routes = [
        Route("/v1/submissions", submit, methods=["POST"]),
        Route("/v1/submissions/{id}", find, methods=["GET"]),
        Route("/v1/submissions/{id}", cancel, methods=["DELETE"]),
        Route("/v1/batches", submit_batch, methods=["POST"]),
        Route("/v1/batches/{id}", find_batch, methods=["GET"]),
        Route("/v1/ops", list_ops, methods=["GET"]),
        Route("/health", tell_health, methods=["GET"]),
        Route("/metrics", tell_metrics, methods=["GET"]),
        Route("/openapi.json", tell_openapi, methods=["GET"]),
        Route("/", show_page, methods=["GET"]),
    ]
    handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: _tell_http, BadBody: _tell_bad_body, QueueFull: _tell_full, GonogoError: _tell_refused,
        sqlite3.OperationalError: _tell_disk, Exception: _tell_crash,
    }  # fmt: skip
    return _Watched(Starlette(routes=routes, exception_handlers=handlers, lifespan=live), server, token)


class BadBody(Exception):
    """A body that is no submission, and the status of that."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


async def _read(request: Request, most: int, read: Callable[[Any], Any]) -> Any:
    """The body as what it should be; read to its end only while it is short enough."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise BadBody(413, f"the body has more than {most:,} bytes")
                chunks.append(chunk)
    except TimeoutError:
        raise BadBody(408, f"the body did not come in {BODY_S:g} s") from None
    except ClientDisconnect:
        raise BadBody(400, "the client left before the end of the body") from None
    try:
        return await run_in_threadpool(lambda: read(read_json(b"".join(chunks))))
    except InputError as error:
        raise BadBody(400, str(error)) from None


def _list(server: Server, members: list[str]) -> list[dict[str, Any]]:
    """Members of a batch, without their verdicts' cases: those are asked for one by one."""
    listed = []
    for each in members:
        entry = server.store.find(each)
        verdict = ((entry and entry.answer) or {}).get("verdict") or {}
        state = "forgotten" if entry is None else entry.state
        listed.append({"id": each, "state": state, "decision": verdict.get("decision")})
    return listed


def _read_wait(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        return min(max(float(text), 0.0), MOST_WAIT_S)  # of nan the first
    except ValueError:
        raise BadBody(400, f"wait={text[:40]!r} is no number of seconds") from None


def _answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(to_plain(content), status, headers)


def _tell(kind: str, message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return _answer({"error": {"kind": kind, "message": message}}, status, headers)


async def _tell_http(request: Request, error: HTTPException) -> Response:
    return _tell("http", str(error.detail), error.status_code, dict(error.headers or {}))


async def _tell_bad_body(request: Request, error: BadBody) -> Response:
    return _tell("bad-body", str(error), error.status)


async def _tell_full(request: Request, error: QueueFull) -> Response:
    return _tell("full", str(error), 429, {"Retry-After": str(error.seconds)})


async def _tell_refused(request: Request, error: GonogoError) -> Response:
    return _tell(type(error).__name__, str(error), 422)


async def _tell_disk(request: Request, error: sqlite3.OperationalError) -> Response:
    LOG.error("state", extra={"facts": {"problem": str(error)}})
    return _tell("state", f"the server cannot keep it: {error}; nothing was accepted", 503, {"Retry-After": "10"})


async def _tell_crash(request: Request, error: Exception) -> Response:
    return _tell("crash", "the server failed over this request; its log has the reason", 500)


class _Watched:
    """Every request: the token first; counted and logged at its end."""

    def __init__(self, app: ASGIApp, server: Server, token: str | None) -> None:
        self._app, self._server, self._token = app, server, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 500

        async def send_watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._is_allowed(scope):
                await self._app(scope, receive, send_watched)
            else:
                refusal = _tell("token", "send the server's token: Authorization: Bearer TOKEN", 401)
                await refusal(scope, receive, send_watched)
        except Exception:
            LOG.exception("request")
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "POST", "DELETE") else "other"
            self._server.metrics.requests.labels(method, route, str(status)).inc()
            facts = {
                "method": method,
                "route": route,
                "status": status,
                "ms": round(1e3 * (time.monotonic() - begun)),
            }
            LOG.debug("request", extra={"facts": facts})

    def _is_allowed(self, scope: Scope) -> bool:
        if self._token is None or scope["path"] in OPEN:
            return True
        headers = dict(scope["headers"])
        return hmac.compare_digest(headers.get(b"authorization", b""), f"Bearer {self._token}".encode())


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, event, and its facts."""
        facts = {"time": round(record.created, 3), "level": record.levelname.lower(), "event": record.getMessage()}
        facts |= getattr(record, "facts", {})
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts)
