"""gonogo show: one kernel on one case, replayed and looked at element by element."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from gonogo.cases import parse_case
from gonogo.cli.ops import PIPED_WIDTH
from gonogo.errors import BackendMissing
from gonogo.ops import add_folder, get_op

if TYPE_CHECKING:
    from gonogo.records import Row

READINGS = ("absolute", "magnitude", "ulp", "bound", "bias", "deterministic", "signal")


@click.command(epilog="Example: gonogo show softmax:f16:2x7x1025:c:uniform:81 softmax_triton_buggy")
@click.argument("case_id")
@click.argument("kernel")
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option(
    "--worst", type=click.IntRange(1), default=10, show_default=True, help="How many of the worst elements."
)
@click.option("--ops-path", multiple=True, type=click.Path(path_type=Path), help="Folder with more ops.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(case_id: str, kernel: str, device: str, worst: int, ops_path: tuple[Path, ...], as_json: bool) -> None:
    """Replay KERNEL on the case CASE_ID: its outcome, its readings and its worst elements. Not isolated."""
    try:
        from gonogo.campaign import find_device, set_switches
        from gonogo.campaign.bench import Job, prepare
        from gonogo.campaign.execute import find_worst, run_kernel
        from gonogo.campaign.worker import configure_torch
    except ModuleNotFoundError as error:
        raise BackendMissing(str(error.name), "gonogo show") from None
    for folder in ops_path:
        add_folder(folder)
    case = parse_case(case_id)
    op = get_op(case.op)
    op.kernel(kernel)
    place = find_device(device)
    set_switches(place)
    configure_torch()
    bench = prepare(Job(0, case, "replay", (kernel,), place))
    row = run_kernel(bench, op.kernel(kernel))
    elements = find_worst(bench, op.kernel(kernel), worst)
    if as_json:
        told = _to_plain({"schema": 1, "record": row, "worst": elements})
        click.echo(json.dumps(told, indent=1, allow_nan=False))
        return
    _print(row, elements)


def _to_plain(value: Any) -> Any:
    """For JSON, which has no such numbers: NaN is null, an infinity the string "inf" or "-inf"."""
    if isinstance(value, dict):
        return {name: _to_plain(content) for name, content in value.items()}
    if isinstance(value, list):
        return [_to_plain(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    return value


def _print(row: Row, elements: list[dict[str, Any]]) -> None:
    # Not by rich: ids and what a kernel said may look like its markup or its emoji.
    detail = f": {row['detail']}" if row.get("detail") else ""
    click.echo(f"{row['case']}  {row['kernel']} ({row['role']}, contract {row['contract']})")
    click.echo(f"outcome {row['outcome']}{detail}")
    if "max_abs" not in row:
        return
    click.echo("  ".join(f"{name} {row[name]:.4g}" for name in READINGS if row.get(name) is not None))
    table = Table(title="worst elements in the bound gauge")
    for column in ("index", "expected", "actual", "ULPs apart", "reading"):
        table.add_column(column, justify="right", overflow="fold")
    for element in elements:
        table.add_row(
            str(tuple(element["index"])), repr(element["expected"]), repr(element["actual"]),
            str(element["ulp"]), f"{element['bound']:.4g}",
        )  # fmt: skip
    Console(width=None if Console().is_terminal else PIPED_WIDTH).print(table)
