"""Cases: the same bits everywhere, what the distributions promise, and ids that replay."""

from __future__ import annotations

from fractions import Fraction
from hashlib import blake2b
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gonogo.cases import (
    DESIGN,
    DISTRIBUTIONS,
    EVERYWHERE,
    FINITE,
    INTERPRETER,
    LAYOUTS,
    ON_CPU,
    ON_GPU,
    USUAL,
    Case,
    find_guard,
    find_usable,
    list_unrun,
    make_inputs,
    parse_case,
    plan_cases,
    stream,
)
from gonogo.cases.inputs import GUARD_BITS, far_stride, lay_out
from gonogo.cases.stream import NumpyStream
from gonogo.cases.values import draw_values, round_to_bits
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
    "zeros": "cbeda826823b710f",
    "ties": "65ddca8eb9f82dce",
    "tiny": "a2ad6f50e011e920",
    "huge": "a9714a1c3579d572",
    "exponent": "9f742a705148b157",
    "mixed": "ddae5e5eedfa0d1f",
    "rows": "54f41780bf9eaf80",
    "whole": "9cc8539ead665c63",
    "masked": "8c9b34e08b67d87a",
    "nan": "3f2c0be839ffae29",
}


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(integers[tensor.dtype.itemsize]).numpy()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_golden_bits(distribution: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr(stream, "_native", None)
    elif stream._native is None:
        pytest.skip("built without a C compiler")
    digest = blake2b(digest_size=8)
    for dtype in DTYPES:
        for layout in LAYOUTS[:4]:
            case = Case("layernorm", dtype, (2, 7, 129), layout, distribution, 81)
            for tensor in make_inputs(case):
                digest.update(bits_of(tensor).astype("<i8").tobytes())
    assert digest.hexdigest() == GOLDEN[distribution]


def test_golden_integers() -> None:
    """Inputs that are no values: indices, int8 weights, scales; with their ends where the word is a later one."""
    for distribution, golden in (("normal", "ae0e012442f3b0cd"), ("mixed", "fe5b89782f344c16")):
        digest = blake2b(digest_size=8)
        for op, sizes in (("cross_entropy", (5, 33)), ("dequant_matmul", (3, 17, 5))):
            for tensor in make_inputs(Case(op, "float16", sizes, "contiguous", distribution, 7)):
                digest.update(bits_of(tensor).astype("<i8").tobytes())
        assert digest.hexdigest() == golden
    (_, target) = make_inputs(Case("cross_entropy", "float16", (200, 33), "contiguous", "mixed", 7))
    assert {0, 32} <= set(target.tolist())
    _, weight, scale = make_inputs(Case("dequant_matmul", "float16", (3, 64, 33), "contiguous", "mixed", 7))
    assert int(weight.min()) == -128
    assert float(scale.min()) < 0 < float(scale.max())


STRIDES = {
    "contiguous": (15, 5, 1), "transposed": (15, 1, 3), "strided": (30, 10, 2), "offset": (15, 5, 1),
    "pitched": (54, 18, 1), "expanded": (0, 5, 1),
}  # fmt: skip


@pytest.mark.parametrize("layout", EVERYWHERE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts_are_real(dtype: str, layout: str) -> None:
    laid = make_inputs(Case("softmax", dtype, (2, 3, 5), layout, "uniform", 1))[0]
    plain = make_inputs(Case("softmax", dtype, (2, 3, 5), "contiguous", "uniform", 1))[0]
    assert laid.shape == (2, 3, 5)
    assert laid.stride() == STRIDES[layout]
    assert laid.storage_offset() == (layout == "offset")
    if layout in ("strided", "pitched"):  # what stands in the gaps is not what belongs there
        assert not torch.equal(laid, laid.as_strided(laid.shape, (15, 5, 1)))
    guard = find_guard(laid)
    assert guard is not None
    assert set(guard.tolist()) == {GUARD_BITS[laid.dtype.itemsize]}
    assert bool(
        laid.as_strided((64,), (1,), laid.untyped_storage().nbytes() // laid.dtype.itemsize - 64).isnan().all()
    )
    bits = np.arange(30, dtype=np.uint16)
    storage, strides, offset = lay_out(layout, (2, 3, 5), bits)
    view = np.lib.stride_tricks.as_strided(storage[offset:], (2, 3, 5), [2 * stride for stride in strides])
    assert (view == (bits.reshape(2, 3, 5) if layout != "expanded" else bits.reshape(2, 3, 5)[:1])).all()
    assert plain.is_contiguous()


def test_each_input_has_its_own_layout() -> None:
    case = parse_case("matmul:f32:3x5x4:tp:normal:1")
    assert case.layout == "transposed+pitched"
    assert parse_case(case.id) == case
    a, b = make_inputs(case)
    assert (a.stride(), b.stride()) == ((1, 3), (16, 1))


@pytest.mark.gpu
def test_far_rows_are_past_32_bits() -> None:
    for sizes, strides in (("1x3x17", (17, 2**30, 1)), ("1x1100x17", (17, 2**21, 1))):
        (far,) = make_inputs(parse_case(f"softmax:f16:{sizes}:f:normal:1"), "cuda")
        assert far.stride() == strides
        assert torch.equal(far.softmax(-1).cpu().isnan().any(), torch.tensor(False))
    (far,) = make_inputs(parse_case("rope:f16:1100x2x16:f:normal:1"), "cuda")
    assert far.stride() == (2**21, 16, 1)


@given(st.integers(3, 2**20))
def test_the_last_of_far_rows_is_past_32_bits(rows: int) -> None:
    stride = far_stride(rows)
    assert (rows - 1) * stride >= 2**31
    assert (rows - 1) * stride < 2**32
    assert stride <= 2**30


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_rounds_to_nearest_even(value: float) -> None:
    found = int(round_to_bits(np.array([value], np.float32), get_format("bfloat16"))[0])
    exact = torch.tensor([value], dtype=torch.float32).to(torch.bfloat16)
    assert found == int(exact.view(torch.int16)[0]) & 0xFFFF


@pytest.mark.parametrize("dtype", DTYPES)
def test_distributions_keep_their_promise(dtype: str) -> None:
    fmt, n = get_format(dtype), 4096

    def draw(name: str) -> np.ndarray:
        bits = draw_values(name, NumpyStream("promise"), (n // 64, 64), fmt)
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
    rows = {name: values.reshape(-1, 64) for name, values in drawn.items()}
    assert {-0.0, 0.0} == set(drawn["zeros"][drawn["zeros"] == 0])
    assert np.signbit(drawn["zeros"][drawn["zeros"] == 0]).any()
    assert 0 < (rows["zeros"] == 0).all(1).sum() < len(rows["zeros"])
    assert ((rows["ties"] == rows["ties"].max(1, keepdims=True)).sum(1) > 1).mean() > 0.9
    least = 6e-5 if dtype == "float16" else 5e-7
    assert least < np.abs(drawn["tiny"]).min() < 2 * least < 0.05 < np.abs(drawn["tiny"]).max() < 0.3
    assert (
        100 < np.abs(drawn["huge"]).min() < 300 < (1e4 if dtype == "float16" else 1e7) < np.abs(drawn["huge"]).max()
    )
    assert (drawn["exponent"] > 89).any()
    assert (drawn["exponent"] < -89).any()
    assert ((drawn["mixed"] == 0).any(), (np.abs(drawn["mixed"]) > 1000).any()) == (True, True)
    assert ((drawn["mixed"] < 0).any(), ((drawn["mixed"] != 0) & (np.abs(drawn["mixed"]) < 0.01)).any()) == (
        True,
        True,
    )
    kinds = [np.ptp(row) == 0 for row in rows["rows"]]
    assert 0.2 < np.mean(kinds) < 0.4
    assert (rows["whole"].sum(1)[::2] == 0).all()
    assert (drawn["whole"] == np.round(drawn["whole"])).all()
    assert np.isneginf(rows["masked"]).any(1).mean() > 0.9
    assert np.isfinite(rows["masked"][:, -1]).all()
    assert (np.isnan(rows["nan"]).sum(1)[::3] == 1).all()
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
            bits = draw_values("offset", NumpyStream(str(number)), (64,), get_format(dtype))
            mean = torch.from_numpy(bits.view(f"i{bits.itemsize}")).view(getattr(torch, dtype)).double().mean()
            assert abs(abs(mean) - 100) < 1
            below += int(mean < 0)
        assert below == 0 if dtype == "float16" else 16 < below < 48


def test_integers_make_every_sum_exact() -> None:
    """In any order, in float32: the reason why their only right answer is the exact one."""
    bits = draw_values("integers", NumpyStream("a"), (2049,), get_format("float32"))
    a, b = bits.view(np.float32), bits[::-1].view(np.float32)
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True))
    total = np.float32(0)
    for x, y in zip(a, b, strict=True):
        total += x * y
    assert Fraction(float(total)) == exact


@pytest.mark.parametrize("limit", [INTERPRETER, ON_CPU, ON_GPU], ids=["interpreter", "cpu", "gpu"])
@pytest.mark.parametrize("name", ["softmax", "matmul", "conv2d", "cross_entropy", "causal_attention", "rope"])
def test_a_plan_of_24_touches_each_kind(name: str, limit: object) -> None:
    op = get_op(name)
    for dtype in DTYPES:
        planned = plan_cases(op, dtype, 24, 3, distributions=USUAL, limit=limit)
        assert planned[:7] == plan_cases(op, dtype, 7, 3, distributions=USUAL, limit=limit)
        cases = [case for case, _ in planned]
        assert all(parse_case(case.id) == case for case in cases)
        assert {case.distribution for case in cases} == set(find_usable(op, USUAL))
        for position in range(len(op.inputs)):
            assert {case.layout_of(op, position) for case in cases} == set(EVERYWHERE)
        if limit is not INTERPRETER:
            assert list_unrun(op, planned) == {}
        sizes = {axis: {case.axis_sizes(op)[axis] for case in cases} for axis in op.axes}
        for axis in op.axes:
            if op.keeps_listed(axis):
                assert sizes[axis] <= set(op.sizes[axis])
            elif axis == op.main or limit is not INTERPRETER:
                assert len(sizes[axis] - set(op.sizes[axis])) >= (3 if axis == op.main else 2), (axis, sizes[axis])
        if limit is not INTERPRETER and name != "causal_attention":
            assert max(sizes["S" if name == "rope" else op.main]) >= 8192


def test_golden_plans() -> None:
    """Whoever changes what a seed plans changes these two, and DESIGN: runs are not to be completed otherwise."""
    planned = [
        case.id for op in find_ops(("softmax", "matmul", "conv2d", "rope"))
        for limit in (INTERPRETER, ON_CPU, ON_GPU)
        for case, _ in plan_cases(op, "float16", 30, 5, distributions=USUAL, limit=limit)
    ]  # fmt: skip
    assert (DESIGN, blake2b("\n".join(planned).encode(), digest_size=8).hexdigest()) == (3, "02b40bb7abdda166")


def test_long_rows_reach_65536_on_a_gpu() -> None:
    for op in find_ops(("softmax", "matmul", "rmsnorm")):
        planned = [case for d in DTYPES for case, _ in plan_cases(op, d, 24, 0, distributions=USUAL, limit=ON_GPU)]
        assert 65535 <= max(case.axis_sizes(op)[op.main] for case in planned) <= 65536


def test_a_verification_has_every_pair_of_axes_alike_and_two_axes_of_many_tiles() -> None:
    """A product's 128×128 tiles are grouped by 8 rows of them, and outnumber the multiprocessors of a GPU."""
    for op in find_ops(("softmax", "matmul", "flash_attention", "bmm")):
        planned = [case.axis_sizes(op) for d in DTYPES for case, _ in plan_cases(
            op, d, 24, 0, distributions=USUAL, limit=ON_GPU
        )]  # fmt: skip
        for one, other in combinations(op.axes, 2):
            assert any(sizes[one] == sizes[other] > 1 for sizes in planned), (op.name, one, other)
        if op.name == "matmul":
            assert any(sizes["M"] > 1024 and sizes["N"] > 128 for sizes in planned)
            assert any(sizes["M"] * sizes["N"] > 132 * 64 * 64 for sizes in planned)


def test_a_contiguous_read_of_stride_0_finds_other_values() -> None:
    """Of a vector, too, whose one value must not stand in every place that such a read looks at."""
    for shape in ((33,), (4, 9), (1, 17)):
        bits = draw_values("normal", NumpyStream("a"), shape, get_format("float32"))
        stored, strides, offset = lay_out("expanded", shape, bits)
        assert (0 in strides, offset, stored.size) == (True, 0, bits.size)
        seen = np.lib.stride_tricks.as_strided(stored, shape, [4 * stride for stride in strides])
        assert not np.array_equal(seen.reshape(-1), stored)


def test_no_two_inputs_are_expanded_along_one_sum() -> None:
    for op in find_ops(("matmul", "conv2d", "bmm")):
        for case, _ in plan_cases(op, "float16", 200, 0, distributions=USUAL, limit=ON_CPU):
            sizes, along = case.axis_sizes(op), 0
            for at, described in enumerate(op.inputs):
                axes = [axis for axis in described.axes.split() if sizes[axis] > 1]
                along += bool(axes) and axes[0] in op.reduced and case.layout_of(op, at) == "expanded"
            assert along <= 1, case.id


def test_repetitive_terms_are_kept_from_long_sums() -> None:
    op = get_op("attention")
    for case, _ in plan_cases(op, "float32", 200, 0, distributions=USUAL, limit=ON_GPU):
        keys = case.axis_sizes(op)["N"]
        assert keys <= 512 or (case.distribution not in ("ties", "rows") and case.layout_of(op, 2) != "expanded")


def test_cases_stay_within_their_cost() -> None:
    for op in find_ops(("softmax", "matmul", "conv2d", "groupnorm")):
        for case, _ in plan_cases(op, "float16", 60, 1, distributions=tuple(DISTRIBUTIONS), limit=INTERPRETER):
            assert all(x.numel() <= 2 * INTERPRETER.elements for x in make_inputs(case))


def test_seeds_are_different_cases() -> None:
    op = get_op("softmax")
    ids = {
        case.id
        for dtype in DTYPES for seed in range(4)
        for case, _ in plan_cases(op, dtype, 50, seed, distributions=FINITE, limit=ON_GPU)
    }  # fmt: skip
    assert len(ids) == len(DTYPES) * 50 * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("softmax", "'softmax' is no case id; one looks like softmax:f16:2x7x1025:c:uniform:81"),
        ("softmax:f64:1x1x1:c:uniform:1", "dtype 'f64' is none of f16, bf16, f32"),
        ("softmax:f16:1x1x1:z:uniform:1", "layout 'z' is none of c, t, s, o, p, e, f"),
        ("softmax:f16:1x1x1:c:flat:1", "distribution 'flat' is none of uniform, normal"),
        ("matmul:f16:1x1x1:ccc:uniform:1", "3 layouts for the 2 inputs of matmul; give one, or one for each"),
        ("softmax:f16:1x1:c:uniform:1", "2 sizes for the axes B S H of softmax"),
        ("nothing:f16:1x1:c:uniform:1", "unknown op 'nothing'"),
    ],
)
def test_bad_ids(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_case(text)
    assert message in str(caught.value)
