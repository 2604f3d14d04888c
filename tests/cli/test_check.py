"""gonogo check as a user types it: a kernel file in, a decision and an exit code out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from gonogo.errors import InputError
from gonogo.isolated import check_file, find_kernel
from gonogo.ops import op_names

pytest.importorskip("torch")

RIGHT = """
    import torch

    def softmax(x):
        return torch.softmax(x, -1)

    def other(x):
        return x
"""
WRONG = """
    import torch

    def _exp(x):
        return torch.exp(x.float() - x.float().amax(-1, keepdim=True))

    def pads_to_128(x):
        e = _exp(x)
        total = e.sum(-1, keepdim=True) + (-x.shape[-1] % 128) * torch.exp(-x.float().amax(-1, keepdim=True))
        return (e / total).to(x.dtype)
"""
TRITON = """
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def relu_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count)
        tl.store(out_ptr + at, tl.maximum(x, 0.0), mask=at < count)

    def launch(x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""


def gonogo(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "gonogo", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def write(folder: Path, text: str) -> Path:
    path = folder / "kernel.py"
    path.write_text(dedent(text))
    return path


def test_right_kernel_is_go(tmp_path: Path) -> None:
    done = gonogo("check", write(tmp_path, RIGHT), "--op", "softmax", "--device", "cpu", "--cases", 12)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kernel.py:softmax as softmax: go\n  0 of 36 cases failed; contract float32\n")
    assert "cases of correct kernels on NVIDIA H200)" in done.stdout
    assert "outcomes  36 ok" in done.stdout


def test_wrong_kernel_is_no_go_and_can_be_looked_at(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    words = ["check", write(tmp_path, WRONG), "--op", "softmax", "--device", "cpu", "--cases", 12]
    done = gonogo(*words, "--keep", kept)
    assert done.returncode == 1, done.stderr
    assert "pads_to_128 as softmax: no-go" in done.stdout
    worst = next(line for line in done.stdout.splitlines() if line.startswith("  worst"))
    assert "checked_softmax:" in worst
    assert "reads " in worst
    assert "limit " in worst
    look = next(line for line in done.stdout.splitlines() if line.startswith("  Look: gonogo "))
    shown = gonogo(*look.removeprefix("  Look: gonogo ").split(), "--device", "cpu")
    assert shown.returncode == 0, shown.stderr
    assert "worst elements in the bound gauge" in shown.stdout
    told = json.loads(gonogo(*words, "--json").stdout)
    assert (told["schema"], told["decision"], told["cases"], told["function"]) == (1, "no-go", 36, "pads_to_128")
    assert len(told["verdicts"]) == 36
    assert told["failed"] == sum(one["decision"] == "no-go" for one in told["verdicts"])
    assert told["worst"]["case"] in worst
    # Padding to 128 is right where there is nothing to pad.
    assert all(one["sizes"]["H"] % 128 for one in told["verdicts"] if one["decision"] == "no-go")


@pytest.mark.parametrize(
    ("body", "outcome", "detail"),
    [
        ("while True: pass", "timed-out", "no answer in 3 s"),
        ("import ctypes; ctypes.string_at(0)", "crashed", "killed by SIGSEGV"),
        ("raise KeyError('scale')", "raised", "KeyError: 'scale'"),
        ("import os; os._exit(7)", "crashed", "exit code 7"),
        ("return x[..., :0]", "wrong-shape", ""),
        ("return x.double()", "wrong-dtype", "float64, not float16"),
    ],
)
def test_what_a_kernel_may_do(body: str, outcome: str, detail: str, tmp_path: Path) -> None:
    file = write(tmp_path, f"def kernel(x):\n    {body}\n")
    done = gonogo(
        "check", file, "--op", "relu", "--dtypes", "float16", "--cases", 4, "--device", "cpu", "--timeout", 3,
        "--json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert set(told["outcomes"]) == {outcome}
    assert told["worst"]["reason"] == outcome
    assert detail in told["worst"]["outcome"]


def test_file_that_does_not_load_is_the_kernels_fault(tmp_path: Path) -> None:
    file = write(tmp_path, "import nowhere_to_be_found\n\ndef kernel(x):\n    return x\n")
    done = gonogo("check", file, "--op", "relu", "--dtypes", "float16", "--cases", 2, "--device", "cpu")
    assert done.returncode == 1, done.stderr
    assert "outcomes  2 raised" in done.stdout
    assert "ModuleNotFoundError: No module named 'nowhere_to_be_found'" in done.stdout


def test_triton_kernel_on_the_cpu(tmp_path: Path) -> None:
    """The launcher is found behind the jitted function; what the interpreter gets wrong is not held against it."""
    file = write(tmp_path, TRITON)
    words = ["check", file, "--op", "relu", "--cases", 3, "--device", "cpu"]
    done = gonogo(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["function"], told["outcomes"], told["cases"]) == ("launch", {"ok": 6, "refused": 3}, 6)
    refused = gonogo(*words, "--dtypes", "bfloat16")
    assert refused.returncode == 2
    assert refused.stderr.startswith("gonogo: nothing was run: Triton's interpreter")


def test_checks_of_one_op_do_not_mix(tmp_path: Path) -> None:
    """In one process, too: nothing of the first is left."""
    before = op_names()
    decisions = []
    for text in (RIGHT, WRONG):
        kernel = find_kernel(str(write(tmp_path, text)), "softmax")
        found = check_file(kernel, "softmax", dtypes=("float32",), cases=8, device="cpu")
        decisions.append(found.verification.decision)
    assert decisions == ["go", "no-go"]
    assert op_names() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["FILE", "--op", "softmaxx"], "unknown op 'softmaxx'. Did you mean softmax"),
        (["FILE", "--op", "q"], "unknown op 'q'; known: add_rmsnorm, "),
        (["nowhere.py", "--op", "softmax"], "there is no file nowhere.py"),
        (["FILE:softmx", "--op", "softmax"], "has no function 'softmx'. Did you mean softmax?"),
        (["FILE:zzz", "--op", "softmax"], "has no function 'zzz'. Its functions: softmax, other"),
        (["FILE", "--op", "relu"], "has 2 functions, none of them named relu: softmax, other. Name one: "),
        (
            ["FILE", "--op", "softmax", "--contract", "float64"],
            "unknown contract 'float64'; known: float32, float16",
        ),
        (["FILE", "--op", "softmax", "--dtypes", "int8"], "unknown dtype 'int8'; known: "),
        (["FILE", "--op", "softmax", "--device", "abacus"], "unknown device 'abacus'"),
        (["FILE", "--op", "softmax", "--timeout", "0"], "a time limit of 0 s"),
        (["FILE", "--op", "softmax", "--keep", "FOLDER"], "is not an empty folder"),
    ],
)
def test_bad_usage(words: list[str], message: str, tmp_path: Path) -> None:
    file = write(tmp_path, RIGHT)
    done = gonogo("check", *(word.replace("FILE", str(file)).replace("FOLDER", str(tmp_path)) for word in words))
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_file_that_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"kernel\.py line 1 is no Python: "):
        find_kernel(str(write(tmp_path, "def (")), "softmax")
