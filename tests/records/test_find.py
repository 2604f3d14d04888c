"""Rows that would count twice are refused, whatever the folders are called."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gonogo.cli import cli
from gonogo.errors import InputError
from gonogo.records import (
    RunDirectory,
    append_records,
    find_distinct_runs,
    load_columns,
    read_description,
    read_run,
)
from gonogo.schema import Record

FIELDS = {field.name for field in fields(Record)}
RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"


def write_run(folder: Path, rows: list[dict[str, Any]], **changed: Any) -> Path:
    """Rows of the committed run, described as it is but for what is changed."""
    directory = RunDirectory(folder, read_description(RUN) | changed)
    directory.append_rows(rows)
    directory.close()
    return folder


def read_back(row: dict[str, Any]) -> Record:
    """A record of what its row has of it, but for statistics and policies."""
    return Record(**{name: value for name, value in row.items() if name in FIELDS})


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return read_run(RUN).to_pylist()[:60]


def test_one_folder_twice(tmp_path: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "runs" / "one", rows)
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(run)
    short = Path("runs/one")
    for twice in ([run, run], [short, run], [tmp_path / "runs", run], [link, Path("runs/../runs/one")]):
        with pytest.raises(InputError, match=r"is given twice.*: its rows would count twice. Name it once"):
            load_columns(twice)
    with pytest.raises(InputError, match=f"^run {run} is given twice, also as runs/one: "):
        load_columns([short, run])
    assert find_distinct_runs([short]) == [short]


def test_copies(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    run = write_run(tmp_path / "one", rows)
    copy = shutil.copytree(run, tmp_path / "copy")
    told = f"runs {run} and {copy} share 60 of 60 rows: the same cases of the same kernels in the same environment"
    for command in ("calibrate", "evaluate"):
        words = [command, str(run), str(copy)] + (
            ["-o", str(tmp_path / "new" / "a.lock")] * (command == "calibrate")
        )
        with pytest.raises(InputError) as caught:
            CliRunner().invoke(cli, words, catch_exceptions=False)
        assert str(caught.value).startswith(told)
    assert not (tmp_path / "new").exists(), "nothing is made by a mistake"
    part = write_run(tmp_path / "part", rows[50:] + [row | {"case": row["case"] + "0"} for row in rows[:9]])
    with pytest.raises(InputError, match=f"{run} and {part} share 10 of 60 rows"):
        load_columns([run, part])


def test_records_of_two_processes(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """They have no plan: what they hold decides."""
    for name, chosen in (("a", rows[:30]), ("b", rows[20:])):
        records = [read_back(row) for row in chosen]
        append_records(tmp_path / name, read_description(RUN)["environment"], records)
    with pytest.raises(InputError, match="share 10 of 30 rows"):
        load_columns([tmp_path])


def test_runs_that_are_two(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """Other cases; the same ones elsewhere, as a hold-out by device needs them; and seeds that differ, unread."""
    described = read_description(RUN)
    write_run(tmp_path / "one", rows[:30])
    write_run(tmp_path / "two", rows[30:])
    write_run(tmp_path / "elsewhere", rows, environment=described["environment"] | {"processor": "another"})
    write_run(tmp_path / "seed", rows, plan=described["plan"] | {"seed": 99})
    assert len(load_columns([tmp_path])) == 60 + 60 + 60
