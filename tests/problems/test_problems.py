"""Problems and solutions written in the formats of public benchmarks: each loads, and right from wrong is told."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("yaml")

from command import gonogo  # noqa: E402

from gonogo.cases import draw_arguments  # noqa: E402
from gonogo.cli.solutions import write_trace  # noqa: E402
from gonogo.errors import BadKernelFile, InputError  # noqa: E402
from gonogo.problems import Options, find_problems  # noqa: E402
from gonogo.problems.auditing import _passes, audit_problem  # noqa: E402
from gonogo.problems.batch import judge_all, list_problems, list_tasks, strip_fence  # noqa: E402
from gonogo.problems.finding import list_formats  # noqa: E402
from gonogo.problems.judging import Terms, judge_solution  # noqa: E402
from gonogo.problems.safetensors import read_tensor  # noqa: E402

KERNELBENCH = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.linear = nn.Linear(features, 24)
        self.eps = eps

    def forward(self, x):
        y = self.linear(x)
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)

batch_size = 40
features = 64

def get_inputs():
    return [torch.rand(batch_size, features)]

def get_init_inputs():
    return [features, 1e-5]
"""
KERNELBENCH_RIGHT = KERNELBENCH.partition("batch_size")[0].replace("Model(", "ModelNew(")
HARD = """
import torch
import torch.nn as nn

N = 8

class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, -1)

def get_inputs():
    return [torch.randn(4, N)]

def get_init_inputs():
    return []
"""
GROUPS = HARD.replace(
    "def get_inputs():\n    return [torch.randn(4, N)]",
    """def get_input_groups():
    return [[torch.randn(4, N)], [torch.randn(2, N + 1)]]""",
)
TRITONBENCH = (
    """
import torch

def scaled_norm(x, w, eps=1e-5):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

"""
    + "#" * 146
    + """

def test_scaled_norm():
    results = {}
    results["plain"] = scaled_norm(torch.randn(4, 16, device="cuda"), torch.randn(16).cuda())
    results["large"] = scaled_norm(torch.randn(3, 33, device="cuda"), torch.randn(33).cuda(), eps=1e-2)
    return results

test_results = test_scaled_norm()
"""
)
TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "tools.py", "source": "../tools.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
tests:
  - {"size": 33, "seed": 4242}
  - {"size": 40, "seed": 5236}
"""
GPUMODE = """
import torch
from task import output_t
from tools import match

def generate_input(size, seed):
    drawn = torch.Generator(device="cuda").manual_seed(seed)
    x, y = (torch.randn(size, size, device="cuda", generator=drawn) for _ in range(2))
    return x, y, torch.empty(size, device="cuda")

def ref_kernel(data) -> output_t:
    x, y, out = data
    out[...] = (x * y).sum(-1)
    return out

check_implementation = match(ref_kernel, 1e-1)
"""
TOOLS = """
import torch

def match(reference, tolerance):
    def check(data, output):
        passes = torch.allclose(reference(data), output, rtol=tolerance, atol=tolerance)
        return passes, "" if passes else "mismatch"
    return check
"""
SUBMISSION = """
import torch
from task import output_t

def custom_kernel(data):
    x, y, out = data
    torch.sum(x * y, -1, out=out)
    return out
"""
DEFINITION = {
    "name": "norm",
    "op_type": "norm",
    "axes": {"rows": {"type": "var"}, "cols": {"type": "const", "value": 64},
             "wide": {"type": "expr", "expression": "2*cols"}},
    "inputs": {
        "x": {"shape": ["rows", "cols"], "dtype": "bfloat16"}, "w": {"shape": ["cols"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["rows", "cols"], "dtype": "bfloat16"}, "r": {"shape": ["rows"], "dtype": "float32"},
    },
    "reference": """
import torch

@torch.no_grad()
def run(x, w, eps):
    wide = x.to(torch.float32)
    y = torch.zeros(x.shape, dtype=torch.bfloat16, device=x.device)
    r = torch.zeros(x.shape[0], dtype=torch.float32, device=x.device)
    for row in range(x.shape[0]):
        r[row] = torch.rsqrt((wide[row] ** 2).mean() + eps)
        y[row] = (wide[row] * r[row] * w.float()).to(torch.bfloat16)
    return y, r
