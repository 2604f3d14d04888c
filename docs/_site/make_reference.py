"""Docstrings, commands and options of the pytest plugin → the pages in `docs/reference`, as Markdown.

    python docs/_site/make_reference.py           write them
    python docs/_site/make_reference.py --check   exit code 1 where a page is not what this would write

A page is its own template: what stands between `<!-- made: KIND NAMES -->` and `<!-- end -->` is made anew, the
rest is left as it is. Signatures and fields are taken from the source by `ast`, as they are written there, so that
every version of Python makes the same page.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import click

from gonogo.service.openapi import make_openapi

FOLDER = Path(__file__).resolve().parent.parent / "reference"
COMMAND = "python docs/_site/make_reference.py"
MADE = re.compile(
    r"(?P<start>^<!-- made: (?P<kind>\w+)(?P<names>[^>]*) -->\n).*?(?P<end>^<!-- end -->$)", re.M | re.S
)
WIDTH = 100
"""Columns up to which a signature stays on one line."""
ITEM_WIDTH = 150
"""The same of a method in a list, where lines are wrapped."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def fill_page(text: str) -> str:
    """A page with all that is made in it made anew."""

    def fill(part: re.Match[str]) -> str:
        made = MAKERS[part["kind"]](part["names"].split())
        return f"{part['start']}\n{made}\n\n{part['end']}"

    return MADE.sub(fill, text)


# Python


def describe_names(names: Sequence[str]) -> str:
    """Functions and classes by their full names, each under a heading."""
    return "\n\n".join(f"### {name}\n\n{_describe_object(name)}" for name in names)


def describe_members(names: Sequence[str]) -> str:
    """Public methods and properties of one class, without a heading."""
    (name,) = names
    return "\n\n".join(_describe_methods(_find(name), name.rpartition(".")[2].lower()))


def describe_errors(names: Sequence[str]) -> str:
    """A table of all exceptions of one module, in the order they are written in."""
    module = import_module(*names)
    rows = []
    for node in _parse(module).body:
        if isinstance(node, ast.ClassDef):
            bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
            facts = ", ".join(f"`{fact}`" for fact in _list_facts(node))
            told = " ".join((ast.get_docstring(node) or "").split())
            rows.append(f"| `{node.name}` | {bases} | {_escape(told)} | {facts} |")
    return "\n".join(["| exception | is a | raised for | facts |", "|---|---|---|---|", *rows])


def _describe_object(name: str) -> str:
    found = _find(name)
    node = _find_node(found)
    if isinstance(node, ast.ClassDef):
        parts = [_describe_docstring(node), _describe_fields(found), *_describe_methods(found, node.name)]
    else:
        parts = [_fence(_write_signature(found, node, node.name)), _describe_docstring(node)]
    return "\n\n".join(part for part in parts if part)


def _describe_fields(kind: type) -> str:
    """Fields with what is written below each, those of bases first."""
    lines = []
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] != "gonogo":
            continue
        body = _find_node(base).body
        for at, line in enumerate(body):
            if isinstance(line, ast.AnnAssign) and not _name_target(line).startswith("_"):
                below = body[at + 1] if at + 1 < len(body) else None
                lines.append(_describe_field(base, line, below))
    return "\n".join(lines)


def _describe_field(owner: type, line: ast.AnnAssign, below: ast.stmt | None) -> str:
    shown = f"{_name_target(line)}: {_write(owner, line.annotation)}{_write_field_default(owner, line.value)}"
    told = ""
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
        told = below.value.value
    return _make_item(shown, told)


def _write_field_default(owner: type, value: ast.expr | None) -> str:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        if factory := given.get("default_factory"):
            return f" = {_write(owner, factory)}()" if isinstance(factory, ast.Name) else " = …"
        value = given.get("default")
    return "" if value is None else f" = {_write(owner, value)}"


def _describe_methods(kind: type, shown_as: str) -> Iterator[str]:
    """Public ones, properties among them: in a list, but for those that need more room."""
    items, blocks = [], []
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] != "gonogo":
            continue
        for node in _find_node(base).body:
            if isinstance(node, Function) and not node.name.startswith("_"):
                told = ast.get_docstring(node) or ""
                item = _write_method(base, node, node.name, ITEM_WIDTH)
                if "\n" in item or ">>>" in told:
                    head = _write_method(base, node, f"{shown_as}.{node.name}", WIDTH)
                    blocks.append(f"{_fence(head)}\n\n{_describe_docstring(node)}")
                else:
                    items.append(_make_item(item, told))
    yield from ["Properties and methods:", "\n".join(items)] if items else []
    yield from blocks


