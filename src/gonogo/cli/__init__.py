"""The command line: parse, call, print. Exit codes: 0 go, 1 no-go, 2 bad usage or input."""

from __future__ import annotations

import sys

import click

from gonogo._version import __version__
from gonogo.cli.audit import audit
from gonogo.cli.calibrate import calibrate
from gonogo.cli.check import check
from gonogo.cli.demo import demo
from gonogo.cli.evaluate import evaluate
from gonogo.cli.ops import ops
from gonogo.cli.reproduce import reproduce
from gonogo.cli.run import run
from gonogo.cli.show import show
from gonogo.errors import GonogoError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gonogo")
def cli() -> None:
    """Measure what error a tensor kernel makes, in units that its format and its op justify."""


for command in (audit, calibrate, check, demo, evaluate, ops, reproduce, run, show):
    cli.add_command(command)


def main() -> None:
    """Entry point: one line and exit code 2 for what gonogo refuses."""
    try:
        cli()
    except GonogoError as error:
        click.echo(f"gonogo: {error}", err=True)
        sys.exit(2)
