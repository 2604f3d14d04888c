"""gonogo show: one kernel on one case, replayed and looked at element by element."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from gonogo.cases import parse_case
from gonogo.cli._completion import DEVICES, complete_device, complete_kernel
from gonogo.cli._parse import need_backend, show_examples
from gonogo.cli._tables import make_console, print_json
from gonogo.errors import InputError
from gonogo.ops import add_folder
from gonogo.words import find_op, find_words, need_torch

if TYPE_CHECKING:
    from gonogo.schema import Record

READINGS = ("absolute", "magnitude", "ulp", "bound", "bias", "deterministic", "signal")


@click.command(epilog=show_examples("gonogo show softmax:f16:2x7x1025:c:uniform:81 softmax_triton_buggy --worst 3"))
@click.argument("case_id")
@click.argument("kernel", shell_complete=complete_kernel)
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda.", shell_complete=complete_device
)
@click.option(
    "--worst", type=click.IntRange(1), default=10, show_default=True, help="How many of the worst elements."
)
@click.option("--ops-path", multiple=True, type=click.Path(path_type=Path), help="Folder with more ops.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(case_id: str, kernel: str, device: str, worst: int, ops_path: tuple[Path, ...], as_json: bool) -> None:
    """Replay KERNEL on the case CASE_ID: its outcome, its readings and its worst elements. Not isolated."""
    for folder in ops_path:
        add_folder(folder)
    name, colon, _ = case_id.partition(":")
    case = parse_case(case_id, find_op(name) if colon else None)
    op = find_op(case.op)
    find_words(f"kernel of {op.name}", kernel, [known.name for known in op.kernels])
    find_words("device", device, DEVICES)
    dtypes = op.kernel(kernel).dtypes
    if case.dtype not in dtypes:
        raise InputError(f"kernel {kernel} takes {', '.join(dtypes)}, and the case is {case.dtype}")
    need_torch("gonogo show")
    with need_backend("gonogo show"):  # what takes seconds to import comes behind what may be mistyped
        from gonogo.execution.precision import configure_torch
        from gonogo.runners.device import find_device, set_switches
        from gonogo.runners.in_process import InProcess
    where = find_device(device)
    set_switches(where)
    configure_torch()
    ((record,),) = InProcess(op, where).run([(case, "replay")], [op.kernel(kernel)], worst=worst)
    if as_json:
        print_json(
            {"schema": 1, "record": record.to_dict(), "worst": [asdict(element) for element in record.worst]}
        )
        return
    _print(record)


def _print(record: Record) -> None:
    # Not by rich: ids and what a kernel said may look like its markup or its emoji.
    detail = f": {record.detail}" if record.detail else ""
    click.echo(f"{record.case}  {record.kernel} ({record.role}, contract {record.contract})")
    click.echo(f"outcome {record.outcome}{detail}")
    if record.stats is None:
        return
    readings = {name: getattr(record, name) for name in READINGS}
    click.echo("  ".join(f"{name} {value:.4g}" for name, value in readings.items() if value is not None))
    table = Table(title="worst elements in the bound gauge")
    for column in ("index", "expected", "actual", "ULPs apart", "reading"):
        table.add_column(column, justify="right", overflow="fold")
    for element in record.worst:
        table.add_row(
            str(element.index), repr(element.expected), repr(element.actual), str(element.ulp),
            f"{element.bound:.4g}",
        )  # fmt: skip
    make_console().print(table)
