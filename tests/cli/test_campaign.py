"""gonogo run, ops and show as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gonogo.cli import cli
from gonogo.records import read_run

MORE_OPS = str(Path(__file__).parent.parent / "campaign" / "more_ops")


def gonogo(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gonogo", *map(str, words)], capture_output=True, text=True, timeout=300
    )


def test_run_then_resume_then_show(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made = gonogo(
        "run", "calm", "--ops-path", MORE_OPS, "--cases", 3, "--seed", 4, "--dtypes", "float16,bfloat16",
        "--device", "cpu", "--out", folder, "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert (told["records"], told["planned"], told["outcomes"]) == (18, 18, {"ok": 18})
    table = read_run(folder)
    assert table.num_rows == 18
    description = json.loads((folder / "run.json").read_text())
    assert description["schema"] == 1
    assert description["plan"]["seed"] == 4
    assert {"python", "torch", "numpy", "processor", "switches", "torch_flags", "commit"} <= set(
        description["environment"]
    )
    again = gonogo("run", "--resume", "--out", folder, "--json")
    assert json.loads(again.stdout)["outcomes"] == {}
    faulty = next(row for row in table.to_pylist() if row["kernel"] == "calm_drops_last" and row["bound"] > 100)
    shown = gonogo("show", faulty["case"], "calm_drops_last", "--ops-path", MORE_OPS, "--json", "--device", "cpu")
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
        (["run", "nope"], "unknown op 'nope'; known: "),
        (["run", "relu", "--dtypes", "float8"], "unknown dtype 'float8'; known: float16, bfloat16, float32"),
        (["run", "relu", "--device", "tpu"], "unknown device 'tpu'; known: auto, cpu, cuda"),
        (["run", "relu", "--distributions", "flat"], "unknown distribution 'flat'; known: uniform, "),
        (["run", "relu", "--strategies", "odd"], "unknown strategy 'odd'; known: default, boundary, regular"),
        (["run", "relu", "--cases", "0"], "0 cases: at least 1 is needed"),
        (["run", "--resume"], "--resume needs --out with the run directory to complete"),
        (["run", "--resume", "--out", "EMPTY"], "is no run directory: it has no run.json"),
        (["run", "--resume", "--out", "NEWER"], "has record schema 99, this gonogo reads 1"),
        (["run", "relu", "--device", "cpu", "--out", "FILE/run"], "cannot write to "),
        (["show", "softmax", "softmax_triton"], "'softmax' is no case id"),
        (
            ["show", "softmax:f16:1x1x1:c:uniform:1", "nope"],
            "op softmax has no kernel 'nope'; it has softmax_torch",
        ),
        (["ops", "nope"], "unknown op 'nope'; known: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage(words: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "NEWER").mkdir()
    (tmp_path / "NEWER" / "run.json").write_text('{"schema": 99}')
    (tmp_path / "FILE").write_text("")
    given = [str(tmp_path / word) if word.split("/")[0] in ("EMPTY", "NEWER", "FILE") else word for word in words]
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
