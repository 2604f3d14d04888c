"""Every refusal: its type, its whole text, its facts in attributes, and nothing computed before it."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gonogo
from gonogo import errors
from gonogo.instrument import readings, stats
from gonogo.instrument.operands import as_operand

KNOWN = "float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2"
PASS_WHAT = "; pass a dense NumPy array, a torch tensor, or an object with __dlpack__ or __array__"
CAST = "; gonogo measures real floating point. Cast it first if its values are meant as reals"
ONES = np.ones(2)


@pytest.fixture
def computing_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a refused call gets as far as choosing how to compute."""

    def refuse(aligned: object) -> None:
        pytest.fail("a refused input reached the measuring paths")

    for module in (stats, readings):
        monkeypatch.setattr(module, "pick_path", refuse)


def make_torch(make: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: make(pytest.importorskip("torch"))


def make_unknown_float8(torch: Any) -> Any:
    if not hasattr(torch, "float8_e4m3fnuz"):
        pytest.skip("this torch has no float8_e4m3fnuz")
    return torch.ones(2).to(torch.float8_e4m3fnuz)


BAD_ARRAYS: dict[str, tuple[Callable[[], Any], type[errors.InputError], str]] = {
    "integers": (lambda: np.ones(2, int), errors.UnsupportedDtype, f"has dtype int64{CAST}"),
    "booleans": (lambda: np.ones(2, bool), errors.UnsupportedDtype, f"has dtype bool{CAST}"),
    "complex": (lambda: np.ones(2, complex), errors.UnsupportedDtype, f"has dtype complex128{CAST}"),
    "objects": (lambda: np.ones(2, object), errors.UnsupportedDtype, f"has dtype object{CAST}"),
    "a record": (lambda: np.zeros(2, [("float", "f8")]), errors.UnsupportedDtype, f"has dtype void64{CAST}"),
    "integer scalar": (lambda: np.int8(1), errors.UnsupportedDtype, f"has dtype int8{CAST}"),
    "torch integers": (
        make_torch(lambda torch: torch.ones(2, dtype=torch.int32)),
        errors.UnsupportedDtype,
        f"has dtype int32{CAST}",
    ),
    "torch complex": (
        make_torch(lambda torch: torch.ones(2, dtype=torch.complex64)),
        errors.UnsupportedDtype,
        f"has dtype complex64{CAST}",
    ),
    "long double": (
        lambda: np.ones(2, np.longdouble),
        errors.UnknownFormat,
        f"has unknown floating-point format {np.dtype(np.longdouble).name!r}; known: {KNOWN}",
    ),
    "torch float8 fnuz": (
        make_torch(make_unknown_float8),
        errors.UnknownFormat,
        f"has unknown floating-point format 'float8_e4m3fnuz'; known: {KNOWN}",
    ),
    "list": (lambda: [1.0, 2.0], errors.UnsupportedArray, f"is a list{PASS_WHAT}"),
    "string": (lambda: "1.0, 2.0", errors.UnsupportedArray, f"is a str{PASS_WHAT}"),
    "float": (lambda: 1.0, errors.UnsupportedArray, f"is a float{PASS_WHAT}"),
    "None": (lambda: None, errors.UnsupportedArray, f"is a NoneType{PASS_WHAT}"),
    "masked": (
        lambda: np.ma.masked_array(ONES, [0, 1]),
        errors.UnsupportedArray,
        f"is a masked array{PASS_WHAT}",
    ),
    "sparse": (
        make_torch(lambda torch: torch.ones(2).to_sparse()),
        errors.UnsupportedArray,
        f"is a sparse_coo tensor{PASS_WHAT}",
    ),
    "meta": (
        make_torch(lambda torch: torch.ones(2, device="meta")),
        errors.UnsupportedArray,
        f"is a meta tensor{PASS_WHAT}",
    ),
}


@pytest.mark.usefixtures("computing_nothing")
@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays(case: str) -> None:
    make, kind, text = BAD_ARRAYS[case]
    bad = make()
    calls: dict[str, Callable[[], object]] = {
        "actual": lambda: gonogo.measure(bad, ONES),
        "expected": lambda: gonogo.measure(ONES, bad),
    }
    if case != "None":  # no scale at all is another error
        calls["scale"] = lambda: gonogo.read(ONES, ONES, gauge="bound", scale=bad)
    for role, call in calls.items():
        with pytest.raises(kind) as caught:
            call()
        assert str(caught.value) == f"{role} {text}"
        assert type(caught.value) is kind
        assert caught.value.role == role


@pytest.mark.usefixtures("computing_nothing")
@pytest.mark.parametrize("shape", [(3, 1), (3,), (2, 3), (0, 2)])
def test_shapes_that_differ(shape: tuple[int, ...]) -> None:
    """Also where NumPy would broadcast."""
    for call in (gonogo.measure, lambda a, e: gonogo.read(a, e, gauge="ulp")):
        with pytest.raises(errors.ShapeMismatch) as caught:
            call(np.ones(shape), np.ones((3, 2)))
        assert str(caught.value) == (
            f"shapes differ: actual {shape}, expected (3, 2). "
            "gonogo does not broadcast: reshape one of them to the other's shape"
        )
        assert (caught.value.actual, caught.value.expected) == (shape, (3, 2))


@pytest.mark.usefixtures("computing_nothing")
@pytest.mark.parametrize("strayed", ["actual", "expected", "scale"])
def test_two_devices(monkeypatch: pytest.MonkeyPatch, strayed: str) -> None:
    def with_stray(array: object, role: str) -> Any:
        operand = as_operand(array, role)
        return replace(operand, device="cuda:1") if role == strayed else operand

    monkeypatch.setattr(stats, "as_operand", with_stray)
    monkeypatch.setattr(readings, "as_operand", with_stray)
    devices = {role: "cuda:1" if role == strayed else "cpu" for role in ("actual", "expected")}
    if strayed != "scale":
        with pytest.raises(errors.DeviceMismatch) as caught:
            gonogo.measure(ONES, ONES)
        assert str(caught.value) == (
            f"arrays on two devices: actual on {devices['actual']}, expected on {devices['expected']}. "
            "Move them to one device first"
        )
        assert caught.value.devices == devices
    with pytest.raises(errors.DeviceMismatch) as caught:
        gonogo.read(ONES, ONES, gauge="bound", scale=ONES)
    assert caught.value.devices[strayed] == "cuda:1"
    assert "cpu" in caught.value.devices.values()


@pytest.mark.usefixtures("computing_nothing")
def test_gauges_refused() -> None:
    with pytest.raises(errors.UnknownGauge) as unknown:
        gonogo.read(ONES, ONES, gauge="furlong")
    assert str(unknown.value) == "there is no gauge 'furlong'; known: absolute, bound, magnitude, policy, ulp"
    for name in ("_gauge", "__init__", "absolute.gauge", ""):
        with pytest.raises(errors.UnknownGauge):
            gonogo.gauge(name)
    with pytest.raises(errors.ScaleMissing) as missing:
        gonogo.read(ONES, ONES, gauge="bound")
    assert str(missing.value) == (
        "gauge 'bound' needs the error scale S of the op and got none. "
        "Get it with: expected, scale = gonogo.error_scale(reference, inputs)"
    )
    with pytest.raises(errors.UnknownFormat) as accumulate:
        gonogo.gauge("bound", accumulate="float99")
    assert str(accumulate.value) == f"there is an unknown floating-point format 'float99'; known: {KNOWN}"


@pytest.mark.usefixtures("computing_nothing")
def test_scale_of_another_shape() -> None:
    with pytest.raises(errors.BadScale) as caught:
        gonogo.read(np.ones((2, 3)), np.ones((2, 3)), gauge="bound", scale=np.ones((3, 2)))
    assert str(caught.value) == (
        "scale has shape (3, 2), expected has (2, 3); S is one number >= 0 per element of the output"
    )
    assert (caught.value.index, caught.value.shape) == (None, (3, 2))


@pytest.mark.parametrize("value", [-1.0, -math.inf, math.nan, -5e-324])
def test_scale_that_is_no_scale(value: float) -> None:
    """The first bad element is named, also where the output is right there and where another is worse."""
    scale = np.ones((4, 5))
    scale[1, 3] = scale[3, 0] = value
    actual = np.ones((4, 5), np.float16)
    actual[0, 0] = 7.0
    with pytest.raises(errors.BadScale) as caught:
        gonogo.read(actual, np.ones((4, 5)), gauge="bound", scale=scale)
    assert str(caught.value) == (
        "scale is negative or NaN at (1, 3); S is one number >= 0 per element of the output"
    )
    assert caught.value.index == (1, 3)
    scale[scale != 1.0] = -0.0  # minus zero is zero
    assert gonogo.read(actual, np.ones((4, 5)), gauge="bound", scale=scale).index == (0, 0)


@pytest.mark.usefixtures("computing_nothing")
@pytest.mark.parametrize("value", [-1e-9, -math.inf, math.nan])
def test_tolerances(value: float) -> None:
    calls: list[tuple[str, str, Callable[[], object]]] = [
        ("atol", "", lambda: gonogo.measure(ONES, ONES, atol=value)),
        ("atol", "finite ", lambda: gonogo.gauge("policy", atol=value, rtol=0.0)),
        ("rtol", "finite ", lambda: gonogo.gauge("policy", atol=0.0, rtol=value)),
    ]
    for name, kind, call in calls:
        with pytest.raises(errors.BadTolerance) as caught:
            call()
        assert str(caught.value) == f"{name} is {value}; a tolerance is a {kind}number >= 0"
        assert caught.value.name == name


def test_contract_refuses_unknown_values() -> None:
    for field, allowed in (
        ("products", "ieee, tf32, strassen, fp8"),
        ("summation", "blocked, sequential, probabilistic"),
    ):
        with pytest.raises(errors.InputError) as caught:
            gonogo.Contract(**{field: "abacus"})
        assert str(caught.value) == f"contract {field} is 'abacus'; it is one of {allowed}"


def test_every_error_is_typed() -> None:
    """One base to catch them all, and the builtin that says what kind of mistake it was."""
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert all(issubclass(kind, errors.GonogoError) for kind in kinds)
    builtin = {
        errors.ArraysChanged: RuntimeError,
        errors.BackendMissing: ImportError,
        errors.CampaignFailed: RuntimeError,
        errors.NoGo: AssertionError,
        errors.ServiceError: ConnectionError,
        errors.NoErrorRule: NotImplementedError,
        errors.WritesInPlace: NotImplementedError,
    }
    for kind in kinds - {errors.GonogoError}:
        assert issubclass(kind, builtin.get(kind, ValueError)), kind
        assert issubclass(kind, errors.InputError) == (kind not in builtin), kind
    assert len(kinds) >= 14


def test_errors_come_back_from_another_process() -> None:
    for error in (
        errors.ReferenceFailed("softmax", "softmax:f32:1:c:normal:1", ValueError("no")),
        errors.ShapeMismatch((1,), (2,)),
        errors.ControlFailed("mine", "softmax:f32:1:c:normal:1", "raised"),
    ):
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_words_and_controls() -> None:
    near = errors.UnknownWord("contract", "fast_math", ("float32", "fast-math"))
    assert str(near) == "unknown contract 'fast_math'. Did you mean fast-math? Known: float32, fast-math"
    far = errors.UnknownWord("dtype", "q", ("float16", "float32"))
    assert str(far) == "unknown dtype 'q'; known: float16, float32"
    assert (far.what, far.word, far.known) == ("dtype", "q", ("float16", "float32"))
    control = errors.ControlFailed("mine", "relu:f16:1x1x1:c:uniform:0", "is raised: KeyError: 3")
    assert str(control) == (
        "control mine cannot calibrate: on relu:f16:1x1x1:c:uniform:0 it is raised: KeyError: 3. "
        "Leave it out, mend it, or declare by contract= what it promises"
    )
    assert (control.control, control.case) == ("mine", "relu:f16:1x1x1:c:uniform:0")
