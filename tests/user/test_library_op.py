"""Ops of torch.library and autograd pairs by gonogo check, as a package's author types it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")

from gonogo.cli import cli  # noqa: E402

REGISTERED = """
import torch

@torch.library.custom_op("gonogo_test::{name}", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor * {wrong}

@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)

def reference(x, factor):
    return x * factor

def draw(seed, dtype):
    return torch.randn(7, 33).to(dtype), 1.5
"""
PAIR = """
import torch

def reference(x, w):
    return x * w

def draw(seed, dtype):
    return torch.randn(7, 33).to(dtype), torch.randn(33).to(dtype)

class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, given):
        x, w = ctx.saved_tensors
        return given * w, (given * x).sum(0)

class Wrong(Right):
    @staticmethod
    def backward(ctx, given):
        x, w = ctx.saved_tensors
        return given * w, (given * x)[:-1].sum(0)
"""


def run(*words):
    return CliRunner().invoke(cli, ["check", *map(str, words), "--cases", "2", "--dtype", "float32", "--seed", "0"])


@pytest.mark.parametrize(("name", "wrong", "code"), [("right", 1.0, 0), ("wrong", 1.001, 1)])
def test_a_registered_op_is_judged_beside_opcheck(name, wrong, code, tmp_path):
    path = tmp_path / f"{name}.py"
    path.write_text(REGISTERED.format(name=name, wrong=wrong))
    found = run(f"gonogo_test::{name}", "--reference", f"{path}:reference", "--json")
    assert found.exit_code == code, found.output
    told = json.loads(found.stdout)
    assert told["opcheck"]["test_schema"] == "SUCCESS"
    assert told["decision"] == ("no-go" if code else "go")
    if code:
        assert told["replay"].startswith(f"gonogo check gonogo_test::{name} --op-file {path}:reference")
    absent = run("gonogo_test::absent", "--reference", f"{path}:reference")
    assert "torch knows no op gonogo_test::absent" in str(absent.exception)


@pytest.mark.parametrize(("name", "code"), [("Right", 0), ("Wrong", 1)])
def test_an_autograd_function_is_judged_with_its_gradients(name, code, tmp_path):
    path = tmp_path / "pair.py"
    path.write_text(PAIR)
    found = run(f"{path}:{name}.apply", "--reference", f"{path}:reference", "--grads")
    assert found.exit_code == code, found.output
    assert ("leaf grad.w" in found.output) == bool(code)
    known = run(f"{path}:{name}.apply", "--op", "softmax", "--grads")
    assert "--grads goes with --op-file" in str(known.exception)
