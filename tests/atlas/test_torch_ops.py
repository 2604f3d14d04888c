"""Every op of torch's, on torch's own samples: it has a scale, or a reason; and torch's kernel stays within it."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torch
import torch.nn.functional as F  # noqa: N812
from command import gonogo
from sampled_rules import SAMPLED

from gonogo.atlas import Finding, make_atlas, sum_up
from gonogo.atlas.finding import find_universal
from gonogo.errors import InputError
from gonogo.instrument.gauges import gauge
from gonogo.instrument.readings import read
from gonogo.instrument.running_error import trace
from gonogo.instrument.running_error.rules import RULES
from gonogo.records import RunDirectory, read_run
from gonogo.schema import Contract

BEYOND = {
    # Wrong for every matrix: test_causes.py.
    ("matrix_exp", "forward", "bfloat16"), ("matrix_exp", "gradient", "bfloat16"),
    # e^(−y·x) overflows in float16, and what is divided by itself is NaN.
    ("nn.functional.soft_margin_loss", "gradient", "float16"),
}  # fmt: skip
"""Kernels of torch's that are off by more than rounding explains."""
ELSEWHERE = {
    # Other names of ops that are reached by one, ops that only a GPU calls, and what is refused.
    "aten._conj_physical", "aten._histogramdd_from_bin_cts", "aten._linalg_eigvals", "aten.linalg_eigvals",
    "aten.linalg_eig", "aten.unsafe_chunk", "aten.fractional_max_pool2d", "aten.fractional_max_pool3d",
}  # fmt: skip


def resize(mode):
    return lambda x: F.interpolate(x, scale_factor=2.0, mode=mode)


def rotate(x, angle):
    turned = torch.view_as_complex(x.reshape(2, 4, 3, 2)) * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turned).flatten(-2)


BESIDE = {
    "rope": (rotate, (2, 4, 6), (2, 4, 3)),
    "fft convolution": (
        lambda x, k: torch.fft.irfft(torch.fft.rfft(x, 32) * torch.fft.rfft(k, 32), 32), (3, 20), (3, 9),
    ),
    "complex": (lambda x, y: torch.complex(x, y).abs(), (5,), (5,)),
    "weights by bin": (lambda x: torch.bincount(torch.tensor([0, 2, 2, 1, 2]), x), (5,)),
    "rows of a norm": (lambda w: F.embedding(torch.tensor([1, 2, 2]), w, max_norm=1.0), (6, 4)),
    "unique": (lambda x: torch.unique(x, dim=0), (4, 3)),
    "split": (lambda x: torch.unsafe_split_with_sizes(x, [1, 3])[1] * 2, (4, 3)),
    "nearest 2d": (resize("nearest"), (1, 2, 3, 4)),
    "nearest 3d": (resize("nearest"), (1, 2, 3, 4, 2)),
    "nearest-exact 2d": (resize("nearest-exact"), (1, 2, 3, 4)),
    "nearest-exact 3d": (resize("nearest-exact"), (1, 2, 3, 4, 2)),
    "smaller bicubic": (lambda x: torch.ops.aten._upsample_bicubic2d_aa(x, [3, 4], False), (1, 2, 9, 8)),
    **{
        f"{mode} {rank}d": (
            lambda x, mode=mode, rank=rank: F.pad(x, [1] * (2 * rank), mode=mode), (1, 2, *[4] * rank),
        )
        for mode in ("reflect", "replicate")
        for rank in (2, 3)
    },
    "attention": (F.scaled_dot_product_attention, (1, 2, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8)),
}  # fmt: skip
"""What torch has no samples of: a function, and shapes of its arguments."""


def count(findings: list[Finding], kind: str, dtype: str) -> float:
    """The share of ops that are scaled."""
    counted = [one for one in findings if (one.kind, one.dtype) == (kind, dtype) and one.state != "left out"]
    return sum(one.state == "scaled" for one in counted) / len(counted)


