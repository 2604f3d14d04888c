"""What contracts admit, and what they still do not, on simulated kernels."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812

import gonogo  # noqa: E402
from gonogo.instrument.readings import read  # noqa: E402
from gonogo.instrument.running_error import error_scale  # noqa: E402
from gonogo.schema import Contract  # noqa: E402

U32 = 2.0**-24


def read_under(contract, reference, inputs, output):
    expected, scale = error_scale(reference, inputs, contract=contract)
    return read(output, expected, gauge="bound", scale=scale).worst


def test_every_contract_comes_back_from_its_description():
    for products, backward, output, atomics in itertools.product(
        ("ieee", "tf32", "strassen", "fp8"), (False, True), (None, "float32", "bfloat16"), (False, True)
    ):
        contract = Contract(products=products, backward=backward, output=output, atomics=atomics)
        assert Contract.parse(contract.describe()) == contract
    assert Contract(output="float32", backward=True).describe() == "float32+backward+to-float32"
    with pytest.raises(gonogo.errors.InputError, match="it is one of ieee, tf32, strassen, fp8"):
        Contract(products="fp4")


def test_a_backward_contract_admits_a_rounding_of_each_input():
    x = 1000 + torch.randn(64, 50)
    late = x - torch.logsumexp(x, -1, keepdim=True)
    scaled = x * math.log2(math.e)
    powers = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
    shares = powers / powers.sum(-1, keepdim=True)
    for reference, output in ((lambda x: F.log_softmax(x, -1), late), (lambda x: torch.softmax(x, -1), shares)):
        assert read_under(Contract(), reference, [x], output) > 8
        assert read_under(Contract(backward=True), reference, [x], output) <= 2
    halved = torch.softmax(x.half().float(), -1)
    assert read_under(Contract(backward=True), lambda x: torch.softmax(x, -1), [x], halved) >= 8


def multiply_strassen(a, b):
    if a.shape[0] <= 16:
        return a @ b
    (a11, a12), (a21, a22) = (half.chunk(2, 1) for half in a.chunk(2, 0))
    (b11, b12), (b21, b22) = (half.chunk(2, 1) for half in b.chunk(2, 0))
    m1, m2 = multiply_strassen(a11 + a22, b11 + b22), multiply_strassen(a21 + a22, b11)
    m3, m4 = multiply_strassen(a11, b12 - b22), multiply_strassen(a22, b21 - b11)
    m5, m6 = multiply_strassen(a11 + a12, b22), multiply_strassen(a21 - a11, b11 + b12)
    m7 = multiply_strassen(a12 - a22, b21 + b22)
    return torch.cat([torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1), torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)], 0)


def test_strassen_is_held_to_norms():
    torch.manual_seed(1)
    a, b = torch.randn(128, 128), torch.randn(128, 128)
    a[:64] *= 1e-4  # what is mixed into these rows is large beside them
    output = multiply_strassen(a, b)
    assert read_under(Contract(), torch.matmul, [a, b], output) > 8
    strassen = Contract(products="strassen")
    assert read_under(strassen, torch.matmul, [a, b], output) <= 2
    assert read_under(strassen, torch.matmul, [a, b], (a[:, 1:] @ b[1:])) >= 8
    bias = torch.zeros(128)
    assert read_under(strassen, lambda a, b, c: torch.addmm(c, a, b), [a, b, bias], output) <= 2


def multiply_fp8(a, b):
    """Sums of 32 products, cut to 14 bits beside what is there; promoted to float32 every 128."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], 128):
        held = torch.zeros_like(total, dtype=torch.float64)
        for at in range(start, min(start + 128, a.shape[1]), 32):
            held = held + a[:, at : at + 32].double() @ b[at : at + 32].double()
            step = torch.exp2(held.abs().clamp(min=1e-30).log2().floor() - 13)
            held = (held / step).trunc() * step
        total = total + held.float()
    return total


@pytest.mark.parametrize("offset", [0.0, 2.0])
def test_fp8_products_keep_fourteen_bits(offset):
    torch.manual_seed(2)
    a, b = ((torch.randn(shape) + offset).to(torch.float8_e4m3fn).float() for shape in ((32, 500), (500, 24)))
    output = multiply_fp8(a, b)
    assert read_under(Contract(), torch.matmul, [a, b], output) >= 8
    assert read_under(Contract(products="fp8"), torch.matmul, [a, b], output) <= 1
    assert read_under(Contract(products="fp8"), torch.matmul, [a, b], a[:, 8:] @ b[8:]) >= 2


COMPOSITES = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "softmax": lambda x: torch.softmax(x, -1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_fast_math_acts_on_functions_inside_one_op(name):
    x = 3 * torch.randn(16, 16)
    plain, fast = (error_scale(COMPOSITES[name], [x], contract=Contract(fast_math=one))[1] for one in (False, True))
    assert bool((fast >= plain).all())
    assert bool((fast > 1.1 * plain).any())


@pytest.mark.parametrize("name", ["attention", "linear", "bilinear"])
def test_tf32_acts_on_products_inside_one_op(name):
    functions = {
        "attention": COMPOSITES["attention"],
        "linear": lambda x: F.linear(x, x, x[0]),
        "bilinear": lambda x: torch.einsum("ij,kj->ik", x, x),
    }
    x = torch.randn(16, 16)
    plain, cut = (error_scale(functions[name], [x], contract=Contract(products=one))[1] for one in ("ieee", "tf32"))
    assert (cut / plain).median() > 50


def test_an_output_of_another_format_than_the_inputs_is_promised():
    op = gonogo.Op(
        "total", inputs={"x": "rows cols"}, output="rows", sizes={"rows": (3,), "cols": (65,)},
        reference=lambda x: x.sum(-1),
    )  # fmt: skip

    def kernel(x):
        return x.float().sum(-1)

    wide = Contract(output="float32")
    halves = {"dtypes": ("float16", "bfloat16"), "cases": 6, "strict": False}
    assert gonogo.verify(kernel, op, contract=wide, **halves).decision == "go"
    assert gonogo.verify(lambda x: kernel(x).to(x.dtype), op, contract=wide, **halves).decision == "no-go"
    assert gonogo.verify(kernel, op, **halves).decision == "no-go"
    # The output's own rounding is float32's now: half-precision sums show.
    narrow = gonogo.verify(lambda x: kernel(x).to(x.dtype).float(), op, contract=wide, **halves)
    assert narrow.decision == "no-go"
    x = torch.randn(3, 65).half()
    assert gonogo.check(kernel(x), op, inputs={"x": x}, contract="float32+to-float32").decision == "go"
    assert gonogo.check(kernel(x).half(), op, inputs={"x": x}, contract=wide).decision == "no-go"
