"""Any kernel as it is: nests, dtypes, integers, writes, gradients, modules; and what is refused, and how."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from nine_kernels import NINE, NORM, Case, get_inputs, norm, norm_kernel, rand
from torch.utils.weak import WeakTensorKeyDictionary

import gonogo
from gonogo.cases import copy_guarded, find_guard, make_call, parse_case
from gonogo.cli import cli
from gonogo.errors import BadModule, InputError, NothingJudged
from gonogo.execution.judging import RANGES, Judged
from gonogo.execution.leaves import Pair
from gonogo.execution.reference import Reference
from gonogo.schema import Contract


def verify(kernel: Callable[..., Any], **told: Any) -> gonogo.Verification:
    return gonogo.verify(kernel, **{"device": "cpu", "cases": 4, "strict": False} | told)


def message(kernel: Callable[..., Any], **told: Any) -> str:
    """Of the worst failing case."""
    worst = verify(kernel, **told).worst_case
    assert worst is not None
    return worst.verdict.message


@pytest.mark.parametrize("name", NINE)
def test_nine_kernels(name: str) -> None:
    right, wrong, told = NINE[name]
    held = verify(right, cases=8, **told)
    assert held.decision == "go", held
    assert held.verdicts[0].verdict.limit_from.startswith("universal")
    failed = verify(wrong, cases=8, **told)
    assert failed.decision == "no-go", failed
    assert failed.smallest is not None
    again = verify(wrong, only=failed.smallest, **told)
    assert again.decision == "no-go", "a case is replayed by its id"


def test_as_they_are() -> None:
    """Inputs at hand: one case, in their own dtypes and layouts; what they hold is left alone."""
    x = rand(1, 130, 9).half().T
    before = x.clone()
    held = verify(norm_kernel, reference=norm, inputs=(x,))
    assert [case.case for case in held.verdicts] == ["norm:f16:-:c:drawn:0"]
    assert gonogo.check(norm_kernel(x), reference=norm, inputs=(x,)).decision == "go"
    wrong = norm_kernel(x)[0], norm_kernel(x)[1] * 1.01
    verdict = gonogo.check(wrong, reference=norm, inputs={"x": x})
    assert (verdict.decision, verdict.leaf) == ("no-go", "1")
    assert verdict.message.startswith("no-go: leaf 1 reads ")

    def writes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.zero_()
        return norm_kernel(x)

    assert "inputs-changed: x" in message(writes, reference=norm, inputs=(x,))
    assert torch.equal(x, before)


def test_a_copy_has_layout_and_guard() -> None:
    for made in (rand(1, 8, 6).T, rand(1, 64)[3:50:2], rand(1, 5, 1).expand(5, 4), torch.tensor(3.0)):
        copy = copy_guarded(made, "cpu")
        assert copy.stride() == made.stride()
        assert copy.storage_offset() == made.storage_offset()
        assert torch.equal(copy, made)
        guard = find_guard(copy)
        assert guard is not None
        assert len(guard.unique()) == 1


@dataclass
class State:
    y: torch.Tensor
    steps: int


def test_nests() -> None:
    def reference(pair: tuple[torch.Tensor, float], *, cache: dict[str, torch.Tensor]) -> Any:
        x, factor = pair
        return {"sum": (x * factor + cache["k"],), "state": State(x * x, 3), "none": None}

    def kernel(pair: tuple[torch.Tensor, float], *, cache: dict[str, torch.Tensor]) -> Any:
        x, factor = pair
        wide = x.double()
        made = (wide * factor + cache["k"].double()).to(x.dtype), (wide * wide).to(x.dtype)
        return {"state": State(made[1], 3), "sum": [made[0]], "none": None}

    def draw(seed: int, dtype: torch.dtype) -> Any:
        return {"pair": (rand(seed, 7).to(dtype), 0.3), "cache": {"k": rand(seed + 1, 7).to(dtype)}}

    assert verify(kernel, reference=reference, inputs=draw).decision == "go"

    def wrong(pair: Any, *, cache: Any) -> Any:
        made = kernel(pair, cache=cache)
        return made | {"state": State(made["state"].y, 4)}

    assert message(wrong, reference=reference, inputs=draw).startswith("no-go: unequal: leaf state.steps: ")

    def lacks(pair: Any, *, cache: Any) -> Any:
        return {"sum": kernel(pair, cache=cache)["sum"]}

    told = "gives leaves sum.0; the reference gives leaves sum.0, state.y, state.steps"
    assert told in message(lacks, reference=reference, inputs=draw)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(RANGES)), st.fractions(-300, 300), st.integers(-300, 300), st.booleans())
def test_an_integer_is_a_format(dtype: str, expected: Fraction, code: int, near: bool) -> None:
    """Distance to the rounding cell of a code, saturation included, against exact arithmetic."""
    low, high = RANGES[dtype]
    code = min(max(round(expected) + code % 3 - 1 if near else code, low), high)
    exact = Fraction(float(expected))
    distance = max(Fraction(0), abs(exact - code) - Fraction(1, 2))
    if (code == low and exact < low) or (code == high and exact > high):
        distance = Fraction(0)
    one = torch.tensor([float(expected)], dtype=torch.float64)
    stored = {"int4": torch.int8, "uint4": torch.uint8}.get(dtype) or getattr(torch, dtype)
    reference = Reference(one, torch.ones_like(one), Contract(), lambda: torch.ones_like(one), dtype=dtype)
    judged = Judged(Pair("", reference), torch.tensor([code], dtype=stored))
    assert Fraction(float(judged.find_distance())) == pytest.approx(distance, abs=1e-12)


def test_codes() -> None:
    def draw(seed: int) -> tuple[torch.Tensor]:
        return (20 * rand(seed, 40),)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return x * 10

    def round_to(low: int, high: int, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: (x * 10).round().clamp(low, high).to(dtype)

    for low, high, dtype, told in (
        (-128, 127, torch.int8, None), (0, 255, torch.uint8, None), (-8, 7, torch.int8, "int4"),
        (0, 15, torch.uint8, "uint4"), (-(2**31), 2**31 - 1, torch.int32, None),
    ):  # fmt: skip
        assert verify(round_to(low, high, dtype), reference=reference, inputs=draw, outputs=told).decision == "go"
    assert verify(round_to(-8, 7, torch.int8), reference=reference, inputs=draw).decision == "no-go"
    saturated = verify(
        lambda x: (x * 10).clamp(-448, 448).to(torch.float8_e4m3fn), reference=reference, inputs=draw
    )
    assert saturated.decision == "go"
    wrong = verify(lambda x: (x * 10.9).clamp(-448, 448).to(torch.float8_e4m3fn), reference=reference, inputs=draw)
    assert wrong.decision == "no-go"


def test_integers_are_equal_but_where_the_reference_is_in_doubt() -> None:
    def draw(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        x = rand(seed, 50, 16).to(dtype)
        return x, torch.cat([x[:, :8], x[:, :8]], 1)  # columns that are equal in pairs

    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.mT @ y).argmax(-1)

    def kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        flipped = (x.double().mT @ y.double()).flip(-1)
        return 15 - flipped.argmax(-1)  # of two equal sums the last

    assert verify(kernel, reference=reference, inputs=draw).decision == "go"
    off = verify(lambda x, y: (kernel(x, y) + 1) % 16, reference=reference, inputs=draw)
    assert off.decision == "no-go"

    def codes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x / y.abs().amax()).mul(100).round().to(torch.int8)

    def near(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.float() * (1 / y.float().abs().amax())).mul(100).round().to(torch.int8)

    assert verify(near, reference=codes, inputs=draw).decision == "go"
    assert verify(lambda x, y: near(x, y) + 1, reference=codes, inputs=draw).decision == "no-go"


def test_outputs_that_are_handed_over() -> None:
    def whole(x: torch.Tensor, y: torch.Tensor, rstd: torch.Tensor) -> None:
        for out, made in zip((y, rstd), norm_kernel(x), strict=True):
            out.copy_(made)

    def but_one(x: torch.Tensor, y: torch.Tensor, rstd: torch.Tensor) -> None:
        made = norm_kernel(x)
        y.copy_(made[0])
        rstd[1:].copy_(made[1][1:])

    assert verify(whole, outputs="last", **NORM).decision == "go"
    assert message(but_one, outputs="last", **NORM) == "no-go: unwritten: leaf 1: 1 of 9 elements"

    for byte in (0x5A, 0xA5 - 256, 0):  # what an output is filled with may well be what belongs there
        told = {"reference": lambda n, byte=byte: n * 0 + byte, "inputs": (torch.arange(9, dtype=torch.int8),)}
        assert verify(lambda n, out, byte=byte: out.fill_(byte), outputs="last", **told).decision == "go"

    def signs(x: torch.Tensor, *, out: torch.Tensor) -> None:
        out[:-1].copy_((x > 0)[:-1])

    told = message(signs, reference=lambda x: x > 0, inputs=NORM["inputs"], outputs="out")
    assert told == "no-go: unwritten: 130 of 1170 elements"


def test_gradients() -> None:
    x, w = rand(1, 9, 13), rand(2, 13)

    def reference(x: torch.Tensor, w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * w) * at

    told: dict[str, Any] = {"reference": reference, "inputs": (x, w, torch.arange(13))}
    assert verify(reference, grads=True, **told).decision == "go"
    held = verify(reference, grads=("w",), **told)
    assert [leaf.path for leaf in held.verdicts[0].record.leaves] == ["output", "grad.w"]

    def stops(x: torch.Tensor, w: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * w.detach()) * at

    assert "leaf grad.w reads" in message(stops, grads=True, **told)
    for names, problem in (
        (("at",), "grads: at is not floating point, and has no gradient"),
        (("v",), "grads: 'v' is none of the arguments; they are x, w, at"),
    ):
        with pytest.raises(InputError, match=problem):
            verify(reference, grads=names, **told)


def test_a_table_that_a_module_alone_has() -> None:
    class Table(torch.nn.Linear):
        def __init__(self, factor: float) -> None:
            super().__init__(64, 3)
            self.register_buffer("table", torch.full((3,), factor), persistent=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.table

    for factor, decision in ((1.0, "go"), (1.01, "no-go")):
        told = {"reference": torch.nn.Linear(64, 3), "inputs": get_inputs, "device": "cpu", "strict": False}
        assert gonogo.verify(Table(factor), **told).decision == decision


def test_modules() -> None:
    class Batch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.norm(x)
            return made

    reference, kernel = Batch().eval(), Batch().eval()
    reference.norm.running_mean.copy_(rand(1, 64))
    assert verify(kernel, reference=reference, inputs=get_inputs).decision == "go"
    assert not torch.equal(kernel.norm.running_mean, reference.norm.running_mean), "the user's own is left alone"
    held = verify(kernel, reference=reference, inputs=get_inputs, grads=True)
    assert held.decision == "go"
    with pytest.raises(BadModule, match="the kernel has weight, bias, which the reference has not; of its norm"):
        verify(torch.nn.Linear(64, 3), reference=reference, inputs=get_inputs)
    with pytest.raises(BadModule, match=re.escape("weight is (2, 64) in the kernel and (3, 64) in the reference")):
        verify(torch.nn.Linear(64, 2), reference=torch.nn.Linear(64, 3), inputs=get_inputs)


@pytest.mark.parametrize(("detached", "decision"), [(False, "go"), (True, "no-go")])
def test_gradients_of_a_module_that_writes_to_its_buffers(detached: bool, decision: str) -> None:
    """Batch norm in training counts its calls, and its gradient goes through mean and variance."""

    class Normalised(torch.nn.BatchNorm1d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean = x.mean(0).detach() if detached else x.mean(0)
            return (x - mean) * torch.rsqrt(x.var(0, unbiased=False) + self.eps) * self.weight + self.bias

    reference = torch.nn.BatchNorm1d(16)
    found = gonogo.verify(
        Normalised(16), reference=reference, inputs=lambda: [torch.randn(33, 16)], grads=True, device="cpu",
        cases=2, strict=False,
    )  # fmt: skip
    assert found.decision == decision
    assert int(reference.num_batches_tracked) == 0


def draw_matrix(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor]:
    return (torch.randn(3, 50, generator=torch.Generator().manual_seed(seed)).to(dtype),)


@pytest.mark.parametrize(
    "what",
    [{"op": "softmax"}, {"reference": lambda x: torch.softmax(x, -1), "inputs": draw_matrix}],
    ids=["op", "draw"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kernel_that_keeps_its_output_by_shape(what: dict[str, Any], dtype: str) -> None:
    """It is right wherever a shape does not come again, as in most cases."""
    kept: dict[Any, torch.Tensor] = {}

    def remember(x: torch.Tensor) -> torch.Tensor:
        made = torch.softmax(x, -1)
        return kept.setdefault((x.shape, x.dtype), made).clone() if x.dtype == getattr(torch, dtype) else made

    found = gonogo.verify(remember, **what, device="cpu", cases=8, strict=False)
    assert found.decision == "no-go"
    assert {case.record.dtype for case in found.failed} == {dtype}
    if "op" in what:  # whose shapes do not come again
        assert "on no other: it may keep something by shape, address or tensor" in found.notes[-1]


@pytest.mark.parametrize(
    "name_of",
    [torch.Tensor.data_ptr, id, lambda x: (x.data_ptr(), x._version), lambda x: (x.shape, x.dtype, x._version)],
    ids=["address", "tensor", "address and version", "shape and version"],
)
def test_a_weight_that_is_packed_once_for_its_memory(name_of: Callable[[torch.Tensor], Any]) -> None:
    """Whoever writes to a weight, or lets go of one for another, gets products with the old one."""
    packed: dict[Any, torch.Tensor] = {}

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        weight = packed.setdefault(name_of(b), b.clone())
        return a @ (weight if weight.shape == b.shape else b)

    assert gonogo.verify(multiply, "matmul", cases=6, device="cpu", strict=False).decision == "no-go"


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("fault", ["raises", "sets a switch", "is wrong"])
def test_what_a_kernel_does_in_one_of_its_first_calls_alone(number: int, fault: str) -> None:
    """Lazy set-up is there; and on the CPU a small case is run before those that are asked for."""
    calls = 0

    def softmax(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls != number:
            return torch.softmax(x, -1)
        if fault == "raises":
            raise RuntimeError("not yet")
        if fault == "sets a switch":
            torch.set_default_dtype(torch.float64)
            return torch.softmax(x, -1)
        return torch.softmax(x, -1) * 2

    found = gonogo.verify(softmax, "softmax", cases=3, device="cpu", strict=False)
    assert found.decision == ("go" if fault == "is wrong" and number < 3 else "no-go")  # of calls that go before
    assert torch.get_default_dtype() is torch.float32


def test_an_argument_that_is_kept_by_shape() -> None:
    """As a static input of a graph is, into which nobody copies."""
    kept: dict[Any, torch.Tensor] = {}

    def replay(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(kept.setdefault((x.shape, x.stride(), x.dtype), x), -1)

    assert gonogo.verify(replay, "softmax", cases=6, device="cpu", strict=False).decision == "no-go"


@pytest.mark.parametrize("how", ["by a weak reference", "held", "held by its memory"])
def test_a_weight_that_is_packed_once_for_each_of_its_versions(how: str) -> None:
    """No other has its memory as long as it is held."""
    weak, packed = WeakTensorKeyDictionary(), {}

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if how != "by a weak reference":
            key = b.data_ptr(), b._version, b.shape, b.stride(), b.dtype
            held = b if how == "held" else b.untyped_storage()
            return a @ packed.setdefault(key, (held, b.clone()))[1]
        if b not in weak or weak[b][0] != b._version:
            weak[b] = b._version, b.clone()
        return a @ weak[b][1]

    assert gonogo.verify(multiply, "matmul", cases=6, device="cpu", strict=False).decision == "go"


def draw_repeated(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, wide = (torch.randn(4, size, generator=torch.Generator().manual_seed(seed)) for size in (128, 10**6))
    return x, wide[:, :1].expand(4, 128)


def test_an_argument_that_is_a_repeated_column_of_a_wide_matrix() -> None:
    found = gonogo.verify(torch.add, reference=lambda x, y: x + y, inputs=draw_repeated, device="cpu", cases=3)
    assert found.decision == "go"


def cut_short(x: torch.Tensor) -> torch.Tensor:
    x.untyped_storage().resize_(0)
    raise ValueError("mine")


def move_away(x: torch.Tensor) -> torch.Tensor:
    x.data = x.data.contiguous().clone()
    return torch.softmax(x, -1)


def let_go(x: torch.Tensor) -> torch.Tensor:
    made = torch.softmax(x, -1)
    x.untyped_storage().resize_(0)
    return made


def turn_round(x: torch.Tensor) -> torch.Tensor:
    made = torch.softmax(x, -1)
    x.unsqueeze_(0)
    return made


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (cut_short, "raised: ValueError: mine"),
        (move_away, "inputs-changed: input"),
        (let_go, "inputs-changed: input"),
        (turn_round, "inputs-changed: input"),
    ],
    ids=["cut short", "moved", "let go", "turned round"],
)
def test_what_a_kernel_does_to_an_argument_is_told_as_its_own(kernel: Any, told: str) -> None:
    """On the first cases, which it is called on with other values, and on the rest."""
    found = gonogo.verify(kernel, "softmax", dtypes="float32", cases=4, device="cpu", strict=False)
    assert not any("on no other" in note for note in found.notes)
    whys = {f"{case.record.outcome}: {case.record.detail}" for case in found.failed}
    assert len(found.failed) == 4
    assert all(why.startswith(told) for why in whys), whys


def test_given_arguments_are_the_only_ones() -> None:
    seen = []

    def remember(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        return torch.softmax(x, -1)

    x = torch.randn(3, 50)
    assert gonogo.verify(remember, reference=lambda x: torch.softmax(x, -1), inputs=(x,)).decision == "go"
    assert len(seen) == 2
    assert all(torch.equal(one, x) for one in seen)


def test_axes() -> None:
    """Fillings, own dtypes, derived axes and restricted layouts, as they come to the kernel."""
    seen: list[dict[str, Any]] = []

    def reference(x: Any, w: Any, mask: Any, at: Any, scale: Any, p: Any, eps: float, mode: str) -> torch.Tensor:
        return torch.where(mask, (x * scale + eps) @ w, p)[:, at]

    def kernel(*args: Any) -> torch.Tensor:
        seen.append(dict(zip(["x", "w", "mask", "at", "scale", "p", "eps", "mode"], args, strict=True)))
        return reference(*(one.double() if torch.is_tensor(one) and one.is_floating_point() else one
                           for one in args)).to(torch.float32)  # fmt: skip

    op = gonogo.Op(
        "masked",
        reference=reference,
        inputs={
            "x": "rows D",
            "w": gonogo.Arg("D cols", dtype="float32", layouts=("transposed",)),
            "mask": gonogo.Arg("rows cols", dtype="bool"),
            "at": gonogo.Arg("picked", below="cols"),
            "scale": gonogo.Arg("", fill="positive", dtype=torch.float64),
            "p": gonogo.Arg("rows cols", fill="probability"),
            "eps": 1e-3,
            "mode": gonogo.Arg("rows", dtype="int32", low=1, high="cols"),
        },
        sizes={"rows": (3, 8), "P": (2, 5), "D": "2*P + 1", "cols": (4, 9), "picked": (1, 6)},
        outputs="float32",
    )
    held = gonogo.verify(kernel, op, device="cpu", cases=8)
    assert held.decision == "go"
    for one in seen:
        sizes = {name: value.shape for name, value in one.items() if torch.is_tensor(value)}
        assert sizes["x"][1] == sizes["w"][0]
        assert sizes["x"][1] % 2 == 1
        assert one["w"].dtype == torch.float32
        assert min(one["w"].shape) < 2 or one["w"].stride(0) == 1
        assert one["mask"].dtype == torch.bool
        assert 0 <= int(one["at"].min()) <= int(one["at"].max()) < sizes["w"][1]
        assert one["scale"].dtype == torch.float64
        assert bool(one["scale"] > 0)
        assert 0 <= float(one["p"].min()) <= float(one["p"].max()) <= 1
        assert one["eps"] == 1e-3
        assert 1 <= int(one["mode"].min()) <= int(one["mode"].max()) <= sizes["w"][1]
    case = held.verdicts[3].case
    first, again = (dict(make_call(parse_case(case, op), "cpu", op).tensors) for _ in range(2))
    assert all(torch.equal(first[path], again[path]) for path in first)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "draws nothing": ({"inputs": lambda seed, dtype: None}, "inputs: NoneType is no set of arguments"),
    "draws otherwise": (
        {"inputs": lambda seed, dtype: (torch.empty(3).uniform_(generator=FREE),)}, "draws other values of x when"
    ),
    "raises": ({"inputs": lambda seed, dtype: 1 / 0}, r"<lambda>\(seed=0, dtype=torch.float16\) raised ZeroDiv"),
    "too many": ({"inputs": lambda seed, dtype: (rand(1, 3), rand(2, 3))}, "the reference norm does not take them"),
    "unknown name": ({"inputs": {"y": rand(1, 3)}}, "the reference norm does not take them: missing a required"),
    "complex": ({"inputs": (torch.ones(3, dtype=torch.complex64),)}, "argument x is of dtype complex64"),
    "sparse": ({"inputs": (torch.eye(3).to_sparse(),)}, "argument x is a tensor of layout sparse_coo"),
    "meta": ({"inputs": (torch.empty(3, device="meta"),)}, "argument x is a tensor on device meta"),
    "mutates": ({"inputs": (rand(1, 3),), "mutates": "z"}, "mutates: 'z' is none of the arguments; they are x"),
    "grads": ({"inputs": (rand(1, 3),), "grads": ("xx",)}, "grads: 'xx' is none of the arguments"),
    "outputs": ({"inputs": (rand(1, 3),), "outputs": (3,)}, "outputs 0 is 3; give a dtype, gonogo.Index"),
    "no names": ({"inputs": (rand(1, 3),), "mutates": 3}, r"mutates is 3; give names, as in mutates=\('q', 'k'\)"),
    "both": ({"inputs": (rand(1, 3),), "mutates": "x", "grads": True}, "x is in mutates and in grads"),
    "no such output": ({"inputs": (rand(1, 3),), "outputs": "lats"}, "outputs='lats' is no dtype, and kernel"),
    "no such leaf": ({"inputs": (rand(1, 3),), "outputs": {"y": "int8"}}, "'y' is no leaf of what the reference"),
    "no such index": (
        {"inputs": (rand(1, 3),), "outputs": (gonogo.Index(of="y"), None)}, "names no leaf and none of the arg"
    ),
    "whole gradients": ({"inputs": (torch.arange(3),), "grads": True}, "grads: no argument is floating point"),
    "no inputs": ({}, "no inputs; give arguments, a generator"),
}  # fmt: skip
FREE = torch.Generator()


@pytest.mark.parametrize("mistake", BAD)
def test_mistakes(mistake: str) -> None:
    told, problem = BAD[mistake]
    with pytest.raises(InputError, match=problem) as caught:
        verify(norm_kernel, reference=norm, **told)
    assert "\n" not in str(caught.value)


def test_a_kernel_that_takes_other_arguments() -> None:
    with pytest.raises(InputError, match="kernel <lambda> does not take the inputs: too many positional"):
        verify(lambda: None, reference=norm, inputs=(rand(1, 3),))
    with pytest.raises(InputError, match=r"inputs= goes with reference=; of an op, say it in gonogo\.Op"):
        verify(norm_kernel, op="softmax", inputs=(rand(1, 3),))
    with pytest.raises(InputError, match="verify needs an op, or reference= and inputs="):
        verify(norm_kernel)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda x: x.to_sparse(), "no-output: returned a tensor of layout sparse_coo"),
        (lambda x: torch.empty_like(x, device="meta"), "no-output: returned a tensor on device meta"),
        (lambda x: x.as_subclass(type("Lazy", (torch.Tensor,), {})), "returned a Lazy, a subclass of torch.Tensor"),
        (lambda x: "text", "wrong-structure: gives nothing; the reference gives one tensor"),
        (lambda x: x.double(), "wrong-dtype: float64, not float32"),
        (lambda x: x[1:], "wrong-shape: (2,), not (3,)"),
    ],
)
def test_outputs_that_cannot_be_measured(made: Callable[[torch.Tensor], Any], told: str) -> None:
    assert told in message(made, reference=lambda x: x * 1, inputs=(rand(1, 3),))


def add_(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x.copy_(x.float() + b.float())


def twice_and_sum_(x: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    twice = (x.float() * 2).to(x.dtype)
    return twice, add_(x, b)


def draw_pair(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return rand(seed, 5, 7).to(dtype), rand(seed + 1, 5, 7)


@pytest.mark.parametrize(
    ("kernel", "reference", "mutates"),
    [
        (add_, lambda x, b: x + b, "x"),
        (add_, lambda x, b: (x + b, x + b), "x"),
        (lambda x, b: (add_(x, b)[:],), lambda x, b: x + b, "x"),
        (lambda x, b: (add_(x, b), None)[1], lambda x, b: x + b, "x"),
        (twice_and_sum_, lambda x, b: (x * 2, x + b), "x"),
        (lambda x, b: (add_(x, b), b.mul_(2))[0], lambda x, b: (x + b, b * 2), ("x", "b")),
        (lambda x, b: {"sum": twice_and_sum_(x, b)[0]}, lambda x, b: {"sum": x * 2, "x": x + b}, "x"),
    ],
)
def test_what_is_written_may_be_returned_too(kernel: Any, reference: Any, mutates: Any) -> None:
    """In the dtype that the argument has, whatever it is promoted to."""
    told: dict[str, Any] = {"reference": reference, "inputs": draw_pair, "mutates": mutates}
    held = verify(kernel, **told)
    assert held.decision == "go", held
    assert verify(lambda x, b: kernel(x, b * 1.01), **told).decision == "no-go"


def test_whole_numbers_are_added_without_rounding() -> None:
    def reference(x: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        return (torch.round(x / 0.25) * 2 + zero - 3).clamp(0, 255).to(torch.uint8)

    def draw(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        return (10 * rand(seed, 300)).to(dtype), torch.tensor(103.0)

    def kernel(x: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        return (torch.round(x.float() * 4) * 2 + zero - 3).clamp(0, 255).to(torch.uint8)

    assert verify(kernel, reference=reference, inputs=draw).decision == "go"
    for off in (1, -1):
        wrong = verify(lambda x, zero, off=off: kernel(x, zero + off), reference=reference, inputs=draw)
        assert wrong.decision == "no-go"


def test_a_cast_at_the_end_is_the_output_s_own() -> None:
    told: dict[str, Any] = {"reference": lambda x: (x * 1.5).to(torch.bfloat16), "inputs": NORM["inputs"]}
    held = verify(lambda x: (x.double() * 1.5).to(torch.bfloat16), **told)
    assert (held.decision, held.notes) == ("go", ())
    twice = verify(lambda x: (x.double() * 1.5).to(torch.float8_e4m3fn).to(torch.bfloat16), **told)
    assert twice.decision == "no-go"
    assert "wrong-dtype: float16, not bfloat16" in message(lambda x: (x * 1.5).half(), **told)


def test_a_module_keeps_its_parameters() -> None:
    class Spoils(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  torch's own name for it
            made = super().forward(input)
            self.weight.data.mul_(1.5)
            return made

    told = message(Spoils(64, 3), reference=torch.nn.Linear(64, 3), inputs=get_inputs)
    assert told == "no-go: inputs-changed: weight"


def test_outputs_are_declared_by_place_or_name() -> None:
    @dataclass
    class Sorted:
        values: Any
        order: Any

    def reference(x: torch.Tensor) -> Sorted:
        return Sorted(*torch.sort(x, descending=True))

    def kernel(x: torch.Tensor) -> Sorted:
        order = x.shape[-1] - 1 - torch.argsort(-x.flip(-1), dim=-1, stable=True)  # of equal ones the last
        return Sorted(x.gather(-1, order), order)

    index = gonogo.Index(of="x", unique=True)
    for outputs in ((None, index), {"order": index}, Sorted(None, index)):
        told: dict[str, Any] = {"reference": reference, "inputs": NINE["top-k"][2]["inputs"], "outputs": outputs}
        assert verify(kernel, **told).decision == "go", outputs
    assert verify(kernel, **told | {"outputs": None}).decision == "no-go"


def test_float64_is_held_to_float64() -> None:
    x = rand(1, 9, 300).double()
    told: dict[str, Any] = {"reference": lambda x: torch.softmax(x, -1), "inputs": (x,)}
    assert verify(lambda x: torch.softmax(x, -1), **told).contract == "float64"
    assert verify(lambda x: torch.softmax(x.float(), -1).double(), **told).decision == "no-go"


def test_a_leaf_of_which_nothing_is_known_is_told() -> None:
    """Its terms cancel: rounding alone may be larger than what is left, so that zeros pass."""

    def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        large = 1e9 * (1 + x.exp()).sum(-1)
        return x * 2, (large + x.sum(-1)) - large

    told: dict[str, Any] = {"reference": reference, "inputs": (rand(1, 5, 40),)}
    held = verify(lambda x: (x * 2, 0 * x.sum(-1)), **told)
    assert held.decision == "go"
    (note,) = held.notes
    assert note.startswith("leaf 1 is not judged: blind")
    assert verify(lambda x: (x * 2.01, 0 * x.sum(-1)), **told).decision == "no-go"


def test_views_that_are_negated_lazily() -> None:
    x = torch._neg_view(rand(1, 8))
    assert verify(lambda x: torch._neg_view(x * -2), reference=lambda x: x * 2, inputs=(x,)).decision == "go"
    assert verify(lambda x: torch._neg_view(x * 2), reference=lambda x: x * 2, inputs=(x,)).decision == "no-go"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(
        "import torch, gonogo\n"
        "def norm(x):\n    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)\n    return x * r, r\n"
        "def draw(seed, dtype):\n"
        "    return torch.randn(9, 40, generator=torch.Generator().manual_seed(seed)).to(dtype),\n"
        "SIZES = {'rows': (1, 7), 'cols': (9, 64)}\n"
        "NORM = gonogo.Op('rms', reference=norm, inputs={'x': 'rows cols'}, sizes=SIZES)\n"
    )
    (tmp_path / "kernel.py").write_text(
        "import torch\n"
        "def right(x):\n    f = x.float()\n    r = torch.rsqrt((f * f).mean(-1, keepdim=True) + 1e-6)\n"
        "    return (f * r).to(x.dtype), r.to(x.dtype)\n"
        "def wrong(x):\n    y, r = right(x)\n    return y, r * 1.02\n"
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NORM", "norm"])
def test_a_file_and_an_op_of_ones_own(files: Path, name: str) -> None:
    words = ["--op-file", f"{files / 'ops.py'}:{name}", "--cases", "3", "--dtypes", "float32", "--device", "cpu"]
    held = CliRunner().invoke(cli, ["check", f"{files / 'kernel.py'}:right", *words], catch_exceptions=False)
    assert held.exit_code == 0, held.output
    failed = CliRunner().invoke(cli, ["check", f"{files / 'kernel.py'}:wrong", *words], catch_exceptions=False)
    assert failed.exit_code == 1
    assert "leaf 1 reads" in failed.output
    replay = next(line for line in failed.output.splitlines() if "replay" in line)
    again = CliRunner().invoke(cli, replay.split()[2:], catch_exceptions=False)
    assert again.exit_code == 1
    assert "1 of 1 cases failed" in again.output


def test_files_without_an_op(files: Path) -> None:
    for words, told in (
        ([], "name the op that it implements: --op OP, or one of your own by --op-file"),
        (["--op-file", f"{files / 'ops.py'}:NORMS"], "has no 'NORMS'. Did you mean NORM"),
        (["--op-file", f"{files / 'no.py'}"], "there is no file"),
        (["--op-file", f"{files / 'kernel.py'}"], "has no gonogo.Op and no function 'reference'"),
    ):
        done = CliRunner().invoke(cli, ["check", f"{files / 'kernel.py'}:right", *words])
        assert done.exit_code != 0
        assert told in str(done.exception) + done.output


def near_ties(seed: int) -> tuple[torch.Tensor]:
    return ((torch.arange(200) - 99.5) / 3.3,)


def one_near_tie(seed: int) -> tuple[torch.Tensor]:
    x = rand(seed, 64, 10)
    x[0, 1:3] = x[0].max()
    return (x,)


def square(seed: int) -> tuple[torch.Tensor]:
    return (rand(seed, 16, 16),)


def rows(batch: int = 4, seed: int = 0) -> tuple[torch.Tensor]:
    return (rand(seed, batch, 3),)


class Names(dict[str, Any]):
    __getattr__ = dict.__getitem__


def codes(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x * 3.3).clamp(-128, 127).to(torch.int8)


def half_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """0·inf in the error: the reference runs a second time, guarded."""
    mask = torch.where(torch.arange(16) < 8, 0.0, -math.inf)
    return torch.sigmoid((x @ x.T + mask) * 0.3).to(torch.float16)


def none_below(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.amax(-1) > 1.5, x.argmax(-1), -1)


def route(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of most rows all but one probability are next to 0."""
    weights, experts = torch.softmax(x, -1).topk(3)
    return weights, experts.to(torch.int32)


