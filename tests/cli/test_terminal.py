"""Tables in a terminal of 80 columns: whole, whatever is in them; and in one that cannot show our signs."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.cli import cli
from gonogo.cli._tables import View, print_tables
from gonogo.errors import InputError
from gonogo.table import Share, Table

ROOT = Path(__file__).parent.parent.parent
RUNS = [str(ROOT / "records" / name) for name in ("cpu-11", "cpu-12")]
AUDIT = ["audit", "--policy", "vllm", "--records", RUNS[0], "--cases", "6", "--op", "softmax,causal_attention"]
COMMANDS = {
    "audit": AUDIT,
    "audit of one": [*AUDIT[:-1], "relu", "--dtype", "float16"],
    "demo": ["demo", "--device", "cpu"],
    "calibrate": ["calibrate", RUNS[0], "--diff", str(ROOT / "src" / "gonogo" / "limits" / "shipped.lock")],
    "evaluate": ["evaluate", *RUNS, "--tables", "--sweep"],
    "drift": ["evaluate", "--drift", *RUNS],
    "ops": ["ops"],
    "ops of one": ["ops", "causal_attention"],
    "show": ["show", "softmax:f16:2x7x1025:c:uniform:81", "softmax_torch", "--device", "cpu"],
}
ESSENTIAL = {
    "audit": ["causal_attention", "bfloat16", "controls that", "manifest faults", "more columns: --wide"],
    "audit of one": ["  op  ", "  finding  ", "  gonogo's limit  "],
    "demo": ["softmax_short_sum", "bfloat16", "max_abs", "assert_close"],
    "calibrate": ["causal_attention", "before", "after", "change"],
    "evaluate": ["torch_dynamo_same", "false positives", "at most"],
    "drift": ["causal_attention", "holds"],
    "ops": ["matmul_bias_gelu", "a: M K, b: K N, bias: N -> M N"],
    "ops of one": ["causal_attention_torch", "def reference("],
    "show": ["index", "expected", "reading"],
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "evaluate" else name for name in COMMANDS]
)
def test_fits_into_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("gonogo.cli._tables.find_room", lambda: 80)
    shown = CliRunner().invoke(cli, COMMANDS[name], catch_exceptions=False).stdout
    code = [line for line in shown.splitlines() if line.startswith("    ")]
    assert max(len(line) for line in shown.splitlines() if line not in code) <= 80
    assert "…" not in shown.replace(" … ", ""), "but for ranges, as in 0 … 0.25"
    for text in ESSENTIAL[name]:
        assert text in shown


def test_a_terminal_is_asked_for_its_width() -> None:
    pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "gonogo", "ops", "relu"]
    with subprocess.Popen(command, stdout=theirs, env=environment | {"NO_COLOR": "1"}) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 2**16):
                shown += piece
        except OSError:  # Linux: the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    lines = shown.decode().replace("\r\n", "\n").splitlines()
    assert max(map(len, lines)) == 80
    piped = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert max(map(len, piped.splitlines())) > 100, "a pipe gets whole lines"


words = st.text(st.characters(codec="latin-1", exclude_categories=["C", "Z"]), min_size=1, max_size=14)
texts = st.lists(words, min_size=1, max_size=5).map(" ".join)
cells = (
    texts
    | st.integers(0, 10**9)
    | st.floats(allow_nan=False)
    | st.none()
    | st.builds(Share, st.just(3), st.just(7))
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    columns = draw(st.lists(texts, min_size=1, max_size=9, unique=True))
    rows = draw(st.lists(st.tuples(*[cells for _ in columns]), max_size=4))
    essential = tuple(columns[: draw(st.integers(0, len(columns)))])
    return Table(draw(texts), tuple(columns), rows, draw(texts | st.just("")), essential)


@settings(deadline=None, max_examples=200)
@given(table=tables(), room=st.integers(30, 200))
def test_nothing_is_cut_in_any_table(table: Table, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gonogo.cli._tables.find_room", lambda: room)
        shown = print_to_text(table)
        whole = print_to_text(table, wide=True)
    for row in table.rows:
        chosen = row if not table.essential or "more column" not in shown else row[: len(table.essential)]
        for cell, text in ((row, whole), (chosen, shown)):
            for word in " ".join(str(part) for part in cell if isinstance(part, str)).split():
                assert word in text
    framed = [line for line in shown.splitlines() if line.startswith(("┃", "│", "┏", "└"))]
    assert all(len(line) <= room for line in framed)


def print_to_text(table: Table, **view: bool) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        print_tables([table], View(**view))
    return stream.getvalue()


WIDE = Table("T", tuple(f"column {place}" for place in range(30)), [tuple(range(30)), tuple(range(30))])


def test_columns_are_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo.cli._tables.find_room", lambda: 80)
    assert "column 29" in print_to_text(WIDE), "downwards, where nothing is essential"
    assert len(print_to_text(WIDE).splitlines()) == 62
    chosen = print_to_text(WIDE, columns=("Column 7", "column 2"))
    assert [cell.strip() for cell in chosen.splitlines()[-2].strip("│").split("│")] == ["0", "7", "2"]
    with pytest.raises(InputError, match=r"unknown column 'colum 7'. Did you mean column 7"):
        print_to_text(WIDE, columns=("colum 7",))
    shown = CliRunner().invoke(cli, [*AUDIT, "--csv", "--columns", "dtype,finding"], catch_exceptions=False).stdout
    assert {tuple(row) for row in csv.DictReader(shown.splitlines())} == {("op", "dtype", "finding")}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_signs_that_a_terminal_lacks_are_written_in_another_way(encoding: str, tmp_path: Path) -> None:
    """All commands in one process each time: it is the encoding of the stream that counts."""
    pytest.importorskip("torch")
    (tmp_path / "kernel.py").write_text("def softmax(x):\n    return x.softmax(-1) * 1.01\n")
    check = ["check", str(tmp_path / "kernel.py"), "--op", "softmax", "--cases", "1", "--device", "cpu"]
    lock = ["calibrate", RUNS[0], "-o", str(tmp_path / "gonogo.lock")]
    cheap = [COMMANDS[name] for name in ("audit of one", "demo", "drift", "ops", "ops of one", "show")]
    for_all = [["--help"], *cheap, check, lock, ["audit"], ["audit", "--atol", "ⅷ"]]
    code = (
        "import sys, gonogo.cli\n"
        f"for words in {for_all!r}:\n"
        "    sys.argv = ['gonogo', *words]\n"
        "    try: gonogo.cli.main()\n"
        "    except SystemExit as ended: assert ended.code in (0, 1, 2), (words, ended.code)\n"
    )
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr.decode(encoding, "replace")
    shown = done.stdout.decode(encoding)  # every byte is one of that encoding
    assert "Traceback" not in done.stderr.decode(encoding)
    assert "512x1025" in shown if encoding == "ascii" else "512×1025" in shown
    assert "bound x pooled" in shown.replace("×", "x")
