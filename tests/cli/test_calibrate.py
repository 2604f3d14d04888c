"""gonogo calibrate beside a lock of pytest, and what it and the entry point refuse; on committed records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gonogo.cli
from gonogo.errors import InputError
from gonogo.limits.lock import read_lock, write_lock
from gonogo.records import RunDirectory, read_description, read_run

RUN = Path(__file__).parent.parent.parent / "records" / "cpu-11"


def calibrate(*words: object) -> Result:
    return CliRunner().invoke(gonogo.cli.cli, ["calibrate", *map(str, words)], catch_exceptions=False)


def test_diff_with_a_lock_that_names_kernels(tmp_path: Path) -> None:
    lock = tmp_path / "gonogo.lock"
    calibrate(RUN, "--ops", "softmax,relu", "-o", lock)
    limits, provenance = read_lock(lock)
    named = [replace(limit, kernel=f"{limit.op}_torch") for limit in limits]
    write_lock(lock, named, provenance)
    assert json.loads(calibrate(RUN, "--ops", "softmax,relu", "--diff", lock, "--json").stdout) == []
    gone = replace(named[0], contract="gone")
    write_lock(lock, [replace(named[0], value=1e6), *named[1:], gone], provenance)
    told = calibrate(RUN, "--ops", "softmax,relu", "--diff", lock).stdout
    assert f"2 of {len(limits) + 1} limits changed" in told


def test_a_limit_that_zeros_pass_is_left_out(tmp_path: Path) -> None:
    """One control of rmsnorm, in float16, that is as far off as zeros are."""
    rows = [row for row in read_run(RUN).to_pylist() if row["op"] == "rmsnorm"]
    for row in rows:
        if (row["contract"], row["role"], row["outcome"]) == ("float16", "control", "ok"):
            row["bound"] = 2.0**11  # 1 / u of float16: off by all of S
    folder = RunDirectory(tmp_path / "run", read_description(RUN))
    folder.append_rows(rows)
    folder.close()
    lock = tmp_path / "gonogo.lock"
    done = calibrate(tmp_path / "run", "-o", lock, "--json")
    assert {limit.contract for limit in read_lock(lock)[0]} == {"float32"}, "Triton's interpreter runs no bfloat16"
    assert json.loads(done.stdout)["left_out"] == 1
    assert "left out: rmsnorm, contract float16. A limit of " in done.stderr


def test_refusals(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("")
    for words, told in (
        ([file], f"{file} is no run directory: it is a file"),
        ([tmp_path / "nowhere"], f"{tmp_path / 'nowhere'} is no run directory: it does not exist"),
        ([tmp_path], f"{tmp_path} is no run directory: it has no run.json"),
        (
            [RUN, "--diff", file, "-o", file],
            "--diff writes nothing, so -o has no use beside it. Leave one of them out",
        ),
        (
            [RUN, "-p", "margn=2"],
            "rule 'pooled' has no parameter 'margn'. Did you mean margin? It has: floor, margin",
        ),
        ([RUN, "--rule", "analytic", "-p", "rate=2"], "rule 'analytic' has no parameter 'rate'. It has: none"),
    ):
        with pytest.raises(InputError) as caught:
            calibrate(*words)
        assert str(caught.value) == told


def test_exit_codes_of_refusals_and_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("")
    monkeypatch.setattr("sys.argv", ["gonogo", "calibrate", str(file)])
    with pytest.raises(SystemExit) as refused:
        gonogo.cli.main()
    assert (refused.value.code, capsys.readouterr().err.count("\n")) == (2, 1)

    def crash(*given: object, **options: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("gonogo.records.load_columns", crash)
    monkeypatch.setattr("sys.argv", ["gonogo", "calibrate", str(RUN), "-o", str(tmp_path / "gonogo.lock")])
    with pytest.raises(SystemExit) as crashed:
        gonogo.cli.main()
    told = capsys.readouterr().err
    assert crashed.value.code == 3
    assert "ZeroDivisionError: on purpose" in told
    assert told.splitlines()[-1].startswith("gonogo: crashed, which says nothing of the kernel.")
