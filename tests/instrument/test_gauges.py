"""One contract that every gauge file fulfils, and that a new gauge is one file."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from patterns import NUMPY_DTYPES

import gonogo
from gonogo.formats import FORMATS
from gonogo.instrument import gauges
from gonogo.instrument.gauges import Gauge, Size, gauge_names

PARAMETERS = {"policy": {"atol": 1e-3, "rtol": 1e-2}}
"""What a gauge cannot be made without."""


@pytest.mark.parametrize("name", gauge_names())
def test_contract_of_gauges(name: str) -> None:
    made = gonogo.gauge(name, **PARAMETERS.get(name, {}))
    assert isinstance(made, Gauge)
    assert made.name.partition("(")[0] == name
    assert gonogo.gauge(name, **PARAMETERS.get(name, {})).name == made.name
    for fmt in FORMATS.values():
        for size in (Size(0.0, 0.0), Size(1.0, 2.0), Size(1e300, 1e301)):
            unit = made.make_unit(fmt, size)
            assert unit == made.make_unit(fmt, size)
            coefficients = unit[:4]
            assert all(math.isfinite(c) and c >= 0 for c in coefficients)
            assert (unit.per_scale > 0) <= made.needs_scale
            assert made.needs_size or unit == made.make_unit(fmt, Size(0.0, 0.0))
        assert any(c > 0 for c in made.make_unit(fmt, Size(1.0, 1.0))[:4]), "a unit of nothing reads nothing"
        values = np.linspace(-2, 2, 12).astype(NUMPY_DTYPES[fmt.name]).reshape(3, 4)
        scale = np.ones((3, 4)) if made.needs_scale else None
        same = gonogo.read(values, values, gauge=made, scale=scale)
        assert same == gonogo.Reading(made.name, 0.0, (0, 0), 0.0, 12)
        moved = values.copy()
        moved[1, 2] = 4.0
        worst = gonogo.read(moved, values, gauge=made, scale=scale)
        assert worst.worst > 0
        assert (worst.index, worst.gauge) == ((1, 2), made.name)
        assert worst == gonogo.read(moved, values, gauge=made, scale=scale)
        if name not in PARAMETERS:
            assert worst == gonogo.read(moved, values, gauge=name, scale=scale)


@pytest.fixture
def gauge_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An extra folder of gauges, gone again afterwards."""
    monkeypatch.setattr(gauges, "__path__", [*gauges.__path__, str(tmp_path)])
    gauge_names.cache_clear()
    yield tmp_path
    for module in tmp_path.glob("*.py"):
        sys.modules.pop(f"{gauges.__name__}.{module.stem}", None)
        vars(gauges).pop(module.stem, None)
    monkeypatch.undo()
    gauge_names.cache_clear()
    assert "eighths" not in gauge_names()


def test_new_gauge_is_one_file(gauge_folder: Path) -> None:
    (gauge_folder / "eighths.py").write_text(
        "from gonogo.instrument.gauges import Gauge\n"
        "from gonogo.instrument.partials import Unit\n\n\n"
        "def gauge(*, share: float = 0.125) -> Gauge:\n"
        "    return Gauge('eighths', lambda fmt, size: Unit(constant=share))\n"
    )
    assert "eighths" in gauge_names()
    actual, expected = np.float32([1.0, 2.0, 2.5]), np.array([1.0, 2.25, 2.0])
    assert gonogo.read(actual, expected, gauge="eighths") == gonogo.Reading(
        "eighths", 4.0, (2,), (0 - 2 + 4) / math.sqrt(3), 3
    )
    assert gonogo.read(actual, expected, gauge=gonogo.gauge("eighths", share=0.25)).worst == 2.0
