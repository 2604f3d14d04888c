"""One contract for all ops and kernels: complete metadata, a primitive reference, controls within their scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import gonogo
import gonogo.ops
from gonogo.campaign import Plan, run_campaign
from gonogo.cases import FINITE, INTERPRETER, make_inputs, plan_cases
from gonogo.errors import InputError, UnknownOp
from gonogo.ops import DTYPES, Input, Kernel, Op, add_folder, find_ops, get_op, op_names
from gonogo.records import read_run

PUBLISHED_CONTROLS = {
    "attention_triton", "elu_triton", "flash_attention_triton", "gelu_triton", "l2norm_triton", "layernorm",
    "leaky_relu_triton", "matmul", "matmul_triton", "relu_triton", "rmsnorm_triton", "sigmoid_triton",
    "silu_triton", "softmax", "softmax_triton", "tanh_triton",
}  # fmt: skip
PUBLISHED_FAULTY = {
    "attention_triton_buggy": "attention_triton",
    "flash_attention_triton_buggy": "flash_attention_triton",
    "gelu_triton_buggy": "gelu_triton",
    "l2norm_triton_buggy": "l2norm_triton",
    "leaky_relu_triton_buggy": "leaky_relu_triton",
    "matmul_triton_buggy": "matmul_triton",
    "rmsnorm_triton_buggy": "rmsnorm_triton",
    "silu_triton_buggy": "silu_triton",
    "softmax_llm_buggy": "softmax_triton",
    "softmax_triton_buggy": "softmax_triton",
}


def op_names_of_corpus() -> tuple[str, ...]:
    """Not what other tests have added."""
    return tuple(name for name in op_names() if (Path(gonogo.__file__).parent / "ops" / name).is_dir())


CALIBRATED = 16.0
"""A correct kernel reads a few units of its scale at most; limits made from records are far tighter."""


@pytest.mark.parametrize("name", op_names_of_corpus())
def test_metadata(name: str) -> None:
    op = get_op(name)
    assert f"{name}_torch" in [kernel.name for kernel in op.kernels if kernel.role == "control"]
    for kernel in op.kernels:
        assert kernel.dtypes == DTYPES
        assert callable(op.load_kernel(kernel.name))
        told = op.describe_kernel(kernel.name)
        assert told.endswith("."), kernel.name
        assert kernel.role == "control" or ": " in told, f"{kernel.name}: the bug, a colon, and where it shows"


@pytest.mark.parametrize("name", op_names_of_corpus())
def test_reference_is_float64_and_primitive(name: str) -> None:
    """An op without a rule is an error of error_scale, so that nothing composite gets through."""
    op = get_op(name)
    for case, _ in plan_cases(op, "float32", 3, 0, distributions=FINITE, limit=INTERPRETER):
        wide = [x.double() if x.is_floating_point() else x for x in make_inputs(case)]
        expected, scale = gonogo.error_scale(op.load_reference(), wide)
        assert expected.dtype == scale.dtype == torch.float64
        assert tuple(expected.shape) == tuple(scale.shape) == case.shape_of(op, op.output)
        assert bool((scale >= 0).all())


def test_published_names() -> None:
    kernels = {kernel.name: kernel for op in find_ops(op_names_of_corpus()) for kernel in op.kernels}
    assert {name: kernels[name].role for name in PUBLISHED_CONTROLS} == dict.fromkeys(PUBLISHED_CONTROLS, "control")
    assert {name: kernels[name].calibrate_against for name in PUBLISHED_FAULTY} == PUBLISHED_FAULTY
    assert len(PUBLISHED_CONTROLS) + len(PUBLISHED_FAULTY) == 26
    for name in (*PUBLISHED_CONTROLS, *PUBLISHED_FAULTY):
        current = kernels[name].current
        assert "float32" in current
        assert current.get("bfloat16") == current.get("float16")


def test_corpus_is_large_enough() -> None:
    ops = find_ops(op_names_of_corpus())
    names = [kernel.name for op in ops for kernel in op.kernels]
    assert len(set(names)) == len(names), "names are unique over all ops"
    faulty = [kernel for op in ops for kernel in op.kernels if kernel.role == "faulty"]
    assert len(ops) >= 14 + 12
    assert len(faulty) >= 10 + 40


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """Every kernel on one case in each of two dtypes, on this machine's CPU."""
    folder = tmp_path_factory.mktemp("corpus")
    others = tuple(name for name in op_names_of_corpus() if name != "conv2d")
    found = []
    for ops, seed in ((others, 11), (("conv2d",), 44)):  # small convolutions: some take half a minute
        plan = Plan(ops, ("float16", "float32"), cases=1, distributions=FINITE, seed=seed)
        run_campaign(plan, folder / str(seed))
        found += read_run(folder / str(seed)).to_pylist()
    return found


@pytest.mark.slow
def test_controls_stay_within_their_scale(rows: list[dict]) -> None:
    controls = [row for row in rows if row["role"] == "control"]
    assert len(controls) >= 2 * 2 * len(op_names_of_corpus())
    bad = [(r["kernel"], r["case"], r["outcome"], r["detail"], r["bound"]) for r in controls
           if r["outcome"] != "refused" and (r["outcome"] != "ok" or not r["bound"] <= CALIBRATED)]  # fmt: skip
    assert not bad
    refused = [row for row in controls if row["outcome"] == "refused"]
    assert len(refused) <= 2, "a fast convolution past float16's range"
    assert {row["kernel"] for row in refused} <= {"conv2d_torch"}


