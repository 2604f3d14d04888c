"""A seed → a call of a public function with right, odd and wrong arguments, each made anew."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gonogo

Make = Callable[[], Any]


class RaisesAsArray:
    """Says that it is an array, and is none."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no array")


class RaisesAsBuffer:
    """Says that it has memory of a device, and has none."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no memory")

    def __dlpack_device__(self) -> Any:
        raise RuntimeError("no device")


class EqualToNothing:
    """Cannot be compared, nor counted, nor asked for its truth."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __len__(self) -> int:
        raise RuntimeError("not to be counted")


def make_closed_file() -> io.StringIO:
    file = io.StringIO("x")
    file.close()
    return file


def make_loop() -> list[Any]:
    """A list that holds itself."""
    loop: list[Any] = []
    loop.append(loop)
    return loop


ODD: list[Make] = [
    *(
        partial(lambda value: value, value)
        for value in (
            None, True, False, 0, 1, -1, 3, 2.5, math.nan, math.inf, -math.inf, 10**30, -(10**30), 1j, "", " ", "x",
            "softmax", "float16", "bound", "a b", "\ud800", "x" * 5000, "softmax:f32:2x3:c:uniform:1", b"bytes",
            (), ("x",),
            frozenset(), range(3), object(), int, torch.nn.Module, print, len, torch, np, Path("/does/not/exist"),
            Path("/"), Path("\0"), "/dev/null", RuntimeError("an error"), ..., NotImplemented, torch.float16,
            torch.complex64, torch.strided, np.float32, np.float64(2.0), np.int8(3), np.datetime64("2020"),
            slice(3),
        )
    ),
    list, dict, set, object, EqualToNothing, RaisesAsArray, RaisesAsBuffer, make_closed_file, make_loop,
    lambda: [None], lambda: [1, "a"], lambda: {1: 2}, lambda: {"x": None}, lambda: {"x": "rows cols"},
    lambda: {"x": [1, 2]}, lambda: {"": ""}, lambda: [[[]]], lambda: {"rows": (1, 2), "cols": (3,)},
    lambda: {"rows": (0, -1)}, lambda: {"rows": "rows"}, lambda: {"rows": "1/0"}, lambda: {"rows": (10**30,)},
    lambda: (i for i in range(3)), lambda: iter([]), lambda: memoryview(b"abcd"), lambda: bytearray(4),
    lambda: lambda: 1, lambda: lambda *a, **k: None, lambda: lambda a, b, c: a, lambda: lambda x: 1 / 0,
    lambda: lambda x: "text", lambda: lambda x: x.double(), lambda: lambda seed, dtype: torch.zeros(2),
    lambda: lambda seed: (torch.ones(2, 3, dtype=torch.float32),), lambda: torch.nn.Linear(3, 2),
    lambda: partial(torch.softmax, dim=-1),
    lambda: np.array([]), lambda: np.zeros((2, 3)), lambda: np.zeros((2, 3), np.float32),
    lambda: np.array(math.nan),
    lambda: np.array([1, "a", None], dtype=object), lambda: np.array(["a"]), lambda: np.zeros(3, complex),
    lambda: np.zeros(3, bool), lambda: np.arange(4), lambda: np.array(["2020"], "datetime64[D]"),
    lambda: np.zeros(2, [("a", "f4")]), lambda: np.ma.masked_array([1.0, 2.0], [0, 1]),
    lambda: np.zeros((2, 3))[::-1, ::2],
    lambda: np.zeros(3, np.longdouble), lambda: np.zeros((0, 3), np.float32), lambda: np.zeros(6, ">f4"),
    lambda: torch.zeros(2, 3), lambda: torch.zeros(2, 3, dtype=torch.float16), lambda: torch.zeros(0),
    lambda: torch.zeros(2, 3).to_sparse(), lambda: torch.zeros(2, 3, dtype=torch.complex64),
    lambda: torch.zeros(2, 3, device="meta"), lambda: torch.zeros(2, dtype=torch.int64), lambda: torch.tensor(True),
    lambda: torch.zeros(2, 3, requires_grad=True), lambda: torch.zeros(2, 3).to(torch.float8_e4m3fn),
    lambda: torch.full((2, 3), math.nan), lambda: torch.zeros(1).expand(2, 3),
    lambda: torch.zeros(2, 3).to_sparse_csr(),
    lambda: torch.nn.Parameter(torch.zeros(2)), lambda: [torch.zeros(2, 3)], lambda: {"x": torch.zeros(2, 3)},
    lambda: {"x": np.zeros((2, 3), np.float32)}, lambda: (torch.zeros(2, 3), 3, "text", None),
    lambda: gonogo.Contract(), lambda: gonogo.Contract(accumulate="float16"), lambda: gonogo.gauge("ulp"),
    lambda: gonogo.Index(of="x"), lambda: gonogo.Out("float16"), lambda: gonogo.Arg("rows cols"), lambda: make_op(),
    lambda: gonogo.Index, lambda: gonogo.errors.InputError("x"), lambda: [gonogo.Index(of="0")],
]  # fmt: skip


