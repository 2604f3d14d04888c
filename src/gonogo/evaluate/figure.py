"""Tolerances of cells → figure1.svg and figure1.png: how much tighter calibration makes each.

The same cells give the same bytes: no dates, no random ids, none of the user's own plot settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gonogo.errors import BackendMissing, InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's, told apart with any colour vision.
COLOURS = {"float16": "#0072B2", "bfloat16": "#E69F00", "float32": "#009E73"}
OTHER = "#999999"
INK, FAINT = "#222222", "#d9d9d9"
BAR_IN = 0.26
"""Height of a bar and its gap, in inches."""
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "gonogo",
    "svg.fonttype": "none",  # labels stay text, to be searched and read aloud
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """Tolerances of one kernel in one dtype."""

    kernel: str
    dtype: str
    current: float
    """Hand-picked atol."""
    calibrated: float
    """atol that measurements justify; 0 where every case was exact."""

    def __post_init__(self) -> None:
        for name, value, least in (("current", self.current, "> 0"), ("calibrated", self.calibrated, ">= 0")):
            if not math.isfinite(value) or value < 0 or (value == 0 and name == "current"):
                raise InputError(
                    f"{self.kernel}/{self.dtype}: {name} atol is {value}; a tightening needs a finite one {least}"
                )

    @property
    def factor(self) -> float:
        """Current over calibrated."""
        return self.current / self.calibrated if self.calibrated else math.inf


def draw_tightening(cells: Sequence[Cell], folder: Path, *, machine: str | None = None) -> tuple[Path, Path]:
    """Draw the paper's Figure 1 of these cells; `machine` is named in its title. Returns both files."""
    if not cells:
        raise InputError("no cell has both a current and a calibrated atol: there is nothing to draw")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise BackendMissing("matplotlib", "drawing figure 1", extra="report") from None
    ordered = sorted(cells, key=lambda cell: (-cell.factor, cell.kernel, cell.dtype))
    svg, png = folder / "figure1.svg", folder / "figure1.png"
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        figure = Figure(figsize=(7.2, 1.5 + BAR_IN * len(ordered)), layout="constrained")
        axes = figure.add_subplot()
        _draw_bars(axes, ordered)
        _draw_frame(figure, axes, ordered, machine)
        figure.savefig(svg, metadata={"Date": None})
        figure.savefig(png, dpi=160, metadata={"Software": None})
    return svg, png


def _find_range(cells: Sequence[Cell]) -> tuple[float, float]:
    """From 1 or the smallest factor to the largest, with room for the words at either end."""
    finite = [cell.factor for cell in cells if cell.calibrated]
    low, high = min([1.0, *finite]), max([10.0, *finite])
    room = (high / low) ** 0.15
    return (low / room if low < 1 else low), high * room


def _draw_bars(axes: Axes, cells: Sequence[Cell]) -> None:
    left, right = _find_range(cells)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(len(cells) - 0.4, -0.6)
    for position, cell in enumerate(cells):
        end = min(cell.factor, right)
        words, aside = ("exact", -6) if end == right else (_format_factor(cell.factor), 4 if end >= 1 else -4)
        axes.barh(position, end - 1, left=1, height=0.72, color=COLOURS.get(cell.dtype, OTHER))
        axes.annotate(words, (end, position), (aside, 0), textcoords="offset points",
                      ha="left" if aside > 0 else "right", va="center_baseline",
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
    axes.set_yticks(range(len(cells)), [f"{cell.kernel}  {cell.dtype}" for cell in cells])


def _draw_frame(figure: Figure, axes: Axes, cells: Sequence[Cell], machine: str | None) -> None:
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.axvline(1, color=INK, linewidth=1.2)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}×" if value >= 1 else f"{value:g}×")
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("current / calibrated atol (log scale); right of 1: the current one is looser")
    where = f" on {machine}" if machine else ""
    figure.suptitle(f"How much calibration tightens the tolerances{where}", x=0.01, ha="left", weight="bold")
    used = {cell.dtype for cell in cells}
    dtypes = [*(name for name in COLOURS if name in used), *sorted(used - COLOURS.keys())]
    axes.legend(handles=[Patch(color=COLOURS.get(name, OTHER), label=name) for name in dtypes],
                loc="lower left", bbox_to_anchor=(0, 1), ncols=len(dtypes), frameon=False,
                borderaxespad=0, handlelength=1, handleheight=1)  # fmt: skip


def _format_factor(factor: float) -> str:
    return f"{factor:,.0f}×" if factor >= 10 else f"{factor:.2g}×"
