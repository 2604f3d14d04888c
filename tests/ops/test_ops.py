"""One contract for all ops and kernels: complete metadata, a primitive reference, controls within their scale."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gonogo
from gonogo.campaign import Plan, run_campaign
from gonogo.cases import FINITE, INTERPRETER, make_inputs, plan_case
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
    for number in range(3):
        case, _ = plan_case(op, "float32", number, 0, distributions=FINITE, limit=INTERPRETER)
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
    plan = Plan(op_names_of_corpus(), ("float16", "float32"), cases=1, distributions=FINITE, seed=11)
    run_campaign(plan, folder)
    return read_run(folder).to_pylist()


def test_controls_stay_within_their_scale(rows: list[dict]) -> None:
    controls = [row for row in rows if row["role"] == "control"]
    assert len(controls) >= 2 * 2 * len(op_names_of_corpus())
    bad = [(r["kernel"], r["case"], r["outcome"], r["detail"], r["bound"]) for r in controls
           if r["outcome"] != "ok" or not r["bound"] <= CALIBRATED]  # fmt: skip
    assert not bad


def test_every_kernel_runs(rows: list[dict]) -> None:
    allowed = {"ok", "unwritten", "not-repeatable", "non-finite"}  # some bugs are just that
    assert {row["outcome"] for row in rows} <= allowed, [r for r in rows if r["outcome"] not in allowed][:1]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UnknownOp, match=r"unknown op 'softmaks'; known: .*softmax.*List them with: gonogo ops"):
        get_op("softmaks")
    with pytest.raises(InputError, match="is not a folder of ops"):
        add_folder(tmp_path / "nowhere")
    with pytest.raises(InputError, match="op softmax has no kernel 'softmax_tritan'; it has softmax_torch"):
        get_op("softmax").kernel("softmax_tritan")
    made = {"inputs": (Input("x", "rows"),), "output": "rows", "main": "rows"}
    with pytest.raises(InputError, match=r"axes \['rows'\] but sizes for \['cols'\]"):
        Op("odd", sizes={"cols": (1,)}, kernels=(), **made)
    with pytest.raises(InputError, match="calibrate_against is None, none of the controls"):
        Op("odd", sizes={"rows": (1,)}, kernels=(Kernel("odd_torch", "torch", "faulty"),), **made)
