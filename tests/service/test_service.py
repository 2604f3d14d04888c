"""A running `gonogo serve`, through its client."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Running, wait_for_end

pytest.importorskip("torch")
pytest.importorskip("uvicorn")

import gonogo
from gonogo.guest.stem import list_family

pytestmark = pytest.mark.slow

RIGHT = "def softmax(x):\n    return x.float().softmax(-1).to(x.dtype)\n"
WRONG = RIGHT.replace("-1)", "-1) * 1.01")
HANGS = "def softmax(x):\n    while True:\n        pass\n"
RAISES = "raise RuntimeError('at import')\ndef softmax(x): ...\n"
FEW = {"cases": 2, "dtypes": ["float32"]}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("service"), "--timeout", "30", "--verbose") as running:
        yield running
        assert running.end() == 0
    assert not Path(running._folder, "g.sock").exists()


def test_verdicts(service: Running) -> None:
    right = service.client.judge(RIGHT, "softmax", **FEW)
    assert (right["state"], right["verdict"]["decision"], right["error"]) == ("done", "go", None)
    assert right["verdict"]["setting"]["seed"] >= 2**32  # nobody can have prepared for it
    assert all(case["stats"]["count"] > 0 for case in right["verdict"]["verdicts"])
    assert service.client.judge(WRONG, "softmax", **FEW)["verdict"]["decision"] == "no-go"
    for source, words in ((RAISES, "at import"), ("def", "is no Python"), ("x = 1", "defines no public function")):
        refused = service.client.judge(source, "softmax", **FEW)
        assert (refused["state"], refused["verdict"]) == ("refused", None)
        assert words in refused["error"]["message"]
    assert service.client.judge(RIGHT, "softmax", **FEW) == right  # the same one, judged once
    hung = service.client.judge(HANGS, "softmax", timeout_s=1.0, cases=1, dtypes=["float32"])
    assert hung["verdict"]["outcomes"] == {"timed-out": 1}


def test_batch(service: Running) -> None:
    sources = [RIGHT, WRONG] * 3
    ids = service.client.submit_batch([
        {"source": f"{source}#{at}", "op": "softmax", **FEW} for at, source in enumerate(sources)
    ])  # fmt: skip
    decisions = [service.client.wait(each)["verdict"]["decision"] for each in ids]
    assert decisions == ["go", "no-go"] * 3


def test_cancelled_while_it_runs(service: Running) -> None:
    entry = service.client.submit(HANGS, "softmax", timeout_s=30.0)
    while service.client.find(entry["id"])["state"] == "queued":
        pass
    service.client.cancel(entry["id"])
    ended = service.client.wait(entry["id"], 20.0)
    assert ended["state"] == "cancelled"
    assert service.client.judge(f"{RIGHT}# after it", "softmax", **FEW)["verdict"]["decision"] == "go"


def test_cancelled_it_may_be_sent_again(service: Running) -> None:
    source = HANGS.replace("pass", "x.sum()")
    for _ in range(2):
        entry = service.client.submit(source, "softmax", timeout_s=30.0)
        assert entry["state"] == "queued"
        while service.client.find(entry["id"])["state"] == "queued":
            pass
        assert service.client.find(entry["id"])["state"] == "running"
        service.client.cancel(entry["id"])
        assert service.client.wait(entry["id"], 20.0)["state"] == "cancelled"


def test_a_kernel_does_not_read_what_is_the_servers(service: Running) -> None:
    state = Path(service._folder, "state.sqlite")
    source = f"""
def softmax(x):
    for path in ({str(state)!r}, {str(state) + "-wal"!r}):
        assert not open(path, "rb").read(1), path
    return x.float().softmax(-1).to(x.dtype)
"""
    assert state.read_bytes()
    assert state.stat().st_mode & 0o077 == 0
    assert service.client.judge(source, "softmax", **FEW)["verdict"]["decision"] == "go"


def test_log_is_json_lines(service: Running) -> None:
    service.client.judge(f"{RIGHT}# logged", "softmax", **FEW)
    lines = Path(service._folder, "log").read_text().splitlines()
    assert lines[0].startswith("listening on unix:g.sock")
    events = [json.loads(line) for line in lines[1:]]
    assert {"judged", "request"} <= {event["event"] for event in events}


def test_killed_it_loses_nothing(tmp_path: Path) -> None:
    service = Running(tmp_path, "--workers", "2")
    ids = [service.client.submit(f"{RIGHT}#{at}", "softmax", **FEW)["id"] for at in range(12)]
    service.client.wait(ids[3])  # some are done, some run, some wait
    family = list_family(service.process.pid)
    service.kill()
    service.start()
    states = [service.client.wait(each) for each in ids]
    assert {entry["verdict"]["decision"] for entry in states} == {"go"}
    assert service.end() == 0
    assert all(map(wait_for_end, family))  # those of the server that was killed
    rows = sqlite3.connect(tmp_path / "state.sqlite").execute("select state, attempts from submissions").fetchall()
    assert len(rows) == 12
    assert {state for state, _ in rows} == {"done"}
    assert max(attempts for _, attempts in rows) <= 2


def test_a_port_needs_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GONOGO_TOKEN", raising=False)
    words = ["serve", "--port", "0", "--state", "state.sqlite", "--device", "cpu", "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gonogo", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        told = process.stderr.readline()
        token = (tmp_path / "state.token").read_text().strip()
        assert token not in told
        assert (tmp_path / "state.token").stat().st_mode & 0o777 == 0o600
        address = process.stderr.readline().split()[2].rstrip(",")
        assert address.startswith("http://127.0.0.1:")
        client = gonogo.Client(address, token)
        assert client._try("GET", "/health", None, float("inf"))["status"] == "ok"
        for wrong in ("", token[:-1], f"{token}x"):
            with pytest.raises(gonogo.errors.ServiceError, match="send the server's token") as refused:
                gonogo.Client(address, wrong or None).submit(RIGHT, "softmax")
            assert refused.value.status == 401
        assert client.submit(RIGHT, "softmax", **FEW)["state"] == "queued"
    finally:
        process.terminate()
        assert process.wait() == 0
        process.stderr.close()


def test_two_servers_do_not_share_a_state(tmp_path: Path) -> None:
    with Running(tmp_path, "--workers", "1"):
        words = ["serve", "--socket", "other.sock", "--state", "state.sqlite", "--device", "cpu"]
        second = subprocess.run(
            [sys.executable, "-m", "gonogo", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
    assert second.returncode == 2
    assert "another server has it open" in second.stderr


def test_client_without_a_server(tmp_path: Path) -> None:
    with pytest.raises(gonogo.errors.ServiceError, match=r"Is gonogo serve running\?"):
        gonogo.Client(f"unix:{tmp_path / 'none'}").check_health()
    with pytest.raises(gonogo.errors.InputError, match="give http://HOST:PORT"):
        gonogo.Client("ftp://host").check_health()