def _write_method(owner: type, node: Function, name: str, width: int) -> str:
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    if decorators & {"property", "cached_property"}:
        return f"{name}: {_write(owner, node.returns)}" if node.returns else name
    return _write_signature(owner, node, name, skip=0 if "staticmethod" in decorators else 1, width=width)


def _write_signature(owner: Any, node: Function, name: str, *, skip: int = 0, width: int = WIDTH) -> str:
    """As it is written, each parameter on a line of its own where they do not fit one."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    words = [_write_parameter(owner, *pair) for pair in zip(positional, defaults, strict=True)]
    if given.posonlyargs:
        words.insert(len(given.posonlyargs), "/")
    if given.vararg:
        words.append("*" + _write_parameter(owner, given.vararg, None))
    elif given.kwonlyargs:
        words.append("*")
    words += [_write_parameter(owner, *pair) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        words.append("**" + _write_parameter(owner, given.kwarg, None))
    words = words[skip:]
    returns = f" -> {_write(owner, node.returns)}" if node.returns else ""
    if len(line := f"{name}({', '.join(words)}){returns}") <= width:
        return line
    lines = [textwrap.fill(f"{word},", WIDTH, initial_indent="    ", subsequent_indent=" " * 8) for word in words]
    return "\n".join([f"{name}(", *lines, f"){returns}"])


def _write_parameter(owner: Any, given: ast.arg, default: ast.expr | None) -> str:
    shown = f"{given.arg}: {_write(owner, given.annotation)}" if given.annotation else given.arg
    if default is None:
        return shown
    return f"{shown} = {_write(owner, default)}" if given.annotation else f"{shown}={_write(owner, default)}"


def _write(owner: Any, node: ast.expr) -> str:
    """An annotation or a default, with names that stand for plain values or words replaced by these."""
    if isinstance(node, ast.Name):
        value = getattr(sys.modules[owner.__module__], node.id, None)
        if get_origin(value) is Literal:
            return f"Literal[{', '.join(map(_write_value, get_args(value)))}]"
        if isinstance(value, str | int | float | tuple) and _is_plain(value):
            return _write_value(value)
        if isinstance(value, type) and value.__module__.partition(".")[0] == "gonogo":
            return value.__name__  # imported by another name
    return " ".join(str(ast.get_source_segment(_read_source(sys.modules[owner.__module__]), node)).split())


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, str | int | float)


def _write_value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_write_value, value))}{',' if len(value) == 1 else ''})"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _describe_docstring(node: ast.ClassDef | Function) -> str:
    """Paragraphs as they are, examples as sessions."""
    parts = []
    for part in re.split(r"\n{2,}", ast.get_docstring(node) or ""):
        at = part.find(">>>")
        words, session = (part, "") if at < 0 else (part[:at].rstrip(), part[at:])
        parts += [_escape(words)] if words else []
        parts += [_fence(session, "pycon")] if session else []
    return "\n\n".join(parts)


def _list_facts(node: ast.ClassDef) -> list[str]:
    """Attributes that the constructor sets."""
    return [
        target.attr
        for method in node.body if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for line in method.body if isinstance(line, ast.Assign)
        for one in line.targets for target in (one.elts if isinstance(one, ast.Tuple) else [one])
        if isinstance(target, ast.Attribute)
    ]  # fmt: skip


def _name_target(line: ast.AnnAssign) -> str:
    return line.target.id if isinstance(line.target, ast.Name) else "_"


def _find(name: str) -> Any:
    """What a full name stands for: modules are imported on the way."""
    found: Any = import_module(name.partition(".")[0])
    for word in name.split(".")[1:]:
        if isinstance(found, ModuleType) and not hasattr(found, word):
            with suppress(ModuleNotFoundError):
                import_module(f"{found.__name__}.{word}")
        if not hasattr(found, word):
            sys.exit(f"there is no {name}. Name what took its place in the comment of docs/reference that has it")
        found = getattr(found, word)
    return found


def _find_node(found: Any) -> Any:
    """Where a class or function is defined."""
    nodes = _parse(sys.modules[found.__module__]).body
    return next(node for node in nodes if isinstance(node, ast.ClassDef | Function) and node.name == found.__name__)


@cache
def _parse(module: ModuleType) -> ast.Module:
    return ast.parse(_read_source(module))


@cache
def _read_source(module: ModuleType) -> str:
    return Path(str(module.__file__)).read_text(encoding="utf-8")


# The command line and the pytest plugin


def describe_commands(names: Sequence[str]) -> str:
    """Every command of the command line, from its own help."""
    from gonogo.cli import cli

    return "\n\n".join(_describe_command(cli, click.Context(cli, info_name="gonogo")))


def _describe_command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"## {context.command_path}"
    yield f"`{usage}`"
    yield from _describe_help(command.help or "")
    records = [option.get_help_record(context) for option in command.params]
    if options := [record for record in records if record is not None and record[1]]:
        yield _make_list(options)
    yield from _describe_help(command.epilog or "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _describe_command(below, click.Context(below, parent=context, info_name=name))


def _describe_help(text: str) -> Iterator[str]:
    """Paragraphs of a help text; one whose lines are to be kept, behind a mark of click's, as a block."""
    for part in re.split(r"\n{2,}", inspect.cleandoc(text).partition("\f")[0]):
        if not part.startswith("\b"):
            yield from filter(None, [_escape(part)])
            continue
        lines = part.removeprefix("\b").strip("\n").splitlines()
        head = [line for line in lines[:1] if not line.startswith(" ")]
        yield from head
        block = textwrap.dedent("\n".join(lines[len(head) :]))
        if block.startswith("gonogo "):
            yield "<!-- not run: an example of --help, on files of yours -->\n" + _fence(block, "bash")
        elif block:
            yield _fence(block)