def make_op() -> Any:
    return gonogo.Op(
        "sums", reference=lambda x: x.sum(-1), inputs={"x": "rows cols"}, output="rows",
        sizes={"rows": (1, 2), "cols": (3, 5)}, reduced=("cols",),
    )  # fmt: skip


def softmax(x: Any) -> Any:
    return torch.softmax(x.float(), -1).to(x.dtype)


def draw(seed: int, dtype: Any) -> Any:
    return (torch.ones(2, 3, dtype=dtype),)


ARRAYS: list[Make] = [
    lambda: np.ones((2, 3), np.float32), lambda: torch.ones(2, 3), lambda: np.ones((2, 3)),
    lambda: torch.ones(2, 3, dtype=torch.float16),
]  # fmt: skip
FUNCTIONS: list[Make] = [lambda: softmax, lambda: lambda x: x * 2, lambda: torch.exp]
INPUTS: list[Make] = [
    lambda: [torch.ones(2, 3)], lambda: {"x": torch.ones(2, 3)}, lambda: (np.ones((2, 3), np.float32),),
    lambda: draw, lambda: draw,
]  # fmt: skip
AXES: list[Make] = [
    lambda: {"x": "rows cols"}, lambda: {"x": gonogo.Arg("rows cols"), "factor": 2.0}, lambda: {"x": "rows cols"},
    lambda: {"x": "rows cols"},
]  # fmt: skip
CONTRACT: list[Make] = [lambda: "float16", lambda: gonogo.Contract(), lambda: None, lambda: "tf32"]
KNOWN_OPS: list[Make] = [lambda: "softmax", lambda: "relu", make_op]
SIZES: list[Make] = [lambda: {"rows": (1, 2), "cols": (3,)}, lambda: None]
OF_OP: dict[str, list[Make]] = {
    "outputs": [lambda: None, lambda: "last", lambda: "float16", lambda: {"0": "float16"}],
    "mutates": [lambda: (), lambda: "x", lambda: ("x",)], "grads": [lambda: False, lambda: True, lambda: "x"],
}  # fmt: skip
RIGHT: dict[str, dict[str, list[Make]]] = {
    "measure": {"actual": ARRAYS, "expected": ARRAYS, "atol": [lambda: None, lambda: 1e-3]},
    "read": {
        "actual": ARRAYS, "expected": ARRAYS, "scale": [lambda: None, *ARRAYS],
        "gauge": [lambda: "ulp", lambda: "bound", lambda: "absolute", lambda: gonogo.gauge("bound")],
    },
    "gauge": {"name": [lambda: "ulp", lambda: "policy"], "atol": [lambda: 1e-3], "rtol": [lambda: 0.1]},
    "error_scale": {
        "reference": FUNCTIONS, "inputs": INPUTS, "contract": CONTRACT,
        "rules": [lambda: None, dict, lambda: {"aten.exp": lambda *a: None}],
    },
    "check": {
        "actual": ARRAYS, "op": KNOWN_OPS, "reference": FUNCTIONS, "inputs": INPUTS,
        "outputs": OF_OP["outputs"], "expected": ARRAYS, "contract": CONTRACT,
        "lock": [lambda: None], "limit": [lambda: None],
    },
    "Op": {
        "name": [lambda: "mine"], "reference": FUNCTIONS, "inputs": [*INPUTS, *AXES],
        "output": [lambda: None, lambda: "rows cols"],
        "sizes": SIZES, "main": [lambda: None, lambda: "cols"], "reduced": [lambda: (), lambda: ("cols",)],
        "only_listed": [lambda: False, lambda: True, lambda: ("rows",)], **OF_OP,
    },
    "Arg": {
        "axes": [lambda: "rows cols"], "dtype": [lambda: "T", lambda: "int8", lambda: torch.int64, lambda: "bool"],
        "fill": [lambda: None, lambda: "values", lambda: "integers", lambda: "index"],
        "below": [lambda: None, lambda: "cols"],
        "low": [lambda: None, lambda: 0], "high": [lambda: None, lambda: 5, lambda: "cols"],
        "layouts": [lambda: (), lambda: ("contiguous",)],
    },
    "Contract": {
        "accumulate": [lambda: "float32"], "products": [lambda: "ieee"], "intermediate": [lambda: None],
        "summation": [lambda: "blocked"], "fast_math": [lambda: False], "output": [lambda: None],
    },
    "Index": {"of": [lambda: "x"], "dim": [lambda: -1], "unique": [lambda: False]},
    "Out": {"dtype": [lambda: None, lambda: "float16"], "index": [lambda: None]},
    "verify": {
        "kernel": FUNCTIONS, "op": KNOWN_OPS, "reference": FUNCTIONS, "inputs": INPUTS,
        **OF_OP, "dtypes": [lambda: "float32", lambda: torch.float16], "cases": [lambda: 1, lambda: 2],
        "seed": [lambda: 0, lambda: 7], "contract": CONTRACT, "controls": [lambda: (), lambda: [softmax]],
        "distributions": [lambda: "uniform"], "device": [lambda: "cpu"], "lock": [lambda: None],
        "limit": [lambda: None],
        "strict": [lambda: True, lambda: False], "suspects": [lambda: "rerun", lambda: "fail"],
        "only": [lambda: None],
        "record": [lambda: None], "name": [lambda: None],
    },
}  # fmt: skip
"""Of every public function that takes a user's words, its parameters and what they may well be."""
ALWAYS = {
    "verify": ("kernel", "op", "reference", "inputs", "dtypes", "cases", "device"),
    "check": ("actual", "inputs", "op", "reference"),
    "error_scale": ("reference", "inputs"),
    "read": ("actual", "expected", "gauge"),
    "Op": ("name", "reference", "inputs"),
}
"""What is seldom left out: by itself it would end most calls, or make them long."""


