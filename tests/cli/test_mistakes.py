"""What a user gets wrong, a word, a path or a place to write to, and Ctrl-C: one line each, and no traceback."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import gonogo.cli
from gonogo.campaign import Progress
from gonogo.cli import cli
from gonogo.errors import CampaignFailed, InputError
from gonogo.limits.lock import read_lock
from gonogo.user.kernel_file import find_kernel

RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"
CASE = "softmax:f16:2x7x1025:c:uniform:81"
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from gonogo.cli import main; main()"
"""Importing it takes seconds; a mistake is told before."""


def split(words: str) -> list[str]:
    """As a shell does, with what is too long to write out put in."""
    return [{"RUN": str(RUN), "CASE": CASE}.get(word, word) for word in words.split()]


def refuse(words: str, cwd: Path) -> str:
    """What is said of a mistake: one line, with exit code 2, and without torch."""
    command = [sys.executable, "-c", WITHOUT_TORCH, *split(words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("gonogo: ")
    return line.removeprefix("gonogo: ")


@pytest.mark.parametrize(
    ("words", "near", "known"),
    [
        ("run softmx", "unknown op 'softmx'. Did you mean softmax", "All: gonogo ops"),
        ("ops relu softmx", "unknown op 'softmx'. Did you mean softmax", "All: gonogo ops"),
        ("audit --policy vllm --op softmx", "unknown op 'softmx'. Did you mean softmax", "All: gonogo ops"),
        ("show softmx:f16:2x7:c:uniform:8 a", "unknown op 'softmx'. Did you mean softmax", "All: gonogo ops"),
        ("show CASE softmax_tritn", "'softmax_tritn'. Did you mean softmax_triton", "Known: softmax_torch, "),
        ("show CASE softmax --device cdua", "unknown device 'cdua'. Did you mean cuda?", "Known: auto, cpu, cuda"),
        ("run --device cdua", "unknown device 'cdua'. Did you mean cuda?", "Known: auto, cpu, cuda"),
        ("reproduce --device cdua", "unknown device 'cdua'. Did you mean cuda?", "Known: auto, cpu, cuda"),
        ("run --dtypes float32,floot16", "unknown dtype 'floot16'. Did you mean float16", "Known: float16, "),
        ("audit --policy vllm --dtype float61", "dtype 'float61'. Did you mean float16", "Known: float16, "),
        ("run --distributions unifrm", "distribution 'unifrm'. Did you mean uniform?", "Known: uniform, "),
        ("run --strategies boundry", "unknown strategy 'boundry'. Did you mean boundary?", "Known: default, "),
        ("calibrate RUN --rule poled", "unknown rule 'poled'. Did you mean pooled?", "Known: analytic, "),
        ("calibrate RUN --gauge boud", "unknown gauge 'boud'. Did you mean bound?", "Known: absolute, "),
        ("evaluate RUN --holdout shap", "unknown hold-out 'shap'. Did you mean shape?", "Known: none, run, "),
        ("evaluate RUN --holdout impl", "hold-out 'impl'. Did you mean implementation?", "Known: none, run, "),
        ("audit --policy kernelbanch", "unknown policy 'kernelbanch'. Did you mean kernelbench", "Known: "),
        ("calibrate RUN --ops relu,softmx", "no record has op 'softmx'. Did you mean softmax", "There are: add_"),
        ("evaluate RUN --op softmx", "no record has op 'softmx'. Did you mean softmax", "There are: add_"),
        ("evaluate RUN --dtype floot16", "unknown dtype 'floot16'. Did you mean float16", "Known: float16, "),
        ("evaluate RUN --distribution unifrm", "'unifrm'. Did you mean uniform?", "There are: adversarial, "),
    ],
)
def test_a_near_word_is_suggested(words: str, near: str, known: str, tmp_path: Path) -> None:
    said = refuse(words, tmp_path)
    assert near in said
    assert known in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("calibrate nowhere -o new/gonogo.lock", "nowhere is no run directory: it does not exist"),
        ("calibrate FOLDER", "FOLDER is no run directory: it has no run.json"),
        ("calibrate RUN --diff nowhere", "there is no nowhere. Make one with: gonogo calibrate RUNS"),
        ("evaluate nowhere", "nowhere is no run directory: it does not exist"),
        ("evaluate FOLDER", "FOLDER is no run directory: it has no run.json"),
        ("evaluate FILE", "FILE is no run directory: it is a file"),
        ("evaluate --drift RUN nowhere", "nowhere is no run directory: it does not exist"),
        ("audit --atol 1 --rtol 1 --records nowhere", "nowhere is no run directory: it does not exist"),
        ("reproduce --records nowhere --out new", "nowhere is no run directory: it does not exist"),
        ("show nowhere softmax_torch", "'nowhere' is no case id; one looks like softmax:f16:"),
        ("show FILE/run.json softmax_torch", "'FILE/run.json' is no case id; one looks like softmax:f16:"),
        ("show CASE softmax_torch --ops-path nowhere", "nowhere is not a folder of ops"),
        ("ops --ops-path nowhere", "nowhere is not a folder of ops"),
    ],
)
def test_a_path_that_leads_nowhere(words: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FILE").write_text("")
    assert refuse(words, tmp_path).startswith(message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["FILE", "FOLDER"], "nothing is made by a mistake"


def call_main(words: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code, as the program ends with it."""
    monkeypatch.setattr("sys.argv", ["gonogo", *split(words)])
    with pytest.raises(SystemExit) as ended:
        gonogo.cli.main()
    return ended.value.code


