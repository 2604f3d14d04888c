"""gonogo show: one kernel on one case, replayed and looked at element by element."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gonogo.cases import parse_case
from gonogo.cli._completion import DEVICES, complete_device, complete_kernel
from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import FILE, need_backend, show_examples
from gonogo.cli._tables import View, print_tables, table_options
from gonogo.errors import InputError
from gonogo.ops import add_folder
from gonogo.table import Table
from gonogo.words import find_op, find_words, need_torch

if TYPE_CHECKING:
    from gonogo.schema import Record

READINGS = ("absolute", "magnitude", "ulp", "bound", "bias", "deterministic", "signal")


@click.command(
    short_help="Replay a kernel on a case, element by element.",
    epilog=show_examples("gonogo show softmax:f16:2x7x1025:c:uniform:81 softmax_triton_buggy --worst 3"),
)
@click.argument("case_id")
@click.argument("kernel", shell_complete=complete_kernel)
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu or cuda.", shell_complete=complete_device
)
@click.option(
    "--worst", type=click.IntRange(1), default=10, show_default=True, help="How many of the worst elements."
)
@click.option("--ops-path", multiple=True, type=FILE, help="Folder with more ops.")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show(
    case_id: str, kernel: str, device: str, worst: int, ops_path: tuple[Path, ...], view: View, as_json: bool
) -> None:
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
            {"schema": SCHEMA, "record": record.to_dict(), "worst": [asdict(element) for element in record.worst]}
        )
        return
    _print(record, view)


def _print(record: Record, view: View) -> None:
    # Not by rich: ids and what a kernel said may look like its markup or its emoji.
    detail = f": {record.detail}" if record.detail else ""
    aside = view.form != "text"  # a table for a program stands alone
    echo(f"{record.case}  {record.kernel} ({record.role}, contract {record.contract})", aside=aside)
    echo(f"outcome {record.outcome}{detail}", aside=aside)
    if record.stats is None:
        return
    readings = {name: getattr(record, name) for name in READINGS}
    told = [f"{name} {value:.4g}" for name, value in readings.items() if value is not None]
    for pairs in filter(None, (told[:4], told[4:])):  # all in one line are wider than 80 columns
        echo("  ".join(pairs), aside=aside)
    columns = ("index", "expected", "actual", "ULPs apart", "reading")
    rows = [(str(e.index), repr(e.expected), repr(e.actual), str(e.ulp), f"{e.bound:.4g}") for e in record.worst]
    print_tables([Table("worst elements in the bound gauge", columns, rows)], view)
