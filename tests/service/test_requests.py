"""Requests to the application, without judges behind it: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import asyncio
import json
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("starlette")

from gonogo.errors import InputError
from gonogo.service.app import MOST_BODY, make_app
from gonogo.service.judges import Terms
from gonogo.service.openapi import make_openapi
from gonogo.service.protocol import FIELDS, read_submission
from gonogo.service.server import Server
from gonogo.service.store import Store

KERNEL = "def softmax(x):\n    return x.softmax(-1)\n"


class App:
    """The application, asked as an ASGI server asks it."""

    def __init__(self, state: Path, token: str | None = None, most_waiting: int = 1000) -> None:
        self.store = Store(state, most_waiting)
        self.server = Server(self.store, Terms(), [None])
        self._app = make_app(self.server, token)

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer."""
        sent: list[Any] = []
        pieces = [body[at : at + 2**16] for at in range(0, len(body), 2**16)] or [b""]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            sent.append(message)

        place, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": place,
            "raw_path": place.encode(), "query_string": query.encode(), "scheme": "http", "server": ("x", 1),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        }  # fmt: skip
        asyncio.run(self._app(scope, receive, send))  # type: ignore[arg-type]
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])

    def submit(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Status and answer of a submission."""
        status, _, answer = self.ask("POST", "/v1/submissions", json.dumps(fields).encode())
        return status, json.loads(answer)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(tmp_path / "state.sqlite")
    yield app
    app.store.close()


def test_submission_is_known_by_its_content(app: App) -> None:
    status, first = app.submit(source=KERNEL, op="softmax", cases=4)
    assert (status, first["state"], first["before"]) == (202, "queued", 0)
    assert app.submit(op="softmax", cases=4, source=KERNEL, seed=None)[1]["id"] == first["id"]
    others = [
        app.submit(source=KERNEL, op="softmax", cases=4, seed=1), app.submit(source=KERNEL, op="softmax"),
        app.submit(source=KERNEL + "\n", op="softmax", cases=4),
    ]  # fmt: skip
    assert len({first["id"], *(answer["id"] for _, answer in others)}) == 4
    assert app.store.count()["queued"] == 4


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "source is missing"), ({"source": KERNEL}, "op is missing"),
        ({"source": KERNEL, "op": 3}, "op is int, and must be string"),
        ({"source": KERNEL, "op": "softmax", "case": 3}, "unknown field 'case'"),
        ({"source": KERNEL, "op": "softmax", "cases": 0}, "cases has 0; 1 to 1,000"),
        ({"source": KERNEL, "op": "softmax", "cases": True}, "cases is bool"),
        ({"source": KERNEL, "op": "softmax", "seed": 2**64}, "seed has"),
        ({"source": KERNEL, "op": "softmax", "dtypes": [3]}, "dtypes must be a list of words"),
        ({"source": "x = '\ud800'", "op": "softmax"}, "lone surrogate"),
    ],
)  # fmt: skip
def test_body_that_is_no_submission(app: App, fields: dict[str, Any], words: str) -> None:
    status, answer = app.submit(**fields)
    assert status == 400
    assert words in answer["error"]["message"]
    assert not sum(app.store.count().values())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"op": "sofmax"}, "Did you mean softmax"), ({"contract": "float12"}, "float12"),
        ({"dtypes": ["int3"]}, "int3"), ({"timeout_s": 1e3}, "this server allows 60"),
    ],
)  # fmt: skip
def test_words_that_mean_nothing_here(app: App, fields: dict[str, Any], words: str) -> None:
    status, answer = app.submit(**({"source": KERNEL, "op": "softmax"} | fields))
    assert status == 422
    assert words in answer["error"]["message"]
    assert not sum(app.store.count().values())


def test_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    app = App(tmp_path / "state.sqlite", most_waiting=2)
    assert app.submit(source=KERNEL, op="softmax")[0] == 202
    body = {"submissions": [{"source": KERNEL, "op": "softmax", "seed": seed} for seed in range(2)]}
    status, headers, answer = app.ask("POST", "/v1/batches", json.dumps(body).encode())
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert "1 submissions wait, and 2 may" in json.loads(answer)["error"]["message"]
    assert app.store.count()["queued"] == 1  # all or none
    assert app.submit(source=KERNEL, op="softmax")[0] == 202  # it is there already
    app.store.close()


def test_all_but_health_needs_the_token(tmp_path: Path) -> None:
    app = App(tmp_path / "state.sqlite", token="secret")
    routes = [route for route in make_openapi()["paths"] if route != "/health"]
    assert app.ask("GET", "/health")[0] == 200
    for route in (*routes, "/", "/openapi.json", "/nowhere"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
            assert app.ask("GET", route, headers=headers)[0] == 401
    assert app.ask("GET", "/v1/ops", headers={"Authorization": "Bearer secret"})[0] == 200
    app.store.close()


def test_what_it_tells(app: App) -> None:
    _, entry = app.submit(source=KERNEL, op="softmax")
    status, headers, page = app.ask("GET", "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"POST /v1/submissions" in page
    assert json.loads(app.ask("GET", "/openapi.json")[2]) == make_openapi()
    assert b'gonogo_submissions{state="queued"} 1.0' in app.ask("GET", "/metrics")[2]
    assert json.loads(app.ask("GET", "/health")[2])["queued"] == 1
    assert "softmax" in json.loads(app.ask("GET", "/v1/ops")[2])["ops"]
    assert json.loads(app.ask("DELETE", f"/v1/submissions/{entry['id']}")[2])["state"] == "cancelled"
    assert app.submit(source=KERNEL, op="softmax")[1]["state"] == "queued"  # it was given up, and is wanted again
    for method, path in (("GET", "/v1/submissions/x"), ("DELETE", "/v1/submissions/x"), ("GET", "/v1/batches/x")):
        assert app.ask(method, path)[0] == 404
    assert app.ask("PUT", "/v1/submissions")[0] == 405
    assert app.ask("POST", "/v1/submissions", b" " * (MOST_BODY + 1))[0] == 413
    assert app.ask("GET", f"/v1/submissions/{entry['id']}?wait=nan")[0] == 200


def test_schema_and_reader_agree() -> None:
    schema = make_openapi()["components"]["schemas"]["Submission"]
    assert set(schema["properties"]) == set(FIELDS)
    least = {"source": KERNEL, "op": "softmax"}
    assert sorted(schema["required"]) == sorted(least)
    read_submission(least)
    for name, facts in schema["properties"].items():
        beyond = [value - 1 for key, value in facts.items() if key == "minimum"]
        beyond += [value + 1 for key, value in facts.items() if key == "maximum"]
        for value in (*beyond, {}, {"a": 1}):
            with pytest.raises(InputError, match=name):
                read_submission(least | {name: value})


def test_random_bodies(app: App) -> None:
    """A thousand of them: never a crash, and the memory they leave behind is bounded."""
    draw, before = random.Random(0), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1000):
        status, _, answer = app.ask("POST", draw.choice(["/v1/submissions", "/v1/batches"]), _draw_body(draw))
        assert status in (200, 202, 400, 413, 422), answer
        assert status < 300 or json.loads(answer)["error"]["message"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


def _draw_body(draw: random.Random) -> bytes:
    """Noise, broken JSON, JSON of any kind, and submissions in which something is odd."""
    kind = draw.randrange(6)
    if kind == 0:
        return draw.randbytes(draw.randrange(2000))
    if kind == 1:
        return b"[" * draw.randrange(100_000) + b"{" * draw.randrange(3)
    fields = {"source": KERNEL, "op": "softmax"} if draw.random() < 0.8 else {}
    for _ in range(draw.randrange(4)):
        fields[draw.choice([*FIELDS, "other", ""])] = _draw_value(draw, 3)
    body: Any = fields if draw.random() < 0.6 else {"submissions": [fields] * draw.randrange(4)}
    text = json.dumps(body if kind != 2 else _draw_value(draw, 5)).encode()
    if kind == 3 and text:
        at = draw.randrange(len(text))
        return text[:at] + draw.randbytes(draw.randrange(4)) + text[at + draw.randrange(4) :]
    return text


def _draw_value(draw: random.Random, depth: int) -> Any:
    plain = [
        None, True, 0, -1, 3, 2**63, 10**400, 1.5, -0.0, float("nan"), float("inf"), "", "softmax", "float16",
        "\x00", "\ud800", "x" * 3000, "def softmax(x): return x", "\u202e", {}, [],
    ]  # fmt: skip
    if depth and draw.random() < 0.3:
        return [_draw_value(draw, depth - 1) for _ in range(draw.randrange(4))]
    if depth and draw.random() < 0.2:
        return {draw.choice(["a", "source", ""]): _draw_value(draw, depth - 1) for _ in range(draw.randrange(3))}
    return draw.choice(plain)
