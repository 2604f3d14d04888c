"""gonogo check as a user types it: a kernel file in, a decision and an exit code out."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner
from command import Ended, gonogo, spawn

import gonogo as package
from gonogo import ops
from gonogo.campaign import Allowance, Plan, run_campaign
from gonogo.cases import FINITE
from gonogo.cli import cli
from gonogo.errors import InputError, ReferenceFailed
from gonogo.limits import Limit
from gonogo.limits.lock import write_lock
from gonogo.ops import add_folder, get_op, op_names
from gonogo.records import read_description, read_run
from gonogo.runners.device import keep_switches
from gonogo.runners.printed import KEPT_BYTES
from gonogo.schema import name_device
from gonogo.user import isolated
from gonogo.user.isolated import check_file
from gonogo.user.kernel_file import find_kernel

pytest.importorskip("torch")

RIGHT = """
    import torch

    def softmax(x):
        return torch.softmax(x, -1)

    def other(x):
        def inner(x):
            return x
        return inner(x)
"""
WRONG = """
    import torch

    def _exp(x):
        return torch.exp(x.float() - x.float().amax(-1, keepdim=True))

    def pads_to_128(x):
        e = _exp(x)
        total = e.sum(-1, keepdim=True)
        if padded := -x.shape[-1] % 128:
            total = total + padded * torch.exp(-x.float().amax(-1, keepdim=True))
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


def write(folder: Path, text: str) -> Path:
    path = folder / "kernel.py"
    path.write_text(dedent(text))
    return path


def test_right_kernel_is_go(tmp_path: Path) -> None:
    done = gonogo("check", write(tmp_path, RIGHT), "--op", "softmax", "--device", "cpu", "--cases", 12)
    assert done.returncode == 0, done.stderr
    assert re.match(
        r"kernel.py:softmax as softmax: go\n  cases       0 of 3\d cases failed; contract float32\n", done.stdout
    )
    assert re.search(r"\n  judged      3\d of 36 cases; .*; seed 0\n", done.stdout)
    assert "cases of correct kernels on NVIDIA H200)" in done.stdout
    assert "outcomes    36 ok" in done.stdout


def test_only_those_load_torch_that_compute(tmp_path: Path) -> None:
    """A second or more for each process that does: workers' and kernels', not the one that waits for them."""
    text = "import torch\ndef softmax(x): return torch.softmax(x.float(), -1).to(x.dtype)"
    words = ["check", str(write(tmp_path, text)), "--op", "softmax", "--cases", "1", "--dtype", "float32"]
    code = (
        "import atexit, sys; from gonogo.cli import main;"
        "atexit.register(lambda: print('torch' in sys.modules)); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--device", "cpu"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "False"), done.stderr


