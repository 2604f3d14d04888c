"""References that write in place, at random: the expected value is what torch gives, or there is none."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from gonogo.errors import BadReference, NoErrorRule  # noqa: E402
from gonogo.instrument.running_error import error_scale  # noqa: E402
from gonogo.instrument.running_error.trace import trace_call  # noqa: E402
from gonogo.schema import Contract  # noqa: E402

PROGRAMS = 300


def write_first(x, y):
    if x.dim():
        x[0] = 0.25


def write_where(x, y):
    if x.dim() and 0 not in x.stride():
        x[x > 0.5] = 0.125


def write_diagonal(x, y):
    if x.dim() == 2:
        x.diagonal().add_(1.0)


STEPS: list[Callable] = [
    lambda x, y: x * 1.3,
    lambda x, y: torch.tanh(x),
    lambda x, y: x.sum(),
    lambda x, y: x.clone(),
    lambda x, y: torch.zeros_like(x),
    lambda x, y: torch.empty(x.shape, dtype=torch.float64).copy_(x),
    lambda x, y: x.view(-1)[1:5] if x.is_contiguous() and x.numel() > 5 else None,
    lambda x, y: x.t() if x.dim() == 2 else None,
    lambda x, y: x[0] if x.dim() else None,
    lambda x, y: x.unsqueeze(0).expand(2, *x.shape),
    lambda x, y: x.mul_(1.1),
    lambda x, y: x.add_(y) if x.shape == y.shape else None,
    lambda x, y: x.copy_(y * 2) if x.shape == y.shape else None,
    lambda x, y: x.clamp_(min=0.0),
    lambda x, y: x.sigmoid_(),
    lambda x, y: x.zero_(),
    write_first,
    write_where,
    write_diagonal,
]
"""What a program is made of: each takes two of the tensors so far, and may give one more."""


def make_program(seed: int) -> Callable:
    drawn = random.Random(seed)
    steps = [(drawn.choice(STEPS), drawn.randrange(100), drawn.randrange(100)) for _ in range(drawn.randint(2, 8))]

    def run(x):
        tensors = [x]
        for step, first, second in steps:
            made = step(tensors[first % len(tensors)], tensors[second % len(tensors)])
            if made is not None:
                tensors.append(made)
        return [tensor * 1.0 for tensor in tensors]

    return run


def test_programs_that_write() -> None:
    judged = 0
    for seed in range(PROGRAMS):
        program = make_program(seed)
        x = torch.rand(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        kept = x.clone()
        try:
            wanted = program(x.clone())
        except RuntimeError:  # torch itself refuses to write to memory that is repeated
            continue
        try:
            made, scales = error_scale(program, [x])
        except NoErrorRule:  # for the same reason
            continue
        assert torch.equal(x, kept), seed
        assert all(map(torch.equal, made, wanted)), seed
        assert all(bool((scale >= 0).all()) for scale in scales), seed
        judged += 1
    assert judged > 0.8 * PROGRAMS


class Cache(torch.nn.Module):
    """Keeps what it was given: in a buffer, in an attribute that is none, and by index."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.full((4, 3), 0.5, dtype=torch.float16))
        self.past = []
        self.hidden = torch.ones(2, 3, dtype=torch.float64)
        self.calls = torch.zeros((), dtype=torch.int64)

    def forward(self, x):
        self.calls += 1
        self.past.append(x * 2)
        self.kept[0].zero_()
        self.kept[1:3] = torch.tanh(x)
        torch.nn.functional.relu(self.kept, inplace=True)
        self.hidden.copy_(x * 1.1)
        self.hidden = self.hidden.to(x.device)
        return (self.kept.sum(0) + self.hidden.mean(0)) / self.calls


def test_a_module_may_write_to_what_it_keeps() -> None:
    module, x = Cache(), torch.rand(2, 3, dtype=torch.float64)
    expected, scale = error_scale(module, [x])
    assert bool((module.kept == 0.5).all())
    assert bool((module.hidden == 1).all())
    assert int(module.calls) == 0
    assert module.past == []
    pure, wanted = error_scale(lambda x: torch.tanh(x).sum(0) + 0.5 + (x * 1.1).mean(0), [x])
    torch.testing.assert_close(expected, pure)
    torch.testing.assert_close(scale, wanted, rtol=0.5, atol=0)
    torch.testing.assert_close(expected, module(x), rtol=1e-3, atol=1e-3)  # a buffer in half precision


@dataclass
class Held:
    """An output that torch takes for a leaf."""

    kept: torch.Tensor


