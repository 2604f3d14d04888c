"""A closed run lists its files: few and large ones, each row once, read by columns without a look at the rest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from make_record import make_record
from unseal import unseal

from gonogo.errors import InputError
from gonogo.records import RunDirectory, append_records, close_run, load_columns, read_description, read_run
from gonogo.records import closing as closing_module
from gonogo.records import parts as parts_module
from gonogo.records.parts import list_parts
from gonogo.records.run_directory import read_done
from gonogo.records.schema import make_schema

RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"
NAMES = make_schema().names


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return read_run(RUN).to_pylist()[:200]


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 64 rows in groups of 16, so that two hundred rows make several."""
    monkeypatch.setattr(closing_module, "FILE_ROWS", 64)
    monkeypatch.setattr(closing_module, "GROUP_ROWS", 16)


def write_run(folder: Path, rows: list[dict[str, Any]], *, part_rows: int = 20_000) -> Path:
    directory = RunDirectory(folder, read_description(RUN), part_rows=part_rows)
    for at in range(0, len(rows), 5):
        directory.append_rows(rows[at : at + 5])
    directory.close()
    return folder


def forbid_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("keys of all rows were read")

    monkeypatch.setattr(parts_module, "compare_parts", refuse)


@pytest.mark.usefixtures("small_files")
def test_many_parts_become_few(tmp_path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read_run(write_run(tmp_path / "one", rows))
    folder = write_run(tmp_path / "many", rows, part_rows=10)
    forbid_comparing(monkeypatch)
    parts = list_parts(folder)
    assert [part.rows for part in parts] == [64, 64, 64, 8]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["run.json", *(part.path.name for part in parts)]
    )
    assert read_run(folder).equals(expected)
    assert len(load_columns([folder])) == len(rows)
    batches = list(parts[0].iterate(["op", "bound", "case"], as_codes=["op"], rows=40))
    assert [batch.num_rows for batch in batches] == [32, 32], "whole row groups, as many as fit"
    assert pa.types.is_dictionary(batches[0]["op"].type)
    assert [batch.num_rows for batch in parts[0].iterate(["op"], rows=10)] == [10, 6] * 4
    table = parts[0].read(["op", "bound", "case"], as_codes=["op"])
    assert pa.concat_tables(batches).combine_chunks().to_pylist() == table.to_pylist()


def sort_rows(folder: Path) -> list[str]:
    return sorted(map(str, read_run(folder).to_pylist()))


@contextmanager
def be_killed(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within, the process ends before a method of Path that changes the disk is called for the nth time."""
    plain, calls = getattr(Path, name), iter(range(count))

    def stop(path: Path, *words: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return plain(path, *words, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, name, stop)
        with suppress(KeyboardInterrupt):
            yield


@pytest.mark.slow
@pytest.mark.usefixtures("small_files")
def test_a_kill_while_closing_loses_nothing_and_doubles_nothing(
    tmp_path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as unclosed:
        unclosed.setattr("gonogo.records.local_run.close_run", lambda folder: None)
        plain = write_run(tmp_path / "plain", rows[:100], part_rows=10)
    expected, seen = read_run(plain), set[int]()
    for name, count in [("replace", count) for count in range(4)] + [("unlink", count) for count in range(11)]:
        folder = shutil.copytree(plain, tmp_path / f"{name}-{count}")
        with be_killed(name, count, monkeypatch):
            close_run(folder)
        seen.add(len(list(folder.glob("part-*"))))
        assert read_run(folder).equals(expected), (name, count)
        close_run(folder)
        assert sum(part.rows for part in list_parts(folder)) == 100, (name, count)
        assert len(list_parts(folder)) <= 2 + 8, (name, count)
        assert sort_rows(folder) == sort_rows(plain), (name, count)
    assert seen == set(range(2, 13)), "with each new file, and with each old one less"


def test_rows_that_stand_twice_are_written_once(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    folder, more = write_run(tmp_path / "run", rows[:20]), write_run(tmp_path / "more", rows[10:40])
    (part,) = more.glob("part-*")
    shutil.copy(part, folder / part.name.replace("00000", "00001"))
    assert read_run(folder).num_rows == 40
    close_run(folder)
    assert [part.rows for part in list_parts(folder)] == [20, 20]
    assert read_run(folder).equals(read_run(write_run(tmp_path / "once", rows[:40])))


def test_a_file_that_is_not_listed_and_one_that_is_missing(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    folder = write_run(tmp_path / "run", rows[:20])
    directory = RunDirectory(folder, read_description(folder))
    directory.append_rows(rows[20:30])
    assert "parts" not in read_description(folder), "a run that goes on lists nothing"
    directory.close()
    first, second = list_parts(folder)
    assert (first.rows, second.rows) == (20, 10)
    shutil.copy(second.path, folder / second.path.name.replace("00001", "00002"))
    assert read_run(folder).num_rows == 30, "as a kill might leave it"
    second.path.unlink()
    with pytest.raises(InputError, match=f"{second.path} is missing, though run.json lists it.*--resume --out"):
        load_columns([folder])
    (folder / second.path.name.replace("00001", "00002")).unlink()
    assert len(read_done(folder)) == 20, "what is measured again"
    directory = RunDirectory(folder, read_description(folder))
    directory.append_rows(rows[20:30])
    directory.close()
    assert read_run(folder).num_rows == 30


def test_appended_rows_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    for case in ("a", "b"):
        append_records(folder, {"device": "cpu"}, [make_record(case=case)])
    unseal(folder)
    append_records(folder, {"device": "cpu"}, [make_record(case="c"), make_record(case="a")])
    append_records(folder, {"device": "cpu"}, [make_record(case="d")])
    forbid_comparing(monkeypatch)
    assert [part.rows for part in list_parts(folder)] == [1, 1, 1, 1]
    assert read_run(folder)["case"].to_pylist() == ["a", "b", "c", "d"]


@pytest.mark.usefixtures("small_files")
def test_a_flip_in_what_is_read_is_noticed(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """Headers of pages included; what a command does not read is not its business."""
    folder = write_run(tmp_path / "run", rows[:64], part_rows=5)
    (part,) = list_parts(folder)
    content, noticed = part.path.read_bytes(), 0
    for place in range(0, len(content), 31):
        part.path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        if place >= 4:  # not of the four bytes that every file begins with
            with pytest.raises(InputError, match=f"{part.path} is damaged: its bytes are not those that were"):
                part.read(NAMES)
        try:
            part.read(["bound"])
        except InputError:
            noticed += 1
    assert 0 < noticed < len(content) // 31 / 2
    part.path.write_bytes(content[:-1])
    with pytest.raises(InputError, match="is damaged: it ends too early"):
        part.read(["bound"])


@pytest.mark.parametrize("value", [[1], [{}], [{"name": "part"}], ["x"]])
def test_a_list_of_parts_that_is_damaged(value: Any, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    folder = write_run(tmp_path / "run", rows[:5])
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"parts": value}))
    with pytest.raises(InputError, match=f"{path} describes no run: its list of parts is damaged"):
        read_run(folder)
