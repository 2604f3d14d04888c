"""gonogo calibrate beside a lock of pytest, and what it and the entry point refuse; on committed records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gonogo.cli
from gonogo.errors import InputError
from gonogo.limits.lock import list_devices, read_lock, write_lock
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
    told = json.loads(calibrate(RUN, "--op", "softmax", "--op", "relu", "--diff", lock, "--json").stdout)
    assert (told["schema"], told["lock"], told["changes"]) == (1, str(lock), [])
    assert set(told["counts"].values()) == {0}
    gone = replace(named[0], contract="gone")
    write_lock(lock, [replace(named[0], value=1e6), *named[1:], gone], provenance)
    told = calibrate(RUN, "--ops", "softmax,relu", "--diff", lock).stdout
    assert f"1 of {len(limits) + 1} limits changed" in told, "the one that these runs say nothing of stays"
    told = calibrate(RUN, "--ops", "softmax,relu", "--diff", lock, "--replace").stdout
    assert f"2 of {len(limits) + 1} limits changed" in told


def test_a_committed_limit_is_never_dropped_in_silence(tmp_path: Path) -> None:
    lock = tmp_path / "gonogo.lock"
    assert "3 new" in calibrate(RUN, "--op", "softmax,relu,tanh", "-o", lock).stdout
    limits, provenance = read_lock(lock)
    changed = [replace(limits[0], value=0.5), replace(limits[1], value=1e5), *limits[2:]]
    write_lock(lock, changed, provenance)
    done = calibrate(RUN, "--op", "softmax,relu,gelu", "-o", lock)
    assert done.stdout.splitlines() == [
        f"3 limits (bound × pooled) in {lock}: 1 new, 1 tightened, 1 loosened, 1 unchanged",
        "  new        gelu, contract float32: 2",
        "  tightened  softmax, contract float32: 1e+05 → 2",
        "  loosened   relu, contract float32: 0.5 → 2",
        "kept 1 limit that these runs do not make anew; to lose them: --replace",
    ]
    assert [limit.op for limit in read_lock(lock)[0]] == ["gelu", "relu", "softmax", "tanh"]
    told = json.loads(calibrate(RUN, "--op", "gelu", "-o", lock, "--replace", "--json").stdout)
    assert [limit.op for limit in read_lock(lock)[0]] == ["gelu"]
    assert [change["change"] for change in told["changes"]] == ["gone"] * 3


def test_a_lock_that_cannot_be_read_can_be_replaced(tmp_path: Path) -> None:
    lock = tmp_path / "gonogo.lock"
    lock.write_text("format = 1\n<<<<<<< ours\n")
    with pytest.raises(InputError, match=r"mend it, or make it anew with: gonogo calibrate RUNS --replace"):
        calibrate(RUN, "--op", "relu", "-o", lock)
    calibrate(RUN, "--op", "relu", "-o", lock, "--replace")
    assert [limit.op for limit in read_lock(lock)[0]] == ["relu"]


def test_a_limit_for_each_kernel_gives_way_to_its_own_only(tmp_path: Path) -> None:
    lock, half = tmp_path / "gonogo.lock", tmp_path / "half"
    folder = RunDirectory(half, read_description(RUN))
    folder.append_rows([row for row in read_run(RUN).to_pylist() if row["dtype"] == "float16"])
    folder.close()
    calibrate(RUN, "--op", "relu", "--rule", "max-margin", "-o", lock)
    before = read_lock(lock)[0]
    done = calibrate(half, "--op", "relu", "--rule", "max-margin", "-o", lock, "--json")
    assert json.loads(done.stdout)["kept"] > 0
    assert [limit.value for limit in read_lock(lock)[0]] == [limit.value for limit in before]


def test_runs_of_one_name_on_two_machines_are_not_mixed_up(tmp_path: Path) -> None:
    lock, other = tmp_path / "gonogo.lock", tmp_path / "h200-1"
    calibrate(RUN.parent / "h200-1", "--op", "relu,softmax", "-o", lock)
    folder = RunDirectory(other, read_description(RUN))
    folder.append_rows([row for row in read_run(RUN).to_pylist() if row["op"] == "relu"])
    folder.close()
    before = lock.read_bytes()
    with pytest.raises(InputError, match=r"keeps limits from another run named h200-1, on NVIDIA H200; this is on"):
        calibrate(other, "-o", lock)
    assert lock.read_bytes() == before


def test_limits_of_two_kinds_do_not_mix(tmp_path: Path) -> None:
    """One for all kernels beside one for each would leave verdicts without the one that they need."""
    lock = tmp_path / "gonogo.lock"
    calibrate(RUN, "--op", "softmax", "-o", lock)
    before = lock.read_bytes()
    with pytest.raises(InputError, match=r"gonogo.lock already has limits of another kind for softmax \(float32\)"):
        calibrate(RUN, "--op", "softmax", "--rule", "max-margin", "-o", lock)
    assert lock.read_bytes() == before
    calibrate(
        RUN, "--op", "softmax", "--gauge", "ulp", "--rule", "max-margin", "-o", lock
    )  # another gauge may stand
    assert {limit.gauge for limit in read_lock(lock)[0]} == {"bound", "ulp"}
    calibrate(RUN, "--op", "softmax", "--rule", "max-margin", "-o", lock, "--replace")
    assert {limit.rule for limit in read_lock(lock)[0]} == {"max-margin"}


def test_a_universal_limit_gives_way_to_one_from_as_many_ops_only(tmp_path: Path) -> None:
    few, lock = tmp_path / "few", tmp_path / "gonogo.lock"
    folder = RunDirectory(few, read_description(RUN))
    folder.append_rows([row for row in read_run(RUN).to_pylist() if row["op"] in ("relu", "tanh")])
    folder.close()
    calibrate(RUN, "-o", lock)
    calibrate(few, "-o", lock)
    (universal,) = (limit for limit in read_lock(lock)[0] if limit.is_universal and limit.contract == "float32")
    assert universal.kernel == "28 ops"
    assert universal.runs == ("cpu-11",)


def test_provenance_names_the_machines_of_its_limits_and_no_others(tmp_path: Path) -> None:
    lock, gpu = tmp_path / "gonogo.lock", RUN.parent / "h200-1"
    calibrate(gpu, "--op", "relu,softmax", "-o", lock)
    assert read_lock(lock)[1]["devices"] == "NVIDIA H200"
    calibrate(RUN, "--op", "relu", "-o", lock)
    limits, provenance = read_lock(lock)
    here = str(read_description(RUN)["environment"]["processor"])
    assert provenance["devices"] == ", ".join(sorted(["NVIDIA H200", here]))
    assert [list_devices(limit, provenance) for limit in limits] == [(here,), ("NVIDIA H200",)]
    calibrate(RUN, "--op", "softmax", "-o", lock)
    provenance = read_lock(lock)[1]
    assert (provenance["devices"], provenance["runs"]) == (here, "cpu-11")
    assert not any(name.startswith("device of") for name in provenance)


def test_exit_codes_of_changes(tmp_path: Path) -> None:
    lock = tmp_path / "gonogo.lock"
    calibrate(RUN, "--op", "softmax,relu", "-o", lock)
    limits, provenance = read_lock(lock)
    write_lock(lock, [replace(limits[0], value=0.5), *limits[1:]], provenance)
    words = (RUN, "--op", "softmax,relu", "--diff", lock)
    assert calibrate(*words).exit_code == 0
    assert calibrate(*words, "--fail-on", "tightened,gone").exit_code == 0
    assert calibrate(*words, "--fail-on", "loosened").exit_code == 1
    assert calibrate(*words, "--fail-on", "new", "--fail-on", "loosened", "--json").exit_code == 1
    with pytest.raises(InputError, match=r"unknown change 'losened'. Did you mean loosened"):
        calibrate(*words, "--fail-on", "losened")
    assert calibrate(RUN, "--op", "softmax,relu", "-o", lock, "--fail-on", "loosened").exit_code == 1
    assert read_lock(lock)[0] == limits, "it is written, and the exit code says what that did"


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

    monkeypatch.setattr("gonogo.records.open_runs", crash)
    monkeypatch.setattr("sys.argv", ["gonogo", "calibrate", str(RUN), "-o", str(tmp_path / "gonogo.lock")])
    with pytest.raises(SystemExit) as crashed:
        gonogo.cli.main()
    told = capsys.readouterr().err
    assert crashed.value.code == 3
    assert "ZeroDivisionError: on purpose" in told
    assert told.splitlines()[-1].startswith("gonogo: crashed, which says nothing of the kernel.")
