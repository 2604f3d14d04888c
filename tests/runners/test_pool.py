"""The pool: what it hands out, what its workers are told, and when it gives up."""

from __future__ import annotations

import threading
from itertools import chain
from pathlib import Path

import pytest
from command import spawn
from warm import run_python

from gonogo.campaign import Allowance, Plan, run_campaign
from gonogo.errors import CampaignFailed, InputError, ReferenceFailed
from gonogo.execution.job import make_records
from gonogo.records import read_run
from gonogo.runners.job_queue import READ_AHEAD, JobQueue
from gonogo.runners.pool import Pool, Worker
from gonogo.runners.sharing import PIPES, Sharing
from gonogo.schema import Outcome

MORE_OPS = str(Path(__file__).parent.parent / "more_ops")


def make_plan(op: str, cases: int = 1) -> Plan:
    return Plan((op,), ("float32",), cases=cases, distributions=("uniform",), ops_folders=(MORE_OPS,))


def test_queue_takes_back_more_than_it_reads_ahead() -> None:
    plan = make_plan("calm", READ_AHEAD + 10)
    queue = JobQueue(plan.jobs())
    begun = [job for job in (queue.take(0), queue.take(1)) if job is not None]
    taken = queue.take(0)
    for job in begun:
        queue.put(job)
    numbers = set()
    while taken is not None:
        numbers.add(taken.number)
        taken = queue.take(0)
    assert numbers == set(range(plan.size))


def test_workers_have_the_environment_of_their_own_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for value in (None, "0", "1", None):
        if value is None:
            monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
        else:
            monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
        folder = tmp_path / str(len(said))
        run_campaign(make_plan("tells"), folder, workers=1)
        said += [row["detail"] for row in read_run(folder).to_pylist() if row["kernel"] == "tells_environment"]
    told = [one.partition(" (")[0] for one in said]
    assert told == [f"RuntimeError: {value}" for value in ("not set", "0", "1", "not set")]


@pytest.mark.slow
def test_a_folder_for_temporary_files_whose_path_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the server that workers come from is a path, of at most 107 bytes."""
    folder = tmp_path / ("x" * 150)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    ended = spawn("run", "relu", "--cases", 1, "--dtype", "float32", "--device", "cpu", "--out", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    assert list(folder.iterdir()) == []


def test_memory_below_a_workers_own_size(tmp_path: Path) -> None:
    with pytest.raises(CampaignFailed) as caught:
        run_campaign(make_plan("calm"), tmp_path, allowance=Allowance(memory_bytes=2**20), workers=2)
    said = str(caught.value)
    assert said.startswith("a worker does not fit: 0.")
    assert said.endswith("GiB resident, 0.000977 allowed before it has run a kernel. Allow more by --memory-gb")
    assert read_run(tmp_path).num_rows == 0


def test_past_both_limits_is_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a kernel that eats memory may be past its time, too, when it is looked at."""
    monkeypatch.setattr("gonogo.runners.pool.measure_family", lambda keeper, limit: 9 * 2**30)
    pool = Pool(1, Allowance(timeout_s=1e-9))
    (worker,) = pool._workers
    try:
        worker.start(next(make_plan("calm").jobs()))
        worker.ready, worker.kernel = True, "eats_memory"
        assert pool._check(worker) == ("out-of-memory", "9 GiB resident, 8 allowed")
    finally:
        pool.close()


@pytest.mark.parametrize("limits", [{"timeout_s": 0.0}, {"timeout_s": float("nan")}, {"memory_bytes": 0}])
def test_limits_are_above_zero(limits: dict[str, float]) -> None:
    with pytest.raises(InputError, match="it must be above 0"):
        Allowance(**limits)


def test_mistake_in_a_reference_stops_the_campaign(tmp_path: Path) -> None:
    with pytest.raises(ReferenceFailed) as caught:
        run_campaign(make_plan("no_rule"), tmp_path, workers=1)
    said = str(caught.value)
    assert said.startswith("reference of op no_rule failed on no_rule:f32:")
    assert "no error rule for aten.geqrf" in said
    assert "\n" not in said
    assert read_run(tmp_path).num_rows == 0


@pytest.mark.slow
def test_script_without_a_guard(tmp_path: Path) -> None:
    """Workers import the script again; where that starts the campaign, none ever gets ready."""
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from gonogo.campaign import Plan, run_campaign\n"
        f"run_campaign(Plan(('calm',), cases=1, ops_folders=({MORE_OPS!r},)), Path({str(tmp_path)!r}), workers=1)\n"
    )
    ended = run_python(script, cwd=tmp_path)
    assert ended.returncode == 1
    assert "workers do not start: exit code 1. The usual cause is a script" in ended.stderr
    assert 'start it under: if __name__ == "__main__":' in ended.stderr


def test_a_worker_that_dies_between_cases_is_no_fault_of_the_next(tmp_path: Path) -> None:
    run_campaign(make_plan("bomb", 3), tmp_path, workers=1)
    rows = read_run(tmp_path).to_pylist()
    assert [(row["outcome"], row["detail"]) for row in rows] == [("ok", None)] * 6


def test_a_case_that_ends_two_workers_cannot_be_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo.runners.pool.read_switches", lambda: {"BOMB": "1"})
    run_campaign(make_plan("bomb"), tmp_path, workers=1)
    rows = read_run(tmp_path).to_pylist()
    said = ("crashed", "killed by SIGKILL, while the case was set up")
    assert [(row["outcome"], row["detail"]) for row in rows] == [said] * 2


def test_a_job_is_owed_to_a_worker_behind_one_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo.runners.pool.read_switches", lambda: {"BOMB": "1"})
    calm, bomb = make_plan("calm"), make_plan("bomb")
    pool = Pool(2, Allowance())
    alarm = threading.Timer(60, pool.interrupted.set)  # it would wait for ever
    try:
        while not all(worker.ready for worker in pool._workers):
            list(pool.run(calm.jobs()))
        alarm.start()
        ended = list(pool.run(chain(calm.jobs(), bomb.jobs())))  # the first worker has the first of them
    finally:
        alarm.cancel()
        pool.close()
    assert {record.outcome for records in ended for record in records} == {"ok", "crashed"}


def test_a_job_handed_ahead_to_a_worker_that_dies_is_run_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead: list[int] = []
    hand_ahead = Worker.hand_ahead
    monkeypatch.setattr(Worker, "hand_ahead", lambda self, job: (ahead.append(job.number), hand_ahead(self, job)))
    plan = make_plan("fated", 8)
    pool = Pool(2, Allowance(), sharing=None)
    try:
        cases = list(pool.run(plan.jobs()))
    finally:
        pool.close()
    names = [kernel.name for kernel in next(plan.jobs()).kernels]
    assert [[record.kernel for record in records] for records in cases] == [names] * 8
    assert len({records[0].case for records in cases}) == 8
    assert {record.outcome for records in cases for record in records if record.kernel == "dies"} == {"crashed"}
    assert 0 < len(ahead) < 8  # the last go to whoever is free


@pytest.mark.parametrize("shared", ["shared", "lost at once"])
def test_what_shares_a_gpu_is_run_again_before_it_is_blamed(shared: str) -> None:
    """A worker that shares may end through another's kernel, at a kernel or before any."""
    plan = make_plan("fated", 2)
    sharing = Sharing({PIPES: shared}, {PIPES: "apart"})
    pool = Pool(2, Allowance(timeout_s=5), sharing=sharing)
    try:
        records = [record for of_case in pool.run(plan.jobs()) for record in of_case]
    finally:
        pool.close()
    names = [kernel.name for kernel in next(plan.jobs()).kernels]
    assert sorted(record.kernel for record in records) == sorted(2 * names)
    for record in records:
        ended = (record.outcome, record.detail)
        assert ended == (("crashed", "killed by SIGKILL") if record.kernel == "dies" else ("ok", None))


def test_what_a_worker_that_shares_says_of_a_crash_is_not_believed() -> None:
    """On a GPU it tells of it itself, and ends: the record is of a kernel that may be another's victim."""
    (job,) = make_plan("fated").jobs()
    pool = Pool(1, Allowance(), sharing=Sharing({PIPES: "shared"}, {PIPES: "apart"}))
    try:
        (worker,) = pool._workers
        made = make_records(job, job.kernels[:2], Outcome("ok"))
        worker.job, worker.kernel, worker.records = job, None, [made[0], made[1].end(Outcome("crashed"))]
        ((number, records, rest),) = pool._replace(worker, "crashed", None)
        (fresh,) = pool._workers
        assert (number, records) == (job.number, [made[0]])
        assert rest is not None
        assert (rest.kernels, rest.gave_nothing) == (job.kernels[1:], ())
        assert fresh.owed is rest
        assert not fresh.shares
        every = make_records(job, job.kernels, Outcome("ok"))
        fresh.shares, fresh.job, fresh.records = True, job, every  # it dies behind its last record
        assert list(pool._replace(fresh, "crashed", None)) == [(job.number, every, None)]
        (fresh,) = pool._workers
        assert fresh.owed is None
        fresh.shares, fresh.job, fresh.records = True, job, [made[0]]
        list(pool._replace(fresh, "out-of-memory", "too much"))  # of the host's, which is its own doing
        assert pool._workers[0].shares
    finally:
        pool.close()