""",
}  # fmt: skip
WORKLOADS = [
    {"definition": "norm", "solution": None, "evaluation": None, "workload": {
        "uuid": f"w{rows}", "axes": {"rows": rows},
        "inputs": {
            "x": {"type": "random"}, "w": {"type": "safetensors", "path": "w.safetensors", "tensor_key": "w"},
            "eps": {"type": "scalar", "value": 1e-5},
        },
    }} for rows in (3, 7)
]  # fmt: skip
RUN = """
import torch
from helper import widen

def run(x, w, eps, y, r):
    r.copy_(torch.rsqrt(widen(x).pow(2).mean(-1) + eps))
    y.copy_(widen(x) * r[:, None] * w.float())
"""


RECORDED = """Operator: aten.add.Tensor
cnt: 2, ((T([5, 3], f32), T([5, 3], f32)), {'alpha': 2})
cnt: 1, ((T([4, 8], f32, [1, 4]), T([8], f32)), {'alpha': 3})
Operator: aten.relu.default
cnt: 7, ((T([9], f32),), {})
"""
IMPLEMENTATION = """
import torch

def add__Tensor_kernel_impl(self, other, *, alpha=1):
    return torch.add(self, other, alpha=alpha)
"""


def write_flashinfer_solution(path, source, **spec):
    spec = {"language": "triton", "entry_point": "main.py::run"} | spec
    helper = "def widen(x):\n    return x.float()\n"
    sources = [{"path": "main.py", "content": source}, {"path": "helper.py", "content": helper}]
    path.write_text(json.dumps({"name": path.stem, "definition": "norm", "spec": spec, "sources": sources}))
    return path


def write_tensor(path, tensor):
    content = tensor.view(torch.uint8).numpy().tobytes()
    facts = {"w": {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [0, len(content)]}}
    header = json.dumps(facts).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)


@dataclass(frozen=True)
class Example:
    """A problem of a format, a solution that is right and one that is subtly not."""

    problem: Path
    right: Path
    wrong: Path
    loose: bool
    """Whether the benchmark's own check passes the wrong one."""


