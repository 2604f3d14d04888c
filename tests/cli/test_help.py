"""--help of every command: it ends with examples, and these are what the command takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gonogo.cli import cli

ROOT = Path(__file__).parent.parent.parent
COMMANDS: dict[str, click.Command] = {"": cli, **cli.commands}
CHEAP = ("ops", "show", "demo")
"""Commands whose examples are run, too."""


def find_examples(command: click.Command) -> list[str]:
    """As they stand in the epilog: what follows `Example:`, or each line below it."""
    text = (command.epilog or "").replace("\b", "")
    _, _, examples = text.partition(":")
    return [line.strip() for line in examples.splitlines() if line.strip()]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples_that_parse(name: str) -> None:
    shown = CliRunner().invoke(cli, [*([name] if name else []), "--help"])
    assert shown.exit_code == 0
    examples = find_examples(COMMANDS[name])
    assert examples
    told = " ".join(shown.stdout.split())
    for example in examples:
        assert example in told
        program, *words = shlex.split(example)
        assert program == "gonogo"
        assert words[0] == name or not name
        # Parses them, with values of options checked, and runs nothing.
        cli.commands[words[0]].make_context(words[0], words[1:])
    assert told.endswith(examples[-1]), "examples come last"


def test_an_example_that_does_not_parse_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        cli.commands["run"].make_context("run", ["--cases", "many"])
    with pytest.raises(click.NoSuchOption):
        cli.commands["ops"].make_context("ops", ["--jason"])


@pytest.mark.parametrize(
    "example", [example for name in CHEAP for example in find_examples(COMMANDS[name])], ids=lambda text: text
)
def test_cheap_examples_run(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not example.startswith("gonogo ops"):
        pytest.importorskip("torch")
        pytest.importorskip("triton")
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(cli, shlex.split(example)[1:], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout
