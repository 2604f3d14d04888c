"""A second server, SeaweedFS: two processes at once, and a store that is killed in the middle of a write."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from command import gonogo
from make_record import append_some
from stores import BUCKET, Seaweed, point_at

from gonogo.errors import InputError
from gonogo.limits.lock import read_lock
from gonogo.records import RunDirectory, find_runs, read_description, read_run
from gonogo.records.places import S3Place, parse_place

pytest.importorskip("obstore")
pytestmark = pytest.mark.slow
RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    server = Seaweed(tmp_path_factory.mktemp("seaweed"))
    with pytest.MonkeyPatch.context() as patched:
        point_at(server.endpoint, patched)
        server.start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def _environment(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at(seaweed.endpoint, monkeypatch, attempts=9)


def write_run(run: str) -> None:
    """The committed run, with a name of its own for the seed: in this process or another."""
    seed = int(run[-1])
    description = read_description(RUN)
    rows = read_run(RUN).to_pylist()
    with RunDirectory(parse_place(run), description | {"plan": {"seed": seed}}, part_rows=200) as directory:
        for row in rows:
            directory.append_rows([row])


def claim(run: str) -> str:
    """What two processes get that want one prefix."""
    try:
        RunDirectory(parse_place(run), {})
    except InputError as error:
        return str(error)
    return "mine"


def test_two_processes_at_once(tmp_path: Path) -> None:
    nightly = S3Place(BUCKET, "nightly")
    runs = [str(nightly / f"run-{number}") for number in range(2)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(write_run, runs))
        added = list(pool.map(append_some, [f"s3://{BUCKET}/added"] * 2, [0, 5]))
        claims = list(pool.map(claim, [f"s3://{BUCKET}/one"] * 2))
    assert [str(run) for run in find_runs([nightly])] == runs
    assert [str(run) for run in find_runs([nightly / "run-*"])] == runs
    for words, name in (([RUN], "disk"), ([runs[0]], "store"), ([nightly], "both")):
        ended = gonogo("calibrate", *words, "-o", tmp_path / name)
        assert ended.returncode == 0, ended.stderr
    disk, store, both = (
        {(limit.op, limit.contract): (limit.value, limit.cases) for limit in read_lock(tmp_path / name)[0]}
        for name in ("disk", "store", "both")
    )
    assert disk == store
    assert both == {key: (value, 2 * cases) for key, (value, cases) in disk.items()}
    assert sum(added) == read_run(S3Place(BUCKET, "added")).num_rows == 15
    assert sorted(claim == "mine" for claim in claims) == [False, True]


def test_the_server_is_killed_in_the_middle_of_a_write(seaweed: Seaweed) -> None:
    """A writer waits for it to come back, and nothing is lost or doubled."""
    run, rows = S3Place(BUCKET, "killed"), read_run(RUN).to_pylist()
    directory = RunDirectory(run, read_description(RUN), part_rows=100)
    written: list[Any] = []

    def write() -> None:
        try:
            for at in range(0, len(rows), 50):
                directory.append_rows(rows[at : at + 50])
                is_begun.set()
            directory.close()
        except Exception as error:  # noqa: BLE001 - told by the test, not by a thread
            written.append(error)

    is_begun = threading.Event()
    writer = threading.Thread(target=write)
    writer.start()
    assert is_begun.wait(60)
    seaweed.kill()
    seaweed.start()
    writer.join(240)
    assert not writer.is_alive()
    assert written == []
    assert read_run(run).equals(read_run(RUN))


def test_credentials_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, told in (
        ("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"),
        ("AWS_ACCESS_KEY_ID", "InvalidAccessKeyId"),
    ):
        monkeypatch.setenv(name, "wrong")
        with pytest.raises(InputError, match=rf"refuses the credentials from the environment \({told}\)"):
            find_runs([S3Place(BUCKET, "nightly")])