@pytest.mark.slow
def test_every_kernel_runs(rows: list[dict]) -> None:
    allowed = {"ok", "unwritten", "not-repeatable", "non-finite"}  # some bugs are just that
    run = [row for row in rows if row["kernel"] != "conv2d_torch" or row["outcome"] != "refused"]
    assert {row["outcome"] for row in run} <= allowed, [r for r in run if r["outcome"] not in allowed][:1]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UnknownOp, match=r"unknown op 'softmaks'; known: .*softmax.*List them with: gonogo ops"):
        get_op("softmaks")
    with pytest.raises(InputError, match="is not a folder of ops"):
        add_folder(tmp_path / "nowhere")
    with pytest.raises(InputError, match="op softmax has no kernel 'softmax_tritan'; it has softmax_torch"):
        get_op("softmax").kernel("softmax_tritan")


MADE = {"inputs": (Input("x", "rows"),), "output": "rows", "main": "rows", "sizes": {"rows": (1,)}}
CONTROL = Kernel("odd_torch", "torch")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Op("odd", kernels=(CONTROL,), **MADE | {"sizes": {"cols": (1,)}}),
         "op odd: axes ['rows'] but sizes for ['cols']"),
        (lambda: Op("odd", kernels=(Kernel("odd_torch", "torch", "faulty"),), **MADE),
         "kernel odd_torch: calibrate_against is None, none of the controls []"),
        (lambda: Op("odd", kernels=(), **MADE), "op odd has no kernels"),
        (lambda: Op("odd", kernels=(CONTROL,), **MADE | {"sizes": {"rows": ()}}),
         "op odd: axis rows has sizes (); give one or more, all above 0"),
        (lambda: Op("odd", kernels=(CONTROL,), **MADE | {"sizes": {"rows": (4, 0)}}),
         "op odd: axis rows has sizes (4, 0); give one or more, all above 0"),
        (lambda: Input("x", "rows", kind="floats"),
         "input x: kind 'floats' is none of values, index, int8, scale, integers, boolean, positive, probability, "
         "range, constant"),
        (lambda: Input("x", "rows", kind="index"),
         "input x is an index: below must name the axis it points into"),
        (lambda: Kernel("odd", "jax"), "kernel odd: framework 'jax' is none of torch, triton, numpy"),
        (lambda: Kernel("odd", "torch", "good"), "kernel odd: role 'good' is none of control, faulty, candidate"),
        (lambda: Kernel("odd", "torch", dtypes=("float8",)),
         "kernel odd: dtype 'float8' is none of float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, "
         "int8, uint8, int16, int32, int64, bool"),
    ],
)  # fmt: skip
def test_bad_data_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message


@pytest.fixture
def own_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for ops of a test alone."""
    monkeypatch.setattr(gonogo.ops, "more_folders", list(gonogo.ops.more_folders))
    return tmp_path


def write_op(folder: Path, name: str, content: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(content)


def test_own_op_must_have_a_name_of_its_own(own_ops: Path) -> None:
    write_op(own_ops, "softmax", "")
    with pytest.raises(InputError) as caught:
        add_folder(own_ops)
    assert str(caught.value) == f"{own_ops}: op softmax exists already; rename the folder and OP.name"
    assert str(own_ops) not in gonogo.ops.more_folders


def test_folder_given_twice_is_no_clash(own_ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_op(own_ops, "given_twice", "")
    monkeypatch.chdir(own_ops)
    for folder in (own_ops, Path(), own_ops / "given_twice" / ".."):
        add_folder(folder)
    assert gonogo.ops.more_folders.count(str(own_ops)) == 1


def test_own_op_that_is_not_complete(own_ops: Path) -> None:
    write_op(own_ops, "without_op", "")
    write_op(
        own_ops,
        "without_kernel",
        """
from gonogo.ops import Input, Kernel, Op

kernels = (Kernel("no_function", "torch"), Kernel("no_file", "numpy"))
OP = Op("without_kernel", (Input("x", "rows"),), "rows", {"rows": (1,)}, kernels, "rows")
""",
    )
    (own_ops / "without_kernel" / "torch.py").write_text("import math\n")
    add_folder(own_ops)
    with pytest.raises(InputError, match="folder ops/without_op: OP must be an Op of that name, not None"):
        get_op("without_op")
    op, folder = get_op("without_kernel"), own_ops / "without_kernel"
    with pytest.raises(InputError) as caught:
        op.load_kernel("no_function")
    assert str(caught.value) == f"kernel no_function: {folder / 'torch.py'} has no function of that name"
    for look in (op.load_kernel, op.describe_kernel):
        with pytest.raises(InputError) as caught:
            look("no_file")
        missing = f"there is no {folder / 'numpy.py'}, which should have a function of that name"
        assert str(caught.value) == f"kernel no_file: {missing}"
