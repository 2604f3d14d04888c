"""Nothing outlives a campaign: neither its workers nor what kernels have started, however it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import DEADLINE_S, heed_signals, wait_for_end

from gonogo.campaign import Allowance, Plan, run_campaign
from gonogo.records import read_run

MORE_OPS = str(Path(__file__).parent.parent / "more_ops")


def read_told(folder: Path, kernels: int) -> list[int]:
    """The numbers of processes that kernels tell of, once so many have."""
    until = time.monotonic() + DEADLINE_S
    while len(told := list(folder.glob("*.told"))) < kernels:
        assert time.monotonic() < until
        select.select([], [], [], 0.02)
    return [int(number) for path in told for number in path.read_text().split()]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder whose path is short enough for a socket in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def start_campaign(
    tmp_path: Path, temporary: Path, stderr: int = subprocess.PIPE
) -> tuple[subprocess.Popen[str], list[int]]:
    """A campaign whose two workers spin, and all processes that its kernels tell of."""
    told = tmp_path / "told"
    told.mkdir()
    words = ("run", "endless", "--cases", "2", "--dtype", "float32", "--workers", "2", "--out", tmp_path / "run")
    environment = os.environ | {"TMPDIR": str(temporary), "ENDLESS_FOLDER": str(told)}
    campaign = subprocess.Popen(
        [sys.executable, "-m", "gonogo", *map(str, words), "--ops-path", MORE_OPS, "--timeout", "600",
         "--memory-gb", "0.8", "--distribution", "uniform"],
        env=environment, stderr=stderr, text=True, preexec_fn=heed_signals,
    )  # fmt: skip
    try:  # two workers crash and two spin, each with a process of its own
        return campaign, read_told(told, 4)
    except BaseException:
        campaign.kill()
        raise


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_outlives_a_signal(number: signal.Signals, tmp_path: Path, temporary: Path) -> None:
    terminal, shown = os.openpty()
    campaign, processes = start_campaign(tmp_path, temporary, shown if number == signal.SIGHUP else subprocess.PIPE)
    for file in (shown, terminal):
        os.close(file)
    campaign.send_signal(number)
    _, said = campaign.communicate(timeout=DEADLINE_S)
    assert [process for process in processes if not wait_for_end(process)] == []
    if number != signal.SIGKILL:
        assert (campaign.returncode, list(temporary.iterdir())) == (130, [])
    if number == signal.SIGTERM:
        assert said.splitlines()[-1].startswith("interrupted: what is done is kept. Go on: gonogo run --resume")


def test_a_fork_server_that_ends_is_no_kernels_fault(tmp_path: Path, temporary: Path) -> None:
    campaign, processes = start_campaign(tmp_path, temporary)
    children = Path(f"/proc/{campaign.pid}/task/{campaign.pid}/children").read_text().split()
    (server,) = [child for child in children if "forkserver" in Path(f"/proc/{child}/cmdline").read_text()]
    os.kill(int(server), signal.SIGKILL)
    _, said = campaign.communicate(timeout=DEADLINE_S)
    assert (campaign.returncode, said.count("\n")) == (2, 1)
    assert said.startswith("gonogo: the process that workers are forked from has ended, and they with it")
    assert [process for process in processes if not wait_for_end(process)] == []
    assert "spins" not in {row["kernel"] for row in read_run(tmp_path / "run").to_pylist()}


def test_memory_of_what_a_kernel_starts_is_the_workers(tmp_path: Path) -> None:
    plan = Plan(("endless",), ("float32",), cases=1, distributions=("uniform",), ops_folders=(MORE_OPS,))
    run_campaign(plan, tmp_path, allowance=Allowance(timeout_s=10.0, memory_bytes=0.8 * 2**30), workers=1)
    outcomes = {row["kernel"]: (row["outcome"], row["detail"]) for row in read_run(tmp_path).to_pylist()}
    assert outcomes["copies"] == ("ok", None)
    assert outcomes["starts_and_crashes"] == ("crashed", "killed by SIGSEGV")
    assert outcomes["eats_memory_elsewhere"][0] == "out-of-memory"
    assert "GiB resident, 0.8 allowed" in outcomes["eats_memory_elsewhere"][1]
    assert outcomes["spins"][0] == "timed-out"
