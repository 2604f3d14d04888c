"""Runs in an object store: seen whole or not at all, by many writers, and what goes wrong is said in a line."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from command import gonogo
from make_record import ENVIRONMENT, append_some, make_record
from running import heed_signals
from stores import BUCKET, KEY, SECRET, point_at, run_moto, run_refusing, run_silent

from gonogo.errors import BackendMissing, CampaignFailed, GonogoError, InputError
from gonogo.limits.lock import read_lock
from gonogo.records import (
    RunDirectory,
    append_records,
    check_appendable,
    find_runs,
    load_columns,
    open_runs,
    read_description,
    read_done,
    read_run,
    remote_run,
)
from gonogo.records.parts import list_parts
from gonogo.records.places import S3Place, parse_place
from gonogo.records.places.s3 import open_store
from gonogo.records.places.settings import read_settings
from gonogo.records.remote_run import RemoteRun

pytest.importorskip("obstore")
RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with run_moto() as endpoint:
        yield endpoint


@pytest.fixture
def prefix(moto: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> S3Place:
    """A prefix of its own for each test."""
    point_at(moto, monkeypatch)
    return S3Place(BUCKET, request.node.name.replace("[", "-").replace("]", ""))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return read_run(RUN).to_pylist()


def write_run(run: S3Place, rows: list[dict[str, Any]], *, part_rows: int = 20_000, **more: Any) -> S3Place:
    with RunDirectory(run, read_description(RUN) | more, part_rows=part_rows) as directory:
        for at in range(0, len(rows), 5):
            directory.append_rows(rows[at : at + 5])
    return run


def sort_rows(run: S3Place) -> list[str]:
    return sorted(map(str, read_run(run).to_pylist()))


@pytest.mark.parametrize("part_rows", [200, 20_000])
def test_what_is_written_is_read_back(
    part_rows: int, prefix: S3Place, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Merged or not; and calibrate makes of it what it makes of the same run on disk."""
    run = write_run(prefix / RUN.name, rows, part_rows=part_rows)
    assert [part.rows for part in list_parts(run)] == [len(rows)]
    assert read_run(run).equals(read_run(RUN))
    assert len(load_columns([run], wanted=["bound"])) == len(rows)
    for name, place in (("disk", RUN), ("store", run), ("below", prefix)):
        ended = gonogo("calibrate", place, "-o", tmp_path / name)
        assert ended.returncode == 0, ended.stderr
    limits = [read_lock(tmp_path / name)[0] for name in ("disk", "store", "below")]
    assert limits[0] == limits[1] == limits[2]
    assert SECRET not in (run / "run.json").read_bytes().decode()
    names = [entry.name for entry in run.list_below()[1]]
    assert sorted(names) == sorted(["open.json", "run.json", list_parts(run)[0].path.name])


def test_a_run_is_there_when_it_is_closed(prefix: S3Place, rows: list[dict[str, Any]]) -> None:
    write_run(prefix / "closed", rows[:10])
    run = prefix / "open"
    with suppress(KeyboardInterrupt), RunDirectory(run, read_description(RUN), part_rows=5) as directory:
        directory.append_rows(rows[:12])
        assert find_runs([prefix]) == find_runs([prefix / "*"]) == [prefix / "closed"]
        for read in (read_run, lambda place: load_columns([place]), lambda place: check_appendable(place, {})):
            with pytest.raises(InputError, match=f"{run} is (not closed|taken by a campaign)"):
                read(run)
        with pytest.raises(InputError, match=f"{run} is taken by another campaign.*--resume --out {run}"):
            RunDirectory(run, read_description(RUN))
        directory.append_rows(rows[12:14])
        raise KeyboardInterrupt
    with pytest.raises(InputError, match="is not closed"):
        load_columns([run])
    left_out = f"{run} is left out: a campaign writes to it, or was cut off. Then complete it: gonogo run --resume"
    for place in (prefix, prefix / "*"):
        (note,) = open_runs([place]).incomplete
        assert note == f"{left_out} --out {run}"
    assert open_runs([prefix / "closed"]).incomplete == []
    assert len(read_done(run)) == 14, "what was not in a part yet was written on the way out"
    write_run(run, rows[14:30], resumed=[{"device": "cpu"}])
    assert read_run(run).num_rows == 30
    with pytest.raises(InputError, match=f"{run} is closed: nothing can be added"):
        RunDirectory(run, read_description(RUN) | {"resumed": [{}]})


