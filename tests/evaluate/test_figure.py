"""Figure 1: both files, the same bytes every time, and what it refuses."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from gonogo.errors import BackendMissing, InputError
from gonogo.evaluate.figure import Cell, draw_tightening

CELLS = [
    Cell("layernorm", "float32", 1e-4, 1e-5),
    Cell("relu_triton", "bfloat16", 0.05, 0.0),
    Cell("attention_triton", "float16", 0.05, 2.29e-5),
    Cell("matmul", "float16", 0.01, 0.04),
]


def test_files_and_what_they_say(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    svg, png = draw_tightening(CELLS, tmp_path / "new", machine="NVIDIA H200")
    assert (svg.name, png.name) == ("figure1.svg", "figure1.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text(encoding="utf-8")
    for words in ("NVIDIA H200", "2,183×", "10×", "0.25×", "exact", "bfloat16"):
        assert words in text, words
    rows = [text.index(f"{cell.kernel}  {cell.dtype}<") for cell in sorted(CELLS, key=lambda c: -c.factor)]
    assert rows == sorted(rows), "largest factor first, exact before all"


def test_same_cells_same_bytes(tmp_path: Path) -> None:
    """In any order, and whatever the user's own plots look like."""
    matplotlib = pytest.importorskip("matplotlib")
    first = draw_tightening(CELLS, tmp_path / "first")
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True}):
        second = draw_tightening(CELLS[::-1], tmp_path / "second")
        assert matplotlib.rcParams["font.size"] == 20
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert "<dc:date>" not in first[0].read_text(encoding="utf-8")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BackendMissing) as caught:
        draw_tightening(CELLS, tmp_path / "figures")
    assert str(caught.value) == (
        "drawing figure 1 needs matplotlib, which is not installed. Run: pip install 'gonogo[report]'"
    )
    assert caught.value.package == "matplotlib"
    assert not (tmp_path / "figures").exists()


def test_refuses_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        draw_tightening([], tmp_path)


@pytest.mark.parametrize(
    ("current", "calibrated", "problem"),
    [
        (0.0, 1e-3, "current atol is 0.0; a tightening needs a finite one > 0"),
        (math.nan, 1e-3, "current atol is nan; a tightening needs a finite one > 0"),
        (1e-3, -1.0, "calibrated atol is -1.0; a tightening needs a finite one >= 0"),
        (1e-3, math.inf, "calibrated atol is inf; a tightening needs a finite one >= 0"),
    ],
)
def test_refuses_tolerances_without_a_ratio(current: float, calibrated: float, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        Cell("gelu", "float16", current, calibrated)
    assert str(caught.value) == f"gelu/float16: {problem}"
