"""gonogo run, ops and show as a user types them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from command import gonogo, spawn
from running import heed_signals, leave_progress_out

import gonogo as package
from gonogo.cli import cli
from gonogo.ops import find_ops, op_names
from gonogo.records import read_run

MORE_OPS = str(Path(__file__).parent.parent / "more_ops")
CORPUS = [name for name in op_names() if (Path(package.__file__).parent / "ops" / name).is_dir()]


@pytest.mark.slow
def test_run_then_resume_then_show(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made = spawn(
        "run", "calm", "--ops-path", MORE_OPS, "--cases", 3, "--seed", 2, "--dtypes", "half,torch.bfloat16",
        "--device", "cpu", "--out", folder, "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert (told["schema"], told["records"], told["planned"], told["outcomes"]) == (1, 18, 18, {"ok": 18})
    table = read_run(folder)
    assert table.num_rows == 18
    description = json.loads((folder / "run.json").read_text())
    assert description["schema"] == 1
    assert description["plan"]["seed"] == 2
    assert description["plan"]["dtypes"] == ["float16", "bfloat16"]
    assert {"python", "torch", "numpy", "processor", "switches", "torch_flags", "commit"} <= set(
        description["environment"]
    )
    again = gonogo("run", "--resume", "--out", folder, "--ops-path", MORE_OPS, "--json")
    assert json.loads(again.stdout)["outcomes"] == {}
    faulty = next(row for row in table.to_pylist() if row["kernel"] == "calm_drops_last" and row["bound"] > 100)
    shown = spawn("show", faulty["case"], "calm_drops_last", "--ops-path", MORE_OPS, "--json", "--device", "cpu")
    assert shown.returncode == 0, shown.stderr
    replayed = json.loads(shown.stdout)
    for name in ("bound", "max_abs", "max_ulp", "mean_rel", "bits_equal", "policy_aiter"):
        assert replayed["record"][name] == pytest.approx(faulty[name], rel=1e-6)
    worst = replayed["worst"][0]
    assert ",".join(map(str, worst["index"])) == faulty["bound_at"]
    assert worst["bound"] == pytest.approx(faulty["bound"], rel=1e-6)
    plain = gonogo("show", faulty["case"], "calm_drops_last", "--ops-path", MORE_OPS, "--device", "cpu")
    assert "worst elements in the bound gauge" in plain.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "no_such"], "unknown op 'no_such'; known: "),
        (["run", "relu", "--dtypes", "int8"], "unknown dtype 'int8'; known: float16, bfloat16, float32"),
        (["run", "relu", "--device", "npx"], "unknown device 'npx'; known: auto, cpu, cuda"),
        (["run", "relu", "--distributions", "flat"], "unknown distribution 'flat'; known: uniform, "),
        (
            ["run", "relu", "--strategies", "even"],
            "unknown strategy 'even'; known: default, boundary, regular, odd",
        ),
        (["run", "relu", "--cases", "0"], "0 cases: at least 1 is needed"),
        (["run", "relu", "--dtypes", ""], "--dtype names nothing: give a word, or leave it out"),
        (["run", "softmax", "--distributions", "integers"], "op softmax takes none of the distributions integers"),
        (["run", "relu", "--seed", str(2**64)], "seed 18446744073709551616 is too large"),
        (["run", "relu", "--device", "cpu", "--out", "EMPTY/run", "--memory-gb", "nan"], "it must be above 0"),
        (
            ["run", "no_rule", "--ops-path", "MORE", "--device", "cpu", "--out", "EMPTY/run", "--workers", "1"],
            "reference of op no_rule failed on no_rule:f16:2x",
        ),
        (["run", "relu", "--cases", "0", "--resume", "--out", "EMPTY"], "run.json; leave out OPS, --cases"),
        (["run", "--resume", "--quick", "--seed", "0", "--out", "EMPTY"], "run.json; leave out --seed, --quick"),
        (["run", "--resume"], "--resume needs --out with the run directory to complete"),
        (["run", "--resume", "--out", "EMPTY"], "is no run directory: it has no run.json"),
        (["run", "--resume", "--out", "NEWER"], "has record schema 99, this gonogo reads 1"),
        (["run", "relu", "--device", "cpu", "--out", "FILE/run"], "cannot write to "),
        (["show", "softmax", "softmax_triton"], "'softmax' is no case id"),
        (
            ["show", "softmax:f16:1x1x1:c:uniform:1", "nope"],
            "unknown kernel of softmax 'nope'; known: softmax_torch",
        ),
        (["ops", "no_such"], "unknown op 'no_such'; known: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "NEWER").mkdir()
    (tmp_path / "NEWER" / "run.json").write_text('{"schema": 99}')
    (tmp_path / "FILE").write_text("")
    (tmp_path / "MORE").symlink_to(MORE_OPS)
    there = [path.name for path in tmp_path.iterdir()]
    given = [str(tmp_path / word) if word.split("/")[0] in there else word for word in words]
    ended = gonogo(*given)
    assert ended.returncode == 2
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("gonogo: ")
    assert message in lines[0]


def test_ops_as_json() -> None:
    result = CliRunner().invoke(cli, ["ops", "softmax", "relu", "--json"], catch_exceptions=False)
    told = json.loads(result.stdout)
    assert [op["name"] for op in told["ops"]] == ["softmax", "relu"]
    kernels = {kernel["name"]: kernel for op in told["ops"] for kernel in op["kernels"]}
    buggy = kernels["softmax_triton_buggy"]
    assert (buggy["op"], buggy["role"], buggy["framework"]) == ("softmax", "faulty", "triton")
    assert (buggy["calibrate_against"], buggy["contract"]) == ("softmax_triton", "float32")
    assert buggy["dtypes"] == ["float16", "bfloat16", "float32"]
    assert "power of two" in buggy["bug"]
    assert kernels["relu_torch"]["bug"] is None


def test_ops_imports_neither_torch_nor_triton() -> None:
    code = "import sys, gonogo.cli; gonogo.cli.cli(['ops', '--json'], standalone_mode=False);" \
           "assert not {'torch', 'triton', 'pyarrow'} & set(sys.modules)"  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "relu", "--timeout", "0"], "0.0 is not in the range x>0."),
        (["run", "relu", "--memory-gb", "-1"], "-1.0 is not in the range x>0."),
        (["show", "softmax:f16:1x1x1:c:uniform:1", "softmax", "--worst", "0"], "0 is not in the range x>=1"),
    ],
)
def test_numbers_out_of_range(words: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_ops_in_a_pipe_cuts_nothing() -> None:
    told = gonogo("ops", *(op.name for op in find_ops(CORPUS))).stdout
    assert "…" not in told
    for op in find_ops(CORPUS):
        assert f" {op.name} " in told
        assert all(f" {kernel.name} " in told for kernel in op.kernels)


def test_text_of_kernels_is_no_markup() -> None:
    assert "Raises [red]text[/red] that" in gonogo("ops", "tells", "--ops-path", MORE_OPS).stdout
    case = "tells:f32:2x5:o:uniform:1"  # :o: is an emoji to some
    shown = gonogo("show", case, "tells_markup", "--ops-path", MORE_OPS, "--device", "cpu")
    assert shown.stdout == (
        f"{case}  tells_markup (control, contract float32)\n"
        "outcome raised: RuntimeError: expected [bold]x[/bold] :smile: [/nothing] (torch.py, line 10)\n"
    )


def test_show_in_a_pipe_cuts_nothing() -> None:
    shown = gonogo("show", "softmax:f32:2x7x1025:c:normal:81", "softmax_torch", "--device", "cpu")
    assert shown.returncode == 0
    assert "…" not in shown.stdout
    plain = json.loads(
        gonogo("show", "softmax:f32:2x7x1025:c:normal:81", "softmax_torch", "--device", "cpu", "--json").stdout
    )
    for element in plain["worst"]:
        line = next(line for line in shown.stdout.splitlines() if f" {tuple(element['index'])} " in line)
        assert repr(element["expected"]) in line
        assert repr(element["actual"]) in line


def test_json_has_no_number_that_json_has_not() -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    shown = gonogo("show", "naughty:f32:2x5:c:uniform:1", "makes_nan", "--ops-path", MORE_OPS, "--json",
                   "--device", "cpu")  # fmt: skip
    told = json.loads(shown.stdout, parse_constant=refuse)
    assert told["record"]["bound"] == told["record"]["max_abs"] == "inf"
    assert (told["worst"][0]["index"], told["worst"][0]["actual"]) == ([0, 0], None)


def test_show_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; from gonogo.cli import main; main()"
    words = ["show", "softmax:f16:1x1x1:c:uniform:1", "softmax_torch"]
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == (
        "gonogo: gonogo show needs torch, which is not installed. Run: pip install 'gonogo[torch]'\n"
    )


def test_resume_imports_nothing_that_a_run_names(tmp_path: Path) -> None:
    """A run directory may be from anybody: it holds data, and which code is run is not for it to say."""
    trap = tmp_path / "ops" / "trap"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'sprung')!r}).touch()")
    plan = {"ops": ["trap"], "ops_folders": [str(trap.parent)], "design": 3, "device": "cpu"}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"schema": 1, "environment": {}, "plan": plan}))
    for words in (["run", "--resume", "--out"], ["evaluate"], ["calibrate"]):
        assert gonogo(*words, tmp_path / "run", cwd=tmp_path).returncode == 2
        assert not (tmp_path / "sprung").exists()


def test_resume_where_the_ops_have_moved(tmp_path: Path) -> None:
    shutil.copytree(Path(MORE_OPS) / "calm", tmp_path / "before" / "calm")
    options = ["--device", "cpu", "--dtypes", "float32", "--cases", 1, "--seed", 2, "--workers", 1]
    made = gonogo("run", "calm", "--ops-path", tmp_path / "before", *options, "--out", tmp_path / "run")
    assert made.returncode == 0, made.stderr
    (tmp_path / "before").rename(tmp_path / "after")
    next((tmp_path / "run").glob("part-*.parquet")).unlink()
    lost = gonogo("run", "--resume", "--out", tmp_path / "run")
    assert (lost.returncode, lost.stderr) == (
        2,
        f"gonogo: the run in {tmp_path / 'run'} had ops from {tmp_path / 'before'}. Their code is run only from "
        "where you say: name each folder again by --ops-path\n",
    )
    found = gonogo("run", "--resume", "--out", tmp_path / "run", "--ops-path", tmp_path / "after", "--json")
    assert json.loads(found.stdout)["outcomes"] == {"ok": 3}


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    folder, cases = tmp_path / "run", 400
    command = [
        sys.executable, "-m", "gonogo", "run", "calm", "--ops-path", MORE_OPS, "--cases", str(cases),
        "--dtypes", "float32", "--device", "cpu", "--workers", "2", "--out", str(folder),
    ]  # fmt: skip
    campaign = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_signals)
    journal = folder / "journal.jsonl"
    started = time.monotonic()
    while not (journal.exists() and journal.stat().st_size):
        assert time.monotonic() - started < 100
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"it ended by itself: {campaign.wait(timeout=0.01)}")
    campaign.send_signal(signal.SIGINT)
    _, said = campaign.communicate(timeout=60)
    assert campaign.returncode == 130
    again = f"gonogo run --resume --out {folder} --workers 2 --ops-path {MORE_OPS}"
    assert leave_progress_out(said) == f"interrupted: what is done is kept. Go on: {again}\n"
    assert 0 < read_run(folder).num_rows < 3 * cases
    assert not journal.exists()
    again = json.loads(gonogo("run", "--resume", "--out", folder, "--ops-path", MORE_OPS, "--json").stdout)
    assert again["records"] == again["planned"] == read_run(folder).num_rows == 3 * cases
