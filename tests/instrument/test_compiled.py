"""Our Triton kernels compiled for NVIDIA GPUs, on a machine that need not have one: the interpreter takes more.

What is compiled is what is launched: every launch of the calls below, by what Triton specialises on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patterns import NUMPY_DTYPES, align_arrays, on_device

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gonogo.formats import FORMATS  # noqa: E402
from gonogo.instrument import (  # noqa: E402
    first_pass_triton,
    launch_triton,
    looks,
    path_triton,
    readings,
    select_triton,
    selection,
    stats,
)
from gonogo.instrument.gauges import gauge  # noqa: E402
from gonogo.instrument.running_error import fused, terms  # noqa: E402
from gonogo.instrument.triton_kernels import errors, look, lose, read, scan, select  # noqa: E402

MODULES = (errors, look, lose, read, scan, select)
KEEP_ALL, SAMPLE, ROWS = 2**12, 2**13, 2**1
"""Elements of which all errors are kept, those of a sample, and rows of another: fewer than elsewhere, as the
interpreter is slow."""
OUTPUTS = (
    ("float16", "float16", 300), ("float16", "float16", 2**14), ("float32", "float32", 2**14),
    ("float8_e4m3fn", "float64", 2**14 + 3), ("float32", "float32", 6000),
)  # fmt: skip
"""Formats of both sides, and elements; some counts are divisible by 16, which Triton makes use of, and the last is
too few for rows of a sample."""

TYPES = {
    torch.uint8: "u8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.float64: "fp64",
    torch.float32: "fp32", torch.bool: "i1",
}  # fmt: skip
COMPILE = Path(__file__).with_name("compile_kernels.py")
"""Run by a process that does not interpret."""


class Seen:
    """Launches, each described once."""

    def __init__(self) -> None:
        self.launches: dict[str, dict[str, Any]] = {}
        self._launch = launch_triton.launch

    def launch(self, kernel: Any, programs: int, *args: Any, **options: Any) -> None:
        """Note a launch, and go on with it."""
        names = kernel.arg_names
        told = {
            "module": kernel.fn.__module__, "name": kernel.fn.__name__,
            "args": {name: describe(arg) for name, arg in zip(names, args, strict=False)},
            "constants": {
                name: value for name, value in options.items() if name in names
            },
            "options": {name: value for name, value in options.items() if name not in names},
        }  # fmt: skip
        self.launches[json.dumps(told, sort_keys=True)] = told
        self._launch(kernel, programs, *args, **options)


def describe(arg: Any) -> dict[str, Any]:
    """An argument as Triton tells it from others: an integer that is 1 is a constant to it."""
    if isinstance(arg, int):
        return {"type": "i32" if -(2**31) <= arg < 2**31 else "i64", "one": arg == 1, "aligned": arg % 16 == 0}
    return {"type": f"*{TYPES[arg.dtype]}", "one": False, "aligned": arg.data_ptr() % 16 == 0}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    made = Seen()
    for module in (launch_triton, path_triton, first_pass_triton, select_triton):
        monkeypatch.setattr(module, "launch", made.launch)
    for module in (selection, first_pass_triton):
        monkeypatch.setattr(module, "KEEP_ALL", KEEP_ALL)
    monkeypatch.setattr(select_triton, "SAMPLE", SAMPLE)
    monkeypatch.setattr(first_pass_triton, "FEW_ROWS", ROWS)
    monkeypatch.setattr(fused, "fits", lambda x: True)
    first_pass_triton._plan_pass.cache_clear()  # of other sizes
    with np.errstate(all="ignore"):  # the interpreter computes with NumPy
        yield made
    first_pass_triton._plan_pass.cache_clear()


def read_all(name: str, of: str, count: int) -> None:
    """What `measure` and `read` launch for such an output."""
    rng = np.random.default_rng(0)
    expected = rng.standard_normal(count).astype(np.float32)
    actual = (expected * (1 + 1e-3 * rng.standard_normal(count))).astype(NUMPY_DTYPES[name])
    operands = on_device(align_arrays(actual, expected.astype(NUMPY_DTYPES[of]), np.abs(expected)))
    pair = replace(operands, operands=operands.operands[:2])
    stats._measure_aligned(pair, path_triton, 1e-3)
    size = readings._measure_size(pair, path_triton)
    units = [gauge(each).make_unit(FORMATS[name], size) for each in ("absolute", "magnitude", "ulp")]
    readings._read_units(pair, path_triton, pair.flat(), units)
    for unit in units:
        readings._read_pieces(pair, path_triton, unit)
    bound = gauge("bound").make_unit(FORMATS[name], size)
    readings._read_pieces(operands, path_triton, bound)


def lose_all(rows: int, length: int) -> None:
    """What rules of sums launch for so many of them."""
    x = torch.randn(rows, length, dtype=torch.float64)
    each, ones = torch.ones(rows, dtype=torch.float64), torch.ones_like(x)
    terms._lose_by_triton(x, torch.ones(rows, terms.STEPS, dtype=torch.float64), each)
    assert fused.look_at_sums(x, x.sum(1), (1,), (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)) is not None
    assert fused.add_total(x, ones, 0.5) is not None
    assert fused.share_errors(x, ones, 0.5, ones, (each,) * 4, (1,)) is not None


@pytest.mark.slow
def test_whatever_is_launched_compiles(seen: Seen) -> None:
    for name, of, count in OUTPUTS:
        read_all(name, of, count)
    for rows, length in ((64, 64), (65, 5000)):
        lose_all(rows, length)
    for length in (5, 5000):
        array = torch.zeros(length, dtype=torch.int16)
        looks.launch_looks([looks.Look(array, 0), looks.Look(array, array.clone())], array.device)
    kernels = {
        name for module in MODULES for name, value in vars(module).items()
        if name.endswith("_kernel") and value.fn.__module__ == module.__name__
    }  # fmt: skip
    assert {told["name"] for told in seen.launches.values()} == kernels
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, COMPILE], input=json.dumps(list(seen.launches.values())), env=environment, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
