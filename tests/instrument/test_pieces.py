"""What is worked out a slice at a time, or by C or Triton, is what torch's own ops give of the whole."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from gonogo.guest import flags  # noqa: E402
from gonogo.instrument import path_native  # noqa: E402
from gonogo.instrument.readings import read  # noqa: E402
from gonogo.instrument.running_error import error_scale, fused, pieces, terms  # noqa: E402
from gonogo.instrument.running_error.rules import RULES, recurrent, slices  # noqa: E402

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


# What sums lose of their terms.

finite = st.floats(-1e6, 1e6, allow_subnormal=False)


def lose_exactly(row, step, low):
    """Both sums in rational numbers."""
    lean = sum((round(Fraction(x) / Fraction(step)) * Fraction(step) - Fraction(x) for x in row), Fraction(0))
    lost = sum((min(abs(Fraction(x)), Fraction(low)) for x in row if abs(x) < 4 * low), Fraction(0))
    return float(lean), float(lost)


@given(st.lists(finite, min_size=1, max_size=40), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_what_terms_lose_is_exact(row, step, low):
    rows, steps = torch.tensor([row], dtype=torch.float64), torch.full((1, terms.STEPS), step, dtype=torch.float64)
    expected = lose_exactly(row, step, low)
    close = 1e-9 * max(1.0, max(map(abs, row)))  # a quotient within a rounding of a half may go either way
    for sums in (terms._lose_rows, terms._lose_plainly):
        found = sums(rows, steps, torch.tensor([low], dtype=torch.float64))[0]
        ties = any(abs(abs(x / step) % 1 - 0.5) < 1e-9 for x in row)
        assert ties or float(found[0]) == pytest.approx(expected[0], abs=close)
        assert float(found[-1]) == pytest.approx(expected[1], abs=close)


def make_rows(*shape):
    torch.manual_seed(1)
    rows = draw(*shape) + 0.5
    ratios = torch.tensor([2.0 ** -(20 + k / 6) for k in range(terms.STEPS)], dtype=torch.float64)
    return rows, rows.abs().amax(1, keepdim=True) * ratios, torch.full(shape[:1], 0.25, dtype=torch.float64)


@pytest.mark.parametrize("isa", range(3))
@pytest.mark.parametrize("shape", [(1, 1), (3, 4095), (2, 4097), (1, 3 * 2**20 + 5), (700, 2000)])
def test_every_instruction_set_loses_the_same(isa, shape):
    if isa >= len(path_native.instruction_sets()):
        pytest.skip(f"no instruction set {isa} here")
    rows, steps, swamp = make_rows(*shape)
    found = path_native.lose_terms(rows.numpy(), steps.numpy(), swamp.numpy(), terms.PART, isa=isa).sum(1)
    np.testing.assert_allclose(found, terms._lose_plainly(rows, steps, swamp), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 300), (3, 4095), (2, 4097)])
def test_triton_loses_the_same(shape):
    """On a GPU, or interpreted."""
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, steps, swamp = (x.to(device) for x in make_rows(*shape))
    found = terms._lose_by_triton(rows, steps, swamp)
    torch.testing.assert_close(found, terms._lose_plainly(rows, steps, swamp), rtol=1e-9, atol=1e-9)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("shape", [(1, 3 * 2**20 + 5), (700, 2000), (100_000, 300)])
def test_a_gpu_loses_the_same(shape):
    rows, steps, swamp = make_rows(*shape)
    found = terms._lose_rows(rows.cuda(), steps.cuda(), swamp.cuda())
    torch.testing.assert_close(found.cpu(), terms._lose_plainly(rows, steps, swamp), rtol=1e-9, atol=1e-9)


def test_a_long_sum_is_that_of_partial_sums():
    """One float32 chain of 2^25 terms stands still at 2^24 of them: no kernel has it, and no bound may allow it."""
    ones = torch.rand(1, 1, dtype=torch.float64).expand(1, 2**25)
    value, scale = error_scale(lambda x: (x * x).sum(1), [ones])
    assert float(scale / value) * 2.0**-24 < 0.002


def softmax_by_hand(x):
    powers = torch.exp(x * 1.1 - (x * 1.1).amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def norm_by_hand(x):
    apart = x - x.mean(-1, keepdim=True)
    return apart * torch.rsqrt((apart * apart).mean(-1, keepdim=True) + 1e-5) * 1.3 + 0.1


FUSED = {
    "softmax": softmax_by_hand,
    "norm": norm_by_hand,
    "sum": lambda x: (x * 1.1).sum((1, 2)) if x.dim() > 2 else (x * 1.1).sum(1),
    "share of many signs": lambda x: torch.sin(x) / torch.sin(x).sum(-1, keepdim=True),
}


def make_hard_rows(*shape):
    """Rows of one sign, of one term, of zeros, of a few large among small, of numbers far out, with no number."""
    torch.manual_seed(6)
    x = draw(*shape)
    x[0], x[1], x[2] = x[0].abs() + 1, 0.3, 0.0
    x[3, ..., 7] = 1e9
    x[4] *= 1e150
    x[5, ..., 0], x[6, ..., 1] = torch.inf, torch.nan
    return x


def assert_fused_is_the_same(function, x, monkeypatch, fits):
    monkeypatch.setattr(fused, "fits", lambda x: False)
    expected, scale = error_scale(function, [x])
    monkeypatch.setattr(fused, "fits", fits)
    found = error_scale(function, [x])
    assert torch.equal(found[0].nan_to_num(), expected.nan_to_num())
    torch.testing.assert_close(found[1], scale, rtol=1e-9, atol=0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy
@pytest.mark.parametrize("name", FUSED)
def test_kernels_for_several_passes_give_the_same(name, monkeypatch):
    """On a GPU, or interpreted."""
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    calls = []
    launch = fused._launch
    monkeypatch.setattr(fused, "_launch", lambda kernel, *args: (calls.append(kernel), launch(kernel, *args)))
    monkeypatch.setattr(fused, "ROWS", 1)
    for shape in ((8, 300), (9, 5, 111)):
        x = make_hard_rows(*shape).to(device)
        assert_fused_is_the_same(FUSED[name], x, monkeypatch, lambda x: x.is_contiguous())
    assert calls


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", FUSED)
def test_kernels_for_several_passes_give_the_same_of_many_rows(name, monkeypatch):
    fits = fused.fits
    for shape in ((300, 5000), (70, 2**17 + 5)):
        assert_fused_is_the_same(FUSED[name], make_hard_rows(*shape).cuda(), monkeypatch, fits)


# Slices.

SLICED = {
    "gelu": (lambda x: functional.gelu(x * 1.1), [(40, 30)]),
    "exp of a shift": (lambda x: torch.exp(x * 1.1 - (x * 1.1).amax(1, keepdim=True)), [(40, 30)]),
    "softmax": (lambda x: torch.softmax(x * 1.1, 1), [(40, 30)]),
    "softmax by hand": (
        lambda x: torch.exp(x * 1.1 - 3) / torch.exp(x * 1.1 - 3).sum(1, keepdim=True), [(40, 300)],
    ),
    "log_softmax of columns": (lambda x: torch.log_softmax(x * 1.1, 0), [(40, 30)]),
    "largest": (lambda x: (x * 1.1).amax((0, 2)), [(9, 8, 30)]),
    "layer norm": (lambda x, w: functional.layer_norm(x * 1.1, (30,), w), [(8, 9, 30), (30,)]),
    "rms norm": (lambda x, w: functional.rms_norm(x * 1.1, (30,), w, eps=1e-5), [(8, 9, 30), (30,)]),
    "batch norm": (
        lambda x, w, b: functional.batch_norm(x * 1.1, None, None, w, b, training=True), [(5, 6, 7, 8), (6,), (6,)],
    ),
    "batch norm, known moments": (
        lambda x, m, v: functional.batch_norm(x * 1.1, m, v * v), [(5, 6, 7, 8), (6,), (6,)],
    ),
    "group norm": (lambda x, w: functional.group_norm(x * 1.1, 2, w), [(5, 6, 7, 8), (6,)]),
    "instance norm": (lambda x: functional.instance_norm(x * 1.1), [(5, 6, 7, 8)]),
    "mm": (lambda a, b: (a * 1.1) @ b, [(50, 20), (20, 40)]),
    "bmm": (lambda a, b: (a * 1.1) @ (b * 1.3), [(9, 10, 20), (9, 20, 10)]),
    "linear": (functional.linear, [(50, 20), (40, 20), (40,)]),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.7), [(50, 40), (50, 20), (20, 40)]),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.7), [(9, 10, 10), (9, 10, 20), (9, 20, 10)]),
    "conv": (lambda x, w, b: functional.conv2d(x * 1.1, w, b, padding=1), [(7, 3, 10, 10), (5, 3, 3, 3), (5,)]),
    "transposed conv": (lambda x, w: functional.conv_transpose2d(x, w, stride=2), [(7, 3, 10, 10), (3, 5, 3, 3)]),
    "average pool": (lambda x: functional.avg_pool2d(x * 1.1, 2), [(7, 3, 10, 10)]),
    "max pool": (lambda x: functional.max_pool2d(x * 1.1, 2), [(7, 3, 10, 10)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SLICED)
def test_slices_give_what_the_whole_gives(name, monkeypatch):
    torch.manual_seed(2)
    function, shapes = SLICED[name]
    inputs = [draw(*shape) for shape in shapes]
    expected, scale = error_scale(function, inputs)
    monkeypatch.setattr(pieces, "HOST_PIECE", 64)
    monkeypatch.setattr(slices, "DEVICE_PIECE", 100)
    sliced = error_scale(function, inputs)
    torch.testing.assert_close(sliced[0], expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(sliced[1], scale, rtol=1e-9, atol=1e-12)


UNTRIED = {"aten._safe_softmax", "aten._fused_rms_norm", "aten.cudnn_batch_norm"}
"""Other devices and versions of torch call these."""
POINTWISE = ("silu", "elu", "softplus", "hardsigmoid", "hardswish", "mish", "hardtanh", "leaky_relu")
FUNCTIONS = (
    "sigmoid", "tanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "erf", "erfc", "sqrt",
    "rsqrt", "reciprocal",
)  # fmt: skip
POOLS = (
    lambda x: functional.adaptive_avg_pool2d(x, 3), lambda x: functional.avg_pool3d(x.unsqueeze(1), 2),
    lambda x: functional.adaptive_avg_pool3d(x.unsqueeze(1), 2), lambda x: functional.max_pool3d(x.unsqueeze(1), 2),
)  # fmt: skip


def test_every_op_with_a_plan_is_cut(monkeypatch):
    """And gives what the whole gives: a plan that never cuts would show nowhere else."""
    cut: set[str] = set()

    def note(rule, plan):
        name = next(name for name, its in RULES.items() if its is rule)

        def noted(ctx, op, args, kwargs):
            slicing = plan(args)
            cut.update({name} if slicing is not None and slicing.largest > slices.DEVICE_PIECE else ())
            return rule(ctx, op, args, kwargs)

        return noted

    watched = {name: note(RULES[name], plan) for name, plan in slices.PLANS.items()}
    x, image = torch.rand(20, 30, dtype=torch.float64) + 0.1, torch.rand(7, 4, 8, 8, dtype=torch.float64)
    calls = [(function, [draw(*shape) for shape in shapes]) for function, shapes in SLICED.values()]
    calls += [(getattr(functional, name), [x]) for name in POINTWISE] + [
        (getattr(torch, name), [x]) for name in FUNCTIONS
    ]
    calls += [(function, [image]) for function in POOLS]
    for function, inputs in calls:
        monkeypatch.setattr(slices, "DEVICE_PIECE", 2**26)
        expected, scale = error_scale(function, inputs)
        monkeypatch.setattr(slices, "DEVICE_PIECE", 100)
        sliced = error_scale(function, inputs, rules=watched)
        torch.testing.assert_close(sliced[0], expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(sliced[1], scale, rtol=1e-9, atol=1e-12)
    assert set(slices.PLANS) <= set(RULES)
    assert set(slices.PLANS) - cut == UNTRIED


@pytest.mark.gpu
@needs_gpu
def test_a_problem_of_a_billion_elements_fits():
    """8 GiB a tensor in float64, and at most four times what the reference itself takes."""
    for function in (
        lambda x: torch.softmax(x, -1),
        functional.gelu,
        lambda x: functional.batch_norm(x.reshape(64, 64, -1), None, None, training=True),
    ):
        x = torch.rand(4096, 2**18, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        function(x.double())
        plain = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        _, scale = error_scale(function, [x])
        assert bool(scale.isfinite().all())
        assert torch.cuda.max_memory_allocated() <= 4 * plain


# Recurrent layers, which torch has as one op on a GPU.


def test_steps_of_recurrent_layers_are_torchs():
    torch.manual_seed(3)
    for cell, step in ((torch.nn.LSTMCell, recurrent.step_lstm), (torch.nn.GRUCell, recurrent.step_gru)):
        layer = cell(5, 7).double()
        x, state, kept = draw(3, 5), draw(3, 7), draw(3, 7)
        is_lstm = cell is torch.nn.LSTMCell
        expected = layer(x, (state, kept)) if is_lstm else (layer(x, state),)
        sums = (x @ layer.weight_ih.T, state @ layer.weight_hh.T, kept if is_lstm else state)
        made = step(*sums, layer.bias_ih, layer.bias_hh)
        for one, other in zip(made, expected, strict=False):
            torch.testing.assert_close(one, other)


def test_gradients_of_recurrent_steps_are_autograds():
    torch.manual_seed(4)
    sums, hidden, cell = (draw(3, n).requires_grad_() for n in (28, 28, 7))
    state, kept, gates = recurrent.step_lstm(sums, hidden, cell)
    given, given_cell = draw(3, 7), draw(3, 7)
    found = recurrent.step_lstm_backward(given, given_cell, cell, kept, gates, has_bias=True)
    expected = torch.autograd.grad([state, kept], [sums, cell], [given, given_cell])
    for one, other in zip(found, (*expected, expected[0].sum(0)), strict=True):
        torch.testing.assert_close(one, other)
    sums, hidden, state = (draw(3, n).requires_grad_() for n in (21, 21, 7))
    made, workspace = recurrent.step_gru(sums, hidden, state)
    found = recurrent.step_gru_backward(given, workspace, has_bias=False)
    expected = torch.autograd.grad(made, [sums, hidden, state], given)
    for one, other in zip(found[:3], expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("gradient", [False, True])
def test_recurrent_layers_have_a_scale_on_a_gpu(layer, gradient):
    torch.manual_seed(5)
    model = getattr(torch.nn, layer)(16, 32, 2, batch_first=True, bidirectional=True).double().cuda()

    def run(x):
        if not gradient:
            return model(x)[0]
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(model(leaf)[0].sum(), leaf)[0]

    x = draw(4, 10, 16).cuda()
    expected, scale = error_scale(run, [x])
    _, fast = error_scale(run, [x], contract="fast-math")
    torch.testing.assert_close(expected, run(x), rtol=1e-9, atol=1e-12)
    assert bool(scale.isfinite().all())
    model.float()
    with flags.known():  # cuDNN takes tf32 unless it is told not to
        single = run(x.float()).contiguous()
        torch.backends.cudnn.enabled = False
        own = run(x.float()).contiguous()
    assert read(own, expected, gauge="bound", scale=scale).worst < 1
    assert read(single, expected, gauge="bound", scale=fast).worst < 1  # its tanh is off by 180 u
