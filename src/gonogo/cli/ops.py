"""gonogo ops: the ops there are, a line each; of those named, what they compute and every kernel."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent

import click

from gonogo.cli._completion import complete_op, complete_ops
from gonogo.cli._output import SCHEMA, echo, print_json
from gonogo.cli._parse import FILE, show_examples, words_option
from gonogo.cli._tables import View, fill, print_tables, table_options
from gonogo.errors import InputError
from gonogo.ops import InFolder, Input, Op, add_folder, get_op, import_op, op_names
from gonogo.parsing import parse_source
from gonogo.table import Table
from gonogo.words import find_op

KINDS = {
    "values": "", "index": " (integers below {below})", "int8": " (int8)", "scale": " (factors above 0)",
}  # fmt: skip
"""What an input holds, where it is not the case's values; of other kinds, their name says it."""


@click.command(
    short_help="List the ops, or all there is to know of some.",
    epilog=show_examples("gonogo ops", "gonogo ops softmax rmsnorm", "gonogo ops --json"),
)
@click.argument("names", nargs=-1, shell_complete=complete_op)
@words_option("--op", "more_names", metavar="OP", help="The same as NAMES.", shell_complete=complete_ops)
@click.option("--ops-path", multiple=True, type=FILE, help="Folder with more ops.")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def ops(
    names: tuple[str, ...], more_names: tuple[str, ...], ops_path: tuple[Path, ...], view: View, as_json: bool
) -> None:
    """List all ops, a line each; of NAMES all there is to know: inputs, axes, the reference as code, every kernel.

    Kernels are controls, held to be correct, and faulty ones, with their bug and where it shows.
    """
    for folder in ops_path:
        add_folder(folder)
    chosen = tuple(dict.fromkeys((*names, *more_names)))
    listed_ops = [find_op(name) for name in chosen or op_names()]
    if as_json:
        print_json({"schema": SCHEMA, "ops": [_describe_op(op) for op in listed_ops]})
    elif chosen:
        definitions = [_tell_definition(op) for op in listed_ops]  # before anything is printed: one may be refused
        print_tables([_make_kernel_table(listed_ops)], view)
        for definition in definitions if view.form == "text" else ():
            echo(f"\n{definition}")
    elif view == View():
        _list_ops(listed_ops)
    else:
        print_tables([_make_op_table(listed_ops)], view)


def _list_ops(listed_ops: Sequence[Op]) -> None:
    """A line per op, without frames: they fit into 80 columns, and nearly into one screen."""
    table = _make_op_table(listed_ops)
    lines = [table.columns[:2], *(row[:2] for row in table.rows)]
    kernels = ["kernels", *(f"{controls} + {faulty}" for *_, controls, faulty in table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for (op, signature), count in zip(lines, kernels, strict=True):
        echo(f"{op:<{widths[0]}}  {signature:<{widths[1]}}  {count}")
    echo(f"{table.title}: controls + faulty ones. More of one: gonogo ops NAME")


def _make_op_table(listed_ops: Sequence[Op]) -> Table:
    rows = []
    for op in listed_ops:
        roles = [kernel.role for kernel in op.kernels]
        rows.append((op.name, _tell_signature(op), roles.count("control"), roles.count("faulty")))
    title = f"{len(listed_ops)} ops, {sum(len(op.kernels) for op in listed_ops)} kernels"
    return Table(title, ("op", "inputs -> output", "controls", "faulty"), rows)


def _tell_signature(op: Op) -> str:
    """Inputs and output, each with its axes."""
    inputs = ", ".join(f"{described.name}: {described.axes or 'scalar'}" for described in op.inputs)
    return f"{inputs} -> {op.output or 'scalar'}"


def _make_kernel_table(listed_ops: Sequence[Op]) -> Table:
    rows = [
        (op.name, kernel.name, kernel.role, kernel.framework, op.describe_kernel(kernel.name))
        for op in listed_ops
        for kernel in op.kernels
    ]
    columns = ("op", "kernel", "role", "framework", "what it does; of a faulty one, its bug and where it shows")
    table = Table(f"{len(rows)} kernels of {', '.join(op.name for op in listed_ops)}", columns, rows)
    return table if len(listed_ops) > 1 else table.choose(columns[1:])


def _tell_definition(op: Op) -> str:
    """What an op computes, in lines as wide as the terminal."""
    sizes = "; ".join(f"{axis} {', '.join(map(str, listed))}" for axis, listed in op.sizes.items())
    free = [axis for axis in op.axes if not op.keeps_listed(axis)]
    others = f"other sizes of {', '.join(free)}, too" if free else "no others"
    facts = {
        "signature": f"{op.name}({', '.join(map(_tell_input, op.inputs))}) -> {op.output or 'scalar'}",
        "sizes": f"{sizes}; {others}",
        "reference": "run in float64:",
    }
    indented = " " * 13
    lines = [fill(f"{op.name}: {_read_description(op)}", indent="  ")]
    lines += [fill(text, start=f"  {name:<9}  ", indent=indented) for name, text in facts.items()]
    return "\n".join([*lines, "", indent(_read_reference(op), "    ")])


def _tell_input(described: Input) -> str:
    held = KINDS.get(described.kind, f" ({described.kind})")
    return f"{described.name}: {described.axes or 'scalar'}{held.format(below=described.below)}"


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
        tree = parse_source(text)
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