SUBTLE: dict[str, tuple[Any, Any, Case]] = {
    "a wrong code near a tie is wrong": (
        lambda x: codes(x.double()), lambda x: codes(x) + 20, {"reference": codes, "inputs": near_ties}
    ),
    "a tie in one row excuses no other": (
        lambda x: (x * 2, (x.exp() * 1).argmax(-1).to(torch.int32)),
        lambda x: (x * 2, torch.zeros(64, dtype=torch.int32)),
        {"reference": lambda x: (x * 2, (x.exp() * 1).argmax(-1).to(torch.int32)), "inputs": one_near_tie},
    ),
    "the last cast of a guarded run": (
        half_sigmoid, lambda x: (half_sigmoid(x).double() * (1 + 2**-6)).half(),
        {"reference": half_sigmoid, "inputs": square},
    ),
    "a view of the last cast": (
        lambda x: (x * 1.3).half().T, lambda x: (x * 1.3 * (1 + 2**-7)).half().T,
        {"reference": lambda x: (x * 1.3).to(torch.float16).transpose(0, 1), "inputs": square},
    ),
    "a leaf of each dtype where the reference takes no two": (
        lambda x, w: (x.float() @ w, x > 0), lambda x, w: (x.float() @ w, x >= -0.1),
        {"reference": lambda x, w: (x @ w, x > 0),
         "inputs": lambda seed: (rand(seed, 9, 6).bfloat16(), rand(seed, 6, 4))},
    ),
    "gradients in the dtypes of their arguments": (
        lambda x, w: x.float() @ w, lambda x, w: x.float() @ w.detach() + 0 * w.sum(),
        {"reference": lambda x, w: x @ w, "grads": True,
         "inputs": lambda seed: (rand(seed, 9, 6).half(), rand(seed, 6, 4))},
    ),
    "gradients of an output of a declared dtype": (
        lambda x: x.float().exp(), lambda x: (x.float() * 1.001).exp(),
        {"reference": lambda x: x.exp(), "inputs": lambda seed: (rand(seed, 50).half(),), "outputs": "float32",
         "grads": True},
    ),
    "a generator is given its arguments by name": (
        lambda x: x * 2, lambda x: x * 2.01, {"reference": lambda x: x * 2, "inputs": rows}
    ),
    "a word for no index": (
        none_below, lambda x: none_below(x).clamp(min=0),
        {"reference": none_below, "inputs": square, "outputs": gonogo.Index(of="x")},
    ),
    "an index of computed values that are tied": (
        route, lambda x: (route(x)[0], route(x)[1].flip(-1)),
        {"reference": route, "outputs": (None, gonogo.Index(of="x", unique=True)),
         "inputs": lambda seed: (rand(seed, 40, 60) * 300,)},
    ),
    "a view of what is written": (
        lambda c, x: (c[2:5].copy_(x), c[:8])[1], lambda c, x: (c[2:5].copy_(x), c[1:9])[1],
        {"reference": lambda c, x: (torch.cat([c[:2], x, c[5:]])[:8], torch.cat([c[:2], x, c[5:]])), "mutates": "c",
         "inputs": lambda seed: (rand(seed, 12, 3), rand(seed + 1, 3, 3))},
    ),
    "what is written, by its name": (
        lambda c, x: (c.add_(1), {"y": x * 2})[1], lambda c, x: (c.add_(2), {"y": x * 2})[1],
        {"reference": lambda c, x: {"c": c + 1, "y": x * 2}, "mutates": "c",
         "inputs": lambda seed: (rand(seed, 12, 3), rand(seed + 1, 3, 3))},
    ),
    "lists and words by name": (
        lambda xs, mode: xs[0] + xs[1], lambda xs, mode: xs[0] - xs[1],
        {"reference": lambda xs, mode: xs[0] + xs[1], "inputs": {"xs": [rand(1, 4), rand(2, 4)], "mode": "sum"}},
    ),
    "a mapping of one's own": (
        lambda names: names.x * names.d, lambda names: names.x,
        {"reference": lambda names: names.x * names.d, "inputs": {"names": Names(x=rand(1, 4), d=2)}},
    ),
    "a text among the leaves": (
        lambda x: {"y": x * 2, "kind": "a"}, lambda x: {"y": x * 3, "kind": "a"},
        {"reference": lambda x: {"y": x * 2, "kind": "a"}, "inputs": (rand(1, 4),)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUBTLE)
def test_subtle(name: str) -> None:
    right, wrong, told = SUBTLE[name]
    held = verify(right, **told)
    assert held.decision == "go", held
    assert verify(wrong, **told).decision == "no-go"


def test_a_module_is_taken_as_it_is_now() -> None:
    reference, kernel = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    told: dict[str, Any] = {"reference": reference, "inputs": (rand(1, 4, 5),)}
    assert verify(kernel, **told).decision == "go"
    with torch.no_grad():
        reference.weight.mul_(2)
    assert verify(kernel, **told).decision == "go"
    half = {"reference": reference.half(), "inputs": (rand(1, 4, 5).half(),)}
    assert verify(kernel.half(), **told | half).decision == "go"


def test_a_reference_may_count_in_its_integers() -> None:
    numbers = torch.arange(1, 9)

    def reference(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        n.add_(1)
        return x * n[:, None]

    x = rand(1, 8, 3)
    assert gonogo.check(x * (numbers[:, None] + 1), reference=reference, inputs=(x, numbers)).decision == "go"
    assert verify(lambda x, n: x * (n + 1)[:, None], reference=reference, inputs=(x, numbers)).decision == "go"
    assert numbers.tolist() == list(range(1, 9))


def test_codes_that_zeros_would_pass_for_say_nothing() -> None:
    with pytest.raises(NothingJudged, match="blind"):
        verify(
            lambda x: torch.zeros(x.shape, dtype=torch.int64), reference=lambda x: torch.softmax(x, -1),
            inputs=(rand(1, 4, 160),),
        )  # fmt: skip


@pytest.mark.parametrize("size", ["64", "2*", "a//0", "a-8", "c*2"])
def test_sizes_that_are_none(size: str) -> None:
    with pytest.raises(InputError, match=r"as in|is none, with|no sizes for axis"):
        gonogo.Op("o", inputs={"x": "a b"}, sizes={"a": (2, 3), "b": size}, reference=lambda x: x)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NINE)
def test_nine_kernels_on_a_gpu(name: str) -> None:
    right, wrong, told = NINE[name]
    assert verify(right, device="cuda", cases=8, **told).decision == "go"
    assert verify(wrong, device="cuda", cases=8, **told).decision == "no-go"


@pytest.mark.gpu
def test_outputs_of_a_triton_kernel() -> None:
    """Handed over behind the arguments; a program too few leaves a row unwritten."""
    triton = pytest.importorskip("triton")
    import triton.language as tl

    @triton.jit
    def normalize(x, y, rstd, n, width: tl.constexpr):  # type: ignore[no-untyped-def]
        row, columns = tl.program_id(0), tl.arange(0, width)
        values = tl.load(x + row * n + columns, mask=columns < n, other=0.0).to(tl.float32)
        factor = 1 / tl.sqrt(tl.sum(values * values) / n + 1e-6)
        tl.store(y + row * n + columns, (values * factor).to(y.dtype.element_ty), mask=columns < n)
        tl.store(rstd + row, factor.to(rstd.dtype.element_ty))

    def launch(rows: int) -> Callable[..., None]:
        def kernel(x: torch.Tensor, y: torch.Tensor, rstd: torch.Tensor) -> None:
            normalize[(x.shape[0] - rows,)](x, y, rstd, x.shape[1], triton.next_power_of_2(x.shape[1]))

        return kernel

    assert verify(launch(0), device="cuda", outputs="last", **NORM).decision == "go"
    assert "unwritten: leaf 0: 130 of 1170" in message(launch(1), device="cuda", outputs="last", **NORM)


def test_bytes_are_drawn_over_their_whole_range() -> None:
    """Of 0 and 1 alone, a kernel that takes int8 for uint8 would be go."""
    inputs = {"w": gonogo.Arg("rows cols", dtype="int8"), "s": "cols"}
    op = gonogo.Op("dequant", inputs=inputs, output="rows cols", sizes={"rows": (9,), "cols": (40,)},
                   reference=lambda w, s: w * s)  # fmt: skip
    right = gonogo.verify(lambda w, s: (w.float() * s.float()).to(s.dtype), op, cases=4, device="cpu")
    assert right.decision == "go"
    wrong = gonogo.verify(
        lambda w, s: (w.to(torch.uint8).float() * s.float()).to(s.dtype), op, cases=4, device="cpu", strict=False
    )
    assert wrong.decision == "no-go"
    with pytest.raises(gonogo.errors.InputError, match=r"int64 integers from where to where\? Give low= and"):
        gonogo.Op("far", inputs={"n": gonogo.Arg("rows", dtype="int64")}, output="rows", sizes={"rows": (9,)},
                  reference=lambda n: n * 1.0)  # fmt: skip
