"""gonogo ops OP as a user types it: what the op computes, below the table."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import gonogo
from gonogo.cli import cli
from gonogo.ops import op_names

MORE_OPS = str(Path(__file__).parent.parent / "more_ops")
CORPUS = [name for name in op_names() if (Path(gonogo.__file__).parent / "ops" / name).is_dir()]
WITHOUT_TORCH = """
import sys

sys.modules.update(torch=None, triton=None)
from gonogo.cli import cli

cli(sys.argv[1:], standalone_mode=False)
"""


def run_ops(*words: str) -> str:
    """What is printed where torch cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "ops", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def find_text(told: str) -> str:
    """What stands below the table."""
    return told.rpartition("┘\n")[2]


def test_an_op_that_is_named_says_what_it_computes() -> None:
    assert (
        find_text(run_ops("softmax"))
        == """
softmax: softmax over the last axis.
  signature  softmax(input: B S H) -> B S H
  sizes      B 1, 2, 8; S 1, 7, 128; H 1, 3, 4, 8, 32, 256, 768, 1024, 1025, 2048, 4096, 8192; \
other sizes of B, S, H, too
  reference  run in float64:

    def reference(input: torch.Tensor) -> torch.Tensor:
        \"""exp(x − max) over its sum.\"""
        e = torch.exp(input - input.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
"""
    )


@pytest.mark.parametrize(
    ("op", "line"),
    [
        ("relu", "relu: negative elements become 0."),
        ("layernorm", "    EPS = 1e-5"),
        ("cross_entropy", "  signature  cross_entropy(logits: N V, target: N (integers below V)) -> N"),
        ("dequant_matmul", "  signature  dequant_matmul(x: M K, w: K N (int8), scale: N (factors above 0)) -> M N"),
        ("flash_attention", "        return e / e.sum(-1, keepdim=True) @ v"),  # attention's own
    ],
)
def test_what_differs_from_op_to_op(op: str, line: str) -> None:
    told = find_text(CliRunner().invoke(cli, ["ops", op], catch_exceptions=False).stdout).splitlines()
    assert line in told
    assert sum("def reference(" in one for one in told) == 1
    assert not any(one.lstrip().startswith(("import ", "from ")) or "noqa" in one for one in told)


def test_every_reference_is_told_as_code() -> None:
    told = json.loads(run_ops("--json"))
    assert told["schema"] == 1
    assert [op["name"] for op in told["ops"]] == CORPUS
    for op in told["ops"]:
        names = ", ".join(f"{one['name']}: torch.Tensor" for one in op["inputs"])
        assert f"def reference({names}) -> torch.Tensor:\n" in op["reference"]
        compile(op["reference"], op["name"], "exec")
        assert op["description"]


def test_the_bare_list_is_one_screen() -> None:
    """A line per op, with inputs, axes, and kernels counted, in 80 columns."""
    head, *lines, last = run_ops().splitlines()
    assert head.split() == ["op", "inputs", "->", "output", "kernels"]
    assert [line.split()[0] for line in lines] == CORPUS
    assert max(map(len, (head, *lines, last))) <= 80
    told = {op["name"]: op for op in json.loads(run_ops("--json"))["ops"]}
    for line in lines:
        op = told[line.split()[0]]
        roles = [kernel["role"] for kernel in op["kernels"]]
        assert line.endswith(f"{roles.count('control')} + {roles.count('faulty')}")
        for described in op["inputs"]:
            assert f"{described['name']}: {' '.join(described['axes'])}" in line
    assert last == "28 ops, 235 kernels: controls + faulty ones. More of one: gonogo ops NAME"


def test_the_list_as_csv() -> None:
    rows = list(csv.DictReader(run_ops("--csv").splitlines()))
    assert [row["op"] for row in rows] == CORPUS
    assert {int(row["controls"]) + int(row["faulty"]) > 2 for row in rows} == {True}
    (only,) = csv.DictReader(run_ops("--csv", "--op", "relu", "--columns", "role,kernel").splitlines()[:2])
    assert list(only) == ["kernel", "role"]


def test_an_op_of_a_folder_and_two_at_once() -> None:
    told = find_text(run_ops("tells", "relu", "--ops-path", MORE_OPS))
    assert told.startswith("\ntells: An op whose kernels say something.\n")
    assert "\n    def reference(x):\n        return x * 2\n\nrelu: " in told


@pytest.mark.parametrize("code", [None, "def reference(x:\n"])
def test_a_folder_without_a_reference_is_one_line(tmp_path: Path, code: str | None) -> None:
    home = tmp_path / "unfinished"
    home.mkdir()
    for name in ("__init__.py", "torch.py"):
        text = (Path(MORE_OPS) / "tells" / name).read_text(encoding="utf-8")
        (home / name).write_text(text.replace('"tells"', '"unfinished"'), encoding="utf-8")
    if code is not None:
        (home / "reference.py").write_text(code, encoding="utf-8")
    words = ["ops", "unfinished", "--ops-path", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "gonogo", *words], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gonogo: op unfinished: {home / 'reference.py'} cannot be read: ")