def test_of_two_that_go_on_with_a_run_the_last_does(prefix: S3Place, rows: list[dict[str, Any]]) -> None:
    """The other ends at its next part, and not after hours."""
    first = RunDirectory(prefix, read_description(RUN), part_rows=10)
    first.append_rows(rows[:10])
    second = RunDirectory(prefix, read_description(RUN) | {"resumed": [{}]}, part_rows=10)
    with pytest.raises(CampaignFailed, match=f"{prefix} was taken over by another gonogo run --resume"):
        first.append_rows(rows[10:20])
    second.append_rows(rows[10:20])
    second.close()
    assert sort_rows(prefix) == sorted(map(str, rows[:20]))
    with pytest.raises(CampaignFailed, match=f"{prefix} was closed by another writer meanwhile"):
        first.close()


def test_of_two_that_close_a_run_one_does(
    prefix: S3Place, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though neither has seen the other."""
    monkeypatch.setattr(RemoteRun, "_check_claim", lambda run: None)
    first = RunDirectory(prefix, read_description(RUN), part_rows=10)
    second = RunDirectory(prefix, read_description(RUN) | {"resumed": [{}]}, part_rows=10)
    first.append_rows(rows[:40])
    second.append_rows(rows[20:60])
    first.close()
    closed = (prefix / "run.json").read_bytes()
    with pytest.raises(CampaignFailed, match=f"{prefix} was closed by another writer meanwhile"):
        second.close()
    assert (prefix / "run.json").read_bytes() == closed
    assert sort_rows(prefix) == sorted(map(str, rows[:60])), "each row once, whoever wrote it"


@pytest.mark.slow
def test_a_kill_while_closing_leaves_all_or_nothing(
    prefix: S3Place, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, seen = sorted(map(str, rows[:50])), set[bool]()
    for name in ("write", "create", "unlink"):
        plain = getattr(S3Place, name)
        for count in range(3):
            run, calls = prefix / f"{name}-{count}", iter(range(count))
            directory = RunDirectory(run, read_description(RUN), part_rows=5)
            for at in range(0, 50, 5):
                directory.append_rows(rows[at : at + 5])

            def stop(place: S3Place, *words: Any, _plain: Any = plain, _calls: Any = calls, **given: Any) -> Any:
                if next(_calls, None) is None:
                    raise KeyboardInterrupt
                return _plain(place, *words, **given)

            with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
                patched.setattr(S3Place, name, stop)
                directory.close()
            is_closed = (run / "run.json").exists()
            seen.add(is_closed)
            if not is_closed:
                with pytest.raises(InputError, match="is not closed"):
                    read_run(run)
                assert len(read_done(run)) == 50
                write_run(run, [], resumed=[{}])
            assert sort_rows(run) == expected, (name, count)
    assert seen == {True, False}


def test_many_processes_add_to_one_run(prefix: S3Place) -> None:
    """Half of what each adds the other adds too."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        added = list(pool.map(append_some, [str(prefix)] * 2, [0, 5]))
    assert sum(added) == 15
    table = read_run(prefix).to_pylist()
    assert sorted(row["case"] for row in table) == sorted(f"c{number}" for number in range(15))
    assert len({row["number"] for row in table}) == 15, "no two cases share a number"
    parts = [part.path.name for part in list_parts(prefix)]
    assert parts == [f"part-{number:05d}.parquet" for number in range(len(parts))]
    other = append_records(prefix, ENVIRONMENT | {"torch": "3"}, [make_record(case="c3"), make_record(case="new")])
    assert str(other) == f"1 row added to {prefix}; 1 were there already, and stay as they were"
    with pytest.raises(InputError, match=f"{prefix} was recorded on processor a processor, this is another"):
        append_records(prefix, ENVIRONMENT | {"processor": "another"}, [make_record()])


def test_an_answer_that_was_lost(prefix: S3Place) -> None:
    """The client tries again, and meets what it has written itself."""
    prefix.create(b"mine")
    prefix.create(b"mine")
    with pytest.raises(FileExistsError):
        prefix.create(b"theirs")


def test_a_flip_in_the_store_is_noticed(prefix: S3Place, rows: list[dict[str, Any]]) -> None:
    write_run(prefix, rows[:50])
    append_records(prefix / "added", ENVIRONMENT, [make_record(case=str(case)) for case in range(50)])
    for run in (prefix, prefix / "added"):
        (part,) = list_parts(run)
        content = part.path.read_bytes()
        part.path.write(content[:400] + bytes([content[400] ^ 1]) + content[401:])
        with pytest.raises(InputError, match=f"{part.path} is damaged.* from a copy, or leave the run out"):
            read_run(run)
        part.path.write(content[:-100])
        with pytest.raises(InputError, match=f"{part.path} is damaged"):
            read_run(run)


def test_a_listed_object_that_is_gone(prefix: S3Place, rows: list[dict[str, Any]]) -> None:
    (part,) = list_parts(write_run(prefix, rows[:5]))
    part.path.unlink()
    with pytest.raises(InputError, match=f"{part.path} cannot be read: there is no such object"):
        load_columns([prefix])


def test_globs(
    prefix: S3Place, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write_run(prefix / f"nightly-{number}" / "cpu", rows[number : number + 1])
    assert find_runs([prefix / "nightly-[01]" / "*"]) == [prefix / f"nightly-{number}" / "cpu" for number in (0, 1)]
    with pytest.raises(InputError, match=r"nothing matches s3://records/.*/weekly"):
        find_runs([prefix / "weekly-*"])
    for name in ("a-1", "a-2", "b"):
        with RunDirectory(tmp_path / name, read_description(RUN)) as directory:
            directory.append_rows(rows[:1])
    assert find_runs([tmp_path / "a-*"]) == [tmp_path / "a-1", tmp_path / "a-2"]
    monkeypatch.chdir(tmp_path)
    assert find_runs([Path("[b]")]) == [Path("b")]
    with pytest.raises(InputError, match=r"nothing matches c-\*"):
        find_runs([Path("c-*")])


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (
            403,
            "InvalidAccessKeyId",
            "refuses the credentials from the environment (InvalidAccessKeyId). Check AWS_",
        ),
        (
            403,
            "SignatureDoesNotMatch",
            "refuses the credentials from the environment (SignatureDoesNotMatch). Check",
        ),
        (400, "ExpiredToken", "refuses the credentials from the environment (ExpiredToken)"),
        (
            403,
            "RequestTimeTooSkewed",
            "the clock of this machine differs too much from the store's (RequestTimeTooSk",
        ),
        (404, "NoSuchBucket", f"there is no bucket {BUCKET} at http://127.0.0.1:"),
        (403, "AccessDenied", "does not allow this to the credentials from the environment (403 AccessDenied)"),
        (301, "PermanentRedirect", f"bucket {BUCKET} is not in region us-east-1. Set AWS_REGION"),
        (503, "SlowDown", "failed (503 SlowDown), tried up to 2 times. Try again later"),
        (418, "", "failed (418), tried up to 2 times. Try again later"),
    ],
)
def test_what_a_store_refuses_is_told_in_a_line(
    status: int, code: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = S3Place(BUCKET, "run")
    with run_refusing(status, code) as (endpoint, requests):
        point_at(endpoint, monkeypatch, attempts=2)
        for work in (
            lambda: load_columns([run]),
            lambda: find_runs([S3Place(BUCKET, "nightly-*")]),
            lambda: RunDirectory(run, {}),
            lambda: append_records(run, ENVIRONMENT, [make_record()]),
        ):
            with pytest.raises(GonogoError) as caught:
                work()
            assert told in str(caught.value)
            assert "\n" not in str(caught.value)
            assert SECRET not in str(caught.value)
        ended = gonogo("calibrate", run)
        assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
        assert told in ended.stderr
        assert len(requests) <= 2 * 5, "retries are bounded"


def test_no_bucket_and_no_server(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at(moto, monkeypatch)
    with pytest.raises(InputError, match=f"there is no bucket absent at {moto}. Create it"):
        find_runs([S3Place("absent", "run")])
    with pytest.raises(InputError, match="there is no bucket absent"):
        RunDirectory(S3Place("absent", "run"), {})
    point_at("http://127.0.0.1:9", monkeypatch, attempts=1)  # discard, which nobody serves
    with pytest.raises(InputError, match=r"http://127.0.0.1:9 cannot be reached, tried 1 times"):
        find_runs([S3Place(BUCKET, "run")])


def test_no_credentials_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_refusing(403, "AccessDenied") as (endpoint, _):
        point_at(endpoint, monkeypatch, attempts=1)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(InputError, match="have no key: set AWS_ACCESS_KEY_ID, too"):
            find_runs([S3Place(BUCKET, "run")])
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")  # else the client looks for a machine's role
        with pytest.raises(InputError, match=r"wants credentials \(403 AccessDenied\).* Set AWS_ACCESS_KEY_ID and"):
            find_runs([S3Place(BUCKET, "run")])


def test_ctrl_c_ends_the_wait_for_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_silent() as (endpoint, server):
        point_at(endpoint, monkeypatch)
        command = [sys.executable, "-m", "gonogo", "evaluate", f"s3://{BUCKET}/run", "--holdout", "none"]
        reader = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals)
        with reader, server.accept()[0] as asked:
            assert asked.recv(1)  # by now it waits
            reader.send_signal(signal.SIGINT)
            _, said = reader.communicate(timeout=20)  # it would wait for 30 s otherwise
    assert (reader.returncode, said) == (130, "interrupted\n")


def interrupt_recording(directory: RunDirectory, rows: list[dict[str, Any]]) -> list[str]:
    """Seven rows that reach the store, two that do not at once, then Ctrl-C: what is said of those."""

    def record() -> None:
        with directory:
            directory.append_rows(rows[:7])
            directory.append_rows(rows[7:9])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        record()
    return getattr(caught.value, "__notes__", [])


def test_ctrl_c_in_a_campaign_keeps_what_a_store_takes_at_once(prefix: S3Place, rows: list[dict[str, Any]]) -> None:
    assert interrupt_recording(RunDirectory(prefix, read_description(RUN), part_rows=5), rows) == []
    assert len(read_done(prefix)) == 9


def test_ctrl_c_in_a_campaign_does_not_wait_for_a_slow_store(
    prefix: S3Place, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers when nobody waits any more."""
    directory = RunDirectory(prefix, read_description(RUN), part_rows=5)
    upload, interrupted, answered = RemoteRun._upload, threading.Event(), threading.Event()

    def upload_late(run: RemoteRun) -> None:
        if len(run._rows) == 2:
            assert interrupted.wait(60), "the interrupt waits for the store"
        upload(run)
        answered.set()

    monkeypatch.setattr(RemoteRun, "_upload", upload_late)
    monkeypatch.setattr(remote_run, "HASTE_S", 0.1)
    assert interrupt_recording(directory, rows) == [f"2 records that did not reach {prefix}"]
    assert len(read_done(prefix)) == 7
    answered.clear()
    interrupted.set()
    assert answered.wait(60)
    assert len(read_done(prefix)) == 9


def test_ctrl_c_again_in_a_campaign_does_not_wait_at_all(
    prefix: S3Place, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store has not taken is named all the same."""
    upload, ended = RemoteRun._upload, threading.Event()

    def press_again(run: RemoteRun) -> None:
        if len(run._rows) == 2:
            os.kill(os.getpid(), signal.SIGINT)  # of the process: its main thread waits
            assert ended.wait(60), "the second interrupt waits for the store"
        upload(run)

    monkeypatch.setattr(RemoteRun, "_upload", press_again)
    monkeypatch.setattr(remote_run, "HASTE_S", 50)
    directory = RunDirectory(prefix, read_description(RUN), part_rows=5)
    assert interrupt_recording(directory, rows) == [f"2 records that did not reach {prefix}"]
    ended.set()


@pytest.mark.parametrize("step", ["_upload", "_merge", "_publish"])
def test_ctrl_c_while_a_run_is_closed(
    step: str, prefix: S3Place, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays open, and has what the store takes at once."""
    plain, pressed = getattr(RemoteRun, step), []

    def press(run: RemoteRun, *words: Any) -> Any:
        if not pressed:
            pressed.append(step)
            raise KeyboardInterrupt
        return plain(run, *words)

    def record() -> None:
        with RunDirectory(prefix, read_description(RUN)) as directory:
            directory.append_rows(rows[:9])
            monkeypatch.setattr(RemoteRun, step, press)

    with pytest.raises(KeyboardInterrupt) as caught:
        record()
    assert not (prefix / "run.json").exists()
    assert len(read_done(prefix)) == 9
    assert not hasattr(caught.value, "__notes__")


def test_ctrl_c_while_a_run_is_closed_and_its_store_refuses(
    prefix: S3Place, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    def record(endpoint: str) -> None:
        with RunDirectory(prefix, read_description(RUN)) as directory:
            directory.append_rows(rows[:9])
            point_at(endpoint, monkeypatch, attempts=1)
            monkeypatch.setattr(RemoteRun, "_insist", press)

    with run_refusing(403, "AccessDenied") as (endpoint, _), pytest.raises(KeyboardInterrupt) as caught:
        record(endpoint)
    assert caught.value.__notes__ == [f"9 records that did not reach {prefix}"]


def test_a_closed_run_that_lacks_records(prefix: S3Place, rows: list[dict[str, Any]]) -> None:
    """As of a copy of one that was cut off: nothing can be added to it there."""
    write_run(prefix, rows[:9], planned=10)
    (told,) = open_runs([prefix]).incomplete
    assert told.startswith(
        f"{prefix} is incomplete: it has 9 of 10 records. It is closed, and nothing can be added"
    )


def test_ctrl_c_in_a_campaign_whose_store_refuses(
    prefix: S3Place, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(prefix, read_description(RUN), part_rows=10)
    with run_refusing(403, "AccessDenied") as (endpoint, _):
        point_at(endpoint, monkeypatch, attempts=1)
        assert interrupt_recording(directory, rows) == [f"9 records that did not reach {prefix}"]


def test_a_store_that_stays_away_ends_a_campaign(
    prefix: S3Place, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has is kept there: rows that were not written before the end are measured again."""
    directory = RunDirectory(prefix, read_description(RUN), part_rows=5)
    directory.append_rows(rows[:5])
    with monkeypatch.context() as away, run_refusing(503, "SlowDown") as (endpoint, _):
        point_at(endpoint, away, attempts=1)
        away.setattr(remote_run, "PATIENCE_S", 0)
        away.setattr(remote_run, "PAUSE_S", 0)
        for work in (lambda: directory.append_rows(rows[5:10]), directory.close):
            with pytest.raises(
                CampaignFailed,
                match="503 SlowDown.* It was waited for 0 s. 5 records did not reach it. What was recorded there "
                f"stays; go on: gonogo run --resume --out {prefix}",
            ):
                work()
    assert len(read_done(prefix)) == 5
    directory.close()
    assert read_run(prefix).num_rows == 10, "it was there all the same, once the store is back"


def test_where_credentials_are_from(tmp_path: Path) -> None:
    files = {"HOME": str(tmp_path)}
    assert read_settings(files).key_id is None
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        f"[other]\naws_access_key_id=B\naws_secret_access_key={SECRET}%x\naws_session_token=T\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-central-1\n[profile other]\nendpoint_url = https://s3.example\n[profile sso]\n"
    )
    usual = read_settings(files)
    assert (usual.key_id, usual.secret, usual.region, usual.endpoint) == (KEY, SECRET, "eu-central-1", None)
    other = read_settings(files | {"AWS_PROFILE": "other", "AWS_REGION": "eu-north-1"})
    assert (other.key_id, other.secret, other.token) == ("B", f"{SECRET}%x", "T")
    assert (other.endpoint, other.region) == ("https://s3.example", "eu-north-1")
    assert other.source == f"profile other in {tmp_path / '.aws' / 'credentials'}"
    set_here = files | {"AWS_ACCESS_KEY_ID": "C", "AWS_SECRET_ACCESS_KEY": "D", "AWS_PROFILE": "other"}
    assert (read_settings(set_here).key_id, read_settings(set_here).token) == ("C", None)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("[default]\naws_access_key_id=E\naws_secret_access_key=F\n")
    assert read_settings(files | {"AWS_SHARED_CREDENTIALS_FILE": str(elsewhere)}).key_id == "E"
    assert SECRET not in repr(usual)
    for given, told in (
        ({"AWS_PROFILE": "sso"}, "profile sso (AWS_PROFILE) has no aws_access_key_id"),
        ({"AWS_ACCESS_KEY_ID": "C"}, "credentials from the environment have no secret"),
        ({"AWS_ENDPOINT_URL": f"http://user:{SECRET}@host"}, "AWS_ENDPOINT_URL is no address of a store"),
        ({"AWS_ENDPOINT_URL": "host:9000"}, "AWS_ENDPOINT_URL is no address of a store"),
        ({"AWS_MAX_ATTEMPTS": "many"}, "AWS_MAX_ATTEMPTS is 'many'"),
    ):
        with pytest.raises(InputError) as caught:
            read_settings(files | given)
        assert told in str(caught.value)
        assert SECRET not in str(caught.value)
    elsewhere.write_text(f"{SECRET}\n")
    with pytest.raises(InputError, match="cannot be read as a file of profiles") as caught:
        read_settings({"AWS_SHARED_CREDENTIALS_FILE": str(elsewhere)})
    assert SECRET not in str(caught.value)


def test_places() -> None:
    assert parse_place("runs/one") == Path("runs/one")
    place = parse_place("S3://bucket/a/b/")
    assert place == S3Place("bucket", "a/b")
    assert (str(place), place.name, str(place.parent / "c"), str(S3Place("bucket"))) == (
        "s3://bucket/a/b", "b", "s3://bucket/a/c", "s3://bucket"
    )  # fmt: skip
    for text in (
        f"gs://key:{SECRET}@bucket/x",
        "s3:/bucket/x",
        f"s3://key:{SECRET}@bucket/x",
        f"s3://{SECRET}@host",
        "s3://",
        "s3:///x",
        "s3://b/../x",
        "s3://b/x%2Fy",
    ):
        with pytest.raises(InputError) as caught:
            parse_place(text)
        assert SECRET not in str(caught.value)
    assert gonogo("calibrate", f"s3://key:{SECRET}@bucket/x").stderr.count(SECRET) == 0
    for words in (("sketch", "-o"), ("calibrate", "--out"), ("report", "-o"), ("calibrate", "--diff")):
        ended = gonogo(words[0], RUN, words[1], "s3://bucket/file")
        assert ended.returncode == 2
        assert "only runs are in object stores, and this is a file on disk. Give a path" in ended.stderr


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    open_store.cache_clear()
    monkeypatch.setitem(sys.modules, "obstore", None)
    point_at("http://127.0.0.1:9", monkeypatch)
    with pytest.raises(BackendMissing, match=r"needs obstore.* Run: pip install 'gonogo\[s3\]'"):
        load_columns([S3Place(BUCKET, "run")])
    assert gonogo("calibrate", f"s3://{BUCKET}/run").returncode == 2


@pytest.mark.slow
def test_commands(prefix: S3Place, tmp_path: Path) -> None:
    """A campaign, cut off and resumed; records of a verification; and all that read them."""
    torch = pytest.importorskip("torch")
    from gonogo import verify

    runs = [prefix / "a", prefix / "b"]
    for seed, run in enumerate(runs):
        words = ["relu", "tanh", "--cases", 4, "--seed", seed, "--device", "cpu", "--out", run]
        ended = gonogo("run", *words)
        assert ended.returncode == 0, ended.stderr
        assert str(run) in ended.stdout
    again = gonogo("run", "relu", "--cases", 4, "--device", "cpu", "--out", runs[0])
    assert (again.returncode, again.stderr) == (
        2,
        f"gonogo: {runs[0]} already holds a run. Choose another directory, or complete it, if it is not: gonogo "
        f"run --resume --out {runs[0]}\n",
    )  # fmt: skip
    whole = gonogo("run", "--resume", "--out", runs[0])
    assert (whole.returncode, whole.stderr) == (0, "")
    assert whole.stdout.endswith("; nothing was left to do\n")
    for at, run in enumerate(runs):
        assert gonogo("sketch", run, "-o", tmp_path / f"{at}.sketch").returncode == 0
    both = gonogo("sketch", tmp_path / "[01].sketch", "-o", tmp_path / "both.sketch", "--json")
    assert len(json.loads(both.stdout)["runs"]) == 2
    assert "nothing matches" in gonogo("sketch", tmp_path / "x*.sketch", "-o", tmp_path / "y.sketch").stderr
    for words in (
        ["calibrate", prefix, "-o", tmp_path / "lock"],
        ["evaluate", *runs, "--json"],
        ["evaluate", "--drift", *runs],
        ["report", prefix / "*", "-o", tmp_path / "page.html"],
        ["reproduce", "--records", prefix, "--out", tmp_path / "tables"],
        ["audit", "--records", prefix, "--op", "relu", "--dtype", "float32", "--atol", "1e-3", "--cases", "1"],
    ):
        ended = gonogo(*words)
        assert ended.returncode in (0, 1), (words, ended.stderr)
    verified = verify(torch.relu, op="relu", cases=2, device="cpu", record=str(prefix / "own"))
    assert str(prefix / "own") in str(verified.recorded)
    assert read_run(prefix / "own").num_rows > 0
    description = json.loads((prefix / "own" / "run.json").read_bytes())
    assert description["environment"]["device"] == "cpu"
