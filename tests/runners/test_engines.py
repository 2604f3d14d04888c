"""Engines by name, what they refuse, and the site that an engine has on another machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command import gonogo

from gonogo.campaign import Plan
from gonogo.errors import InputError, ReferenceFailed
from gonogo.runners import site as site_module
from gonogo.runners.engines import engine_names, open_engine
from gonogo.runners.engines.ray import _read_node
from gonogo.runners.environment import read_switches
from gonogo.runners.job_queue import JobQueue, SentJobs
from gonogo.runners.pool import Allowance, Pool
from gonogo.runners.site import Posting, Reply, Site
from gonogo.schema import Record

MORE_OPS = str(Path(__file__).parent.parent / "more_ops")


def make_plan(op: str, cases: int) -> Plan:
    return Plan((op,), ("float32",), cases=cases, distributions=("uniform",), ops_folders=(MORE_OPS,))


def make_posting(folder: str = MORE_OPS) -> Posting:
    return Posting("here", "cpu", 1, Allowance(), read_switches(), (folder,))


def test_engines_are_found_by_their_files() -> None:
    assert engine_names() == ("local", "ray")
    with pytest.raises(InputError, match=r"unknown engine 'rey'\. Did you mean ray"):
        open_engine("rey")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "slurm"], "unknown engine 'slurm'; known: local, ray"),
        (
            ["--address", "10.0.0.1:6379"],
            "address 10.0.0.1:6379: the local engine is this machine. Use --engine ray",
        ),
        (["--engine", "ray"], "--engine ray needs ray, which is not installed. Run: pip install 'gonogo[ray]'"),
    ],
)
def test_refusals(words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    ended = gonogo("run", "relu", "--cases", 1, "--device", "cpu", "--out", tmp_path / "run", *words)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith(f"gonogo: {message}")
    assert not (tmp_path / "run").exists()


def test_a_worker_that_is_gone_leaves_what_it_has_begun_to_others() -> None:
    queue = JobQueue(Plan(("relu", "tanh"), ("float32",), cases=2).jobs())
    first = queue.take("gone")
    assert first is not None
    queue.forget("gone")
    queue.put(first)
    assert [job.case.op for job in (queue.take("other"), queue.take("other")) if job] == [first.case.op] * 2


def test_jobs_that_are_sent_wait_for_their_worker_until_another_has_none() -> None:
    jobs = list(Plan(("relu",), ("float32",), cases=6).jobs())
    queue = SentJobs(2)
    for number, job in enumerate(jobs):
        queue.send(min(number, 1), job)  # one for the first worker, all others for the second
    assert queue.take(0) == jobs[0]
    assert queue.take(1) == jobs[1]
    queue.put(jobs[1])
    assert queue.release(2) == [jobs[5], jobs[4]]
    assert [queue.take(0), queue.take(0), queue.take(1), queue.take(1)] == [jobs[1], jobs[2], jobs[3], None]
    queue.put(jobs[1])
    assert queue.release(9) == [], "what is begun stays: some of its records are here"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(site_module, "_hide_main_module", lambda: None)  # it is the tests' own
    return Site(make_posting())


def fetch(site: Site, cases: int, reply: Reply) -> list[list[Record]]:
    finished = list(reply.finished)
    while len(finished) < cases:
        finished += site.exchange([]).finished
    return finished


def test_a_site_works_while_nobody_asks(site: Site) -> None:
    jobs = list(make_plan("calm", 4).jobs())
    environment = site.start()
    assert isinstance(environment, dict)
    assert environment["device"] == "cpu"
    try:
        reply = site.exchange([(0, job) for job in jobs], release=2)
        assert list(reply.released) == [jobs[3], jobs[2]]
        finished = fetch(site, 2, reply)
        finished += fetch(site, 2, site.exchange([(0, job) for job in reply.released]))
    finally:
        site.close()
    assert [records[0].number for records in finished] == [0, 1, 3, 2]
    pool = Pool(1, Allowance())
    try:
        alone = {records[0].number: records for records in pool.run(iter(jobs))}
    finally:
        pool.close()
    for records in finished:
        told = [record.to_dict() | {"time_us": None} for record in records]
        assert told == [record.to_dict() | {"time_us": None} for record in alone[records[0].number]]


def test_a_mistake_in_a_reference_is_told_by_a_site(site: Site) -> None:
    assert isinstance(site.start(), dict)
    try:
        reply = site.exchange([(0, job) for job in make_plan("no_rule", 1).jobs()])
        while reply.error is None:
            reply = site.exchange([])
    finally:
        site.close()
    assert isinstance(reply.error, ReferenceFailed)


def test_a_folder_of_ops_that_a_node_does_not_have(tmp_path: Path) -> None:
    error = Site(make_posting(str(tmp_path / "ops"))).start()
    assert str(error) == (
        f"node here has no folder {tmp_path / 'ops'}, where ops are to be imported from: it must be at the same "
        "path on every node, as on a shared file system"
    )


def test_each_gpu_of_a_node_has_an_actor_with_its_share_of_cores() -> None:
    facts = {"NodeID": "1f", "NodeManagerHostname": "big", "NodeManagerAddress": "10.0.0.2"}
    node = _read_node(facts | {"Resources": {"CPU": 32.0, "GPU": 4.0, "accelerator_type:H200": 1.0}}, "cuda")
    assert (node.kind, node.is_named) == ("H200", True)
    assert [(place.key, place.cpus, place.gpus, place.workers) for place in node.list_places("cuda")] == [
        (("1f", index), 8, 1, 7) for index in range(4)
    ]
    named = {"CPU": 2.0, "GPU": 4.0, "accelerator_type:H200": 1.0, "gonogo_kind:sxm": 1.0}
    node = _read_node(facts | {"Resources": named}, "cuda")
    assert (node.kind, {place.workers for place in node.list_places("cuda")}) == ("sxm", {1})
    assert _read_node(facts | {"Resources": {"CPU": 2.0}}, "cpu").kind == "cpu"
