"""NVIDIA's MPS as campaigns start and end it, by a program that stands in for it; on a GPU see test_gpu_fault."""

from __future__ import annotations

import os
import select
import stat
import sys
from pathlib import Path

import pytest

from gonogo.campaign import Allowance, Plan, run_campaign
from gonogo.errors import CampaignFailed
from gonogo.runners import sharing
from gonogo.runners.engines import Order
from gonogo.runners.engines.local import LocalCrew
from gonogo.runners.pool import Pool
from gonogo.runners.sharing import LOGS, NOWHERE, PIPES, VISIBLE, find_sharing, start_sharing

STANDS_IN = f"""#!{sys.executable}
import os, signal, subprocess, sys
from pathlib import Path
folder = Path(os.environ["{PIPES}"])
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
told = [sys.argv[1], os.environ["{LOGS}"], os.environ.get("{VISIBLE}", "all"), str(child.pid), str(os.getpid())]
(folder / "told").write_text("\\n".join(told))
(folder / "control").write_text("")
signal.pause()
"""
ENDS_AT_ONCE = f"#!{sys.executable}\nraise SystemExit(1)\n"


@pytest.fixture(autouse=True)
def no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has none."""
    monkeypatch.setenv(PIPES, str(tmp_path / "pipes"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sharing, "USUAL_FOLDERS", ())


def install(folder: Path, program: str, name: str = "nvidia-cuda-mps-control") -> None:
    file = folder / name
    file.write_text(program)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_a_machine_without_it() -> None:
    assert find_sharing() is None
    assert start_sharing() is None


def test_it_is_started_for_a_campaign_and_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, STANDS_IN)
    monkeypatch.setenv(VISIBLE, "3")
    started = start_sharing()
    assert started is not None
    assert started.wait_until_there()
    folder = Path(started.together[PIPES])
    way, logs, visible, child, own = (folder / "told").read_text().splitlines()
    assert (way, logs, visible) == ("-f", str(folder), "all")  # workers choose among all GPUs
    assert started.apart == {PIPES: NOWHERE}
    processes = [os.pidfd_open(int(number)) for number in (child, own)]
    assert select.select(processes, [], [], 0)[0] == []
    started.close()
    assert not folder.exists()
    for process in processes:  # readable once it has ended
        assert select.select([process], [], [], 30)[0] == [process]
        os.close(process)
    monkeypatch.setattr(os, "killpg", None)  # by then the number may be another's
    started.close()  # once more, for crews are closed twice


def test_one_that_ends_at_once_is_done_without(tmp_path: Path) -> None:
    install(tmp_path, ENDS_AT_ONCE)
    started = start_sharing()
    assert started is not None
    assert not started.wait_until_there()
    started.close()
    assert started.folder is not None
    assert not started.folder.exists()


def test_nowhere_to_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, STANDS_IN)

    def refuse(**options: str) -> str:
        raise PermissionError(options["dir"])

    monkeypatch.setattr("gonogo.runners.sharing.tempfile.mkdtemp", refuse)
    assert start_sharing() is None


def test_one_that_runs_already_is_left_running(tmp_path: Path) -> None:
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "control").touch()
    found = find_sharing()
    assert found is not None
    assert (found.together, found.apart, found.service) == ({}, {PIPES: NOWHERE}, None)
    assert found.wait_until_there()
    found.close()
    assert (tmp_path / "pipes" / "control").exists()


@pytest.mark.parametrize(
    ("mode", "apart"), [("Default", {PIPES: NOWHERE}), ("Exclusive_Process", {}), ("[N/A]", {PIPES: NOWHERE})]
)
def test_a_gpu_that_takes_the_service_alone_is_reached_by_it_alone(
    mode: str, apart: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "control").touch()
    install(tmp_path, f"#!{sys.executable}\nprint('Default\\n{mode}')\n", "nvidia-smi")
    found = find_sharing()
    assert found is not None
    assert (found.together, found.apart) == ({}, apart)


def test_no_worker_of_a_campaign_that_does_not_want_it_is_in_a_service_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "control").touch()
    monkeypatch.setattr("gonogo.runners.engines.local.describe_environment", lambda device: {"device": device})
    crew = LocalCrew(Order("cuda", Allowance(shares_gpu=False), 2))
    try:
        assert crew.describe()["gpu_shared"] is False
        assert crew._pool is not None
        assert [worker.shares for worker in crew._pool._workers] == [False, False]
        assert crew._sharing is not None
        assert crew._sharing.apart == {PIPES: NOWHERE}
    finally:
        crew.close()


def test_a_campaign_whose_workers_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("gonogo.runners.fork_server._start", refuse)
    with pytest.raises(CampaignFailed, match=r"no worker can be started: \[Errno 24\] Too many open files"):
        run_campaign(Plan(("softmax",), cases=1), tmp_path / "run")


@pytest.mark.parametrize(
    ("device", "workers", "wanted", "shares"),
    [("cuda", 2, True, True), ("cuda", 1, True, False), ("cuda", 2, False, False), ("cpu", 2, True, False)],
)
def test_a_crew_shares_where_that_is_of_use(
    device: str, workers: int, wanted: bool, shares: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, STANDS_IN)
    pools: list[bool] = []

    def note(self: Pool, workers: int, allowance: Allowance, *, sharing: object) -> None:
        pools.append(sharing is not None)

    monkeypatch.setattr(Pool, "__init__", note)
    monkeypatch.setattr(Pool, "close", lambda self: None)
    monkeypatch.setattr("gonogo.runners.engines.local.start_fork_server", lambda: None)
    monkeypatch.setattr("gonogo.runners.engines.local.describe_environment", lambda device: {"device": device})
    crew = LocalCrew(Order(device, Allowance(shares_gpu=wanted), workers))
    started = crew._sharing
    try:
        assert crew.describe().get("gpu_shared") == (shares if device == "cuda" else None)
        assert pools == [shares]
    finally:
        crew.close()
    assert (started is not None) == shares
    assert started is None or (started.folder is not None and not started.folder.exists())
