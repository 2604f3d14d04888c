"""The scale of sums against float32 kernels of every order, short and long, and against faults they must show."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from gonogo.instrument.readings import read  # noqa: E402
from gonogo.instrument.running_error import error_scale  # noqa: E402

U32 = 2.0**-24
LENGTHS = (4, 16, 64, 256, 1024, 4096, 16384, 65536)
CORRECT, FAULTY = 2.0, 8.0
"""Floor of the limits, and four times that."""


def add_chain(terms):
    """Rows of terms, one after another; every column is a sum of its own."""
    total = terms[0]
    for row in terms[1:]:
        total = total + row
    return total


def add_tree(terms):
    while len(terms) > 1:
        half = len(terms) // 2
        terms = torch.cat([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    return terms[0]


def add_blocks(terms, size=128):
    return add_chain(add_chain(terms.reshape(-1, min(size, len(terms)), terms.shape[1]).transpose(0, 1)))


def add_split(terms, ways=8):
    return add_blocks(terms, size=max(len(terms) // ways, 1))


KERNELS: dict[str, Callable[..., Any]] = {
    "chain": add_chain,
    "tree": add_tree,
    "blocks of 128": add_blocks,
    "split 8 ways": add_split,
    "torch, by columns": lambda terms: terms.sum(0),
    "torch, by rows": lambda terms: terms.t().contiguous().sum(1),
}


def draw_alternating(rows, columns):
    x = 100 * torch.randn(rows, columns)
    even = torch.arange(rows)[:, None] % 2 == 0
    return torch.where(even, x, -x.roll(1, 0) + 0.01 * torch.randn(rows, columns))


DATA: dict[str, Callable[..., Any]] = {
    "normal": torch.randn,
    "positive": lambda *shape: 100 + torch.randn(*shape),
    "uniform": lambda *shape: 20 * torch.rand(*shape) - 10,
    "heavy-tailed": lambda *shape: (torch.randn(*shape) / torch.randn(*shape).abs()).clamp(-1e4, 1e4),
    "alternating": draw_alternating,
}


def count_columns(length):
    return max(64, min(2048, 2**19 // length))


def read_bound(output, expected, scale):
    return read(output, expected, gauge="bound", scale=scale).worst


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
def test_sums_in_any_order_are_within_the_scale_at_every_length(data):
    torch.manual_seed(11)
    readings: dict[str, list[float]] = {name: [] for name in KERNELS}
    for length in LENGTHS:
        x = DATA[data](length, count_columns(length))
        expected, scale = error_scale(lambda x: x.sum(0), [x])
        for name, kernel in KERNELS.items():
            readings[name].append(read_bound(kernel(x), expected, scale))
    for name, lengthening in readings.items():
        assert max(lengthening) <= CORRECT, name
        # Not upwards with the length: the longest read no more than the worst of the short ones, and some slack.
        assert max(lengthening[4:]) <= 1.5 * max(lengthening[:4]), name


def cut_tf32(x):
    bits = x.view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def add_half_partials(x):
    return x.reshape(min(8, len(x)), -1, x.shape[1]).sum(1).half().float().sum(0)


FAULTS: dict[str, Callable[..., Any]] = {
    "tf32": lambda x: cut_tf32(x).sum(0),
    "bfloat16": lambda x: x.bfloat16().float().sum(0),
    "one element dropped": lambda x: x[:-1].sum(0),
    "partial sums in float16": add_half_partials,
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("data", ["normal", "uniform"])
def test_faulty_sums_are_far_out_at_every_length(data, length):
    torch.manual_seed(12)
    x = DATA[data](length, count_columns(length))
    expected, scale = error_scale(lambda x: x.sum(0), [x])
    for name, fault in FAULTS.items():
        assert read_bound(fault(x), expected, scale) >= FAULTY, name


@pytest.mark.parametrize("length", [*LENGTHS[:-1], pytest.param(LENGTHS[-1], marks=pytest.mark.slow)])
def test_products_of_any_order_are_within_the_scale_and_faulty_ones_are_not(length):
    torch.manual_seed(13)
    rows = max(4, min(64, 2**18 // length))
    for data in ("normal", "positive", "heavy-tailed"):
        a, b = DATA[data](rows, length), DATA[data](length, 8)
        expected, scale = error_scale(torch.matmul, [a, b])
        terms = a.t()[:, :, None] * b[:, None, :]
        terms = terms.reshape(length, -1)
        for name, kernel in KERNELS.items():
            assert read_bound(kernel(terms).reshape(rows, 8), expected, scale) <= CORRECT, name
        assert read_bound(a @ b, expected, scale) <= CORRECT
        if data == "normal":
            assert read_bound(cut_tf32(a) @ cut_tf32(b), expected, scale) >= FAULTY
            assert read_bound(a[:, 1:] @ b[1:], expected, scale) >= FAULTY


@pytest.mark.parametrize("length", LENGTHS)
def test_a_wrong_divisor_shows_on_whole_numbers_at_every_length(length):
    """Sums of small whole numbers are exact in any order, so the scale need not allow for a chain's roundings."""
    x = torch.randint(-8, 9, (64, length), generator=torch.Generator().manual_seed(14)).float()

    def normalise(x, divisor):
        return x / torch.sqrt((x * x).sum(-1, keepdim=True) / divisor + 1e-5)

    expected, scale = error_scale(lambda x: normalise(x, length), [x])
    assert read_bound(normalise(x, length), expected, scale) <= 1
    assert read_bound(normalise(x, length - 1), expected, scale) >= FAULTY
    assert math.isfinite(float(scale.max()))


