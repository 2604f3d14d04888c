"""Every kind of array a user can hand in, against the plain contiguous NumPy array of the same values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns import NUMPY_DTYPES
from test_stats import assert_same

import gonogo
from gonogo.formats import FORMATS
from gonogo.instrument.operands import PIECE

Array = np.ndarray[Any, Any]

SHAPE = (5, 6, 7)
GAUGES = ("ulp", "bound")  # one counts from the value and one from its cell; neither looks at other elements
SIGNED = {8: np.uint8, 16: np.int16, 32: np.int32, 64: np.int64}


def make_pair(name: str, shape: tuple[int, ...] = SHAPE) -> tuple[Array, Array]:
    """An output in a format and its float64 reference, no two references alike."""
    expected = np.random.default_rng(3).standard_normal(shape)
    noise = 1 + FORMATS[name].unit_roundoff * np.random.default_rng(4).standard_normal(shape)
    return (expected * noise).astype(NUMPY_DTYPES[name]), expected


def to_torch(array: Array) -> Any:
    """The same bits as a torch tensor over a copy; torch cannot take ml_dtypes' arrays itself."""
    torch = pytest.importorskip("torch")
    name = array.dtype.name
    bits = np.array(array, order="C").view(SIGNED[FORMATS[name].bits])
    return torch.from_numpy(bits).view(getattr(torch, name))


def assert_measures_alike(arrays: tuple[Any, Any], plain: tuple[Array, Array]) -> None:
    """Stats to the bit, the worst reading to the bit, and its index at an element that reads it."""
    plain = tuple(np.array(x, order="C") for x in plain)
    assert_same(gonogo.measure(*arrays, atol=1e-3), gonogo.measure(*plain, atol=1e-3).to_dict())
    scale = np.ones(plain[0].shape)
    for gauge in GAUGES:
        found = gonogo.read(*arrays, gauge=gauge, scale=scale)
        truth = gonogo.read(*plain, gauge=gauge, scale=scale)
        assert (found.gauge, found.worst, found.count) == (truth.gauge, truth.worst, truth.count)
        assert math.isclose(found.bias, truth.bias, rel_tol=1e-9, abs_tol=1e-12 * truth.worst)
        if truth.index is None:
            assert found.index is None
            continue
        assert found.index is not None
        one = tuple(x[found.index].reshape(()) for x in plain)
        assert gonogo.read(*one, gauge=gauge, scale=np.ones(())).worst == truth.worst


def expand_first(x: Any) -> Any:
    """Nine times the same memory."""
    return np.broadcast_to(x, (9, *SHAPE[1:])) if isinstance(x, np.ndarray) else x.expand(9, -1, -1)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "zero-dimensional": lambda x: x[2, 3, 4, ...],
    "empty": lambda x: x[:, 2:2],
    "gap": lambda x: x[:, ::2],
    "offset": lambda x: x[1:, 2:, 3:],
    "transposed": lambda x: x.T if isinstance(x, np.ndarray) else x.permute(2, 1, 0),
    "swapped": lambda x: x.swapaxes(0, 1),
    "expanded": lambda x: expand_first(x[:1]),
    "negative": lambda x: x[::-1, ::-2, ::-1],
}


CASES = [
    (library, view) for library in ("numpy", "torch") for view in VIEWS if (library, view) != ("torch", "negative")
]


@pytest.mark.parametrize(("library", "view"), CASES)
@pytest.mark.parametrize("name", FORMATS)
def test_views(name: str, library: str, view: str) -> None:
    actual, expected = make_pair(name)
    look = VIEWS[view]
    handed = (to_torch(actual), to_torch(expected)) if library == "torch" else (actual, expected)
    plain = look(actual), look(expected)
    both = look(handed[0]), look(handed[1])
    one = np.array(plain[1], order="C")
    before = [bytes(x.tobytes()) for x in (actual, expected)]
    assert_measures_alike(both, plain)
    assert_measures_alike((both[0], to_torch(one) if library == "torch" else one), plain)
    assert_measures_alike((both[0], one), plain)  # a torch output against a NumPy reference
    after = [x.tobytes() if library == "numpy" else x.view(-1).numpy().tobytes() for x in untyped(handed)]
    assert after == before


def untyped(arrays: tuple[Any, ...]) -> list[Any]:
    """Torch tensors as integers NumPy can take; NumPy arrays as they are."""
    if isinstance(arrays[0], np.ndarray):
        return list(arrays)
    import torch

    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return [x.view(integer[x.element_size()]) for x in arrays]


