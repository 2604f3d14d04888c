"""Errors that cancel: a term over its own sum, a shift of a whole row; and where they do not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812

from gonogo.instrument.readings import read  # noqa: E402
from gonogo.instrument.running_error import error_scale  # noqa: E402
from gonogo.instrument.running_error.companion import Error, Tracked, total  # noqa: E402
from gonogo.instrument.running_error.mode import RunningErrorMode  # noqa: E402
from gonogo.instrument.running_error.origins import Reach, spread_shares  # noqa: E402
from gonogo.instrument.running_error.rules import PASSIVE, RULES  # noqa: E402
from gonogo.ops import get_op  # noqa: E402
from gonogo.schema import Contract  # noqa: E402

U32 = 2.0**-24


def shift_exp(x, top):
    return torch.exp(x - top)


def by_keepdim(x):
    e = shift_exp(x, x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def by_index(x):
    e = shift_exp(x, x.amax(-1)[:, None])
    return e / e.sum(-1)[:, None]


def by_unsqueeze(x):
    e = shift_exp(x, x.max(-1, keepdim=True).values)
    return e / e.sum(-1).unsqueeze(-1)


def by_view(x):
    e = shift_exp(x, x.amax(-1).view(-1, 1))
    return e / e.sum(-1).reshape(-1, 1)


def by_inverse(x):
    e = shift_exp(x, x.amax(-1, keepdim=True))
    return e * (1 / e.sum(-1, keepdim=True))


def by_reciprocal(x):
    e = shift_exp(x, x.amax(-1, keepdim=True))
    return e * torch.reciprocal(e.sum(-1, keepdim=True))


def by_binary_exponent(x):
    e = torch.exp2(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def down_columns(x):
    turned = x.t()
    e = shift_exp(turned, turned.amax(0))
    return (e / e.sum(0)).t()


FORMS: dict[str, Callable[..., Any]] = {
    "keepdim": by_keepdim,
    "index": by_index,
    "unsqueeze": by_unsqueeze,
    "view": by_view,
    "inverse": by_inverse,
    "reciprocal": by_reciprocal,
    "exp2": by_binary_exponent,
    "columns": down_columns,
    "one op": lambda x: torch.softmax(x, -1),
    "signed": lambda x: x / x.sum(-1, keepdim=True),
}


def run_tracked(function, x, error, *, guarded=False):
    mode = RunningErrorMode(Contract(), RULES, PASSIVE, guarded=guarded)
    with torch.no_grad(), mode:
        made = function(Tracked(x, Error(error)))
    return made.value, total(made.value, made.error).expand(made.value.shape)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_the_error_of_a_share_is_what_its_terms_can_do_together(name, guarded):
    torch.manual_seed(1)
    x = 30 * torch.randn(7, 7).double()
    error = 10 ** (4 * torch.rand(7, 7).double())
    value, scale = run_tracked(FORMS[name], x, error, guarded=guarded)
    own = run_tracked(FORMS[name], x, torch.zeros_like(x), guarded=guarded)[1]

    def move(step):
        return (FORMS[name](x + U32 * step) - value).abs()

    # Each element alone, the worst of many corners, and everything together, which cancels.
    reached = torch.zeros_like(x)
    for _ in range(300):
        reached = torch.maximum(reached, move(error * torch.randint(0, 2, (7, 7)).mul(2).sub(1)))
    alone = sum(move(error * (torch.arange(49).view(7, 7) == at)) for at in range(49))
    assert bool((reached <= U32 * scale * (1 + 1e-2)).all())
    assert bool((alone <= U32 * scale * (1 + 1e-2)).all())
    if name != "signed":
        # No more than that either.
        told = (value > 1e-9) & (value < 0.999)
        assert bool((U32 * (scale - own) <= alone * 1.1)[told].all()), (
            (U32 * (scale - own) / alone)[told],
            value[told],
        )


def test_a_sum_of_another_row_is_a_quotient_like_any_other():
    torch.manual_seed(2)
    x, error = 5 * torch.rand(6, 6).double() + 1, 100 * torch.rand(6, 6).double()
    value, scale = run_tracked(lambda x: x / x.sum(-1), x, error)
    assert torch.equal(value, x / x.sum(-1))
    sums = x.sum(-1)
    carried = (error + value * error.sum(-1)) / sums
    assert bool((scale >= carried).all())
    for function in (lambda x: x.abs() / x.sum(-1, keepdim=True), lambda x: x / -x.sum(-1, keepdim=True)):
        value, scale = run_tracked(function, x, error)
        assert bool((scale >= (error + value.abs() * error.sum(-1, keepdim=True)) / sums[:, None]).all())


def test_an_infinite_error_of_one_term_reaches_all_shares():
    x, error = torch.rand(2, 4).double() + 1, torch.ones(2, 4).double()
    error[0, 1] = math.inf
    for guarded in (False, True):
        scale = run_tracked(lambda x: x / x.sum(-1, keepdim=True), x, error, guarded=guarded)[1]
        assert scale.isinf().tolist() == [[True] * 4, [False] * 4]


# Attention with large scores: nearly one-hot rows.


def mask_scores(scores, ahead=0):
    at = torch.arange(scores.shape[-1])
    return scores.masked_fill(at[None, :] > at[:, None] + ahead, -math.inf)


def attend(q, k, v, ahead=0):
    return torch.softmax(mask_scores(q @ k.mT * (1 / math.sqrt(q.shape[-1])), ahead), -1) @ v


def attend_late(q, k, v):
    scores = mask_scores((q * (1 / math.sqrt(q.shape[-1]))) @ k.mT)
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (e @ v) / e.sum(-1, keepdim=True)


def attend_online(q, k, v):
    top, weight, made = torch.full_like(q[:, :1], -math.inf), torch.zeros_like(q[:, :1]), torch.zeros_like(v)
    scores = mask_scores(q @ k.mT / math.sqrt(q.shape[-1]))
    for part, rows in zip(scores.split(16, -1), v.split(16), strict=True):
        higher = torch.maximum(top, part.amax(-1, keepdim=True))
        p, fade = torch.exp(part - higher), torch.exp(top - higher)
        weight, made, top = weight * fade + p.sum(-1, keepdim=True), made * fade + p @ rows, higher
    return made / weight


def attend_binary(q, k, v):
    scores = mask_scores(q @ k.mT * (math.log2(math.e) / math.sqrt(q.shape[-1])))
    e = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True) @ v


def attend_in_torch(q, k, v):
    q, k, v = (x[None, None] for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]


@pytest.mark.parametrize("size", [0.3, 3.0, 5.0, 20.0])
def test_attention_with_large_scores_has_a_small_scale(size):
    """Scores reach ±100 and more; as a quotient of independent values S would be thousands of times the value."""
    torch.manual_seed(3)
    q, k, v = size * torch.randn(128, 32), size * torch.randn(128, 32), torch.randn(128, 32)
    for reference in (get_op("causal_attention").load_reference(), attend, attend_in_torch):
        expected, scale = error_scale(reference, [q, k, v])
        for kernel in (attend, attend_late, attend_online, attend_binary, attend_in_torch):
            assert read(kernel(q, k, v), expected, gauge="bound", scale=scale).worst <= 2, kernel
        assert read(attend(q, k, v, ahead=1), expected, gauge="bound", scale=scale).worst >= 8
        halves = attend(q, k, v.half().float())
        assert read(halves, expected, gauge="bound", scale=scale).worst >= 8
        assert (scale / expected.abs()).median() < 300


# Sums written with +.


def add_all(terms, order):
    """Every way of writing the sum of `terms` in one chain, and with the first two pairs apart."""
    total = terms[order[0]]
    for at in order[1:]:
        total = total + terms[at]
    return total


@pytest.mark.parametrize("count", [3, 4, 5])
def test_the_order_of_a_sum_written_out_does_not_matter(count):
    torch.manual_seed(count)
    terms = [10.0 ** (3 * torch.rand(500)) * torch.randn(500).sign() for _ in range(count - 1)]
    terms.append(-sum(terms[1:], terms[0]) + torch.randn(500) * 1e-2)  # what is left is far smaller than the terms
    exact = sum(x.double() for x in terms)
    orders = list(itertools.permutations(range(count)))
    scales = []
    for order in orders[:: max(len(orders) // 24, 1)]:
        expected, scale = error_scale(lambda *terms, order=order: add_all(terms, order), terms)
        torch.testing.assert_close(expected, exact, rtol=1e-9, atol=1e-9)
        scales.append(scale)
    assert all(torch.allclose(scale, scales[0], rtol=1e-12) for scale in scales)
    sizes = sum(x.double().abs() for x in terms)
    torch.testing.assert_close(scales[0], math.log2(count + 1) * sizes)
    for order in orders:
        assert read(add_all(terms, order), exact, gauge="bound", scale=scales[0]).worst <= 1
    grouped = error_scale(lambda x, y, *rest: add_all([x, *rest], range(len(rest) + 1)) + y, terms)[1]
    torch.testing.assert_close(grouped, scales[0])
    negated = error_scale(lambda x, y, *rest: -(-x - y) + add_all(rest, range(len(rest))), terms)[1]
    torch.testing.assert_close(negated, scales[0])


def test_terms_keep_their_errors_and_two_are_one_rounding():
    x, y, z = torch.randn(3, 100).double()
    assert error_scale(lambda x, y: x + y, [x, y])[1].equal((x + y).abs() + 2.0**-126 / U32)
    scale = error_scale(lambda x, y, z: x * y + (y / 3 - z), [x, y, z])[1]
    sizes = (x * y).abs() + (y / 3).abs() + z.abs()
    torch.testing.assert_close(scale, (x * y).abs() + divisions() * (y / 3).abs() + 2 * sizes)
    # A reshaped, selected or absolute sum is one term.
    for function in (lambda x, y, z: (x + y).abs() + z, lambda x, y, z: (x + y).view(10, 10).view(100) + z):
        scale = error_scale(function, [x, y, z])[1]
        torch.testing.assert_close(scale, (x + y).abs() + function(x, y, z).abs())


def divisions():
    return error_scale(lambda x: x / 3, [torch.ones(1).double()])[1].item() * 3


def test_beyond_sixteen_terms_a_partial_sum_is_one_term():
    terms = list(torch.randn(40, 50))
    scale = error_scale(lambda *terms: add_all(terms, range(40)), terms)[1]
    sizes = sum(x.double().abs() for x in terms)
    assert bool((scale <= 8 * sizes).all())
    assert bool((scale >= sizes).all())
    output = add_all(terms, range(40))
    assert read(output, sum(x.double() for x in terms), gauge="bound", scale=scale).worst <= 1


def test_scores_closer_than_their_errors_may_change_places():
    """The second's weight vanishes in float64, and is all there is if the scores are off by a rounding each."""
    q, k = torch.tensor([[2.0**24, 1.0]]), torch.tensor([[2.0**24, 0.0], [2.0**24, 4096.0], [0.0, 1.0]])
    value, scale = error_scale(lambda q, k: torch.softmax(q @ k.T, -1), [q, k])
    assert value[0].tolist() == [0.0, 1.0, 0.0]
    # The kernel that takes the scores of the first two for equal.
    off = torch.tensor([0.5, 0.5, 0.0]).double() - value[0]
    assert (off.abs() <= 2 * U32 * scale[0])[:2].all()
    assert scale[0, 2] * U32 < 1e-30
    far, near = (torch.tensor([[size, 0.0, -1.0]]) for size in (2.0**24, 20.0))
    assert error_scale(by_keepdim, [far])[1].isfinite().all()
    assert (error_scale(by_keepdim, [near])[1][0] * U32 < 1e-6).all()


def test_shares_of_exponents_that_are_far_off_are_bounded():
    """By trying both ends of every exponent."""
    torch.manual_seed(0)
    exponents = torch.randn(40, 4).double().mul(6)
    apart = torch.rand(40, 4).double().mul(3) ** 3
    share = torch.softmax(exponents, -1)
    bound = spread_shares(share, Reach(exponents, apart, 1.0), (1,))
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=4))).double()
    reached = (torch.softmax(exponents[:, None] + signs * apart[:, None], -1) - share[:, None]).abs().amax(1)
    assert torch.allclose(bound, reached, rtol=1e-9, atol=1e-15)