def test_an_output_that_a_later_call_overwrites_is_told(tmp_path: Path) -> None:
    text = """
import torch
kept = {}
def softmax(x):
    out = kept.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype))
    return out.copy_(torch.softmax(x.float(), -1))
"""
    words = ["check", write(tmp_path, text), "--op", "softmax", "--cases", "2", "--dtype", "float32"]
    done = gonogo(*words, "--device", "cpu", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(note.startswith("a later call overwrites") for note in json.loads(done.stdout)["notes"])


def find_line(done: Ended, name: str) -> str:
    return next(line for line in done.stdout.splitlines() if line.startswith(f"  {name} ")).split(maxsplit=1)[1]


@pytest.mark.slow
def test_wrong_kernel_explains_itself_and_replays(tmp_path: Path) -> None:
    words = ["check", write(tmp_path, WRONG), "--op", "softmax", "--device", "cpu", "--cases", 12, "--seed", 1]
    done = spawn(*words)
    assert done.returncode == 1, done.stderr
    assert "pads_to_128 as softmax: no-go" in done.stdout
    told = json.loads(gonogo(*words, "--json").stdout)
    assert (told["schema"], told["decision"], told["planned"], told["function"]) == (2, "no-go", 36, "pads_to_128")
    assert len(told["verdicts"]) == told["cases"] == 36 - len(told["unjudged"])
    assert told["failed"] == sum(one["decision"] == "no-go" for one in told["verdicts"])
    # Padding to 128 is right where there is nothing to pad.
    assert all(one["sizes"]["H"] % 128 for one in told["verdicts"] if one["decision"] == "no-go")
    worst, element = told["worst"], told["worst"]["element"]
    sizes = ", ".join(f"{axis} {size}" for axis, size in worst["sizes"].items())
    for line in (
        f"  worst case  {worst['case']}: no-go: reads {worst['reading']:.4g} bound, "
        f"above the limit {worst['limit']:.4g} (pooled",
        f"  {sizes}; {worst['dtype']}; {worst['distribution']} values; {worst['layout']}",
        f"  element     {tuple(element['index'])}: expected {element['expected']!r}, actual {element['actual']!r},",
        f"{element['ulp']} ULPs apart",
        f"  smallest    {told['smallest']}\n",
    ):
        assert line in done.stdout
    assert told["smallest"].startswith("softmax:")
    smallest = told["smallest"].split(":")[2].split("x")
    assert "1" in smallest[:2]
    assert max(map(int, smallest)) <= 3
    replay = find_line(done, "replay")
    assert replay == told["replay"]
    again = gonogo(*replay.removeprefix("gonogo ").split())
    assert again.returncode == 1, again.stderr
    assert f"  worst case  {told['smallest']}: no-go: " in again.stdout
    assert "1 of 1 cases failed" in again.stdout
    # An id means the same inputs in Python: the reading is the same to the last bit.
    namespace: dict[str, object] = {}
    exec((tmp_path / "kernel.py").read_text(), namespace)
    here = package.verify(
        namespace["pads_to_128"],
        "softmax",
        only=worst["case"],
        device="cpu",
        strict=False,  # type: ignore[arg-type]
    )
    assert here.verdicts[0].verdict.reading == worst["reading"]


def test_sizes_that_the_op_does_not_have_are_no_smaller_case(tmp_path: Path) -> None:
    """Filters of an even size make another output: the reference refuses them, and the verdict stands."""
    text = """
        import torch

        def conv2d(x, weight):
            height, width = weight.shape[2:]
            y = torch.nn.functional.conv2d(x, weight, padding=(height // 2, width // 2))
            return 1.5 * y if height > 1 else y
    """
    words = ["--op", "conv2d", "--device", "cpu", "--dtypes", "float32", "--cases", 6]
    done = gonogo("check", write(tmp_path, text), *words)
    assert done.returncode == 1, done.stderr
    assert find_line(done, "smallest").split(":")[2].split("x")[5] == "3"


def test_replay_is_by_the_same_lock(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    lock = folder / "a.lock"
    write_lock(lock, [Limit("relu", "float32", None, None, "bound", "pooled", value=7.0, cases=9)], {})
    file = write(folder, "def kernel(x):\n    return x.relu() * 1.5\n")
    words = ["check", file, "--op", "relu", "--device", "cpu", "--dtypes", "float32", "--cases", 2, "--lock", lock]
    replay = shlex.split(find_line(gonogo(*words), "replay"))
    again = gonogo(*replay[1:])
    assert again.returncode == 1, again.stderr
    assert find_line(again, "limit").startswith("7 bound (pooled, 9 cases")


def test_weaker_contract_is_told(tmp_path: Path) -> None:
    text = """
        def softmax(x):
            e = (x - x.amax(-1, keepdim=True)).exp()
            return e / e.sum(-1, keepdim=True)
    """
    file = write(tmp_path, text)
    words = ["check", file, "--op", "softmax", "--device", "cpu", "--cases", 6, "--dtypes", "float16"]
    done = gonogo(*words)
    assert done.returncode == 1, done.stderr
    assert find_line(done, "contract") == "within a float16 contract; the one declared is float32"
    kept = gonogo(*words, "--contract", "float16")
    assert kept.returncode == 0, kept.stdout


@pytest.mark.slow
def test_records(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [
        "check",
        write(tmp_path, WRONG),
        "--op",
        "softmax",
        "--device",
        "cpu",
        "--cases",
        3,
        "--record",
        folder,
    ]
    done = gonogo(*words)
    assert find_line(done, "recorded") == f"18 rows added to {folder}"
    rows = read_run(folder).to_pylist()
    assert {(row["op"], row["kernel"], row["role"]) for row in rows} == {
        ("softmax", "softmax_torch", "control"), ("softmax", "candidate:kernel.pads_to_128", "candidate"),
    }  # fmt: skip
    assert all(row["case"].startswith("softmax:") for row in rows)
    # As in any other run: switches as the workers had them, what a policy says, and of the framework's own error.
    environment = read_description(folder)["environment"]
    assert environment["switches"]["TRITON_INTERPRET"] == "1"
    control = next(row for row in rows if row["role"] == "control" and row["dtype"] == "float16")
    assert control["policy_torch_testing"] is not None
    assert control["policy_flash_attention"] is not None
    again = gonogo(*words)
    assert find_line(again, "recorded").startswith("0 rows added")
    assert gonogo("calibrate", folder, "-o", tmp_path / "lock").returncode == 0
    judged = gonogo(*words[:-2], "--lock", tmp_path / "lock", "--json")
    finite = [row for row in rows if row["distribution"] in FINITE]
    used = sum(row["role"] == "control" and row["outcome"] == "ok" for row in finite)
    limit_from = f"pooled, {used} cases of correct kernels on {name_device(environment)}"
    assert json.loads(judged.stdout)["limit_from"] == limit_from
    refused = gonogo(*words[:-1], tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.endswith("is no run directory: it has no run.json. Record to a new one\n")


def add_op(folder: Path, name: str, reference: str) -> None:
    """An own op: relu, by another reference."""
    home = folder / name
    home.mkdir(parents=True)
    (home / "__init__.py").write_text(
        "from gonogo.ops import Input, Kernel, Op\n"
        f"OP = Op({name!r}, (Input('x', 'n'),), 'n', {{'n': (3, 5)}}, (Kernel('{name}_plain', 'torch'),), 'n')\n"
    )
    (home / "reference.py").write_text(f"import torch\n\ndef reference(x):\n    {reference}\n")
    (home / "torch.py").write_text(f"import torch\n\ndef {name}_plain(x):\n    return torch.relu(x)\n")
    add_folder(folder)


@pytest.mark.slow
def test_a_reference_that_takes_too_long_is_no_fault_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "more_folders", list(ops.more_folders))
    file = write(tmp_path, "import torch\n\ndef kernel(x):\n    return torch.relu(x)\n")
    add_op(tmp_path / "slow", "slow_relu", "while True: pass")
    add_op(tmp_path / "quick", "quick_relu", "return torch.relu(x)")
    given = {"dtypes": "float32", "cases": 2, "device": "cpu", "allowance": Allowance(timeout_s=3)}
    record = tmp_path / "run"
    message = (
        r"reference of op slow_relu failed on slow_relu:\S+: .*timed-out, no answer in 3 s, while the case was"
    )
    with pytest.raises(ReferenceFailed, match=message) as caught:
        check_file(find_kernel(str(file), "slow_relu"), "slow_relu", record=record, **given)
    assert str(caught.value).endswith("Allow it more by --timeout or --memory-gb")
    assert not record.exists()
    found = check_file(find_kernel(str(file), "quick_relu"), "quick_relu", **given)
    assert found.verification.decision == "go"
    get_op.cache_clear()


@pytest.mark.parametrize(
    ("body", "outcome", "detail"),
    [
        pytest.param("while True: pass", "timed-out", "no answer in 2 s", marks=pytest.mark.slow),
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
        "check", file, "--op", "relu", "--dtypes", "float16", "--cases", 4, "--device", "cpu", "--timeout", 2,
        "--json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert set(told["outcomes"]) == {outcome}
    assert told["worst"]["reason"] == outcome
    assert detail in told["worst"]["outcome"]
    assert told["holds_under"] is None
    if outcome == "timed-out":  # three are enough to know
        assert told["cases"] == 3
    else:
        assert told["smallest"].split(":")[2] in ("1x1x1", "1x1x2")


SPEAKING = """
    import ctypes, os, sys

    def speak(times=1):
        for _ in range(times):
            print("in Python", flush=True)
        ctypes.CDLL(None).puts(b"in C")
        ctypes.CDLL(None).fflush(None)
        sys.stderr.write("on stderr\\n")

    def raising(x):
        speak()
        raise ValueError("first line\\nsecond line")

    def dying(x):
        speak()
        os.abort()

    def wrong(x):
        speak(10_000)
        return x
"""


@pytest.mark.parametrize("function", ["raising", "dying", pytest.param("wrong", marks=pytest.mark.slow)])
def test_what_a_failing_kernel_printed_and_raised_is_shown(function: str, tmp_path: Path) -> None:
    file = write(tmp_path, SPEAKING)
    words = ["check", f"{file}:{function}", "--op", "relu", "--dtypes", "float16", "--cases", 1, "--device", "cpu"]
    done = gonogo(*words)
    assert done.returncode == 1, done.stderr
    more = 3 if function == "wrong" else 0
    lines = [
        "  printed     in Python",
        *["              in Python"] * more,
        "              in C",
        "              on stderr",
    ]
    assert "\n".join(lines) in done.stdout
    (verdict,) = json.loads(gonogo(*words, "--json").stdout)["verdicts"]
    assert len(verdict["printed"]) <= KEPT_BYTES
    if function != "raising":
        assert verdict["error"] is None
        return
    assert verdict["error"].startswith(f'Traceback (most recent call last):\n  File "{file}", line ')
    assert verdict["error"].endswith("ValueError: first line\nsecond line\n")
    assert "  raised      Traceback (most recent call last):\n" in done.stdout
    assert "              ValueError: first line\n              second line\n  printed " in done.stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "import nowhere",
            "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'",
            marks=pytest.mark.slow,
        ),
        ("raise SystemExit('bye')", "cannot be loaded: SystemExit: bye"),
        ("kernel = 3", "has 'kernel' as int, not as a function"),
        ("del kernel", "has no 'kernel' once it is loaded"),
    ],
)
def test_file_that_does_not_load_is_not_judged(tmp_path: Path, text: str, problem: str) -> None:
    file = write(tmp_path, f"def kernel(x):\n    return x\n\n{text}\n")
    words = ["check", f"{file}:kernel", "--op", "relu", "--dtypes", "float16", "--cases", 2, "--device", "cpu"]
    done = (spawn if text == "import nowhere" else gonogo)(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gonogo: {file} {problem}. Nothing was judged\n"


@pytest.mark.slow
def test_what_stands_in_the_working_directory_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "helping.py").write_text("import torch\n\nhelp = torch.relu\n", encoding="utf-8")
    (tmp_path / "deep").mkdir()
    file = write(tmp_path / "deep", "from helping import help\n\ndef kernel(x):\n    return help(x)\n")
    words = ["check", file, "--op", "relu", "--dtypes", "float16", "--cases", 2, "--device", "cpu"]
    done = spawn(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_replay_allows_what_the_check_allowed(tmp_path: Path) -> None:
    file = write(tmp_path, "def kernel(x):\n    return x * 2\n")
    words = ["check", file, "--op", "relu", "--dtypes", "float16", "--cases", 2, "--timeout", 45, "--memory-gb", 4]
    done = gonogo(*words, "--json")
    assert json.loads(done.stdout)["replay"].endswith("--timeout 45 --memory-gb 4")


@pytest.mark.slow
def test_triton_kernel_on_the_cpu(tmp_path: Path) -> None:
    """The launcher is found behind the jitted function; what the interpreter gets wrong is not held against it."""
    file = write(tmp_path, TRITON)
    words = ["check", file, "--op", "relu", "--cases", 3, "--device", "cpu"]
    done = gonogo(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["function"], told["outcomes"], told["cases"]) == ("launch", {"ok": 6, "refused": 3}, 6)
    assert told["setting"]["interpreted"]
    said = gonogo(*words).stdout
    assert told["setting"]["versions"]["triton"] in said
    assert "  note        Triton's interpreter ran the kernel, on the CPU: " in said
    (note,) = told["notes"]
    assert note.startswith("3 of 9 cases are not judged: Triton's interpreter computes bfloat16 as integers")
    refused = gonogo(*words, "--dtypes", "bfloat16")
    assert refused.returncode == 2
    assert "gonogo: op relu: nothing was judged: Triton's interpreter" in refused.stderr


def test_triton_kernel_of_another_file(tmp_path: Path) -> None:
    """Nothing in the checked file says Triton, which is launched all the same."""
    write(tmp_path, TRITON).rename(tmp_path / "deeper.py")
    file = write(tmp_path, "import deeper\n\ndef kernel(x):\n    return deeper.launch(x)\n")
    done = gonogo("check", file, "--op", "relu", "--cases", 3, "--device", "cpu", "--record", tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert find_line(done, "outcomes") == "6 ok, 3 refused"
    rows = read_run(tmp_path / "run").to_pylist()
    assert {row["framework"] for row in rows if row["role"] == "candidate"} == {"triton"}
    # One that is compiled whatever it is told has no verdict here.
    plain = (tmp_path / "deeper.py").read_text()
    compiled = f"import os\nos.environ['TRITON_INTERPRET'] = '0'\n{plain}"
    (tmp_path / "deeper.py").write_text(compiled)
    refused = gonogo("check", file, "--op", "relu", "--cases", 3, "--device", "cpu")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("gonogo: relu_kernel is compiled for a GPU, and this is the CPU. Set TRITON_")


HALF = """
    import torch

    def half_sum(x):
        mean = (x * x).sum(-1, keepdim=True, dtype=x.dtype).float() / x.shape[-1]
        return (x.float() / torch.sqrt(mean + 1e-5)).to(x.dtype)
"""


def test_what_is_not_judged_is_told_as_by_verify(tmp_path: Path) -> None:
    file = write(tmp_path, HALF)
    words = ["check", file, "--op", "rmsnorm", "--device", "cpu", "--dtypes", "float16", "--contract", "float16"]
    done = gonogo(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    namespace: dict[str, Any] = {}
    exec(file.read_text(), namespace)
    here = package.verify(
        namespace["half_sum"], "rmsnorm", device="cpu", dtypes="float16", contract="float16", strict=False
    )
    assert told["notes"][:-1] == list(here.notes)
    assert told["notes"][-1].startswith("no kernel of its own ran")
    counts = [re.match(r"(\d+) of 24 cases (?:is|are) not judged: ", note) for note in told["notes"]]
    assert sum(int(count[1]) for count in counts if count) == 24 - told["cases"] > 0
    assert any("no element can be judged: float16 may overflow" in note for note in told["notes"])
    nothing = gonogo(*words, "--only", "rmsnorm:f16:1x1x1025:c:offset:1")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert nothing.stderr.startswith("gonogo: op rmsnorm: nothing was judged: no element can be judged: ")
    assert nothing.stderr.count("\n") == 1


@pytest.mark.parametrize("before", [None, "0"])
def test_switches_of_the_caller_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """Workers have their own: they interpret the kernel."""
    pytest.importorskip("triton")
    names = ("TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION")
    for name in names:
        monkeypatch.delenv(name, raising=False)
        if before is not None:
            monkeypatch.setenv(name, before)
    kernel = find_kernel(str(write(tmp_path, TRITON)), "relu")
    found = check_file(kernel, "relu", dtypes=("float32",), cases=1, device="cpu")
    assert found.outcomes == {"ok": 1}
    run_campaign(Plan(("relu",), ("float32",), cases=1, device="cpu"), tmp_path / "run", workers=1)
    outcomes = {row["kernel"]: row["outcome"] for row in read_run(tmp_path / "run").to_pylist()}
    assert outcomes["relu_triton"] == "ok"
    with keep_switches("cuda"):
        assert "TRITON_INTERPRET" not in os.environ
    assert [os.environ.get(name) for name in names] == [before, before]


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
        (["FILE:inner", "--op", "softmax"], "has no function 'inner'. Its functions: softmax, other"),
        (["FILE", "--op", "relu"], "has 2 functions, none of them named relu: softmax, other. Name one: "),
        (
            ["FILE", "--op", "softmax", "--contract", "float23"],
            "unknown contract 'float23'. Did you mean float32 or float64 or float16? Known: float32, float64",
        ),
        (["FILE", "--op", "softmax", "--contract", "fp33"], "unknown contract 'fp33'"),
        (["FILE", "--op", "softmax", "--dtypes", "int8"], "unknown dtype 'int8'; known: "),
        (["FILE", "--op", "softmax", "--dtypes", "flaot16"], "unknown dtype 'flaot16'. Did you mean "),
        (["FILE", "--op", "softmax", "--device", "abacus"], "unknown device 'abacus'"),
        (["FILE", "--op", "softmax", "--timeout", "0"], "a time limit of 0 s"),
        (["FILE", "--op", "softmax", "--record", "FOLDER"], "is no run directory: it has no run.json"),
        (["FILE", "--op", "softmax", "--cases", "0"], "0 cases: give a whole number from 1"),
        (["FILE", "--op", "softmax", "--only", "softmax:f16"], "is no case id; one looks like softmax:"),
        (["FILE", "--op", "softmax", "--only", "relu:f16:1x1x1:c:uniform:1"], "is of op relu, not of softmax"),
        (["FILE", "--op", "softmax", "--lock", "CONFLICT"], "holds a merge conflict at line 1"),
    ],
)
def test_bad_usage(words: list[str], message: str, tmp_path: Path) -> None:
    file, conflict = write(tmp_path, RIGHT), tmp_path / "conflict.lock"
    conflict.write_text("<<<<<<< ours\n")
    names = {"FILE": file, "FOLDER": tmp_path, "CONFLICT": conflict}
    for name, path in names.items():
        words = [word.replace(name, str(path)) for word in words]
    done = gonogo("check", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(isolated, "check_file", interrupt)
    done = CliRunner().invoke(cli, ["check", str(write(tmp_path, RIGHT)), "--op", "softmax"])
    assert (done.exit_code, done.output) == (130, "interrupted: no verdict\n")


def test_file_that_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"kernel\.py line 1 is no Python: "):
        find_kernel(str(write(tmp_path, "def (")), "softmax")