@dataclass(frozen=True)
class Placement:
    """Where the elements of an array lie: axes from slowest to fastest, and per axis (margin, step)."""

    order: tuple[int, ...]
    margins: tuple[int, ...]
    steps: tuple[int, ...]

    def place(self, plain: Array) -> Array:
        """A view with the values of `plain` into poisoned memory: a wrong address reads NaN."""
        sizes = [2 * m + n * abs(s) for n, m, s in zip(plain.shape, self.margins, self.steps, strict=True)]
        poison = np.full([sizes[axis] for axis in self.order], math.nan).astype(plain.dtype)
        view = poison.transpose(np.argsort(self.order))
        for axis, (n, m, s) in enumerate(zip(plain.shape, self.margins, self.steps, strict=True)):
            view = view[(slice(None),) * axis + (slice(m, m + n * abs(s), abs(s)),)]
            view = np.flip(view, axis) if s < 0 else view
        view[...] = plain
        return view


def placements(ndim: int, signs: tuple[int, ...] = (1, -1)) -> st.SearchStrategy[Placement]:
    step = st.sampled_from([k * sign for k in (1, 1, 2, 3) for sign in signs])
    return st.builds(
        Placement,
        st.permutations(range(ndim)).map(tuple),
        st.tuples(*[st.sampled_from([0, 0, 1])] * ndim),
        st.tuples(*[step] * ndim),
    )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_planted_element_is_found_in_any_layout(data: st.DataObject) -> None:
    """One bad element: its index is the user's own, whatever the layouts of the three arrays."""
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple))
    library = data.draw(st.sampled_from(["numpy", "torch"]))
    kinds = placements(len(shape), signs=(1, -1) if library == "numpy" else (1,))
    first = data.draw(kinds)
    second, third = (data.draw(st.just(first) | kinds) for _ in range(2))
    index = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    # Values that even float8 holds; the planted one is off by one in the last place.
    expected = (1 + (np.arange(math.prod(shape)) % 4) / 4).reshape(shape)
    actual = expected.astype(NUMPY_DTYPES[name])
    bits = actual.view(f"u{actual.itemsize}")
    bits[index] += 1
    scale = np.full(shape, 4.0)
    arrays: list[Any] = [p.place(x) for p, x in ((first, actual), (second, expected), (third, scale))]
    if library == "torch":
        arrays = [as_strided_torch(x) for x in arrays]
    for gauge, unit in (("ulp", 1.0), ("bound", 4.0 * 2.0 ** -(53 if name == "float64" else 24))):
        reading = gonogo.read(arrays[0], arrays[1], gauge=gauge, scale=arrays[2])
        step = 2 * FORMATS[name].unit_roundoff
        assert reading.index == index
        assert reading.worst == (1.0 if gauge == "ulp" else step / 2 / unit)
    stats = gonogo.measure(arrays[0], arrays[1], atol=0.0)
    assert (stats.num_exceeding, stats.max_ulp) == (1, 1)
    arrays[2][index] = -1.0
    with pytest.raises(gonogo.errors.BadScale) as caught:
        gonogo.read(arrays[0], arrays[1], gauge="bound", scale=arrays[2])
    assert caught.value.index == index


