"""What causes.toml says of torch's kernels, shown on the numbers it is said of."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from mpmath import mp  # noqa: E402

from gonogo.atlas.entries import list_entries  # noqa: E402
from gonogo.atlas.finding import Finding  # noqa: E402
from gonogo.atlas.page import _load_causes, find_cause  # noqa: E402
from gonogo.instrument.readings import read  # noqa: E402
from gonogo.instrument.running_error import error_scale  # noqa: E402

mp.prec = 200


def differentiate(function, *inputs):
    leaves = [x.requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves).sum(), leaves)


def test_causes_are_of_ops_that_torch_has():
    assert {cause["op"] for cause in _load_causes()} <= set(list_entries())
    found = Finding("erf", "bfloat16", "cpu", "gradient", "scaled")
    assert find_cause(found).startswith("x² is rounded")
    assert find_cause(Finding("erf", "bfloat16", "cpu", "forward", "scaled")) == "–"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [0.001, 0.1, 1.0, 8.0])
def test_matrix_exp_is_wrong_in_half_precision(dtype, size):
    matrix = size * torch.tensor([[1.0, 0.5], [0.25, 1.0]], dtype=torch.float64)
    exact = torch.tensor([[float(x) for x in row] for row in mp.expm(mp.matrix(matrix.tolist())).tolist()])
    torch.testing.assert_close(torch.matrix_exp(matrix), exact.double(), rtol=1e-6, atol=0)
    made = torch.matrix_exp(matrix.to(dtype)).double()
    assert not bool(((made - exact).abs() <= exact.abs()).all())  # NaN, infinite, or of another order


def test_soft_margin_loss_overflows():
    x, y = torch.tensor([-8.4765625], dtype=torch.float16), torch.tensor([3.611328125], dtype=torch.float16)
    assert float(-x * y) > 11.1
    (gradient,) = differentiate(lambda x: torch.nn.functional.soft_margin_loss(x, y), x)
    exact = -mp.mpf(float(y)) / (1 + mp.exp(mp.mpf(float(x.detach())) * mp.mpf(float(y))))
    assert bool(gradient.isnan())
    assert float(exact) == pytest.approx(-3.611328125)


def test_the_exponent_of_a_power_is_rounded_before_it_is_used():
    exponent, base = torch.tensor([-1.0078125]).bfloat16(), torch.tensor([-2.140625]).bfloat16()
    assert float(exponent - 1) == -2.0
    assert float(exponent.float() - 1) == -2.0078125
    gradient = differentiate(lambda base, exponent: base**exponent, base, exponent)[0]
    exact = differentiate(lambda base, exponent: base**exponent, base.double(), exponent.double())[0]
    assert bool(exact.isnan())
    assert not bool(gradient.isnan())


def test_weights_from_the_log_of_their_sum_are_off_where_quotients_are_not():
    """The gradient of v in attention, 4 weights to a row, by either form in float32."""
    torch.manual_seed(0)
    scores = 100 * torch.randn(512, 4)
    expected, scale = error_scale(lambda scores: torch.softmax(scores, -1).T, [scores])
    shares = torch.softmax(scores, -1).T.contiguous()
    again = torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True)).T.contiguous()
    assert read(shares, expected, gauge="bound", scale=scale).worst < 1
    assert read(again, expected, gauge="bound", scale=scale).worst > 3


def test_a_margin_of_many_digits_is_rounded():
    margin = 8.396163642458497
    x, y = torch.tensor([8.375]).bfloat16(), torch.tensor([-1.0]).bfloat16()
    loss = torch.nn.functional.hinge_embedding_loss(x, y, margin=margin, reduction="none")
    assert float(torch.tensor(margin).bfloat16()) == 8.375
    assert float(loss) == 0.0
    assert margin - 8.375 == pytest.approx(0.0212, rel=0.01)


def test_a_quotient_is_rounded_before_it_is_cut_off():
    numerators = torch.arange(1.0, 9.0, 2**-5).bfloat16()
    denominators = torch.arange(0.1, 0.5, 2**-9).bfloat16().unsqueeze(1)
    found = torch.div(numerators, denominators, rounding_mode="trunc").double()
    assert bool((found > (numerators.double() / denominators.double())).any())


@pytest.mark.parametrize("name", ["silu", "mish"])
def test_a_small_difference_has_lost_its_digits(name):
    x = torch.linspace(3, 8, 4001)
    function = getattr(torch.nn.functional, name)
    made = differentiate(function, x.clone())[0].double()
    exact = differentiate(function, x.double())[0]
    assert float(((made - exact) / exact).abs().max()) > 3 * 2.0**-24


def test_a_prefix_takes_the_log_of_the_one_before():
    """A GPU does so in float32, a CPU in float64."""
    torch.manual_seed(1)
    x = 18 * torch.rand(4096, 5) - 9
    chain = x[:, 0]
    for column in x.T[1:]:
        chain = torch.maximum(chain, column) + torch.log1p(torch.exp(-(chain - column).abs()))
    expected, scale = error_scale(lambda x: torch.logcumsumexp(x, 1)[:, -1], [x])
    assert read(chain, expected, gauge="bound", scale=scale).worst > 0.5
    assert read(torch.logcumsumexp(x, 1)[:, -1].contiguous(), expected, gauge="bound", scale=scale).worst < 0.1


def test_a_square_is_rounded_before_its_power_is_taken():
    x = torch.tensor([-8.5]).bfloat16()
    made = float(differentiate(torch.erf, x)[0])
    exact = 2 / mp.sqrt(mp.pi) * mp.exp(-(mp.mpf(-8.5) ** 2))
    rounded = 2 / mp.sqrt(mp.pi) * mp.exp(-mp.mpf(float((x * x).detach())))
    assert float(rounded / exact) == pytest.approx(made / float(exact), rel=0.02)
    assert abs(made / float(exact) - 1) > 0.2


def test_a_series_is_off_by_several_ulps():
    x = torch.tensor([-7.950586795806885])
    exact = mp.besseli(1, mp.mpf(float(x))) * mp.exp(mp.mpf(float(x)))
    assert abs(float(torch.special.i1e(x)) - float(exact)) / 2.0**-26 > 5
