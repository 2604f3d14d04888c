"""Importing gonogo: what it brings in, what it offers, and how it works with parts missing."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType
from typing import Any

import gonogo

MEASURE = """
import json
import numpy as np
import gonogo
rng = np.random.default_rng(5)
expected = rng.standard_normal((300, 301))
found = []
for dtype in (np.float16, np.float32, np.float64):
    actual = (expected * (1 + 1e-3 * rng.standard_normal(expected.shape))).astype(dtype)
    actual[7, 8] = np.inf if dtype is np.float32 else actual[7, 8]
    found.append(gonogo.measure(actual, expected, atol=1e-3).to_dict())
    for gauge in ("ulp", "magnitude", "bound"):
        found.append(gonogo.read(actual, expected, gauge=gauge, scale=np.abs(expected)).to_dict())
"""


def run_fresh(script: str) -> Any:
    """What a fresh interpreter, with warnings as errors, prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_brings_in_no_framework() -> None:
    """Neither on import nor by measuring NumPy arrays."""
    watched = ("torch", "triton", "scipy", "pandas", "jax", "ml_dtypes", "rich", "hypothesis")
    loaded = run_fresh(
        f"{MEASURE}\nimport sys\nprint(json.dumps([name for name in {watched} if name in sys.modules]))"
    )
    assert loaded == []


def test_every_module_is_imported_as_any_other() -> None:
    import gonogo.instrument.stats as stats
    from gonogo.instrument.readings import read

    assert gonogo.measure is stats.measure
    assert gonogo.read is read
    assert isinstance(stats, ModuleType)


def test_all_is_what_is_there() -> None:
    assert gonogo.__all__ == sorted(gonogo.__all__)
    assert set(gonogo.__all__) <= set(dir(gonogo))
    for name in gonogo.__all__:  # each is imported when it is first asked for
        getattr(gonogo, name)
    public = {
        name
        for name, value in vars(gonogo).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(gonogo.__all__) == public | {"__version__", "errors", "formats"}
    for name in public:
        assert getattr(gonogo, name).__doc__, name
    assert gonogo.__version__ == version("gonogo")


def test_without_torch() -> None:
    """Measuring goes on; what needs torch says so and how to get it."""
    found, kinds, text = run_fresh(
        "import sys\nsys.modules['torch'] = None\n"
        f"{MEASURE}\n"
        "try:\n"
        "    gonogo.error_scale(lambda x: x, [np.ones(2)])\n"
        "except gonogo.errors.BackendMissing as error:\n"
        "    bases = ImportError, gonogo.errors.GonogoError\n"
        "    kinds = [*[isinstance(error, base) for base in bases], error.package]\n"
        "    print(json.dumps([found, kinds, str(error)]))"
    )
    assert len(found) == 12
    assert kinds == [True, True, "torch"]
    assert text == "gonogo.error_scale needs torch, which is not installed. Run: pip install 'gonogo[torch]'"


def test_without_the_native_path() -> None:
    """NumPy alone gives the same: all to the bit but what is summed."""
    found = run_fresh(
        "import sys\nsys.modules['gonogo.instrument._native'] = sys.modules['gonogo.cases._native'] = None\n"
        f"{MEASURE}\n"
        "from gonogo.instrument import path_native\n"
        "from gonogo.cases.stream import NumpyStream, open_stream\n"
        "assert not path_native.available() and type(open_stream('a')) is NumpyStream\n"
        "print(json.dumps(found))"
    )
    here: dict[str, Any] = {}
    exec(MEASURE, here)
    assert len(found) == len(here["found"]) == 12
    for without, usual in zip(found, json.loads(json.dumps(here["found"])), strict=True):
        assert list(without) == list(usual)
        for field, value in usual.items():
            if field.startswith("mean") or field == "bias":
                assert math.isclose(without[field], value, rel_tol=1e-11), field
            else:
                assert without[field] == value, field
