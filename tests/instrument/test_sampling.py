"""A deep network: no bound is finite, so its scale is from disturbed runs, and tells a fault from a rounding."""

from __future__ import annotations

import copy
import math

import pytest

torch = pytest.importorskip("torch")

import gonogo  # noqa: E402
from gonogo.instrument.readings import read  # noqa: E402
from gonogo.instrument.running_error import sampling  # noqa: E402
from gonogo.instrument.running_error import trace as trace_module  # noqa: E402
from gonogo.instrument.running_error.trace import trace_call  # noqa: E402
from gonogo.schema import Contract  # noqa: E402


class Block(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.last = torch.nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.last(self.second(torch.relu(self.norm(self.first(x))))))


class Network(torch.nn.Module):
    def __init__(self, depth=6, channels=4):
        super().__init__()
        blocks = [Block(channels) for _ in range(depth)]
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, channels, 3, padding=1), *blocks)
        self.head = torch.nn.Linear(channels, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def trace(function, *inputs, **contract):
    (leaf,) = trace_call(function, inputs, {}, Contract(**contract), loaded=True)[1]
    return leaf


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network()


def test_float32_stays_within_and_a_narrow_layer_does_not(network):
    wide = copy.deepcopy(network).double()
    narrow = copy.deepcopy(network)
    with torch.no_grad():
        narrow.body[3].first.weight.copy_(narrow.body[3].first.weight.bfloat16())
    for seed in range(2):
        x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        leaf = trace(wide, x)
        assert leaf.is_sampled
        with torch.no_grad():
            assert 0.01 < read(network(x), leaf.value, gauge="bound", scale=leaf.scale).worst < 1
            assert read(narrow(x), leaf.value, gauge="bound", scale=leaf.scale).worst > 20


def test_runs_agree_with_bounds_where_there_are_any(monkeypatch):
    """Of a shallow network both are finite: the one that is drawn is no wider, and torch's kernel within it."""
    torch.manual_seed(1)
    layer, x = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), torch.randn(2, 6, 32)
    wide = copy.deepcopy(layer).double()
    bound = trace(wide, x)
    monkeypatch.setattr(sampling, "is_blind", lambda value, scale, unit: True)
    drawn = trace(wide, x)
    assert not bound.is_sampled
    assert drawn.is_sampled
    with torch.no_grad():
        assert read(layer(x), drawn.value, gauge="bound", scale=drawn.scale).worst < 1
    assert float((drawn.scale / bound.scale).median()) < 0.1


def test_a_few_wide_layers_are_drawn_where_their_bound_says_nothing(monkeypatch):
    """Columns of many sizes: what is shared among them must not widen the small ones past their bound."""
    torch.manual_seed(2)
    layers = [part for _ in range(4) for part in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    model, x = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 16)), torch.randn(3, 1024)
    wide, sizes = copy.deepcopy(model).double(), 10.0 ** -torch.arange(16.0)
    drawn = trace(lambda x: wide(x) * sizes, x)
    monkeypatch.setattr(trace_module, "needs_runs", lambda mode, leaves: False)
    bound = trace(lambda x: wide(x) * sizes, x)
    assert (drawn.is_sampled, bound.is_sampled) == (True, False)
    assert bool((drawn.scale <= bound.scale).all())
    with torch.no_grad():
        assert 0.005 < read(model(x) * sizes, drawn.value, gauge="bound", scale=drawn.scale).worst < 1


@pytest.mark.parametrize("layer", ["GRU", "RNN"])
def test_recurrent_layers_are_drawn(layer):
    """torch writes in place to what it made of weights alone: that is as noisy as anything else."""
    torch.manual_seed(5)
    model = getattr(torch.nn, layer)(16, 32, 2, batch_first=True, bidirectional=True)
    x = torch.randn(4, 16, 16)
    wide = copy.deepcopy(model).double()
    leaf = trace(lambda x: wide(x)[0], x)
    assert leaf.is_sampled
    with torch.no_grad():
        assert 0.01 < read(model(x)[0].contiguous(), leaf.value, gauge="bound", scale=leaf.scale).worst < 1


def test_what_is_no_number_stays_unbounded(network):
    """1/(x − x) of computed values is nothing to judge, however deep; proofs and narrow formats stay infinite."""
    wide = copy.deepcopy(network).double()
    x = torch.randn(2, 3, 8, 8)
    assert not trace(wide, x, summation="sequential").is_sampled
    assert not trace(wide, x, accumulate="float16").is_sampled

    def pole(x):
        made = wide(x)
        return 1 / (torch.tanh(made) - torch.tanh(made * (1 + 1e-12)))

    assert bool(trace(pole, x).scale.isinf().all())
    shallow = trace(lambda x: 1 / (torch.tanh(x) - torch.tanh(x * (1 + 1e-12))), x)
    assert bool(shallow.scale.isinf().all())


@pytest.mark.slow
def test_a_verdict_says_so(network):
    draw = lambda seed: torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))  # noqa: E731
    verified = gonogo.verify(copy.deepcopy(network), reference=network, inputs=draw, cases=1)
    assert "the scale of the output is from runs with roundings drawn at random" in str(verified)


def test_what_is_stored_in_half_precision_is_disturbed():
    """Shallow, and its bound says nothing: torch's own kernels, op by op in bfloat16, read as runs say."""
    torch.manual_seed(0)
    layers = [part for _ in range(5) for part in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    model, x = torch.nn.Sequential(*layers, torch.nn.Linear(256, 64)).bfloat16(), torch.randn(16, 256).bfloat16()
    _, (leaf,), _ = trace_call(model, (x,), {}, Contract(stored="bfloat16"))
    assert leaf.is_sampled
    with torch.no_grad():
        made = model(x)
    assert 0 < read(made, leaf.value, gauge="bound", scale=leaf.scale).worst < 5


@pytest.mark.parametrize(("kind", "least", "most"), [("normal", 0.9, 1.1), ("rare", 20.0, math.inf)])
def test_what_few_runs_do_not_show_widens_a_scale(kind, least, most):
    """Of errors that are large once in a while, a new run must read no more than of normal ones."""
    generator = torch.Generator().manual_seed(0)
    expected = torch.ones(40_000, dtype=torch.float64)

    def run():
        noise = 1e-6 * torch.randn(expected.shape, generator=generator, dtype=torch.float64)
        jumps = torch.rand(expected.shape, generator=generator) < 1e-4
        return expected + (torch.where(jumps, noise * 1e4, noise) if kind == "rare" else noise)

    spread = sampling.Spread(expected)
    for _ in range(sampling.RUNS):
        spread.add(run())
    scale = spread.find_scale(2.0**-24, 0.5)
    usual = 2.0**24 * 1e-6 * sampling.DEVIATIONS
    assert least * usual < float(scale.median()) < most * usual
    read = max(float(((run() - expected).abs() / (2.0**-24 * scale)).max()) for _ in range(20))
    assert read < sampling.HELD_OUT
