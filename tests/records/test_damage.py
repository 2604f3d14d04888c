"""A run directory that is damaged in any way is refused in a line that names the file, by all that read runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import gonogo
from make_record import make_record
from unseal import unseal

from gonogo.errors import GonogoError
from gonogo.records import RunDirectory, append_records, load_columns, read_run
from gonogo.records.schema import REQUIRED

torch = pytest.importorskip("torch")
RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"
NEW, OLD, JOURNAL, DESCRIPTION = "part-00000-*.parquet", "part-00001.parquet", "journal.jsonl", "run.json"
PLAN: dict[str, Any] = {
    "ops": ["relu"], "dtypes": ["float32"], "cases": 1, "seed": 3, "device": "cpu", "distributions": ["uniform"],
    "strategies": ["default"], "faulty_every": 1, "ops_folders": [], "design": 3,
}  # fmt: skip
Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a part, one from before names had a checksum, and a journal."""
    folder = tmp_path_factory.mktemp("damage") / "run"
    rows = [row for row in read_run(RUN).to_pylist() if row["op"] == "relu"]
    for span in (slice(0, 10), slice(10, 20)):
        directory = RunDirectory(folder, {"environment": {"device": "cpu"}, "plan": PLAN})
        directory.append_rows(rows[span])
        directory.close()
    next(folder.glob("part-00001-*")).rename(folder / OLD)
    unseal(folder)
    (folder / JOURNAL).write_text("".join(json.dumps([row]) + "\n" for row in rows[20:24]))
    assert read_run(folder).num_rows == len(load_columns([folder])) == 24
    return folder


def find(folder: Path, name: str) -> Path:
    return next(folder.glob(name))


def put(name: str, content: bytes) -> Damage:
    return lambda folder: find(folder, name).write_bytes(content)


def cut(name: str, share: float) -> Damage:
    def damage(folder: Path) -> None:
        content = (path := find(folder, name)).read_bytes()
        path.write_bytes(content[: int(len(content) * share)])

    return damage


def flip(name: str, share: float, bit: int = 0) -> Damage:
    def damage(folder: Path) -> None:
        content = bytearray((path := find(folder, name)).read_bytes())
        content[int(share * (len(content) - 1))] ^= 1 << bit
        path.write_bytes(content)

    return damage


def describe(**changed: Any) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / DESCRIPTION
        path.write_text(json.dumps(json.loads(path.read_bytes()) | changed))

    return damage


def rewrite(change: Callable[[pa.Table], pa.Table]) -> Damage:
    return lambda folder: pq.write_table(change(pq.read_table(folder / OLD)), folder / OLD)


def retype(name: str, values: pa.Array) -> Damage:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.schema.names.index(name), name, values)

    return rewrite(change)


def journal_row(**changed: Any) -> Damage:
    def damage(folder: Path) -> None:
        first, *others = (folder / JOURNAL).read_text().splitlines(keepends=True)
        row = json.loads(first)[0] | changed
        (folder / JOURNAL).write_text("".join([json.dumps([row]) + "\n", *others]))

    return damage


def remake(name: str, make: Callable[[Path], object]) -> Damage:
    def damage(folder: Path) -> None:
        (path := find(folder, name)).unlink()
        make(path)

    return damage


