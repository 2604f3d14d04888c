"""gonogo demo: a real softmax and a faulty one, measured → a table of ErrorStats and one of readings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from gonogo.cli._completion import DEVICES
from gonogo.cli._output import SCHEMA, print_json
from gonogo.cli._parse import show_examples
from gonogo.cli._tables import View, print_tables, table_options
from gonogo.errors import BackendMissing, InputError
from gonogo.instrument.gauges import gauge
from gonogo.instrument.readings import read
from gonogo.instrument.running_error import error_scale
from gonogo.instrument.stats import measure
from gonogo.table import Table

if TYPE_CHECKING:
    import torch

SHAPE = (512, 1025)
# torch.testing.assert_close's defaults (torch/testing/_comparison.py): the tolerance most tests run with.
TOLERANCES = {
    "float16": {"rtol": 1e-3, "atol": 1e-5},
    "bfloat16": {"rtol": 1.6e-2, "atol": 1e-5},
    "float32": {"rtol": 1.3e-6, "atol": 1e-5},
}
GAUGES = ("absolute", "magnitude", "ulp", "bound")


@click.command(
    short_help="A right softmax and a wrong one, measured.",
    epilog=show_examples("gonogo demo", "gonogo demo --device cpu --json"),
)
@click.option("--device", type=click.Choice(DEVICES), default="auto", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@table_options
def demo(device: str, as_json: bool, view: View) -> None:
    """Measure torch's softmax, and one that leaves the last column out of its sum, against float64."""
    chosen = _choose_device(device)
    rows = [_measure_kernel(kernel, name, chosen) for name in TOLERANCES for kernel in (softmax, softmax_short_sum)]
    if as_json:
        print_json({"schema": SCHEMA, "device": chosen, "shape": SHAPE, "rows": rows})
    else:
        print_tables(_make_tables(rows, chosen), view)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """The framework's own softmax."""
    return x.softmax(-1)


def softmax_short_sum(x: torch.Tensor) -> torch.Tensor:
    """Softmax in float32, but the row sum stops one column early: a tail mask that is off by one."""
    wide = x.float()
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    return (powers / powers[..., :-1].sum(-1, keepdim=True)).to(x.dtype)


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """Softmax in primitive ops, for float64 and its error scale."""
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def _choose_device(device: str) -> str:
    try:
        import torch
    except ImportError:
        raise BackendMissing("torch", "gonogo demo") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch sees no GPU. Run: gonogo demo --device cpu")
    return "cuda" if torch.cuda.is_available() and device != "cpu" else "cpu"


def _measure_kernel(kernel: Callable[[torch.Tensor], torch.Tensor], name: str, device: str) -> dict[str, Any]:
    import torch

    values = np.random.Generator(np.random.Philox(0)).standard_normal(SHAPE)
    x = torch.from_numpy(values).to(getattr(torch, name)).to(device)
    actual = kernel(x)
    expected, scale = error_scale(softmax_reference, (x,))
    tolerance = TOLERANCES[name]
    readings = {g: read(actual, expected, gauge=g, scale=scale) for g in GAUGES}
    policy = read(actual, expected, gauge=gauge("policy", **tolerance))
    return {
        "kernel": kernel.__name__,
        "dtype": name,
        "stats": measure(actual, expected, atol=tolerance["atol"]).to_dict(),
        "readings": {g: reading.to_dict() for g, reading in readings.items()},
        "assert_close": policy.to_dict(),
    }


def _make_tables(rows: list[dict[str, Any]], device: str) -> list[Table]:
    stats_columns = [field.removesuffix("_abs") if field.startswith("p") else field for field in rows[0]["stats"]]
    stats = Table(
        f"ErrorStats of softmax {SHAPE[0]}×{SHAPE[1]} on {device} against its float64 reference",
        ("kernel", "dtype", *stats_columns),
        [(row["kernel"], row["dtype"], *row["stats"].values()) for row in rows],
        essential=("kernel", "dtype", "num_exceeding", "max_abs", "p99", "max_ulp"),
    )
    lines = []
    for row in rows:
        bound = row["readings"]["bound"]
        lines.append((
            row["kernel"], row["dtype"], *(row["readings"][g]["worst"] for g in GAUGES), str(tuple(bound["index"])),
            bound["bias"], "passes" if row["assert_close"]["worst"] <= 1 else "fails",
        ))  # fmt: skip
    readings = Table(
        "Worst element in each gauge; bias is the mean signed error in `bound` units × √n",
        ("kernel", "dtype", *GAUGES, "bound at", "bias", "assert_close"),
        lines,
        "bound: distance from the reference to the rounding cell of the output, over u·S, the first-order error a "
        "kernel that accumulates in float32 may make. A correct one reads about 1 or less in every format; "
        "assert_close, with torch.testing's default tolerances, may not notice the fault that bound shows.",
        ("kernel", "dtype", "absolute", "ulp", "bound", "assert_close"),
    )
    return [stats, readings]
