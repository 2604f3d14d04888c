"""Cases: the same bits everywhere, what the distributions promise, and ids that replay."""

from __future__ import annotations

from fractions import Fraction
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gonogo.cases import (
    DISTRIBUTIONS,
    FINITE,
    INTERPRETER,
    LAYOUTS,
    NO_LIMIT,
    Case,
    make_inputs,
    parse_case,
    plan_case,
)
from gonogo.cases.values import Stream, draw_values, round_to_bits
from gonogo.errors import InputError
from gonogo.formats import get_format
from gonogo.ops import DTYPES, find_ops, get_op

# Made once and never again: another value means that every recorded case has changed its inputs.
GOLDEN = {
    "uniform": "479b0bef8bb63039",
    "normal": "6f00e8aa471e5bd5",
    "heavy": "98c567453f74efa5",
    "cancel": "a2e9b1ef151f8b6a",
    "offset": "fc574ce8942c6760",
    "spike": "b308461e0cc2fd20",
    "integers": "b1dc3012eddcafa7",
    "nan_injected": "41983d8f02e35e67",
    "adversarial": "80189fce60ee344d",
}


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(integers[tensor.dtype.itemsize]).numpy()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_golden_bits(distribution: str) -> None:
    digest = blake2b(digest_size=8)
    for dtype in DTYPES:
        for layout in LAYOUTS:
            case = Case("layernorm", dtype, (2, 7, 129), layout, distribution, 81)
            for tensor in make_inputs(case):
                digest.update(bits_of(tensor).astype("<i8").tobytes())
    assert digest.hexdigest() == GOLDEN[distribution]


def test_golden_integers() -> None:
    """Inputs that are no values: indices, int8 weights, scales."""
    digest = blake2b(digest_size=8)
    for op, sizes in (("cross_entropy", (5, 33)), ("dequant_matmul", (3, 17, 5))):
        for tensor in make_inputs(Case(op, "float16", sizes, "contiguous", "normal", 7)):
            digest.update(bits_of(tensor).astype("<i8").tobytes())
    assert digest.hexdigest() == "ae0e012442f3b0cd"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_are_real(dtype: str, layout: str) -> None:
    laid = make_inputs(Case("softmax", dtype, (2, 3, 5), layout, "uniform", 1))[0]
    assert laid.shape == (2, 3, 5)
    if layout == "contiguous":
        assert laid.is_contiguous()
        assert laid.storage_offset() == 0
    elif layout == "transposed":
        assert laid.stride() == (15, 1, 3)
    elif layout == "strided":
        assert laid.stride() == (30, 10, 2)
        assert not torch.equal(laid, laid.as_strided(laid.shape, (15, 5, 1)))
    else:
        assert laid.is_contiguous()
        assert laid.storage_offset() == 1


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_rounds_to_nearest_even(value: float) -> None:
    found = int(round_to_bits(np.array([value], np.float32), get_format("bfloat16"))[0])
    exact = torch.tensor([value], dtype=torch.float32).to(torch.bfloat16)
    assert found == int(exact.view(torch.int16)[0]) & 0xFFFF


@pytest.mark.parametrize("dtype", DTYPES)
def test_distributions_keep_their_promise(dtype: str) -> None:
    fmt, n = get_format(dtype), 4096

    def draw(name: str) -> np.ndarray:
        bits = draw_values(name, Stream("promise"), n, fmt)
        return torch.from_numpy(bits.view(f"i{bits.itemsize}")).view(getattr(torch, dtype)).double().numpy()

    drawn = {name: draw(name) for name in DISTRIBUTIONS}
    assert all(np.isfinite(drawn[name]).all() for name in FINITE)
    assert np.abs(drawn["uniform"]).max() <= 10
    assert abs(drawn["uniform"].mean()) < 0.5
    assert abs(drawn["normal"].std() - 1) < 0.05
    assert np.abs(drawn["heavy"]).max() > 20
    pairs = drawn["cancel"].reshape(-1, 2)
    assert np.abs(pairs.sum(1)).mean() < np.abs(pairs).mean() / 50
    assert abs(abs(drawn["offset"].mean()) - 100) < 1
    assert 0.005 < (np.abs(drawn["spike"]) >= 50).mean() < 0.03
    assert set(drawn["integers"]) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert 0.02 < (~np.isfinite(drawn["nan_injected"])).mean() < 0.06
    hard = drawn["adversarial"]
    finite = np.abs(hard[np.isfinite(hard)])
    assert ((finite > 0) & (finite < fmt.smallest_normal)).any()
    assert finite.max() > fmt.largest / 2
    assert np.isnan(hard).any()
    assert np.isinf(hard).any()


def test_offset_goes_either_way() -> None:
    """A running maximum that starts at 0, or a mask that is not infinite, shows where all is far below zero."""
    for dtype in DTYPES:
        below = 0
        for number in range(64):
            bits = draw_values("offset", Stream(str(number)), 64, get_format(dtype))
            mean = torch.from_numpy(bits.view(f"i{bits.itemsize}")).view(getattr(torch, dtype)).double().mean()
            assert abs(abs(mean) - 100) < 1
            below += int(mean < 0)
        assert below == 0 if dtype == "float16" else 16 < below < 48


def test_integers_make_every_sum_exact() -> None:
    """In any order, in float32: the reason why their only right answer is the exact one."""
    bits = draw_values("integers", Stream("a"), 2049, get_format("float32"))
    a, b = bits.view(np.float32), bits[::-1].view(np.float32)
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True))
    total = np.float32(0)
    for x, y in zip(a, b, strict=True):
        total += x * y
    assert Fraction(float(total)) == exact


def test_plan_covers_and_keeps_limits() -> None:
    for op in find_ops(("softmax", "matmul", "conv2d", "cross_entropy", "causal_attention", "rope")):
        seen = set()
        for number in range(40):
            case, strategy = plan_case(
                op, "float16", number, 3, distributions=tuple(DISTRIBUTIONS), limit=INTERPRETER
            )
            assert parse_case(case.id) == case
            assert case == plan_case(
                op, "float16", number, 3, distributions=tuple(DISTRIBUTIONS), limit=INTERPRETER
            )[0]  # fmt: skip
            assert all(x.numel() <= 2**14 for x in make_inputs(case))
            seen |= {strategy, case.layout, case.distribution}
        assert {"default", "boundary", "regular", *LAYOUTS, *FINITE} <= seen
        assert ("integers" in seen) == op.sums_of_products


def test_seeds_are_different_cases() -> None:
    op = get_op("softmax")
    ids = {
        plan_case(op, dtype, number, seed, distributions=FINITE, limit=NO_LIMIT)[0].id
        for dtype in DTYPES for number in range(50) for seed in range(4)
    }  # fmt: skip
    assert len(ids) == len(DTYPES) * 50 * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("softmax", "'softmax' is no case id; one looks like softmax:f16:2x7x1025:c:uniform:81"),
        ("softmax:f64:1x1x1:c:uniform:1", "dtype 'f64' is none of f16, bf16, f32"),
        ("softmax:f16:1x1x1:z:uniform:1", "layout 'z' is none of c, t, s, o"),
        ("softmax:f16:1x1x1:c:flat:1", "distribution 'flat' is none of uniform, normal"),
        ("softmax:f16:1x1:c:uniform:1", "2 sizes for the axes B S H of softmax"),
        ("nothing:f16:1x1:c:uniform:1", "unknown op 'nothing'"),
    ],
)
def test_bad_ids(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_case(text)
    assert message in str(caught.value)
