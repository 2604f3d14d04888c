"""gonogo ops: the ops there are and every kernel of each; of those named, what they compute, too."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import indent

import click
from rich.table import Table
from rich.text import Text

from gonogo.cli._completion import complete_op
from gonogo.cli._parse import show_examples
from gonogo.cli._tables import make_console, print_json
from gonogo.errors import InputError
from gonogo.ops import InFolder, Input, Op, add_folder, get_op, import_op, op_names
from gonogo.words import find_op

KINDS = {"values": "", "index": " (integers below {below})", "int8": " (int8)", "scale": " (factors above 0)"}
"""What an input holds, where it is not the case's values."""


@click.command(epilog=show_examples("gonogo ops softmax rmsnorm", "gonogo ops --json"))
@click.argument("names", nargs=-1, shell_complete=complete_op)
@click.option("--ops-path", multiple=True, type=click.Path(path_type=Path), help="Folder with more ops.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def ops(names: tuple[str, ...], ops_path: tuple[Path, ...], as_json: bool) -> None:
    """List ops NAMES (all by default) and their kernels: controls, and faulty ones with their bug.

    Of ops that are named, also what they compute: inputs, axes and the reference as code.
    """
    for folder in ops_path:
        add_folder(folder)
    listed_ops = [find_op(name) for name in names or op_names()]
    if as_json:
        print_json({"schema": 1, "ops": [_describe_op(op) for op in listed_ops]})
        return
    definitions = [_tell_definition(get_op(name)) for name in names]
    table = Table(title=f"{len(listed_ops)} ops, {sum(len(op.kernels) for op in listed_ops)} kernels")
    for column in ("op", "kernel", "role", "framework", "what it does, or its bug and where it shows"):
        table.add_column(column, overflow="fold")
    for op in listed_ops:
        for position, kernel in enumerate(op.kernels):
            table.add_row(
                "" if position else op.name,
                kernel.name,
                kernel.role,
                kernel.framework,
                Text(op.describe_kernel(kernel.name)),
            )
        table.add_section()
    make_console().print(table)
    for definition in definitions:
        click.echo(definition)


def _tell_definition(op: Op) -> str:
    """What an op computes, in plain lines."""
    sizes = "; ".join(f"{axis} {', '.join(map(str, listed))}" for axis, listed in op.sizes.items())
    free = [axis for axis in op.axes if not op.keeps_listed(axis)]
    others = f"other sizes of {', '.join(free)}, too" if free else "no others"
    lines = [
        "",
        f"{op.name}: {_read_description(op)}",
        f"  signature  {op.name}({', '.join(map(_tell_input, op.inputs))}) -> {op.output or 'scalar'}",
        f"  sizes      {sizes}; {others}",
        "  reference  run in float64:",
        "",
        indent(_read_reference(op), "    "),
    ]
    return "\n".join(lines)


def _tell_input(described: Input) -> str:
    return f"{described.name}: {described.axes or 'scalar'}{KINDS[described.kind].format(below=described.below)}"


def _read_description(op: Op) -> str:
    assert isinstance(op.reference, InFolder)
    text = " ".join((import_op(op.reference.home, op.name).__doc__ or "").split())
    return text.removeprefix(f"{op.name}: ")


def _read_reference(op: Op) -> str:
    """Code of the reference, without docstring and imports of its module; read, for torch may not be there."""
    assert isinstance(op.reference, InFolder)
    path = op.reference.path
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"op {op.name}: {path} cannot be read: {error}") from None
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        other = re.fullmatch(r"from gonogo\.ops\.(\w+)\.reference import reference", ast.unparse(node))
        if other:  # it computes what another op does
            return _read_reference(get_op(other[1]))
    described = ast.get_docstring(tree) is not None
    left_out = {
        number
        for node in [*imports, *(tree.body[:1] if described else [])]
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = [line for number, line in enumerate(text.split("\n"), start=1) if number not in left_out]
    return re.sub(r"  # noqa.*", "", "\n".join(lines)).strip("\n")


def _describe_op(op: Op) -> dict[str, object]:
    return {
        "name": op.name,
        "description": _read_description(op),
        "inputs": [{"name": i.name, "axes": i.axes.split(), "kind": i.kind} for i in op.inputs],
        "output": op.output.split(),
        "sizes": {axis: list(sizes) for axis, sizes in op.sizes.items()},
        "reduced": list(op.reduced),
        "reference": _read_reference(op),
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
