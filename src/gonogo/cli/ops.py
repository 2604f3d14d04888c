"""gonogo ops: the ops there are, and every kernel of each."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from gonogo.choices import find_op
from gonogo.cli._completion import complete_op
from gonogo.cli._parse import show_examples
from gonogo.cli._tables import make_console, print_json
from gonogo.ops import Op, add_folder, op_names


@click.command(epilog=show_examples("gonogo ops softmax rmsnorm", "gonogo ops --json"))
@click.argument("names", nargs=-1, shell_complete=complete_op)
@click.option("--ops-path", multiple=True, type=click.Path(path_type=Path), help="Folder with more ops.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def ops(names: tuple[str, ...], ops_path: tuple[Path, ...], as_json: bool) -> None:
    """List ops NAMES (all by default) and their kernels: controls, and faulty ones with their bug."""
    for folder in ops_path:
        add_folder(folder)
    found = [find_op(name) for name in names or op_names()]
    if as_json:
        print_json({"schema": 1, "ops": [_describe_op(op) for op in found]})
        return
    table = Table(title=f"{len(found)} ops, {sum(len(op.kernels) for op in found)} kernels")
    for column in ("op", "kernel", "role", "framework", "what it does, or its bug and where it shows"):
        table.add_column(column, overflow="fold")
    for op in found:
        for place, kernel in enumerate(op.kernels):
            table.add_row(
                "" if place else op.name,
                kernel.name,
                kernel.role,
                kernel.framework,
                Text(op.describe_kernel(kernel.name)),
            )
        table.add_section()
    make_console().print(table)


def _describe_op(op: Op) -> dict[str, object]:
    return {
        "name": op.name,
        "inputs": [{"name": i.name, "axes": i.axes.split(), "kind": i.kind} for i in op.inputs],
        "output": op.output.split(),
        "sizes": {axis: list(sizes) for axis, sizes in op.sizes.items()},
        "reduced": list(op.reduced),
        "kernels": [
            {
                "name": kernel.name,
                "op": op.name,
                "role": kernel.role,
                "framework": kernel.framework,
                "dtypes": list(kernel.dtypes),
                "contract": "dtype" if kernel.in_dtype else kernel.contract.describe(),
                "calibrate_against": kernel.calibrate_against,
                "current": dict(kernel.current),
                "bug": op.describe_kernel(kernel.name) if kernel.role == "faulty" else None,
            }
            for kernel in op.kernels
        ],
    }
