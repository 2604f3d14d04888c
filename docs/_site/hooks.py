"""What the site needs beyond the pages in `docs`: pages from elsewhere, their links, and what is made from code.

Pages are written to be read in the repository. Here links are turned to the site; one that leads to a file that is
not part of it becomes plain text, and one that leads nowhere is left for MkDocs to refuse.
"""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from gonogo import pytest_plugin
from gonogo.cli import cli

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
ELSEWHERE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "records.md": "records/README.md",
}
"""Page of the site → file of the project."""
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere."""
    for uri, path in ELSEWHERE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to the site, and put in what is made from the code."""
    for place, make in MADE.items():
        if place in markdown:
            markdown = markdown.replace(place, make())
    parts = FENCED.split(markdown)  # every second one is code
    uri = page.file.src_uri
    return "".join(part if odd % 2 else turn_links(part, uri) for odd, part in enumerate(parts))


def turn_links(markdown: str, uri: str) -> str:
    """Links of the page at `uri`, relative to its file in the repository → relative to the site."""
    source = ROOT / ELSEWHERE[uri] if uri in ELSEWHERE else DOCS / uri
    pages = {(ROOT / path).resolve(): page for page, path in ELSEWHERE.items()}

    def turn(link: re.Match[str]) -> str:
        target = (source.parent / link["path"]).resolve()
        if target in pages:
            to = pages[target]
        elif target.is_file() and target.is_relative_to(DOCS):
            to = target.relative_to(DOCS).as_posix()
        else:
            return link["text"] if target.exists() else link[0]
        path = os.path.relpath(to, Path(uri).parent)
        return f"{link['image']}[{link['text']}]({path}{link['anchor'] or ''})"

    return LINK.sub(turn, markdown)


def describe_commands() -> str:
    """Every command of the command line, from its own help."""
    top = click.Context(cli, info_name="gonogo")
    parts = []
    for name in cli.list_commands(top):
        command = cli.commands[name]
        context = click.Context(command, parent=top, info_name=name, **command.context_settings)
        usage = " ".join([f"gonogo {name}", *command.collect_usage_pieces(context)])
        told = inspect.cleandoc(command.help or "").replace("\b\n", "")
        records = [one.get_help_record(context) for one in command.params]
        rows = [record for record in records if record is not None and record[1]]  # arguments stand in the usage
        parts += [f"## gonogo {name}", f"`{usage}`", _escape(told), _make_table(("option", "meaning"), rows)]
        parts += [_escape(command.epilog)] if command.epilog else []
    return "\n\n".join(parts)


def describe_plugin() -> str:
    """Options and settings of the pytest plugin, as it hands them to pytest."""
    recorder = _Recorder()
    pytest_plugin.pytest_addoption(recorder)  # type: ignore[arg-type]  # it asks for these three methods only
    options, settings = (_make_table((kind, "meaning"), rows) for kind, rows in recorder.told.items())
    return f"{options}\n\n{settings}"


class _Recorder:
    """Stands in for pytest's parser and its group."""

    def __init__(self) -> None:
        self.told: dict[str, list[tuple[str, str]]] = {"option": [], "setting": []}

    def getgroup(self, name: str, description: str = "") -> _Recorder:
        return self

    def addoption(self, name: str, *, help: str, metavar: str = "", **rest: Any) -> None:  # noqa: A002  pytest's word
        self.told["option"].append((f"{name} {metavar}".strip(), help))

    def addini(self, name: str, help: str, **rest: Any) -> None:  # noqa: A002  pytest's word
        self.told["setting"].append((name, help))


def _make_table(heads: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {heads[0]} | {heads[1]} |", "|---|---|"]
    return "\n".join(lines + [f"| `{name}` | {_escape(told)} |" for name, told in rows])


def _escape(text: str) -> str:
    """Help texts are no Markdown."""
    return re.sub(r"([*_<\[|])", r"\\\1", text)


MADE = {"<!-- made: commands -->": describe_commands, "<!-- made: pytest options -->": describe_plugin}
"""Line of a page → what takes its place."""
