"""Random messages in place of a guest's replies: each is an outcome or an error of gonogo's, in bounded memory."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gonogo.cases import parse_case  # noqa: E402
from gonogo.errors import GonogoError  # noqa: E402
from gonogo.execution.bench import Bench, prepare  # noqa: E402
from gonogo.execution.execute import run_kernel  # noqa: E402
from gonogo.execution.job import Job  # noqa: E402
from gonogo.execution.remote import Guests  # noqa: E402
from gonogo.guest.wire import MOST_BYTES, Gone, TensorFile, receive, send  # noqa: E402
from gonogo.ops import InText, Op, get_op  # noqa: E402
from gonogo.schema import Contract  # noqa: E402
from gonogo.user import own_op  # noqa: E402
from gonogo.user.kernels import make_candidate  # noqa: E402

MESSAGES = 1000
SOURCE = InText("kernel.py", "kernel", "no such code runs here")
FACTS = {
    "elapsed_s": 1e-3, "strays": 0, "changed": [], "parameters": [], "aliases": {}, "shared": [], "unrepeated": 0,
    "launched": False, "own": False, "flags": [], "overwritten": False,
}  # fmt: skip
ODD = [
    None, True, False, -1, 0, 1, 3, 2**31, 2**48, 2**63, 2**64, 10**400, -(10**400), 1.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "x", "c", "y", "=x", "=c", "=", "grad.x", "\ud800", "\x1b[2J\x07", "\x00",
    "x" * 9000, "Tensor", "float64", "float32", "float16", "bool", "int4", "uint4", "quint8", "qint32",
    "complex128", "bits16", "float8_e4m3fn", "float4_e2m1fn_x2", "crashed", "ok", [], {}, [[]], [{}], [0], [-1],
    [1.5], ["x"], [None], [2**47, 2**47], [2**47, 0], [True], [1] * 65, ["x"] * 1001, [{"path": ""}],
    {"": "=x"}, {"": "=zzz"}, {"c": "=c"}, {"y": "=c", "c": "=y"}, {"": 1}, {"x": {}},
    [{"path": "=zzz", "dtype": "float32", "shape": [1], "at": 0}],
    [{"path": str(at), "dtype": "float32", "shape": [6], "at": 0} for at in range(1000)],
    [{"path": "", "dtype": "float32", "shape": [6], "at": 2**70}],
    [{"path": "", "dtype": "complex64", "shape": [], "at": 0}], [{"path": "", "other": "\x1b[2J"}],
    [{"path": "", "number": float("nan")}], [{"path": "", "number": 2**70}], [{"path": "", "number": 10**30}],
]  # fmt: skip
"""What a field may be replaced by."""


def write_both(c: torch.Tensor, x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"c": c + 1, "y": x * 2}


def make_ops() -> list[tuple[Op, str]]:
    """Ops and a case of each: one tensor; a nest that is a number; a nest with an argument that is written to."""
    total = own_op.Op("total", inputs=lambda seed: torch.arange(6.0), reference=lambda x: x.sum())
    both = own_op.Op(
        "both", inputs=lambda seed: (torch.arange(3.0), torch.ones(4)), reference=write_both, mutates="c"
    )
    cases = [(total, "total:f32:-:c:drawn:0"), (both, "both:f32:-:c:drawn:0")]
    return [(get_op("softmax"), "softmax:f32:2x1x3:c:uniform:1"), *cases]


def make_bench(op: Op, case: str) -> Bench:
    candidate = make_candidate(op, SOURCE, Contract())
    return prepare(Job(0, parse_case(case, op), "replay", op, (candidate,), "cpu", bounds_only=True))


def make_leaves(bench: Bench) -> dict[str, torch.Tensor]:
    """What is right, as a guest would give it."""
    if bench.op.name == "softmax":
        return {"": torch.softmax(bench.call.args[0], -1)}
    if bench.op.name == "total":
        return {"": bench.call.args[0].sum()}
    c, x = bench.call.args
    return {"y": x * 2, "=c": c + 1}


def pack(leaves: dict[str, torch.Tensor], file: TensorFile) -> list[dict[str, Any]]:
    return [
        {"path": path, "dtype": "float32", "shape": list(x.shape), "at": file.write(x.contiguous().numpy().data)}
        for path, x in leaves.items()
    ]


def list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a reply and each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from list_places(value[key])


def spoil(reply: dict[str, Any], draw: random.Random) -> None:
    """Change, remove or add some of it."""
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        places = list(list_places(reply))
        if not places:
            return
        where, key = draw.choice(places)
        what = draw.random()
        if what < 0.1:
            where.pop(key)
        elif what < 0.2 and isinstance(where, dict):
            named = ("refused", "wrong_device", "raised", "error", "detail", "other", "number", "path", "unloaded")
            where[draw.choice(named)] = copy.deepcopy(draw.choice(ODD))
        else:  # often of the kind that is asked for
            alike = [value for value in ODD if type(value) is type(where[key])]
            where[key] = copy.deepcopy(draw.choice(alike if draw.random() < 0.7 and alike else ODD))


def write_body(reply: dict[str, Any], draw: random.Random) -> bytes:
    """Near JSON, or far from it."""
    body, what = json.dumps(reply).encode(), draw.random()
    if what < 0.75:
        return body
    if what < 0.8:
        at = draw.randrange(len(body))
        return body[:at] + draw.randbytes(draw.choice((1, 4, 50))) + body[at + 1 :]
    if what < 0.83:
        return draw.randbytes(draw.randrange(2000))
    if what < 0.86:
        return draw.choice((b"[", b'{"a":', b'{"first":[')) * draw.choice((10, 5000, 50_000))
    if what < 0.9:
        number = draw.choice((b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"9" * 4000, b"-0"))
        return body.replace(b"0.001", number).replace(b" 0", b" " + number)
    if what < 0.95:
        return body[:-1] + b', "first": [], "strays": 7, "strays": 0}'
    return json.dumps(draw.choice(ODD)).encode()


def write_message(body: bytes, draw: random.Random) -> bytes:
    what = draw.random()
    size = len(body) if what < 0.85 else draw.choice((0, 1, len(body) - 1, MOST_BYTES, MOST_BYTES + 1, 2**32 - 1))
    message = struct.pack("<I", size % 2**32) + body
    if what > 0.95:
        return message[: draw.randrange(len(message))]
    return message + message if what > 0.92 else message


class Player:
    """The guest's side, and its keeper's: `forge` answers, and says whether it goes on."""

    def __init__(self, stem: socket.socket, forge: Callable[[socket.socket, str, TensorFile], bool]) -> None:
        self.stem, self.forge = stem, forge
        self.thread = threading.Thread(target=self._play, daemon=True)
        self.thread.start()

    def _play(self) -> None:
        while True:
            try:
                _, (channel, line, printed) = receive(self.stem)
            except Gone:
                return
            os.close(printed)
            with (
                socket.socket(fileno=channel) as guest,
                socket.socket(fileno=line),
                contextlib.suppress(OSError, Gone),
            ):
                self._answer(guest)

    def _answer(self, guest: socket.socket) -> None:
        send(guest, {"walls": []})
        for stage in ("load", "call"):
            _, descriptors = receive(guest)
            files = [TensorFile(descriptor) for descriptor in descriptors]
            try:
                goes_on = self.forge(guest, stage, files[-1])
            finally:
                for file in files:
                    file.close()
            if not goes_on:
                return


@pytest.mark.slow
def test_random_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo.execution.remote.ASKED_AGAIN", 0)  # one reply each
    draw = random.Random(8)
    benches = [make_bench(op, case) for op, case in make_ops()]
    now: dict[str, Any] = {"bench": benches[0], "stage": "call"}

    def forge(guest: socket.socket, stage: str, file: TensorFile) -> bool:
        if stage == "load" != now["stage"]:
            send(guest, {"loaded": True, "flags": [], "overwritten": False})
            return True
        right = make_leaves(now["bench"])
        reply = {"first": pack(right, file), "again": pack(right, file), **json.loads(json.dumps(FACTS))}
        if stage == "load":
            reply = draw.choice(
                ({"loaded": True, "flags": [], "overwritten": False}, {"unloaded": "x"}, {"unfit": "x"}, reply)
            )
        spoil(reply, draw)
        if draw.random() < 0.05:
            os.ftruncate(file.descriptor, draw.choice((0, 5, 2**30)))
        message = write_message(write_body(reply, draw), draw)
        extra = [0] * draw.choice((0, 0, 0, 0, 0, 0, 1, 60))
        if extra and message:
            sent = socket.send_fds(guest, [message], extra)
            guest.sendall(message[sent:])
        else:
            guest.sendall(message)
        if struct.unpack("<I", message[:4].ljust(4, b"x"))[0] > len(message) - 4 and draw.random() < 0.1:
            time.sleep(0.6)  # what is half is late, not broken off
        return False

    ours, theirs = socket.socketpair()
    player = Player(theirs, forge)
    guests = Guests(ours, "cpu", 0.5, 2**30, 2, (), {})
    outcomes: dict[str, int] = {}
    before = list(Path("/proc/self/fd").iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(MESSAGES):
        bench = now["bench"] = benches[number % len(benches)]
        now["stage"] = "load" if number % 10 == 9 else "call"
        bench.guests, (kernel,) = guests, bench.job.kernels
        try:
            record = run_kernel(bench, kernel)
        except GonogoError as error:
            word = type(error).__name__
        else:
            word = record.outcome
            if word == "ok":  # then its numbers are right, whatever else was said
                assert record.bound is not None
                assert record.bound <= 4, (number, record)
        outcomes[word] = outcomes.get(word, 0) + 1
        guests.drop(SOURCE)
    ours.close()
    player.thread.join(10)
    theirs.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**18, "KiB"
    assert len(list(Path("/proc/self/fd").iterdir())) <= len(before)
    assert outcomes["broken-protocol"] > MESSAGES // 4, outcomes
    assert outcomes["ok"] > 20, outcomes