def describe_plugin(names: Sequence[str]) -> str:
    """Options and settings of the pytest plugin, as it hands them to pytest."""
    from gonogo import pytest_plugin

    recorder = _Recorder()
    pytest_plugin.pytest_addoption(recorder)  # type: ignore[arg-type]  # it asks for these methods only
    return "\n\n".join(f"{kind}:\n\n{_make_list(rows)}" for kind, rows in recorder.rows.items() if rows)


class _Recorder:
    """Stands in for pytest's parser and its group."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[str, str]]] = {
            "Options": [],
            "Settings, in pytest's configuration file": [],
        }

    def getgroup(self, *names: str, **rest: Any) -> _Recorder:
        return self

    def addoption(self, *names: str, help: str = "", metavar: str = "", **rest: Any) -> None:  # noqa: A002  pytest's word
        if help != argparse.SUPPRESS:
            self.rows["Options"].append((f"{', '.join(names)} {metavar}".strip(), help))

    def addini(self, name: str, help: str, **rest: Any) -> None:  # noqa: A002  pytest's word
        self.rows["Settings, in pytest's configuration file"].append((name, help))


# Markdown


def _make_list(rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join(_make_item(name, told) for name, told in rows)


def _make_item(name: str, told: str) -> str:
    return f"- `{name}`" + (f": {_escape(' '.join(told.split()))}" if told else "")


def _fence(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def _escape(text: str) -> str:
    """Words of a docstring or a help text, so that nothing in them is taken for markup; code stays as it is."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if odd % 2 else re.sub(r"(\*|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/])|\|)", r"\\\1", part)
        for odd, part in enumerate(parts)
    )


MAKERS = {
    "python": describe_names, "members": describe_members, "errors": describe_errors, "commands": describe_commands,
    "pytest": describe_plugin,
}  # fmt: skip
"""Kind of what is made → its maker, which gets the names behind the kind."""


def main() -> None:
    """Write the pages, or see whether they are as they would be written."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page is not fresh")
    check = parser.parse_args().check
    stale = []
    for path in [*sorted(FOLDER.glob("*.md")), FOLDER / "openapi.json"]:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        made = fill_page(text) if path.suffix == ".md" else f"{json.dumps(make_openapi(), indent=1)}\n"
        if made != text:
            stale.append(path.name)
            if not check:
                path.write_text(made, encoding="utf-8")
    if check and stale:
        sys.exit(f"docs/reference: {', '.join(stale)} not as the code says. Run: {COMMAND}")


if __name__ == "__main__":
    main()
