"""Every policy of field.toml against the plain elementwise statement of its rule, boundaries included."""

from __future__ import annotations

import math
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from gonogo.errors import BadTolerance, ShapeMismatch
from gonogo.policies import Twin, load_policies, read_policies, rmse

torch = pytest.importorskip("torch")

DTYPES = ("float16", "bfloat16", "float32")
NAMES = {
    "torch_testing", "kernelbench", "kernelbench_v0", "kernelbench_paper", "backendbench", "robust_kbench", "geak",
    "flashinfer_bench", "flaggems", "liger", "flash_attention", "torch_dynamo_same", "vllm", "jax", "onnxruntime",
    "aiter", "composable_kernel",
}  # fmt: skip


def as_dtype(values, dtype):
    return np.asarray(values).astype({"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype))


def make_pair(rng, dtype, width):
    """An output `width` away from a reference that spans ten decades and has zeros."""
    expected = rng.normal(size=400) * 10.0 ** rng.integers(-6, 4, size=400)
    expected[::37] = 0.0
    return as_dtype(expected + width * rng.normal(size=400) * np.abs(expected), dtype), expected


def read_all(actual, expected, *, op="matmul", dtype="float32", reduced_length=64, twin=None):
    return read_policies(actual, expected, op=op, dtype=dtype, reduced_length=reduced_length, twin=twin)


def test_every_policy_loads_and_names_its_source():
    policies = load_policies()
    assert {p.name for p in policies} == NAMES
    assert load_policies() is policies
    assert all(p.source and p.numbers for p in policies)


def test_what_a_policy_does_not_name_reads_none():
    y, r = np.float32([1.0]), np.array([1.0])
    silent = {name for name, reading in read_all(y, r, op="softmax").items() if reading is None}
    assert silent == {"liger", "flash_attention", "torch_dynamo_same"}
    assert read_all(y, r, op="layernorm", dtype="float32")["liger"] is None
    twin = Twin(1e-6, 1e-7)
    assert None not in read_all(y, r, op="layernorm", dtype="bfloat16", twin=twin).values()
    only_all = {name for name, reading in read_all(y, r, dtype="float64", twin=twin).items() if reading is not None}
    assert {"torch_testing", "geak", "aiter", "flash_attention"} <= only_all
    assert not {"kernelbench", "jax", "torch_dynamo_same"} & only_all


def affine_numbers(op, dtype, reduced_length, expected):
    """(atol, rtol) of the allclose policies, worked out here from their definitions."""
    for policy in load_policies():
        numbers = policy.find_numbers(op, dtype)
        if numbers is not None and policy.rule == "allclose":
            atol = 1e-4 * reduced_length if policy.name == "flaggems" else numbers["atol"]
            yield policy.name, atol, numbers["rtol"]
    rtol = max({"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24}[dtype], 2**-24 * reduced_length)
    yield "composable_kernel", rtol * np.abs(expected[np.isfinite(expected)]).max(initial=0.0), rtol


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [0.0, 1e-7, 1e-5, 1e-3, 0.1])
def test_affine_policies_pass_where_allclose_does(dtype, width):
    verdicts = set()
    for draw in range(4):
        y, r = make_pair(np.random.default_rng(draw), dtype, width)
        for op, length in (("rmsnorm", 1), ("swiglu", 2**14)):
            readings = read_all(y, r, op=op, dtype=dtype, reduced_length=length)
            for name, atol, rtol in affine_numbers(op, dtype, length, r):
                wanted = np.all(np.abs(y.astype(np.float64) - r) <= atol + rtol * np.abs(r))
                tensors = torch.from_numpy(y.astype(np.float64)), torch.from_numpy(r)
                assert wanted == torch.allclose(*tensors, atol=atol, rtol=rtol)
                assert (readings[name] <= 1) == wanted, (name, op)
                verdicts.add(bool(wanted))
    assert verdicts == {True, False} or width in (0.0, 0.1)


def test_affine_policies_at_the_boundary():
    r = np.array([0.0, 3.0, -1e3])
    for name, atol, rtol in affine_numbers("rmsnorm", "float32", 8, r):
        edge = atol + rtol * np.abs(r)
        for at in range(3):
            y = r.copy()
            y[at] += edge[at]
            while abs(y[at] - r[at]) > edge[at]:  # the sum may have rounded up
                y[at] = np.nextafter(y[at], -np.inf)
            assert read_all(y, r, op="rmsnorm", reduced_length=8)[name] <= 1
            while abs(y[at] - r[at]) <= edge[at]:
                y[at] = np.nextafter(y[at], np.inf)
            assert read_all(y, r, op="rmsnorm", reduced_length=8)[name] > 1


def test_composable_kernel_by_hand():
    r = np.array([1.0, -8.0])
    y = r + np.array([2**-9, 0.0])
    # fp16, K = 64: rtol = 2^-11, atol = 2^-8; K = 2^16: rtol = 2^-8, atol = 2^-5.
    assert read_all(y, r, dtype="float16", reduced_length=64)["composable_kernel"] == 2**-9 / (2**-8 + 2**-11)
    assert read_all(y, r, dtype="float16", reduced_length=2**16)["composable_kernel"] == 2**-9 / (2**-5 + 2**-8)
    zeros = np.zeros(3)
    assert read_all(zeros, zeros)["composable_kernel"] == 0
    assert read_all(zeros + 1e-30, zeros)["composable_kernel"] == math.inf


@pytest.mark.parametrize("width", [1e-3, 0.009, 0.011, 0.3])
def test_rules_that_are_no_allclose(width):
    rng = np.random.default_rng(7)
    for _ in range(20):
        y, r = make_pair(rng, "float32", width * rng.uniform(0.1, 1.5))
        errors = [abs(float(a) - float(b)) for a, b in zip(y, r, strict=True)]
        off = sum(e > 1e-2 + 1e-2 * abs(b) for e, b in zip(errors, r, strict=True)) / len(errors)
        fails = any(e > 1e-2 and (b == 0 or e / abs(b) > 1e-2) for e, b in zip(errors, r, strict=True))
        twin = Twin(max(errors) / 2.5 * rng.uniform(0.5, 2), math.hypot(*errors) / 20 / 2.5 * rng.uniform(0.5, 2))
        readings = read_all(y, r, twin=twin)
        assert (readings["flashinfer_bench"] <= 1) == (not fails)
        assert (readings["aiter"] <= 1) == (off <= 0.05)
        assert readings["aiter"] == pytest.approx(off / 0.05)
        assert readings["flash_attention"] == pytest.approx(max(errors) / (2 * twin.max_abs + 1e-5))
        assert rmse(y, r) == pytest.approx(math.hypot(*errors) / 20)
        assert readings["torch_dynamo_same"] == pytest.approx(rmse(y, r) / (2 * twin.rmse + 1e-5))


def test_flashinfer_takes_the_kinder_error():
    r = np.array([1e-6, 1e4, 0.0, 2.0])
    assert read_all(r + np.array([5e-3, 50.0, 5e-3, 0.0]), r)["flashinfer_bench"] == pytest.approx(0.5)
    assert read_all(r + np.array([2e-2, 0.0, 0.0, 0.0]), r)["flashinfer_bench"] == pytest.approx(2.0)


def test_aiter_forgives_one_in_twenty():
    r = np.ones(100)
    y = r.copy()
    y[:5] = [1e30, np.inf, np.nan, -np.inf, 0.0]
    assert read_all(y, r)["aiter"] == 1.0
    y[5] = 0.0
    assert read_all(y, r)["aiter"] > 1.0


@pytest.mark.parametrize("bad", [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, np.inf), (np.inf, -np.inf)])
def test_non_finite(bad):
    same = np.array([np.nan, np.inf, -np.inf, 1.0])
    twin = Twin(1.0, math.inf)
    assert set(read_all(same.astype(np.float16), same, op="rmsnorm", twin=twin).values()) == {0.0}
    y, r = (np.append(same, x) for x in bad)
    readings = read_all(y.astype(np.float32), r, op="rmsnorm", twin=twin)
    assert readings.pop("aiter") == pytest.approx(1 / 5 / 0.05)
    assert set(readings.values()) == {math.inf}
    assert rmse(y, r) == math.inf


def test_arrays_of_every_kind_read_alike():
    rng = np.random.default_rng(3)
    r = rng.normal(size=(6, 10))
    tensor = torch.from_numpy(r * (1 + 1e-3 * rng.normal(size=r.shape))).to(torch.bfloat16)
    array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    twin = Twin(1e-3, 1e-4)
    wanted = read_all(array, r, dtype="bfloat16", twin=twin)
    assert wanted == read_all(tensor, torch.from_numpy(r), dtype="bfloat16", twin=twin)
    flipped = read_all(tensor.T, torch.from_numpy(r).T, dtype="bfloat16", twin=twin)
    assert flipped == pytest.approx(wanted)
    empty = read_all(np.empty(0, np.float32), np.empty(0), twin=twin)
    assert set(empty.values()) == {0.0, None}
    with pytest.raises(ShapeMismatch):
        rmse(r, r[:3])
    with pytest.raises(BadTolerance, match="rmse of the twin is nan"):
        Twin(0.0, math.nan)


@pytest.mark.gpu
def test_gpu_reads_like_the_host():
    twin = Twin(1e-3, 1e-4)
    for dtype in DTYPES:
        y, r = make_pair(np.random.default_rng(5), "float32", 1e-3)
        tensors = torch.from_numpy(y).to(getattr(torch, dtype)), torch.from_numpy(r)
        wanted = read_all(*tensors, dtype=dtype, twin=twin)
        found = read_all(*(x.cuda() for x in tensors), dtype=dtype, twin=twin)
        assert {k: v for k, v in found.items() if v is not None} == pytest.approx(
            {k: v for k, v in wanted.items() if v is not None}, rel=1e-12
        )


def test_policies_import_no_framework():
    code = "import sys, gonogo.policies as p; p.load_policies(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