def read_beside(name: str) -> float:
    """What torch's own kernels read of a function that torch has no samples of, forward and backward."""
    function, *shapes = BESIDE[name]
    inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]

    def differentiate(*tensors):
        made, pull = torch.func.vjp(function, *tensors)
        return pull(torch.full_like(made, 0.75))

    worst = 0.0
    forward_only = ("unique", "smaller bicubic", "weights by bin", "rows of a norm")
    passes = [function] if name in forward_only else [function, differentiate]
    for run in passes:
        scaled = trace.trace_call(run, tuple(inputs), {}, Contract(summation="sequential"), loaded=True)[1]
        made = run(*inputs)
        for leaf, output in zip(scaled, [made] if isinstance(made, torch.Tensor) else made, strict=True):
            by = gauge("bound", accumulate="float32")
            worst = max(worst, read(output.contiguous(), leaf.value, gauge=by, scale=leaf.scale).worst)
    return worst


@pytest.mark.slow
def test_torchs_own_samples(monkeypatch) -> None:
    """One test, for they are measured once: most are scaled, soundly, no wider than need be, and by all rules."""
    used: set[str] = set()

    def record(name):
        def rule(ctx, op, args, kwargs):
            used.add(name)
            return RULES[name](ctx, op, args, kwargs)

        return rule

    monkeypatch.setattr(trace, "RULES", {name: record(name) for name in RULES})
    records = make_atlas(samples=2, dtypes=("float32",))
    records += make_atlas(samples=1, dtypes=("bfloat16",), passes=("forward",))
    findings = sum_up(records, "cpu")

    assert count(findings, "forward", "float32") >= 0.96
    assert count(findings, "gradient", "float32") >= 0.95
    assert all(one.reason for one in findings if one.state != "scaled")
    beyond = {(one.op, one.kind, one.dtype) for one in findings if not one.is_sound}
    assert beyond <= BEYOND
    above = {one.op for one in findings if (one.bound or 0.0) > find_universal(one.contract)}
    assert above <= {op for op, _, _ in BEYOND}
    for kind in ("forward", "gradient"):  # a rule that is sound because it is infinite would show
        ratios = sorted(one.tightness for one in findings if one.kind == kind and one.tightness is not None)
        assert ratios[len(ratios) // 2] <= 30
    assert {name: worst for name in BESIDE if (worst := read_beside(name)) > 1} == {}
    assert SAMPLED - used <= ELSEWHERE


def test_the_command(tmp_path) -> None:
    """Measured with records, and told of these alone: the same."""
    page, folder = tmp_path / "atlas.md", tmp_path / "run"
    asked = ("atlas", "softmax", "geqrf", "--dtype", "float32", "--pass", "forward", "--workers", "2")
    done = gonogo(*asked, "--record", folder, "-o", page, "--json")
    assert done.returncode == 0, done.stderr
    told = {one["op"]: one for one in json.loads(done.stdout)["findings"]}
    assert (told["softmax"]["state"], told["geqrf"]["state"]) == ("scaled", "refused")
    assert 0 < told["softmax"]["deterministic"] <= told["softmax"]["bound"] < 3
    assert "| softmax | forward | float32 |" in page.read_text()
    again = gonogo("atlas", "--from", folder, "--json")
    assert again.returncode == 0, again.stderr
    assert {one["op"]: one["state"] for one in json.loads(again.stdout)["findings"]} == {
        name: one["state"] for name, one in told.items()
    }
    rows = read_run(folder).to_pylist()
    assert {row["op"] for row in rows} == {"torch.softmax", "torch.geqrf"}
    assert max(row["bound"] for row in rows if row["outcome"] == "ok") == pytest.approx(told["softmax"]["bound"])
    with pytest.raises(InputError, match=r"torch's tests have no op 'sofmax'\. Did you mean softmax"):
        make_atlas(["sofmax"])
    assert torch.is_grad_enabled()


def test_records_of_other_runs_are_no_atlas(tmp_path) -> None:
    folder = tmp_path / "empty"
    RunDirectory(folder, {}).close()
    done = gonogo("atlas", "--from", folder)
    assert done.returncode == 2
    assert "has no records of torch's ops. Make some: gonogo atlas --record" in done.stderr
    assert gonogo("atlas", "softmax", "--from", folder).returncode == 2
