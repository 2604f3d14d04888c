"""gonogo show: one kernel on one case, replayed and looked at element by element."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from gonogo.cases import parse_case
from gonogo.ops import add_folder, get_op

if TYPE_CHECKING:
    from gonogo.records import Row

READINGS = ("absolute", "magnitude", "ulp", "bound", "bias", "deterministic", "signal")


@click.command(epilog="Example: gonogo show softmax:f16:2x7x1025:c:uniform:81 softmax_triton_buggy")
@click.argument("case_id")
@click.argument("kernel")
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("--worst", default=10, show_default=True, help="How many of the worst elements.")
@click.option("--ops-path", multiple=True, type=click.Path(path_type=Path), help="Folder with more ops.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(case_id: str, kernel: str, device: str, worst: int, ops_path: tuple[Path, ...], as_json: bool) -> None:
    """Replay KERNEL on the case CASE_ID: its outcome, its readings and its worst elements. Not isolated."""
    from gonogo.campaign import find_device, set_switches

    for folder in ops_path:
        add_folder(folder)
    case = parse_case(case_id)
    op = get_op(case.op)
    op.kernel(kernel)
    place = find_device(device)
    set_switches(place)
    from gonogo.campaign.execute import Job, find_worst, prepare, run_kernel
    from gonogo.campaign.worker import configure_torch

    configure_torch()
    bench = prepare(Job(0, case, "replay", (kernel,), place))
    row = run_kernel(bench, op.kernel(kernel))
    elements = find_worst(bench, op.kernel(kernel), worst)
    if as_json:
        click.echo(json.dumps({"schema": 1, "record": row, "worst": elements}, indent=1, default=str))
        return
    _print(row, elements)


def _print(row: Row, elements: list[dict[str, Any]]) -> None:
    console = Console()
    detail = f": {row['detail']}" if row.get("detail") else ""
    console.print(f"{row['case']}  {row['kernel']} ({row['role']}, contract {row['contract']})", highlight=False)
    console.print(f"outcome {row['outcome']}{detail}", highlight=False)
    if "max_abs" not in row:
        return
    console.print(
        "  ".join(f"{name} {row[name]:.4g}" for name in READINGS if row.get(name) is not None), highlight=False
    )
    table = Table(title="worst elements in the bound gauge")
    for column in ("index", "expected", "actual", "ULPs apart", "reading"):
        table.add_column(column, justify="right")
    for element in elements:
        table.add_row(
            str(tuple(element["index"])), repr(element["expected"]), repr(element["actual"]),
            str(element["ulp"]), f"{element['bound']:.4g}",
        )  # fmt: skip
    console.print(table)
