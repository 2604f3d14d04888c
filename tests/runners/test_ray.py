"""Campaigns on a Ray cluster of two nodes: the records of the local engine, whatever kernels and nodes do."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from command import gonogo
from ray_cluster import OWN, Cluster, list_ancestors, start_cluster
from running import DEADLINE_S, heed_signals, leave_progress_out, wait_for_end
from stores import BUCKET, KEY, SECRET, point_at, run_moto

from gonogo.guest.stem import list_family
from gonogo.records import read_description, read_run
from gonogo.records.places import S3Place

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed"),
]

MORE_OPS = str(Path(__file__).parent.parent / "more_ops")
CHANGES_EACH_TIME = ("time_us",)
GATED = ("gated", "--cases", "8", "--dtype", "float32", "--distribution", "uniform", "--device", "cpu")


class Gate:
    """Where the first kernel of `gated` tells its process and waits; another run may have it again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def close(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def open(self) -> None:
        (self.folder / "told").touch()
        (self.folder / "open").touch()

    def wait_for_kernel(self) -> int:
        """The process of the kernel that waits."""
        wait_until((self.folder / "told").exists)
        return int((self.folder / "told").read_text())


def wait_until(holds: Callable[[], object]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < until
        select.select([], [], [], 0.02)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Gate:
    return Gate(tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="module")
def cluster(gate: Gate) -> Iterator[Cluster]:
    with start_cluster({"GATE_FOLDER": str(gate.folder)}) as cluster:
        cluster.add("first", "old")
        cluster.add("second", "old")
        yield cluster


@contextmanager
def start(*words: object, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A campaign in a process of its own, where any warning is an error; gone afterwards."""
    campaign = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "gonogo", "run", *map(str, words), "--ops-path", MORE_OPS],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | OWN | (environment or {}),
        preexec_fn=heed_signals,
    )  # fmt: skip
    with campaign:
        try:
            yield campaign
        finally:
            campaign.kill()


def run_on(cluster: Cluster, *words: object) -> subprocess.CompletedProcess[str]:
    with start(*words, "--engine", "ray", "--address", cluster.address) as campaign:
        out, err = campaign.communicate(timeout=2 * DEADLINE_S)
    return subprocess.CompletedProcess(campaign.args, campaign.returncode, out, leave_progress_out(err))


def read_rows(folder: Path | S3Place) -> list[dict]:
    """All rows, by case and kernel; of a worker's size, which is never the same, only that it was told.

    A kernel that counts its calls gives what its worker has run before: of such a row, what became of it.
    """
    rows = read_run(folder).to_pylist()
    for row in rows:
        for name in CHANGES_EACH_TIME:
            row.pop(name)
        row["detail"] = row["detail"] and re.sub(r"[\d.]+ GiB resident", "GiB resident", row["detail"])
    told = ("number", "case", "kernel", "contract", "outcome", "detail")
    rows = [{name: row[name] for name in told} if row["outcome"] == "not-repeatable" else row for row in rows]
    return sorted(rows, key=lambda row: (row["number"], row["kernel"]))


@pytest.fixture(scope="module")
def local_gated(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """What no node is lost for."""
    folder = tmp_path_factory.mktemp("local")
    assert gonogo("run", *GATED, "--ops-path", MORE_OPS, "--out", folder).returncode == 0
    return read_rows(folder)


def find_actor(kernel: int) -> int:
    """The process of Ray's that a kernel runs below."""
    return next(one for one in list_ancestors(kernel) if "ray::" in Path(f"/proc/{one}/cmdline").read_text())


def count_cases(folder: Path) -> int:
    return len(set(read_run(folder, ["number"])["number"].to_pylist())) if (folder / "run.json").exists() else 0


def test_records_are_those_of_the_local_engine(cluster: Cluster, tmp_path: Path) -> None:
    """Among them those of kernels that crash, exit, hang and eat memory, with the same words."""
    words = ("naughty", "calm", "--cases", "2", "--dtype", "float32", "--seed", "1", "--timeout", "3")
    words += ("--memory-gb", "0.6", "--distribution", "uniform", "--device", "cpu")
    ended = run_on(cluster, *words, "--out", tmp_path / "ray", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["records"] == json.loads(ended.stdout)["planned"]
    assert gonogo("run", *words, "--ops-path", MORE_OPS, "--out", tmp_path / "local").returncode == 0
    rows = read_rows(tmp_path / "ray")
    assert rows == read_rows(tmp_path / "local")
    said = {row["kernel"]: (row["outcome"], row["detail"]) for row in rows}
    assert said["segfaults"] == ("crashed", "killed by SIGSEGV")
    assert said["hangs_in_c"] == ("timed-out", "no answer in 3 s")
    assert said["eats_memory"] == ("out-of-memory", "GiB resident, 0.6 allowed")
    environments = [read_description(tmp_path / engine)["environment"] for engine in ("ray", "local")]
    assert environments[0] == environments[1] | {"kind": "old", "commit": OWN["GONOGO_COMMIT"]}


def test_a_kernel_that_hangs_and_its_node_is_lost(
    cluster: Cluster, gate: Gate, local_gated: list[dict], tmp_path: Path
) -> None:
    """The other node takes all that waits behind the kernel, then its case, too."""
    gate.close()
    with start(*GATED, "--out", tmp_path, "--engine", "ray", "--address", cluster.address) as campaign:
        kernel = gate.wait_for_kernel()
        wait_until(lambda: count_cases(tmp_path) == 7)
        (lost,) = [cluster.roots[process] for process in list_ancestors(kernel) if process in cluster.roots]
        cluster.kill(lost)
        assert wait_for_end(kernel)
        _, said = campaign.communicate(timeout=2 * DEADLINE_S)
    assert (campaign.returncode, leave_progress_out(said)) == (0, "")
    assert read_rows(tmp_path) == local_gated
    cluster.add("third", "old")


def test_a_driver_that_is_killed_and_resumed(
    cluster: Cluster, gate: Gate, local_gated: list[dict], tmp_path: Path
) -> None:
    gate.close()
    with start(*GATED, "--out", tmp_path, "--engine", "ray", "--address", cluster.address):
        kernel = gate.wait_for_kernel()
        actor = find_actor(kernel)
        wait_until(lambda: count_cases(tmp_path) == 7)
    assert wait_for_end(kernel)
    assert wait_for_end(actor)
    kept = read_rows(tmp_path)
    assert all(row in local_gated for row in kept)
    ended = run_on(cluster, "--resume", "--out", tmp_path, "--json")
    assert ended.returncode == 0, ended.stderr
    assert sum(json.loads(ended.stdout)["outcomes"].values()) == len(local_gated) - len(kept)
    assert read_rows(tmp_path) == local_gated


def test_records_in_an_object_store(
    cluster: Cluster, gate: Gate, local_gated: list[dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a driver that is killed in the middle, and one that completes its run; nodes are not told the keys."""
    gate.close()
    run = S3Place(BUCKET, "by-ray")
    with run_moto() as endpoint:
        point_at(endpoint, monkeypatch)
        with start(*GATED, "--out", run, "--engine", "ray", "--address", cluster.address) as campaign:
            kernel = gate.wait_for_kernel()
            actor = find_actor(kernel)
            environments = [Path(f"/proc/{one}/environ").read_bytes() for one in (kernel, actor)]
            campaign.kill()
        assert wait_for_end(kernel)
        assert wait_for_end(actor)
        assert [part for part in (KEY, SECRET) for told in environments if part.encode() in told] == []
        ended = run_on(cluster, "--resume", "--out", run, "--json")
        assert (ended.returncode, ended.stderr) == (0, "")
        assert json.loads(ended.stdout)["records"] == len(local_gated)
        assert read_rows(run) == local_gated


def test_a_cluster_that_is_gone_ends_the_campaign_with_a_line(
    gate: Gate, local_gated: list[dict], tmp_path: Path
) -> None:
    """What is recorded stays, and no worker does; another engine completes the run."""
    gate.close()
    run = tmp_path / "run"
    with start_cluster({"GATE_FOLDER": str(gate.folder)}) as cluster:
        for name in ("first", "second"):
            cluster.add(name, "old")
        with start(*GATED, "--out", run, "--engine", "ray", "--address", cluster.address) as campaign:
            kernel = gate.wait_for_kernel()
            wait_until(lambda: count_cases(run) == 7)
            cluster.behead()
            out, said = campaign.communicate(timeout=2 * DEADLINE_S)
    assert (campaign.returncode, out) == (2, "")
    (line,) = leave_progress_out(said).splitlines()
    assert line.startswith(f"gonogo: the Ray cluster at {cluster.address} is gone: nothing has answered there for")
    again = f"gonogo run --resume --out {run} --engine ray --address {cluster.address} --ops-path {MORE_OPS}"
    assert line.endswith(f". What is recorded is kept. Go on: {again}")
    assert wait_for_end(kernel)
    assert count_cases(run) == 7
    told = gonogo("calibrate", run, "-o", tmp_path / "lock")
    again = f"gonogo run --resume --out {run} --ops-path FOLDER"
    note = f"note: {run} is incomplete: it has 14 of 16 records. Unless it is under way, complete it: {again}\n"
    assert note in told.stderr
    gate.open()
    ended = gonogo("run", "--resume", "--out", run, "--ops-path", MORE_OPS)
    assert ended.returncode == 0, ended.stderr
    assert read_rows(run) == local_gated


def test_each_kind_has_a_run_of_its_own(
    cluster: Cluster, gate: Gate, local_gated: list[dict], tmp_path: Path
) -> None:
    gate.open()
    cluster.add("other", "new")
    mixed = run_on(cluster, *GATED, "--out", tmp_path / "mixed")
    assert (mixed.returncode, mixed.stderr) == (
        2,
        "gonogo: the cluster has nodes of 2 kinds, new and old: a run is of one. Run the same cases on each by "
        "--per-device-kind\n",
    )
    ended = run_on(cluster, *GATED, "--out", tmp_path / "kinds", "--per-device-kind", "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)["runs"]
    assert [Path(run["run"]) for run in told] == [tmp_path / "kinds" / kind for kind in ("new", "old")]
    for kind in ("new", "old"):
        folder = tmp_path / "kinds" / kind
        assert read_description(folder)["environment"]["kind"] == kind
        assert read_rows(folder) == local_gated
    cluster.kill("other")
    gone = run_on(cluster, "--resume", "--out", tmp_path / "kinds", "--per-device-kind")
    assert "has runs of new, of which there is no node now; there are old" in gone.stderr


def test_a_cluster_of_our_own_is_reached_from_here_alone_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    gate.folder.mkdir()
    words = (*GATED, "--engine", "ray", "--workers", "2", "--out", tmp_path / "run")
    home = tmp_path / "home"
    home.mkdir()
    with start(*words, environment={"GATE_FOLDER": str(gate.folder), "HOME": str(home)}) as campaign:
        gate.wait_for_kernel()
        wait_until(lambda: count_cases(tmp_path / "run") == 7)
        family = list_family(campaign.pid)
        addresses = list_listening(family)
        assert len(addresses) > 2
        assert [address for address in addresses if address not in LOOPBACK] == []
        campaign.send_signal(signal.SIGINT)
        out, said = campaign.communicate(timeout=DEADLINE_S)
    assert (campaign.returncode, out) == (130, "")
    again = f"gonogo run --resume --out {tmp_path / 'run'} --workers 2 --engine ray --ops-path {MORE_OPS}"
    assert leave_progress_out(said) == f"interrupted: what is done is kept. Go on: {again}\n"
    assert [process for process in family if not wait_for_end(process)] == []
    assert count_cases(tmp_path / "run") == 7
    assert not (home / ".ray" / "auth_token").exists()  # which clusters to come would ask for


LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
"""127.0.0.1, the same as an IPv6 address, and ::1, as Linux writes them."""


def list_listening(processes: list[int]) -> list[str]:
    """The addresses that processes take connections at."""
    inodes = set()
    for process in processes:
        for file in Path(f"/proc/{process}/fd").iterdir():
            if (match := re.fullmatch(r"socket:\[(\d+)\]", str(file.readlink()))) is not None:
                inodes.add(match[1])
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
    return [line[1].partition(":")[0] for line in lines if line[3] == "0A" and line[9] in inodes]
