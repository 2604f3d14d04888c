"""What the error scale means for a verdict: beside kinks, where it is infinite, for sums and loads."""

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import gonogo  # noqa: E402
from gonogo.instrument.running_error import allow  # noqa: E402

F = torch.nn.functional


def make_op(name, reference, cols=(1, 3, 257), **more):
    return gonogo.Op(
        name, inputs={"x": "rows cols"}, output="rows cols", sizes={"rows": (1, 7), "cols": cols},
        reference=reference, **more,
    )  # fmt: skip


@pytest.mark.parametrize("after", [torch.relu, F.relu6, F.leaky_relu, lambda y: torch.where(y > 0, y, 0.0)])
def test_a_correct_kernel_may_be_on_the_other_side_of_a_kink(after):
    """A mean taken as a sum times 1/n lands beside that of the reference, and what is centred by it beside 0."""
    op = make_op("centred", lambda x: after(x - x.mean(-1, keepdim=True)), reduced=("cols",))

    def kernel(x):
        wide = x.float()
        return after(wide - wide.sum(-1, keepdim=True) * (1 / x.shape[-1])).to(x.dtype)

    def faulty(x):
        return kernel(x) + 1e-3 * (x == x.amax())

    assert gonogo.verify(kernel, op, cases=24).decision == "go"
    assert gonogo.verify(faulty, op, cases=24, strict=False).decision == "no-go"


@pytest.mark.parametrize(
    ("reference", "kernel"),
    [
        (lambda x: x.abs().clamp(min=1e-6).prod(-1, keepdim=True).expand(x.shape), torch.zeros_like),
        (lambda x: (x * x - x * x).abs().sum(-1, keepdim=True).expand(x.shape) ** 0.5, lambda x: x * 0 + 5),
        (lambda x: torch.acos((x / x.abs().clamp(min=1e-3)).clamp(-1.0, 1.0)), lambda x: x * 0 + 42),
    ],
)
def test_no_op_is_steep_enough_to_let_anything_pass(reference, kernel):
    assert gonogo.verify(kernel, make_op("steep", reference), cases=6, strict=False).decision == "no-go"


def test_where_no_bound_is_finite_nothing_is_judged_and_that_is_said():
    """A power between 0 and 1 of a computed 0, not known before: the slope is infinite."""
    op = make_op("power_of_nothing", lambda x: torch.pow((3 * x - 3 * x).abs(), 0.5 + 0 * x), cols=(3,))
    with pytest.raises(gonogo.errors.NothingJudged, match="no finite bound is known of what rounding does there"):
        gonogo.verify(lambda x: x * 0 + 5, op, cases=4, distributions="normal")
    # Where x is 0, so is what is made of it, exactly: that is judged, and of the rest it is said.
    found = gonogo.verify(lambda x: x * 0 + 5, op, cases=4, strict=False)
    assert found.decision == "no-go"
    assert len(found.failed) == len(found.verdicts) == 12 - len(found.unjudged) < 12
    for said in ("cases are not judged: no element can be judged", "cases some elements are not judged"):
        assert re.search(rf"\d of 12 {said}: no finite bound is known of what rounding does there", repr(found))


def test_what_a_form_loses_is_added_to_errors_before_it():
    """Also where they are no multiple of the value, as after a difference."""
    given = [torch.tensor([3.0, 6.0])]
    expected, plain = gonogo.error_scale(lambda x: x + x / 3 - 2 * x, given)
    for absolute in (5.0, torch.tensor([5.0, 5.0])):
        again, scale = gonogo.error_scale(lambda x, a=absolute: allow(x + x / 3 - 2 * x, absolute=a), given)
        assert torch.equal(again, expected)
        assert torch.allclose(scale, plain + 5, rtol=1e-12)
    _, scale = gonogo.error_scale(lambda x: allow(x + x / 3 - 2 * x, absolute=x), given)
    assert torch.allclose(scale, plain + given[0], rtol=1e-12)


def test_a_long_chain_is_within_the_deterministic_bound_of_an_op_that_names_no_sum():
    op = gonogo.Op(
        "total", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (2,), "cols": (1025, 4097)},
        reference=lambda x: x.sum(-1), only_listed=True,
    )  # fmt: skip

    def chain(x):
        return torch.from_numpy(np.add.accumulate(x.numpy().astype(np.float32), axis=-1)[:, -1]).to(x.dtype)

    assert gonogo.verify(chain, op, cases=12, dtypes=("float16", "float32")).decision == "go"


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_a_narrow_accumulator_may_round_what_it_loads(narrow):
    op = make_op("threefold", lambda x: x + x + x)

    def kernel(x):
        loaded = x.to(getattr(torch, narrow))
        return (loaded + loaded + loaded).to(x.dtype)

    kept = {"cases": 12, "dtypes": "float32", "strict": False}
    assert gonogo.verify(kernel, op, contract=narrow, **kept).decision == "go"
    assert gonogo.verify(kernel, op, **kept).decision == "no-go"


def test_a_view_is_an_output_of_an_op_that_computes_nothing():
    op = gonogo.Op(
        "turned", inputs={"x": "rows cols"}, output="cols rows", sizes={"rows": (1, 7), "cols": (1, 5)},
        reference=lambda x: x.T,
    )  # fmt: skip
    assert gonogo.verify(lambda x: x.T.contiguous(), op, cases=12).decision == "go"
    doubled = make_op("doubled", lambda x: x + x)
    found = gonogo.verify(lambda x: x.add_(x), doubled, cases=2, strict=False)
    assert found.decision == "no-go"
    assert "aliased" in repr(found)


def test_an_expected_value_past_the_range_may_be_infinite():
    assert gonogo.check(np.float16([np.inf, 1]), expected=np.array([1e6, 1.0])).decision == "go"
    assert gonogo.check(torch.tensor([-torch.inf]).half(), expected=torch.tensor([1e6])).decision == "no-go"
    assert gonogo.check(np.float16([np.inf]), expected=np.array([65519.0])).decision == "no-go"


def test_a_contract_of_the_scale_may_be_a_word():
    x = torch.tensor([1.0, 3.0])
    by_word = gonogo.error_scale(lambda x: x + x / 3, [x], contract="float16")
    by_contract = gonogo.error_scale(lambda x: x + x / 3, [x], contract=gonogo.Contract(accumulate="float16"))
    assert torch.equal(by_word[1], by_contract[1])
    with pytest.raises(gonogo.errors.UnknownWord, match="unknown contract 'flaot16'"):
        gonogo.error_scale(lambda x: x, [x], contract="flaot16")


def test_a_case_without_elements_is_not_judged():
    def draw(seed):
        return (torch.randn(0 if seed % 2 else 3),)

    found = gonogo.verify(torch.exp, reference=torch.exp, inputs=draw, cases=4, dtypes="float32")
    assert found.decision == "go"
    assert {case.why for case in found.unjudged} == {"the output has no elements"}
    assert len(found.verdicts) + len(found.unjudged) == 4
    assert 0 < len(found.verdicts) < 4
    nothing = torch.zeros(0, 3)
    with pytest.raises(gonogo.errors.NothingJudged, match="the output has no elements"):
        gonogo.verify(torch.exp, reference=torch.exp, inputs=(nothing,))
    with pytest.raises(gonogo.errors.NothingJudged, match="the output has no elements"):
        gonogo.check(nothing, reference=torch.exp, inputs=(nothing,))
    with pytest.raises(gonogo.errors.InputError, match="have no elements: nothing was judged"):
        gonogo.check(nothing, expected=nothing)