@pytest.fixture
def make(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def make_example(name):
        if name == "kernelbench":
            wrong = KERNELBENCH_RIGHT.replace("+ self.eps", "+ 2 * self.eps")
            return Example(
                write("level1/7_Norm.py", KERNELBENCH),
                write("right.py", KERNELBENCH_RIGHT),
                write("wrong.py", wrong),
                True,
            )
        if name == "tritonbench":
            above = TRITONBENCH.partition("####")[0]
            wrong = TRITONBENCH.replace("+ eps)", "+ 1e-5)")
            return Example(
                write("scaled_norm.py", TRITONBENCH), write("right.py", above), write("wrong.py", wrong), True
            )
        if name == "gpumode":
            write("tools.py", TOOLS)
            write("dot/task.py", "output_t = object\n")
            write("dot/reference.py", GPUMODE)
            wrong = SUBMISSION.replace(
                "torch.sum(x * y, -1, out=out)", "out.copy_((x * y)[:, :-1].sum(-1) + x[:, -1] * y[:, -1] * 0.999)"
            )
            return Example(
                write("dot/task.yml", TASK).parent,
                write("dot/submission.py", SUBMISSION),
                write("dot/wrong.py", wrong),
                True,
            )
        if name == "backendbench":
            wrong = IMPLEMENTATION.replace("alpha=alpha", "alpha=alpha * 1.003")
            return Example(
                write("ops/recorded.txt", RECORDED),
                write("right.py", IMPLEMENTATION),
                write("wrong.py", wrong),
                True,
            )
        write("definitions/norm/norm.json", json.dumps(DEFINITION))
        write("workloads/norm/norm.jsonl", "\n".join(json.dumps(line) for line in WORKLOADS))
        torch.manual_seed(0)
        write_tensor(tmp_path / "w.safetensors", torch.randn(64).bfloat16())
        right = write_flashinfer_solution(tmp_path / "right.json", RUN)
        wrong = write_flashinfer_solution(tmp_path / "wrong.json", RUN.replace("w.float()", "w.float() * 1.004"))
        return Example(tmp_path / "definitions/norm/norm.json", right, wrong, True)

    return make_example


IN_FILES = sorted(list_formats().keys() - {"backendbench-opinfo"})
"""That one is a word, and has a test of its own."""


@pytest.mark.parametrize("name", IN_FILES)
def test_a_format_tells_right_from_wrong(name, make):
    """What every format has to do: know its problems, draw the same twice, and call solutions as they are."""
    example = make(name)
    problem = find_problems(example.problem, Options())[0]
    assert problem.format == name
    assert example.problem in list_formats()[name].list_problems(example.problem.parent.parent)
    right = judge_solution(example.problem, str(example.right), Options(), Terms(cases=1, vary=True))
    assert (right.decision, right.own, right.comparison, right.outside) == ("go", True, "agree", "go"), right
    assert right.parts[0].planned == len(problem.seeds) + 1
    wrong = judge_solution(example.problem, str(example.wrong), Options(), Terms(cases=1))
    assert (wrong.decision, wrong.own) == ("no-go", example.loose), wrong
    assert wrong.comparison == "too loose"
    assert f"--problem {example.problem}" in str(wrong.parts[0].verification.replay)
    with pytest.raises(InputError):
        judge_solution(example.problem, str(example.right.with_name("absent.py")), Options(), Terms())


@pytest.mark.parametrize("name", IN_FILES)
def test_an_audit_says_what_a_check_lets_pass(name, make):
    audit = audit_problem(make(name).problem, Options())
    assert (audit.state, audit.decision) == ("judged", "go"), audit
    assert audit.mutants > 1
    assert audit.gonogo_passed == ()
    assert audit.own_passed  # each of these checks passes some fault
    assert audit.vacuous == (("zeros", "a constant", "the mean", "the input") if name == "tritonbench" else ())


def test_shapes_are_written_over_a_problems_numbers(tmp_path):
    (tmp_path / "reference.py").write_text(HARD)
    (tmp_path / "shapes.py").write_text("SHAPES = [{'N': 5}, {'N': 9}]\n")
    (tmp_path / "solution.py").write_text(HARD.partition("def get_inputs")[0])
    problems = find_problems(tmp_path, Options())
    assert [problem.op.draw.load()(seed=0)[0].shape[1] for problem in problems] == [5, 9]
    judged = judge_solution(tmp_path, str(tmp_path / "solution.py"), Options(), Terms(cases=1))
    assert (judged.decision, len(judged.parts)) == ("go", 2)


def test_groups_of_inputs_are_drawn_from(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(GROUPS)
    (problem,) = find_problems(path, Options())
    shapes = set()
    for seed in range(12):
        torch.manual_seed(seed)
        shapes.add(tuple(problem.op.draw.load()(seed=seed)[0].shape))
    assert shapes == {(4, 8), (2, 9)}


def test_sizes_are_scaled_where_a_problem_survives_it(tmp_path):
    path = tmp_path / "1_Norm.py"
    path.write_text(KERNELBENCH)
    (problem,) = find_problems(path, Options(scale=0.5))
    assert tuple(problem.op.draw.load()(seed=0)[0].shape) == (16, 32)  # 40 · 0.5, as a multiple of 8
    for scale in (0, -1, 2):
        with pytest.raises(InputError, match="1 at most"):
            find_problems(path, Options(scale=scale))
    fixed = tmp_path / "2_Fixed.py"
    fixed.write_text(KERNELBENCH.replace("return [features, 1e-5]", "return [64, 1e-5]").replace("= 40", "= 4"))
    with pytest.raises(InputError, match=r"does not survive --scale 0\.5"):
        find_problems(fixed, Options(scale=0.5))


EXPERTS = {
    "name": "experts",
    "axes": {
        "tokens": {"type": "var"}, "experts": {"type": "const", "value": 4},
        "block": {"type": "const", "value": 128}, "hidden": {"type": "const", "value": 2048},
        "hidden_blocks": {"type": "const", "value": 16},
    },
    "inputs": {
        "x": {"shape": ["tokens", "hidden"], "dtype": "float32"},
        "w": {"shape": ["experts", "hidden"], "dtype": "float32"},
        "scale": {"shape": ["hidden_blocks"], "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["tokens", "experts"], "dtype": "float32"}},
    "reference": """
def run(scale, x, w):
    H, BLOCK = 2048, 128
    assert x.shape[1] == H, "hidden must be 2048"
    return (x * scale.repeat_interleave(BLOCK)) @ w.t()
""",
}  # fmt: skip


def test_fixed_axes_are_scaled_with_the_numbers_of_a_reference(tmp_path):
    path = tmp_path / "experts.json"
    path.write_text(json.dumps(EXPERTS))
    (problem,) = find_problems(path, Options(scale=0.25))
    x, w, scale = problem.op.draw.load()(seed=0)
    assert (tuple(x.shape), tuple(w.shape), tuple(scale.shape)) == ((5, 512), (4, 512), (4,))
    assert problem.op.reference.load()(x, w, scale).shape == (5, 4)
    assert "sizes are 0.25 times its own: hidden 512, hidden_blocks 4" in problem.notes
    with pytest.raises(InputError, match=r"does not survive --scale 0\.3"):  # 614 is no multiple of 128
        find_problems(path, Options(scale=0.3))


def test_a_workload_without_a_size_is_named(tmp_path):
    path = tmp_path / "experts.json"
    path.write_text(json.dumps(EXPERTS))
    path.with_suffix(".jsonl").write_text(json.dumps({"uuid": "one", "axes": {}, "inputs": {}}))
    with pytest.raises(InputError, match="workload one has no size of axis tokens"):
        find_problems(path, Options())


def test_a_problem_that_does_not_fit_says_which_scale_does(tmp_path):
    path = tmp_path / "1_Large.py"
    large = "        if x.shape[1] > 20:\n            raise torch.OutOfMemoryError('CUDA out of memory')\n"
    path.write_text(HARD.replace("        return", f"{large}        return").replace("N = 8", "N = 64"))
    why = audit_problem(path, Options()).why
    assert why.startswith("out of memory at 1 of its size"), why
    assert why.endswith("Of this problem --scale 0.25 fits")
    assert "fits" not in audit_problem(path, Options(), alone=False).why


def test_a_check_without_memory_has_no_answer():
    """Whatever else it raises, it does not pass."""

    def check(error):
        raise error

    bench = SimpleNamespace(pristine=ValueError())
    assert not _passes(lambda call, leaves: check(call), bench, {})
    bench.pristine = torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        _passes(lambda call, leaves: check(call), bench, {})


def test_what_is_no_solution_at_all_is_told(tmp_path):
    (tmp_path / "1_Norm.py").write_text(KERNELBENCH)
    (tmp_path / "answers.jsonl").write_text('{"code": \n[1]\n{"text": "x = 1"}\n')
    told = [task.refused for task in list_tasks(tmp_path / "1_Norm.py", tmp_path / "answers.jsonl")]
    assert told[:2] == ["its line is no JSON object"] * 2
    assert told[2].startswith("it has no source: none of solution, code")
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "cut.json").write_text('{"definition": ')
    (task,) = list_tasks(tmp_path / "1_Norm.py", tmp_path / "solutions")
    assert task.refused.startswith("it is no JSON: ")
    (tmp_path / "2_Broken.py").write_text("def f(:\n")
    with pytest.raises(InputError, match=r"2_Broken\.py line 1 is no Python"):
        find_problems(tmp_path / "2_Broken.py", Options())
    with pytest.raises(InputError, match="--reference is for problems whose own calls a vendor's library"):
        judge_solution(tmp_path / "1_Norm.py", "any.py", Options(reference="a.py:b"), Terms())


LONG = """
import torch
import torch.nn as nn

N = 20000

class Model(nn.Module):
    def forward(self, x):
        return nn.functional.layer_norm(x, (N,), eps=1e-5)

def get_inputs():
    return [torch.rand(4, N)]

def get_init_inputs():
    return []
"""


def test_what_is_go_and_far_from_torchs_own_is_told(tmp_path):
    """A chain of 20,000 terms may be off as far as this fault is: the verdict holds, and says what it rests on."""
    (tmp_path / "1_Long.py").write_text(LONG)
    for eps, far in (("1e-5", False), ("1e-6", True)):
        text = LONG.partition("def get_inputs")[0].replace("Model(", "ModelNew(").replace("1e-5", eps)
        (tmp_path / "solution.py").write_text(text)
        judged = judge_solution(tmp_path / "1_Long.py", str(tmp_path / "solution.py"), Options(), Terms(cases=1))
        assert judged.decision == "go"
        assert any("and torch's own kernel up to" in note for note in judged.notes) == far


def test_weights_that_change_nothing_are_told(tmp_path):
    (tmp_path / "1_Norm.py").write_text(HARD.replace(
        "    def forward(self, x):\n        return torch.cumsum(x, -1)",
        "    def __init__(self):\n        super().__init__()\n        self.norm = nn.LayerNorm(N)\n\n"
        "    def forward(self, x):\n        return self.norm(x)",
    ))  # fmt: skip
    (problem,) = find_problems(tmp_path / "1_Norm.py", Options())
    assert any("norm.weight, norm.bias" in note for note in problem.notes)


def test_a_solution_without_the_references_weights_is_seeded(tmp_path):
    problem, solution = tmp_path / "1_Norm.py", tmp_path / "packed.py"
    problem.write_text(KERNELBENCH)
    packed = KERNELBENCH_RIGHT.replace(
        "self.eps = eps", "self.eps = eps\n        self.packed = nn.Parameter(self.linear.weight.t().contiguous())"
    )
    solution.write_text(packed.replace("self.linear(x)", "x @ self.packed + self.linear.bias"))
    assert judge_solution(problem, str(solution), Options(), Terms(cases=1)).decision == "go"


RIGHT_STYLES = {
    "an output buffer beside weights": (
        KERNELBENCH,
        KERNELBENCH_RIGHT.replace("return y *", "out = torch.empty_like(y)\n        out[:] = y *")
        + "        return out\n",
    ),
    "a reference that works in place": (
        HARD.replace("return torch.cumsum(x, -1)", "return nn.ReLU(inplace=True)(x)"),
        HARD.partition("def get_inputs")[0]
        .replace("Model(", "ModelNew(")
        .replace("torch.cumsum(x, -1)", "x.clamp(min=0)"),
    ),
    "several outputs": (
        HARD.replace("return torch.cumsum(x, -1)", "return torch.cumsum(x, -1), x * 2"),
        HARD.partition("def get_inputs")[0].replace("Model(", "ModelNew(").replace("-1)", "-1), x + x"),
    ),
    "a problem in its own dtype": (
        HARD.replace("torch.randn(4, N)", "torch.randn(4, N).bfloat16()"),
        HARD.partition("def get_inputs")[0]
        .replace("Model(", "ModelNew(")
        .replace("x, -1)", "x.float(), -1).to(x.dtype)"),
    ),
}


@pytest.mark.parametrize("style", RIGHT_STYLES)
def test_right_solutions_of_other_styles_are_go(style, tmp_path):
    problem, solution = tmp_path / "1_Problem.py", tmp_path / "solution.py"
    for path, text in zip((problem, solution), RIGHT_STYLES[style], strict=True):
        path.write_text(text)
    judged = judge_solution(problem, str(solution), Options(), Terms(cases=1))
    assert (judged.decision, judged.own) == ("go", True), judged


UNEVEN = (
    """
import torch

def blend(x, y, weight, *, dtype=None, out=None):
    if not isinstance(x, torch.Tensor):
        raise ValueError("x is no tensor")
    if x.dim() > 2:
        return torch.linalg.svd(x)[0]
    made = torch.softmax(x, -1, dtype=dtype) * y - weight
    if out is not None:
        out.copy_(made)
        return out
    return made

"""
    + "#" * 146
    + """

x, y = torch.randn(4, 9, device="cuda"), torch.randn(4, 9, device="cuda")
blend(x, y, 0.5)
blend(x, 0.5, y)
blend(x, y, 0.25, dtype=torch.float64)
blend(x, y, y, out=torch.empty_like(x))
blend(torch.randn(2, 3, 3), 1, 1)
try:
    blend(1, 2, 3)
except ValueError:
    pass
"""
)
"""Calls by place and by name, of several structures; one of no rule, and one that the function refuses."""


def test_calls_are_made_as_tests_make_them(tmp_path):
    """A solution has its own names for what is given by place."""
    (tmp_path / "blend.py").write_text(UNEVEN)
    right = UNEVEN.partition("#" * 40)[0].replace("x", "first").replace("y,", "second,").replace("* y", "* second")
    for text, decision in ((right, "go"), (right.replace("- weight", "- weight * 1.001"), "no-go")):
        (tmp_path / "solution.py").write_text(text.replace("mafirst", "max").replace("firstcept", "except"))
        judged = judge_solution(tmp_path / "blend.py", str(tmp_path / "solution.py"), Options(), Terms(cases=1))
        assert (judged.decision, judged.own) == (decision, True), judged
        assert any("not judged: no error rule for aten._linalg_svd" in note for note in judged.notes)


ADDED = """
Operator: aten.add.Tensor
cnt: 2, ((T([5, 3], f32), T([5, 3], f32)), {'alpha': 2})
cnt: 1, ((T([4], f32), T([4], f32)), {})
"""


def test_ops_of_torch_are_called_by_place_and_by_name(tmp_path):
    """As they were recorded, or as torch's own tests call them; a solution has its own names for places."""
    pytest.importorskip("expecttest")
    (tmp_path / "recorded.txt").write_text(ADDED)
    right = "def add__Tensor_kernel_impl(first, second, *, alpha=1):\n    return first + alpha * second\n"
    for text, decision in ((right, "go"), (right.replace("+ alpha * second", "+ second"), "no-go")):
        (tmp_path / "solution.py").write_text(text)
        for problem in (tmp_path / "recorded.txt", Path("opinfo")):
            judged = judge_solution(problem, str(tmp_path / "solution.py"), Options(), Terms(cases=1))
            assert judged.decision == decision, judged
    (tmp_path / "solution.py").write_text("def nope__kernel_impl(x):\n    return x\n")
    with pytest.raises(InputError, match=r"this torch has no op aten\.nope"):
        judge_solution(Path("opinfo"), str(tmp_path / "solution.py"), Options(), Terms())


def test_the_last_function_of_a_solution_tells_its_problem(tmp_path):
    for name in ("gelu", "gelu_conv"):
        (tmp_path / f"{name}.py").write_text(TRITONBENCH.replace("scaled_norm", name))
    (tmp_path / "answers.jsonl").write_text(
        json.dumps({"predict": "def gelu(x):\n    pass\n\ndef gelu_conv(x):\n    pass"})
    )
    (task,) = list_tasks(tmp_path, tmp_path / "answers.jsonl")
    assert task.problem == tmp_path / "gelu_conv.py"


@pytest.mark.parametrize(("cast", "contract"), [("", "eager-bfloat16"), (".float()", None)])
def test_a_reference_promises_what_it_stores(cast, contract, make):
    """In half precision between its ops, or in float32 until its end; it is go as a solution in any case."""
    example = make("flashinfer")
    reference = (
        f"def run(x, w, eps):\n    y = x{cast} * 1.3\n    z = (y + 0.1) * w{cast}\n"
        "    return z.to(x.dtype), z.sum(-1).float()\n"
    )
    told = json.loads(example.problem.read_text()) | {"reference": f"import torch\n\n{reference}"}
    example.problem.write_text(json.dumps(told))
    (problem,) = find_problems(example.problem, Options())
    assert problem.contract == contract
    by_name = reference.replace(
        "return z.to(x.dtype), z.sum(-1).float()", "return {'r': z.sum(-1).float(), 'y': z.to(x.dtype)}"
    )
    solution = example.problem.with_name("solution.py")
    for text in (reference, by_name):
        solution.write_text(text)
        judged = judge_solution(example.problem, str(solution), Options(), Terms(cases=1))
        assert judged.decision == "go", judged


def test_a_trace_has_a_line_for_each_workload(make, tmp_path):
    example, trace = make("flashinfer"), tmp_path / "traces.jsonl"
    for solution in (example.right, example.wrong):
        judged = judge_solution(example.problem, str(solution), Options(), Terms(cases=1))
        write_trace(trace, judged)
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    own = [line["workload"]["uuid"] for line in WORKLOADS]
    assert [line["workload"]["uuid"] for line in lines] == own * 2
    statuses = [line["evaluation"]["status"] for line in lines]
    assert set(statuses[: len(own)]) == {"PASSED"}
    assert "INCORRECT_NUMERICAL" in statuses[len(own) :]
    assert all(line["evaluation"]["correctness"]["own_check"] for line in lines)


def test_outputs_by_name_come_in_order(make):
    example = make("flashinfer")
    source = RUN.replace(", y, r):", "):").replace("r.copy_(", "r = (").replace("y.copy_(", "y = (")
    named = source.rstrip() + "\n    return {'r': r, 'y': y.bfloat16()}\n"
    write_flashinfer_solution(example.right, named, destination_passing_style=False)
    assert judge_solution(example.problem, str(example.right), Options(), Terms(cases=1)).decision == "go"


def test_half_precision_is_held_to_what_torch_stores(tmp_path):
    problem, solution = tmp_path / "1_Norm.py", tmp_path / "right.py"
    problem.write_text(KERNELBENCH)
    solution.write_text(KERNELBENCH_RIGHT)
    judged = judge_solution(problem, str(solution), Options(dtype="bfloat16"), Terms(cases=1))
    assert (judged.decision, judged.contract) == ("go", "eager-bfloat16")
    solution.write_text(KERNELBENCH_RIGHT.replace("y.pow(2).mean", "y[..., :-6].pow(2).mean"))
    assert judge_solution(problem, str(solution), Options(dtype="bfloat16"), Terms(cases=1)).decision == "no-go"


GROWING = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.exp(x + 80 + x + x)

def get_inputs():
    return [torch.rand(16, 512)]

def get_init_inputs():
    return []
"""


def test_what_is_told_is_what_a_kernel_promised(tmp_path):
    """float32 is no-go, of what is stored in bfloat16 nothing can be said: it never promised float32."""
    path = tmp_path / "1_Growing.py"
    path.write_text(GROWING)
    audit = audit_problem(path, Options(dtype="bfloat16"), mutates=False)
    assert (audit.decision, audit.contract) == ("blind", "eager-bfloat16"), audit


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (KERNELBENCH.replace("import torch\n", "import torch_of_another_machine\n", 1), "does not import"),
        (KERNELBENCH.replace("features, 24", "features, 24 // 0"), "Model that cannot be made: ZeroDivisionError"),
        (
            KERNELBENCH.replace("batch_size, features)]", "batch_size, features) / None]"),
            "get_inputs.. that raises",
        ),
    ],
)
def test_a_broken_problem_is_told_in_a_line(text, told, tmp_path):
    path = tmp_path / "1_Broken.py"
    path.write_text(text)
    with pytest.raises((BadKernelFile, InputError), match=told) as raised:
        find_problems(path, Options())[0].op.draw.load()(seed=0)
    assert "\n" not in str(raised.value)


def test_what_is_no_problem_is_told_by_what_formats_are_known_by(tmp_path):
    path = tmp_path / "notes.py"
    path.write_text("print('hello')\n")
    with pytest.raises(InputError, match=r"no format that is known.*kernelbench: a file with class Model"):
        find_problems(path, Options())


def test_a_random_problem_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "1_Random.py"
    path.write_text(KERNELBENCH.replace("y = self.linear(x)", "y = self.linear(x) + torch.randn(24)"))
    audit = audit_problem(path, Options())
    assert audit.state == "refused"
    assert "draws random numbers" in audit.why


def test_a_workload_that_misses_a_file_is_named(make, tmp_path):
    example = make("flashinfer")
    (tmp_path / "w.safetensors").unlink()
    with pytest.raises(InputError, match=r"workload w3 misses .*w\.safetensors"):
        find_problems(example.problem, Options())
    (tmp_path / "w.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(InputError, match="git lfs pull"):
        find_problems(example.problem, Options())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"definition": "other"}, "is a solution of other, not of norm"),
        ({"spec": {"language": "cuda", "entry_point": "kernel.cu::run"}}, "only sources in Python are run"),
        ({"spec": {"language": "python", "entry_point": "absent.py::run"}}, "is in none of its sources"),
        ({"sources": [{"path": "../a.py", "content": "def run(): pass"}], "spec": {"entry_point": "../a.py::run"}},
         "leads out"),
        ({"sources": 7}, "is no solution"),
    ],
)  # fmt: skip
def test_a_solution_for_something_else_is_refused(change, told, make):
    example = make("flashinfer")
    solution = json.loads(example.right.read_text()) | change
    example.right.write_text(json.dumps(solution))
    with pytest.raises(InputError, match=told):
        judge_solution(example.problem, str(example.right), Options(), Terms())


def test_tensors_of_a_file_are_read_bit_for_bit(tmp_path):
    tensor = torch.arange(7, dtype=torch.float32).bfloat16() / 3
    write_tensor(tmp_path / "x.safetensors", tensor)
    assert torch.equal(read_tensor(tmp_path / "x.safetensors", "w"), tensor)
    with pytest.raises(InputError, match="no tensor 'v'"):
        read_tensor(tmp_path / "x.safetensors", "v")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "x.safetensors").read_bytes()[:-1])
    with pytest.raises(InputError, match="cut off"):
        read_tensor(tmp_path / "cut.safetensors", "w")


def test_many_solutions_are_judged_and_none_twice(make, tmp_path):
    example = make("tritonbench")
    solutions = tmp_path / "answers.jsonl"
    above = TRITONBENCH.partition("####")[0]
    lines = [
        {"name": "right", "code": f"Here it is:\n```python\n{above}```\nDone."},
        {"name": "wrong", "code": above.replace("+ eps)", "+ 1e-5)")},
        {"name": "crashes", "code": "import os\n\ndef scaled_norm(x, w, eps=1e-5):\n    os.abort()\n"},
        {"name": "no code", "code": ""},
        {"name": "no python", "code": "def ("},
    ]
    solutions.write_text("\n".join(map(json.dumps, lines)) + "\nnot json\n")
    tasks, kept = list_tasks(example.problem, solutions), tmp_path / "verdicts.jsonl"
    answers = judge_all(tasks, Options(), Terms(cases=1), workers=2, kept=kept)
    told = {answer["solution"]: answer["decision"] for answer in answers}
    reasons = [answer["why"] for answer in answers]
    assert told == {
        "right": "go", "wrong": "no-go", "crashes": "no-go", "no code": "refused", "no python": "refused",
        "answers:6": "refused",
    }, reasons  # fmt: skip
    written = kept.read_text()
    again = judge_all(tasks, Options(), Terms(cases=1), workers=2, kept=kept)
    assert again == answers
    assert kept.read_text() == written
    other = judge_all(tasks[:1], Options(), Terms(cases=1, seed=7), workers=1, kept=kept)
    assert other[0]["decision"] == "go", other[0]["why"]
    assert len(kept.read_text().splitlines()) == len(written.splitlines()) + 1  # asked for otherwise, judged again


def test_verdicts_are_shown_by_model_and_where_two_differ(make, tmp_path):
    example, kept, page = make("tritonbench"), tmp_path / "verdicts.jsonl", tmp_path / "page.md"
    facts = {"problem": "norm", "fits": None, "outside": None, "why": "reads 9, limit 5"}
    lines = [
        facts | {"key": str(at), "solution": name, "decision": decision, "own": own, "comparison": comparison}
        for at, (name, decision, own, comparison) in enumerate([
            ("one:1", "go", True, "agree"), ("one:2", "no-go", True, "too loose"), ("two:1", "refused", None, "–"),
        ])
    ]  # fmt: skip
    kept.write_text("\n".join(map(json.dumps, lines)))
    words = (kept, "--problem", example.problem, "--show", "--out", kept, "--page", page)
    shown = gonogo("check", *words)
    assert shown.returncode == 1, shown.stderr
    assert shown.stdout.endswith("3 solutions: 1 go, 1 no-go, 1 refused, own check too loose: 1\n")
    text = page.read_text()
    assert "| one | 2 | 1 | 0 | 1 | 0 | 2 | 1 | 0 |" in text
    assert "| norm | one:2 | no-go | – | passes | too loose | – | reads 9, limit 5 |" in text
    assert "one:1" not in text
    assert "give one that is there" in gonogo("check", kept, "--problem", example.problem, "--show").stderr
    one = gonogo("check", example.right, "--problem", example.problem, "--out", kept)
    assert "go with many solutions" in one.stderr


def test_tests_that_run_side_by_side_keep_to_themselves(make, tmp_path):
    example, heard = make("tritonbench"), sys.stdout
    slow = "def test_scaled_norm():\n    sum(range(10**6))"  # others come in between
    example.problem.write_text(example.problem.read_text().replace("def test_scaled_norm():", slow))
    copies = [Path(shutil.copy(example.problem, tmp_path / f"copy_{at}.py")) for at in range(4)]

    def draw(path):  # by torch's own generator, which is seeded for each case, and by which all problems draw
        return draw_arguments(find_problems(path, Options())[0].op, 2**32, "float32")

    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(draw, copies))
    assert all(torch.equal(call.args[0], drawn[0].args[0]) for call in drawn)
    assert sys.stdout is heard


def test_solutions_find_their_problems_by_name(tmp_path):
    for name in ("level1/1_Norm.py", "level1/2_Other.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(KERNELBENCH)
    (tmp_path / "solutions").mkdir()
    for name in ("level1_1_Norm.py", "level1_2_Other_sample_0.py", "level1_3_Absent.py"):
        (tmp_path / "solutions" / name).write_text(KERNELBENCH_RIGHT)
    problems = tmp_path / "level1"
    assert list(list_problems(problems)) == ["level1_1_Norm", "level1_2_Other"]
    tasks = list_tasks(problems, tmp_path / "solutions")
    assert [task.problem.stem if task.problem else task.refused for task in tasks] == [
        "1_Norm", "2_Other", "it is of no problem there, by its name or its words"
    ]  # fmt: skip


def test_code_between_fences_is_taken():
    assert strip_fence("text\n```python\nx = 1\n```\nmore") == "x = 1\n"
    assert strip_fence("x = 1\n") == "x = 1\n"
