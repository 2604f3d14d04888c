"""Many clients at one `gonogo serve`, a tenth of their kernels hostile; half-way the server is killed and started.

Prints how many submissions were lost or judged wrongly, how long accepted ones waited, and the server's memory.

    python benchmarks/service.py --submissions 10000 --clients 32
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gonogo import Client

RIGHT = "import torch\ndef softmax(x):\n    return torch.softmax(x.float(), -1).to(x.dtype)\n"
HOSTILE = {
    "wrong": RIGHT.replace("-1).to", "-1).mul(1.01).to"),
    "raises": "def softmax(x):\n    raise ValueError('no')\n",
    "exits": "import os\ndef softmax(x):\n    os._exit(0)\n",
    "crashes": "import ctypes\ndef softmax(x):\n    ctypes.string_at(0)\n",
    "unwritten": "import torch\ndef softmax(x):\n    return torch.empty_like(x)\n",
    "overwrites its argument": "def softmax(x):\n    y = x.softmax(-1)\n    x.zero_()\n    return y\n",
    "writes to every descriptor": (
        "import os\n" + RIGHT + "for fd in range(3, 60):\n    try:\n        os.write(fd, b'x' * 9)\n"
        "    except OSError:\n        pass\n"
    ),
    "wrong after some calls": (
        "import torch\ncalls = 0\ndef softmax(x):\n    global calls\n    calls += 1\n"
        "    return torch.softmax(x.float(), -1).to(x.dtype) * (1 if calls < 50 else 1.01)\n"
    ),
    "leaves a process": (
        "import os, time\nimport torch\ndef softmax(x):\n    if os.fork() == 0:\n        time.sleep(60)\n"
        "    return torch.softmax(x.float(), -1).to(x.dtype) * 1.01\n"
    ),
    "hangs": "def softmax(x):\n    while True:\n        pass\n",
}  # fmt: skip
HANGS_ONE_IN = 20
"""Of the hostile: each costs its time limit, whatever the server does."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _load(options, Path(folder))


def _load(options: argparse.Namespace, folder: Path) -> None:
    draw = random.Random(options.seed)
    kinds = [_draw_kind(draw) for _ in range(options.submissions)]
    sources = [f"{HOSTILE.get(kind, RIGHT)}# {at}\n" for at, kind in enumerate(kinds)]
    client = Client(f"unix:{folder / 'g.sock'}")
    server = _start(folder, options.workers)
    memory: list[float] = []
    done = threading.Semaphore(0)
    begun = time.monotonic()

    def judge(at: int) -> dict[str, object]:
        try:
            return client.judge(sources[at], "softmax", cases=4, dtypes=["float16"], timeout_s=2.0, patience_s=1e5)
        finally:
            done.release()

    with ThreadPoolExecutor(options.clients) as pool:
        entries = [pool.submit(judge, at) for at in range(options.submissions)]
        for number in range(options.submissions):
            done.acquire()
            if number and number % max(options.submissions // 20, 1) == 0:
                memory.append(_read_memory(server.pid))
                rate = number / (time.monotonic() - begun)
                print(f"{number:6} done, {rate:.1f}/s, server {memory[-1]:.0f} MiB", file=sys.stderr, flush=True)
            if number == options.submissions // 2:
                server.send_signal(signal.SIGKILL)
                server.wait()
                server = _start(folder, options.workers)
        answers = [entry.result() for entry in entries]
    took = time.monotonic() - begun
    server.terminate()
    server.wait()
    _report(kinds, answers, memory, took, options)


def _draw_kind(draw: random.Random) -> str:
    if draw.random() >= 0.1:
        return "right"
    return (
        "hangs" if draw.random() < 1 / HANGS_ONE_IN else draw.choice([kind for kind in HOSTILE if kind != "hangs"])
    )


def _start(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    words = ["serve", "--socket", "g.sock", "--state", "s.sqlite", "--workers", str(workers), "--device", "cpu"]
    with Path(folder, "log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "gonogo", *words], cwd=folder, stderr=log)


def _read_memory(process: int) -> float:
    """Resident MiB of the server itself."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return float("nan")


def _report(
    kinds: list[str], answers: list[dict], memory: list[float], took: float, options: argparse.Namespace
) -> None:
    ends = Counter()
    wrong = 0
    for kind, answer in zip(kinds, answers, strict=True):
        verdict = answer["verdict"] or {}
        end = verdict.get("decision", answer["state"])
        ends[end] += 1
        wrong += end != ("go" if kind == "right" else "no-go")
        if end != ("go" if kind == "right" else "no-go"):
            print(f"wrong: {kind} is {end}, {answer['error']}", file=sys.stderr)
    waits = sorted(answer["started"] - answer["accepted"] for answer in answers if answer["started"])
    print(f"submissions          {len(answers):,} from {options.clients} clients, {options.workers} judges")
    print(f"hostile              {sum(kind != 'right' for kind in kinds):,}")
    print(f"ends                 {dict(ends)}")
    lost = sum(not answer.get("finished") or answer["state"] in ("failed", "cancelled") for answer in answers)
    print(f"lost                 {lost}")
    print(f"judged wrongly       {wrong}")
    print("killed and started   1 time, half-way")
    print(f"rate                 {len(answers) / took:.1f} per second")
    print(f"wait of an accepted  p50 {waits[len(waits) // 2]:.2f} s, p99 {waits[int(len(waits) * 0.99)]:.2f} s")
    print(f"server's memory      {', '.join(f'{size:.0f}' for size in memory)} MiB")


if __name__ == "__main__":
    main()