def test_folders_are_made_for_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "new" / "folder" / "gonogo.lock"
    assert call_main(f"calibrate RUN --ops relu -o {lock}", monkeypatch) == 0
    assert {limit.op for limit in read_lock(lock)[0]} == {"relu"}
    assert [path.name for path in lock.parent.iterdir()] == ["gonogo.lock"], "nothing else is left there"


@pytest.mark.parametrize(
    ("words", "place", "why"),
    [
        ("calibrate RUN -o FILE/gonogo.lock", "FILE", "File exists. Choose another place"),
        ("calibrate RUN -o FILE/new/gonogo.lock", "FILE/new", "Not a directory. Choose another place"),
        ("calibrate RUN -o FOLDER", "FOLDER", "it is a folder. Name a file in it"),
        ("calibrate RUN -o /proc/gonogo.lock", "/proc", ""),
        ("reproduce --records RUN --out FILE", "FILE", "File exists. Choose another place"),
        ("reproduce --device cpu --out FILE/new", "FILE/new", "Not a directory. Choose another place"),
        ("run relu --device cpu --out FILE", "FILE", "File exists. Choose another place"),
        ("run relu --device cpu --out /proc", "/proc", ""),
    ],
)
def test_a_place_that_takes_no_files_is_told_before_work(
    words: str, place: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if place == "/proc" and not Path("/proc/self").exists():
        pytest.skip("there is no such file system here")
    if words.startswith("run "):
        pytest.importorskip("torch")
        monkeypatch.setattr("gonogo.campaign.run_campaign", work)
    monkeypatch.setattr("gonogo.records.load_columns", work)
    monkeypatch.setattr("gonogo.records.open_runs", work)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FILE").write_text("")
    monkeypatch.chdir(tmp_path)
    assert call_main(words, monkeypatch) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gonogo: cannot write to {place}: {why}")
    assert not list((tmp_path / "FOLDER").iterdir())


def work(*_: object, **__: object) -> None:
    raise AssertionError("the place was not looked at before")


def test_a_disk_that_fills_up_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gonogo.records.writing.write_atomically", fill)
    lock = tmp_path / "gonogo.lock"
    assert call_main(f"calibrate RUN --ops relu -o {lock}", monkeypatch) == 2
    said = capsys.readouterr().err
    assert said == f"gonogo: cannot write to {lock}: No space left on device. Choose another place\n"


def test_a_file_that_is_kept_from_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named, unnamed = PermissionError(13, "Permission denied", "locked/run.json"), PermissionError("by the kernel")

    def deny(*_: object, **__: object) -> None:
        raise denial

    monkeypatch.setattr("gonogo.records.open_runs", deny)
    denial = named
    assert call_main("evaluate RUN", monkeypatch) == 2
    assert capsys.readouterr().err == "gonogo: cannot open locked/run.json: Permission denied\n"
    denial = unnamed  # whatever it was, it was no file of theirs
    assert call_main("evaluate RUN", monkeypatch) == 3


NEEDED = {"calibrate": ["runs"], "check": ["kernel.py", "--op", "relu"], "show": [CASE, "softmax_torch"],
          "sketch": ["runs", "-o", "one.sketch"]}  # fmt: skip


@pytest.mark.parametrize("name", cli.commands)
def test_ctrl_c_ends_every_command_with_130(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.commands[name], "callback", interrupt)
    done = CliRunner().invoke(cli, [name, *NEEDED.get(name, [])])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_as_a_signal() -> None:
    """Sent while records are read, at a point that does not depend on how fast this machine is."""
    code = (
        "import os, signal, gonogo.cli, gonogo.records;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # a shell may have its jobs ignore it
        "gonogo.records.open_runs = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT);"
        "gonogo.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "evaluate", RUN], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_before_a_campaign_has_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is nothing to go on with: the next command is the same again."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gonogo.campaign.run_campaign", interrupt)
    done = CliRunner().invoke(cli, ["run", "relu", "--device", "cpu", "--out", str(tmp_path / "run")])
    assert (done.exit_code, done.stderr) == (130, "interrupted before anything was recorded\n")


def test_ctrl_c_again_when_a_campaign_has_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same command again would be refused; what was lost by either press is named."""

    def interrupt(*_: object, report: Callable[[Progress], None], **__: object) -> None:
        report(Progress(0, 9, {}))
        first, second = KeyboardInterrupt(), KeyboardInterrupt()
        first.add_note("2 records here")
        second.add_note("3 there")
        try:
            raise first
        finally:
            raise second

    monkeypatch.setattr("gonogo.campaign.run_campaign", interrupt)
    out = tmp_path / "run"
    done = CliRunner().invoke(cli, ["run", "relu", "--device", "cpu", "--out", str(out)])
    but = "but for 2 records here and 3 there"
    said = f"interrupted: what is done is kept, {but}. Go on: gonogo run --resume --out {out}\n"
    assert (done.exit_code, done.stderr) == (130, said)


def test_what_is_said_of_a_campaign_that_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the whole command that goes on, as it was given; not where it says so itself."""
    failures = [CampaignFailed("a node was lost."), CampaignFailed("a store is gone; go on: …", says_rest=True)]

    def fail(*_: object, report: Callable[[Progress], None], **__: object) -> None:
        report(Progress(0, 9, {}))
        raise failures.pop(0)

    monkeypatch.setattr("gonogo.campaign.run_campaign", fail)
    out = tmp_path / "a run"
    given = ["--no-share-gpu", "--timeout", "2.5", "--memory-gb", "4"]
    again = f"gonogo run --resume --out '{out}' --timeout 2.5 --memory-gb 4 --no-share-gpu"
    for told in (f"a node was lost. What is recorded is kept. Go on: {again}", "a store is gone; go on: …"):
        done = CliRunner().invoke(gonogo.cli.cli, ["run", "relu", "--device", "cpu", "--out", str(out), *given])
        assert (done.exit_code, str(done.exception or done.stderr).strip()) == (1, told)


def test_resuming_what_has_runs_below_it(tmp_path: Path) -> None:
    shutil.copytree(RUN, tmp_path / "kinds" / "old")
    told = refuse(f"run --resume --out {tmp_path}/kinds", tmp_path)
    again = f"gonogo run --resume --out {tmp_path}/kinds/old"
    problem = f"{tmp_path}/kinds is no run, and has 1 below it, as of --per-device-kind"
    assert told == f"{problem}. Add that, or complete one: {again}"


@pytest.mark.parametrize("lost", [(), ("7 records that did not reach s3://b/run",)])
def test_ctrl_c_before_a_resumed_campaign_has_anything_new(
    lost: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it had is there all the same; what the store did not take is named."""

    def interrupt(*_: object, **__: object) -> None:
        pressed = KeyboardInterrupt()
        for note in lost:
            pressed.add_note(note)
        raise pressed

    monkeypatch.setattr("gonogo.campaign.resume_campaign", interrupt)
    run = shutil.copytree(RUN, tmp_path / "a run")
    done = CliRunner().invoke(cli, ["run", "--resume", "--out", str(run)])
    but = f", but for {lost[0]}" if lost else ""
    said = f"interrupted: what is done is kept{but}. Go on: gonogo run --resume --out '{run}'\n"
    assert (done.exit_code, done.stderr) == (130, said)


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "gonogo", "ops"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "gonogo: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        ("class Model:\n    pass\n", "k.py", r"k.py has the class Model and no public function. Name an instance"),
        ("def f(x): return x\n", "k.py:", r"'k.py:' names no function; write FILE, or FILE:FUNC"),
        ("", ":softmax", r"':softmax' names no file; write FILE, or FILE:FUNC"),
        ("", "", r"'' names no file"),
    ],
)
def test_a_target_that_names_too_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(source)
    with pytest.raises(InputError, match=told):
        find_kernel(target, "softmax")


def test_a_kernel_need_not_be_a_def(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("softmax = lambda x: x.softmax(-1)\ndef other(x): return x\n")
    assert find_kernel(str(tmp_path / "k.py"), "softmax").function == "softmax"


def test_an_end_of_file_inside_is_a_crash_and_no_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(gonogo.cli.ops, "callback", lambda **options: fail())
    monkeypatch.setattr(sys, "argv", ["gonogo", "ops"])
    with pytest.raises(SystemExit) as ended:
        gonogo.cli.main()
    assert ended.value.code == 3
    assert "crashed, which says nothing of the kernel" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["check kernel.py:softmax --op softmax", "run calm --ops-path .. --out run"])
def test_files_named_like_modules_are_not_run(words: str, tmp_path: Path) -> None:
    """Of the current folder, beside a kernel, or in the folder of an op, whose torch.py has its kernels."""
    folder = tmp_path / "calm"
    shutil.copytree(Path(__file__).parent.parent / "more_ops" / "calm", folder)
    (folder / "kernel.py").write_text("import torch\n\ndef softmax(x):\n    return torch.softmax(x, -1)\n")
    for name in ("numpy", "struct", "click", "multiprocessing"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name}')\n")
    command = [sys.executable, "-m", "gonogo", *words.split(), "--cases", "1", "--dtype", "float32"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)
    said = [line for line in done.stderr.splitlines() if " records, " not in line]  # a slow machine is told of it
    assert (done.returncode, said) == (0, [])
    assert not (tmp_path / "ran").exists()