def test_cumulative_sums_count_the_terms_of_each_prefix():
    torch.manual_seed(15)
    x = torch.randn(4096, 32)
    expected, scale = error_scale(lambda x: x.cumsum(0), [x])
    total, chain = torch.zeros(32), []
    for row in x:
        total = total + row
        chain.append(total)
    assert read_bound(torch.stack(chain), expected, scale) <= CORRECT
    assert read_bound(cut_tf32(x).cumsum(0), expected, scale) >= FAULTY
    last = error_scale(lambda x: x.sum(0), [x])[1]
    torch.testing.assert_close(scale[-1], last)


def test_long_sums_are_those_of_partial_sums_and_a_chain_still_is_go():
    """Of 2^22 terms a part in 10^4 is allowed, and not a percent; nobody has a chain of 2^20, and it reads few."""
    torch.manual_seed(7)
    for x in (torch.rand(2**20), torch.randn(2**20) + 3):
        value, scale = error_scale(lambda x: (x * x).sum(), [x])
        chain = torch.tensor(np.cumsum((x * x).numpy(), dtype=np.float32)[-1])
        assert read(chain, value, gauge="bound", scale=scale).worst < 3
        value, scale = error_scale(lambda x: x.mean(), [torch.cat([x] * 4)])
        assert float(scale / value.abs()) * 2.0**-24 < 1e-4


def test_a_chain_of_one_term_again_and_again_stays_within_its_scale():
    """Its roundings are not independent: they all go one way. So summed, multiplied and as prefixes."""
    torch.manual_seed(0)
    terms = (1 + torch.rand(1, 4000)).expand(512, 4000)
    scales = error_scale(lambda x: x.cumsum(0), [terms])[1]
    total = torch.zeros(4000)
    largest = {}
    for count, row in enumerate(terms, 1):
        total = total + row
        exact = count * row.double()
        largest[count] = ((total.double() - exact).abs() / (U32 * scales[count - 1])).max().item()
        if count in (32, 512):
            value, scale = error_scale(lambda x: x.sum(0), [terms[:count]])
            assert torch.equal(value, exact)
            assert torch.allclose(scale, scales[count - 1])
            scale = error_scale(lambda x: torch.ones(1, len(x), dtype=x.dtype) @ x, [terms[:count]])[1]
            assert torch.allclose(scale[0], scales[count - 1], rtol=0.1)
    assert max(largest.values()) <= 1.15
    assert largest[512] > 0.9
    # What is nearly alike is no exception: a chain of such terms is off by no more than any other.
    near = terms * (1 + 2**-8 * torch.rand(512, 4000))
    assert error_scale(lambda x: x.sum(0), [near])[1].mean() < scales[-1].mean() / 4


LEANING: dict[str, Callable[..., Any]] = {
    "few values": lambda *shape: (8 + torch.randn(*shape)).bfloat16().float(),
    "two values": lambda *shape: torch.where(torch.rand(*shape) < 0.5, 0.3, -0.2),
    "close below one": lambda *shape: -1e-5 * torch.rand(*shape),
    "close above one": lambda *shape: 1e-6 + 1e-4 * torch.rand(*shape),
}


@pytest.mark.parametrize("data", LEANING)
@pytest.mark.parametrize("length", [512, 4096, pytest.param(65536, marks=pytest.mark.slow)])
def test_terms_whose_roundings_lean_one_way_stay_within_their_scale(data, length):
    """Their chains are off by far more than √n: without that they would read up to 40."""
    torch.manual_seed(16)
    x = LEANING[data](length, 64)
    expected, scale = error_scale(lambda x: x.exp().sum(0), [x])
    for name, kernel in KERNELS.items():
        assert read_bound(kernel(x.exp()), expected, scale) <= CORRECT, name
    # A factor moves them all to another place between two roundings.
    assert read_bound(add_chain((x + 0.2).exp()) * math.exp(-0.2), expected, scale) <= CORRECT


def test_terms_of_all_kinds_lean_neither_way():
    torch.manual_seed(17)
    x = torch.randn(65536, 64)
    scale = error_scale(lambda x: x.exp().sum(0), [x])[1]
    plain = error_scale(lambda x: x.sum(0), [x.double().exp()])[1]  # as inputs, they have no errors of their own
    assert scale.mean() < 1.2 * plain.mean()


def test_terms_that_cancel_to_nothing_have_a_finite_scale():
    """No step of the sum's own size is left to round to: the terms' own counts. Zeros alone have one, too."""
    torch.manual_seed(18)
    half = 1e3 * torch.randn(2048, 8)
    for x in (torch.cat([half, -half]), torch.zeros(4096, 8)):
        expected, scale = error_scale(lambda x: (x * 1.5).sum(0), [x])
        assert expected.abs().max() <= 1e-9
        assert scale.isfinite().all()
        for name, kernel in KERNELS.items():
            assert read_bound(kernel(x * 1.5), expected, scale) <= CORRECT, name