def list_damages() -> Iterator[tuple[str, Damage]]:
    for name in (NEW, OLD, JOURNAL, DESCRIPTION):
        yield f"{name} is a folder", remake(name, Path.mkdir)
        yield f"{name} is a link to nothing", remake(name, lambda path: path.symlink_to("nothing"))
        yield f"{name} is a link to itself", remake(name, lambda path: path.symlink_to(path.name))
        yield f"{name} is kept from us", lambda folder, name=name: find(folder, name).chmod(0)
        for what, content in {
            "empty": b"", "zeros": bytes(4000), "junk": bytes(range(255, 0, -1)) * 9, "a line": b"\n",
            "UTF-16": '{"schema": 1}\n'.encode("utf-16"), "nested": b"[" * 100_000 + b"\n", "PAR1": b"PAR1PAR1",
        }.items():  # fmt: skip
            yield f"{name} holds {what}", put(name, content)
        for share in (0.1, 0.5, 0.9, 0.999):
            yield f"{name} cut at {share}", cut(name, share)
    yield "no run.json", lambda folder: (folder / DESCRIPTION).unlink()
    for content in (b"null", b"[]", b"1", b'"x"', b"{}", b'{"schema": 2}', b'{"schema": [1]}', b'{"schema": 1}',
                    b'{"schema": 1, "seed": ' + b"1" * 5000 + b"}",
                    b'{"schema": 1, "environment": {"gpu": "\\ud800"}}', b'\xef\xbb\xbf{"schema": 1}'):  # fmt: skip
        yield f"run.json is {content[:40]!r}", put(DESCRIPTION, content)
    for name in ("environment", "plan", "resumed", "appended", "parts"):
        for value in (1, "x", True, [1], {"x": [{}]}):
            yield f"{name} is {value}", describe(**{name: value})
    for name in PLAN:
        for value in (None, "x", 1.5, [1], 10**30):
            yield f"plan's {name} is {value}", describe(plan=PLAN | {name: value})
    yield "an unknown field of a plan", describe(plan=PLAN | {"x": 1})
    for share in (0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 1):
        yield f"a new part flipped at {share}", flip(NEW, share)
        yield f"an old part flipped at {share}", flip(OLD, share, bit=3)
        yield f"a journal flipped at {share}", flip(JOURNAL, share, bit=7)
    for name in REQUIRED:
        yield f"no {name}", rewrite(lambda table, name=name: table.drop_columns([name]))
        yield f"{name} is null", retype(name, pa.nulls(10, pa.string()))
        yield f"{name} is of lists", retype(name, pa.array([[1]] * 10))
        yield f"the journal's {name} is null", journal_row(**{name: None})
    for name in ("bound", "count", "bits_equal", "max_ulp", "op"):
        for values in (
            ["x"] * 10,
            [b"\xff\xfe"] * 10,
            [-1.5] * 10,
            [float("nan")] * 10,
            [2**62] * 10,
            [{"a": 1}] * 10,
        ):
            yield f"{name} is of {values[0]}", retype(name, pa.array(values))
        for value in ("x", [1], 10**30, {"a": 1}, "\ud800"):
            yield f"the journal's {name} is {value!r}", journal_row(**{name: value})
    yield (
        "text that is no UTF-8",
        retype("case", pa.Array.from_buffers(pa.string(), 10, pa.array([b"\xff\xfe"] * 10).buffers())),
    )
    yield "no rows", rewrite(lambda table: table.slice(0, 0))
    yield "another version", rewrite(lambda table: table.replace_schema_metadata({"gonogo_schema": "9"}))
    yield (
        "a version that is no text",
        rewrite(lambda table: table.replace_schema_metadata({b"gonogo_schema": b"\xff"})),
    )
    yield "no version", rewrite(lambda table: table.replace_schema_metadata())
    yield "words of no meaning", retype("contract", pa.array(["float31"] * 10))
    yield "an op of no meaning", retype("op", pa.array(["../relu"] * 10))
    for line in (b"{}\n", b"[1]\n", b"1\n", b'{"number"\n', b"\x80\x81\n", b"\n", b"[[]]\n"):
        yield (
            f"a journal's line {line!r}",
            lambda folder, line=line: (folder / JOURNAL).write_bytes(line + (folder / JOURNAL).read_bytes()),
        )


DAMAGES = dict(list_damages())
OTHERS = cycle([
    ["evaluate", "RUN", "--holdout", "none"],
    ["reproduce", "--records", "RUN", "--out", "OUT"],
    ["audit", "--records", "RUN", "--op", "relu", "--dtype", "float32", "--atol", "1e-3", "--cases", "1"],
])  # fmt: skip


class Idle:
    """In place of workers: what is read before they start is what is looked at here."""

    def __init__(self, *_: object, **options: object) -> None:
        pass

    def run(self, jobs: Iterator[object]) -> Iterator[object]:
        return iter(())

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("name", "other"), [(name, next(OTHERS)) for name in DAMAGES], ids=list(DAMAGES))
def test_damage_is_told_in_a_line(
    name: str, other: list[str], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gonogo.runners.engines.local.Pool", Idle)
    folder = shutil.copytree(whole, tmp_path / "run")
    DAMAGES[name](folder)
    for read in (
        lambda: read_run(folder).to_pylist(),
        lambda: load_columns([folder]),
        lambda: append_records(folder, {"device": "cpu"}, [make_record()]),
    ):
        try:
            read()
        except GonogoError as error:
            message = str(error)
            assert "\n" not in message
            assert str(folder) in message
    before = {path: path.read_bytes() for path in folder.glob("part-*") if path.is_file()}
    words = {"RUN": folder, "OUT": tmp_path / "out"}
    for command in (
        ["calibrate", "RUN", "-o", tmp_path / "lock"],
        [words.get(word, word) for word in other],
        ["run", "--resume", "--out", "RUN"],
    ):
        ended = gonogo(*(words.get(word, word) for word in command))
        assert ended.returncode in (0, 1, 2), ended.stderr
        if ended.returncode == 2:
            assert ended.stderr.startswith("gonogo: ")
            assert len(ended.stderr.splitlines()) == 1
    assert all(path.read_bytes() == content for path, content in before.items()), "what was recorded stays"


def test_a_flip_anywhere_in_a_part_is_noticed(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    content = find(folder, NEW).read_bytes()
    for place in range(0, len(content), 97):
        find(folder, NEW).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(GonogoError, match="is damaged: its bytes are not those that were written"):
            read_run(folder)