def test_what_is_written_and_returned_in_a_nest_is_tracked() -> None:
    kept = torch.zeros(3, dtype=torch.float64)

    def reference(x):
        kept.copy_(x / 3)
        return Held(kept)

    (leaf,) = trace_call(reference, (torch.ones(3),), {}, Contract(), loaded=True)[1]
    torch.testing.assert_close(leaf.value, torch.full((3,), 1 / 3, dtype=torch.float64))
    assert bool((leaf.scale > 0).all())


def fill_default(x):
    out = torch.zeros(x.shape)
    out[:] = x * x
    return out - out.mean()


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        buffer = torch.zeros_like(x)
        buffer += x * 1.1
        return buffer * self.count


def read_bits(x):
    out = torch.zeros(x.shape)
    out[:] = x * torch.tensor([16256, 16384, 16448, 16512, 16544], dtype=torch.int16).view(torch.bfloat16).float()
    return out


@pytest.mark.parametrize("reference", [fill_default, Counting(), read_bits])
def test_a_second_run_begins_as_the_first_did(reference) -> None:
    x = torch.rand(5, dtype=torch.float64)
    expected, _ = error_scale(reference, [x])
    torch.testing.assert_close(expected, reference(x).double(), rtol=1e-6, atol=1e-6)


def test_training_leaves_no_trace() -> None:
    norm = torch.nn.BatchNorm1d(3).double()
    before = copy.deepcopy(norm.state_dict())
    error_scale(norm, [torch.randn(8, 3)])
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_compiled_module_and_a_parameter() -> None:
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())).double()
    assert bool(error_scale(scripted, [torch.rand(2, 3)])[1].isfinite().all())
    linear = torch.nn.Linear(3, 3).double()

    def reference(x):
        linear.weight += x
        return linear.weight * 1.0

    with pytest.raises((NoErrorRule, BadReference)):
        error_scale(reference, [torch.rand(3, 3)])


def test_what_is_written_and_returned_is_tracked() -> None:
    kept = torch.zeros(3, dtype=torch.float64)

    def reference(x):
        kept.copy_(x / 3)
        return kept

    expected, scale = error_scale(reference, [torch.ones(3)])
    torch.testing.assert_close(expected, torch.full((3,), 1 / 3, dtype=torch.float64))
    assert bool((scale > 0).all())
    assert bool((kept == 0).all())


def attend_by_rows(q, k, v, starts):
    """As many public references are: half precision inside, an output filled in by index."""
    output = torch.zeros(q.shape, dtype=torch.bfloat16)
    weight = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32)
    for row in range(len(starts) - 1):
        first, last = int(starts[row].item()), int(starts[row + 1].item())
        if first == last:
            output[row].zero_()
            continue
        scores = torch.einsum("hd,nhd->hn", q[row].to(torch.float16), k[first:last].half()) * 0.25
        scores.masked_fill_(scores.isnan(), -torch.inf)
        weight[row] = torch.logsumexp(scores.float(), -1)
        output[row] = torch.einsum("hn,nhd->hd", torch.softmax(scores, -1), v[first:last].half()).to(torch.bfloat16)
    return {"output": output, "weight": weight}


def test_a_reference_in_half_precision_may_write_by_index() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 16), torch.randn(9, 2, 16), torch.randn(9, 2, 16)
    starts = torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    leaves = trace_call(attend_by_rows, (q, k, v, starts), {}, Contract(), loaded=True)[1]
    found = {leaf.path: leaf for leaf in leaves}
    scores = torch.einsum("hd,nhd->hn", q[0].double(), k[:4].double()) * 0.25
    exact = torch.einsum("hn,nhd->hd", torch.softmax(scores, -1), v[:4].double())
    torch.testing.assert_close(found["output"].value[0], exact)
    assert bool((found["output"].scale[[0, 2]] > 0).all())
    assert bool((found["output"].value[1] == 0).all())
    assert bool(found["weight"].value[1].isinf().all())


def write_into_two(x, y):
    values, places = torch.empty(3, dtype=torch.float64), torch.empty(3, dtype=torch.int64)
    torch.sort(x * y, out=(values, places))
    return values


OUT = {
    "subtract": lambda x, y: torch.subtract(x, y, out=torch.empty(3, dtype=torch.float64)),
    "matmul": lambda x, y: torch.matmul(x, y, out=torch.empty((), dtype=torch.float64)),
    "of another size": lambda x, y: torch.add(x, y, out=torch.empty(0, dtype=torch.float64)),
    "two": write_into_two,
}


@pytest.mark.parametrize("name", OUT)
def test_what_is_written_to_out_is_tracked(name) -> None:
    x, y = torch.tensor([0.1, 0.2, 0.4]), torch.tensor([0.3, 0.2, 0.7])
    expected, scale = error_scale(OUT[name], [x, y])
    torch.testing.assert_close(expected, OUT[name](x.double(), y.double()))
    assert bool((scale > 0).all())