def as_strided_torch(view: Array) -> Any:
    """A torch tensor over the same memory with the same strides."""
    torch = pytest.importorskip("torch")
    bits = view.view(SIGNED[FORMATS[view.dtype.name].bits])
    tensor = torch.from_numpy(bits).view(getattr(torch, view.dtype.name))
    strides = [s // view.itemsize for s, n in zip(view.strides, view.shape, strict=True) if n > 1]
    assert [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1] == strides
    return tensor


@settings(max_examples=60, deadline=None)
@given(first=placements(3), second=placements(3), name=st.sampled_from(sorted(FORMATS)))
def test_stats_do_not_depend_on_layout(first: Placement, second: Placement, name: str) -> None:
    actual, expected = make_pair(name)
    arrays = first.place(actual), second.place(expected)
    owners = [x.base if x.base is not None else x for x in arrays]
    before = [x.tobytes() for x in owners]
    for x in arrays:
        x.flags.writeable = False
    assert_measures_alike(arrays, (actual, expected))
    assert [x.tobytes() for x in owners] == before


@settings(max_examples=6, deadline=None)
@given(first=placements(3), second=placements(3), name=st.sampled_from(["bfloat16", "float32", "float64"]))
def test_pieces_add_up(first: Placement, second: Placement, name: str) -> None:
    """Too many elements for one piece, and all sampling of percentiles at work."""
    actual, expected = make_pair(name, (67, 65, 71))
    assert actual.size > PIECE
    actual[40, 3, 2] = 1000.0  # past the first piece in C order, alone the worst
    arrays = first.place(actual), second.place(expected)
    assert_same(gonogo.measure(*arrays, atol=1e-3), gonogo.measure(actual, expected, atol=1e-3).to_dict())
    found, truth = (gonogo.read(*pair, gauge="ulp") for pair in (arrays, (actual, expected)))
    assert (found.worst, found.index) == (truth.worst, (40, 3, 2))
    assert math.isclose(found.bias, truth.bias, rel_tol=1e-9)


def test_numpy_scalars() -> None:
    for name, dtype in NUMPY_DTYPES.items():
        one = dtype.type(1.5)
        assert isinstance(one, np.generic), name
        assert gonogo.measure(one, np.float64(1.0)).max_abs == 0.5
        assert gonogo.read(one, np.float64(1.0), gauge="absolute").index == ()


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_other_byte_order(name: str) -> None:
    actual, expected = make_pair(name)
    other = actual.dtype.newbyteorder()
    assert not other.isnative
    swapped = actual.astype(other), expected.astype(expected.dtype.newbyteorder())
    assert_measures_alike(swapped, (actual, expected))


@pytest.mark.parametrize("name", FORMATS)
def test_torch_tensors_with_a_past(name: str) -> None:
    """Gradients wanted, a negation not yet carried out, made in inference mode, a Parameter."""
    torch = pytest.importorskip("torch")
    actual, expected = make_pair(name)
    reference = to_torch(expected)
    wanted = to_torch(actual)
    if not name.startswith("float8"):  # torch has no negation of float8 to put off
        lazily = torch._neg_view(wanted)
        assert lazily.is_neg()
        assert_measures_alike((lazily, torch._neg_view(reference)), (-actual, -expected))
    with torch.inference_mode():
        assert_measures_alike((wanted.clone(), reference), (actual, expected))
    wanted.requires_grad_()
    assert_measures_alike((wanted, reference.requires_grad_()), (actual, expected))
    assert_measures_alike((torch.nn.Parameter(wanted.detach()), reference), (actual, expected))
    assert wanted.grad is None


class OnlyArray:
    """An array of a library that speaks __array__ alone."""

    def __init__(self, array: Array) -> None:
        self.held = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.held


class OnlyDlpack:
    """An array of a library that speaks DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.held = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.held.__dlpack_device__()


@pytest.mark.parametrize("name", FORMATS)
def test_objects_with_array_protocol(name: str) -> None:
    actual, expected = make_pair(name)
    assert_measures_alike((OnlyArray(actual.T), OnlyArray(expected.T)), (actual.T, expected.T))


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_objects_with_dlpack(name: str) -> None:
    actual, expected = make_pair(name)
    assert not hasattr(OnlyDlpack(actual), "__array__")
    gaps = actual[:, ::2], expected[:, ::2]
    assert_measures_alike((OnlyDlpack(gaps[0]), OnlyDlpack(gaps[1])), gaps)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2"])
def test_dlpack_of_a_format_numpy_lacks(name: str) -> None:
    """Measured, or refused by name: never somebody else's exception."""
    actual, expected = make_pair(name)
    try:
        assert_measures_alike((OnlyDlpack(to_torch(actual)), expected), (actual, expected))
    except gonogo.errors.InputError as error:
        assert str(error).startswith("actual ")  # noqa: PT017


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    actual, expected = make_pair(name)
    on_host = jax.device_put(actual, jax.devices("cpu")[0])
    assert_measures_alike((on_host, expected), (actual, expected))


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_unaligned(name: str) -> None:
    """Elements that start at odd addresses, as in a packed file."""
    expected = np.linspace(-3, 3, 5000).astype(name)
    actual = (expected * 1.01).astype(name)
    packed = np.frombuffer(b"x" + actual.tobytes(), dtype=name, offset=1)
    assert not packed.flags.aligned
    assert gonogo.measure(packed, expected) == gonogo.measure(actual, expected)
    assert gonogo.read(packed, expected, gauge="ulp") == gonogo.read(actual, expected, gauge="ulp")