EITHER = {
    "verify": (("reference", "inputs", "outputs", "mutates", "grads"), ("op",)),
    "Op": (("output", "sizes", "main", "reduced", "only_listed"), (), ("outputs", "mutates", "grads")),
    "check": (("reference", "expected", "outputs"), ("op", "expected"), ("op", "reference", "inputs")),
}
"""Ways to say what is computed: most calls keep to one, and leave out what does not go with it."""


def make_call(seed: int) -> tuple[str, dict[str, Any]]:
    """The name of a function, and arguments for it by name."""
    chance = random.Random(seed)
    name = chance.choice([*RIGHT, "verify", "check", "Op", "error_scale"])
    wrong = chance.choice((0.0, 0.1, 0.1, 0.3, 0.6))
    given: dict[str, Any] = {}
    for parameter, right in RIGHT[name].items():
        kept = parameter in ALWAYS.get(name, ())
        if chance.random() < (0.02 if kept else 0.5):
            continue
        given[parameter] = chance.choice(ODD if chance.random() < wrong else right)()
    if chance.random() < 0.9:
        for parameter in chance.choice(EITHER.get(name, ((),))):
            given.pop(parameter, None)
    if chance.random() < 0.02:
        given["unknown"] = chance.choice(ODD)()
    return name, given
