"""What is written is whole, by one writer at a time, and no row of it counts twice, whenever a writer is killed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command import gonogo

from gonogo.cases import DESIGN
from gonogo.errors import CampaignFailed, InputError
from gonogo.limits.lock import read_lock
from gonogo.records import RunDirectory, load_columns, lock_folder, read_description, read_run
from gonogo.records.writing import write_atomically

RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return [row for row in read_run(RUN).to_pylist() if row["op"] in ("relu", "tanh")]


def write_run(folder: Path, rows: list[dict[str, Any]]) -> None:
    directory = RunDirectory(folder, read_description(RUN))
    directory.append_rows(rows)
    directory.close()


def be_killed(folder: Path, rows: list[dict[str, Any]]) -> None:
    """End between a part's renaming and the journal's end."""
    directory = RunDirectory(folder, read_description(RUN))
    directory.append_rows(rows)
    journal = (folder / "journal.jsonl").read_bytes()
    directory.close()
    (folder / "journal.jsonl").write_bytes(journal)


def calibrate(folder: Path) -> dict[str, int]:
    lock = folder.parent / f"{folder.name}.lock"
    ended = gonogo("calibrate", folder, "-o", lock)
    assert ended.returncode == 0, ended.stderr
    return {f"{limit.op} {limit.contract}": limit.cases for limit in read_lock(lock)[0]}


def test_rows_of_a_killed_writer_count_once(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    once, killed, resumed, before = (tmp_path / name for name in ("once", "killed", "resumed", "before"))
    write_run(once, rows)
    be_killed(killed, rows)
    be_killed(resumed, rows[:40])
    write_run(resumed, rows[40:])
    assert sum(pq.read_metadata(part).num_rows for part in resumed.glob("part-*")) == len(rows)
    # What the next one wrote while the journal was taken as it stood.
    be_killed(before, rows[:40])
    (before / "journal.jsonl").rename(tmp_path / "journal.jsonl")
    write_run(before, rows)
    expected = read_run(once)
    assert expected.num_rows == len(rows)
    for folder in (killed, resumed, before):
        assert read_run(folder).equals(expected)
        assert len(load_columns([folder])) == len(rows)
        assert calibrate(folder) == calibrate(once)


def test_two_writers_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes when the first has written all and renamed nothing."""
    path, sync = tmp_path / "gonogo.lock", os.fsync

    def come_between(handle: int) -> None:
        monkeypatch.setattr("os.fsync", sync)
        write_atomically(path, b"second")
        sync(handle)

    monkeypatch.setattr("os.fsync", come_between)
    write_atomically(path, b"the first")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"the first"]


def test_a_link_beside_the_file_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("theirs")
    for name in (".partial", "gonogo.lock.partial"):
        (tmp_path / name).symlink_to(other)
    write_atomically(tmp_path / "gonogo.lock", b"ours")
    assert (other.read_text(), (tmp_path / "gonogo.lock").read_text()) == ("theirs", "ours")


def test_who_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "gonogo.lock"

    def read_mode() -> int:
        return stat.S_IMODE(path.stat().st_mode)

    before = os.umask(0o027)
    try:
        write_atomically(path, b"new")
        assert read_mode() == 0o640
        path.chmod(0o664)
        write_atomically(path, b"newer")
        assert read_mode() == 0o664, "as the one it replaces"
    finally:
        os.umask(before)


def test_a_part_is_on_disk_before_its_rows_leave_the_journal(
    tmp_path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path, {})
    directory.append_rows(rows[:3])
    sync, replace, seen = os.fsync, Path.replace, list[str]()
    monkeypatch.setattr("os.fsync", lambda handle: (seen.append("sync"), sync(handle)))
    monkeypatch.setattr(Path, "replace", lambda path, to: (seen.append(to.suffix), replace(path, to)))
    directory.close()
    assert seen == ["sync", ".parquet", "sync", "sync", ".jsonl", "sync", "sync", ".json", "sync"]


@pytest.mark.parametrize("words", [["relu", "--device", "cpu"], ["--resume"]], ids=["run", "resume"])
def test_one_campaign_at_a_time(words: list[str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "run"
    if "--resume" in words:
        described = read_description(RUN)
        RunDirectory(folder, described | {"plan": described["plan"] | {"design": DESIGN}}).close()
    before = sorted(folder.glob("*"))
    with lock_folder(folder):
        ended = gonogo("run", *words, "--out", folder)
    assert (ended.returncode, ended.stderr) == (
        2,
        f"gonogo: {folder} is being written to by another process: wait until it ends, or choose another "
        "directory\n",
    )
    assert sorted(folder.glob("*.*")) == sorted([*before, folder / ".lock"])
    with pytest.raises(InputError, match="being written to"), lock_folder(folder), lock_folder(folder):
        pass


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".0123456789abcdef.partial").write_bytes(b"half of a part")
    with lock_folder(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_disk_that_fills_up_costs_nothing_that_was_recorded(
    tmp_path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(tmp_path, read_description(RUN), part_rows=10)
    directory.append_rows(rows[:4])

    def fill(handle: int) -> None:
        raise OSError(28, "No space left on device")

    told = f"cannot write to {tmp_path}: No space left on device. What was recorded there stays; go on: gonogo run"
    with monkeypatch.context() as full:
        full.setattr("os.fsync", fill)
        for work in (lambda: directory.append_rows(rows[4:12]), directory.close):
            with pytest.raises(CampaignFailed) as caught:
                work()
            assert str(caught.value).startswith(told)
    assert read_run(tmp_path).num_rows == 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.jsonl", "run.json"]


def test_a_folder_that_is_removed_while_it_is_written_to(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    directory = RunDirectory(tmp_path / "run", read_description(RUN))
    for path in (tmp_path / "run").iterdir():
        path.unlink()
    (tmp_path / "run").rmdir()
    with pytest.raises(CampaignFailed, match=r"run: it was removed while it was written to"):
        directory.append_rows(rows[:4])
    directory.close()
