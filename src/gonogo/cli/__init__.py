"""The command line: parse, call, print. Exit codes: 0 go, 1 no-go, 2 bad usage or input, 3 a crash, 130 Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

import click

from gonogo._version import __version__
from gonogo.cli._completion import PROGRAM, VARIABLE, find_shell, install_script, make_script
from gonogo.cli._output import echo, forget, prepare_streams, print_error
from gonogo.cli._parse import Commands, Interrupted, show_examples
from gonogo.cli.atlas import atlas
from gonogo.cli.audit import audit
from gonogo.cli.calibrate import calibrate
from gonogo.cli.check import check
from gonogo.cli.demo import demo
from gonogo.cli.evaluate import evaluate
from gonogo.cli.ops import ops
from gonogo.cli.report import report
from gonogo.cli.reproduce import reproduce
from gonogo.cli.run import run
from gonogo.cli.serve import serve
from gonogo.cli.show import show
from gonogo.cli.sketch import sketch
from gonogo.errors import GonogoError, InputError

ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _show_completion(context: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    if shell is not None and not context.resilient_parsing:
        echo(make_script(context.command, find_shell(shell)))
        context.exit()


def _install_completion(context: click.Context, parameter: click.Parameter, shell: str | None) -> None:
    if shell is not None and not context.resilient_parsing:
        echo(install_script(context.command, find_shell(shell)))
        context.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=show_examples(
        "gonogo check kernel.py:my_softmax --op softmax",
        "gonogo audit --op softmax --dtype float16 --atol 1e-3 --rtol 1e-3",
        "gonogo ops softmax",
    ),
)
@click.version_option(__version__, prog_name=PROGRAM)
@click.option(
    "--show-completion", metavar="[SHELL]", is_flag=False, flag_value="", is_eager=True, expose_value=False,
    callback=_show_completion, help="Print the completion script of bash, zsh or fish; of $SHELL by default.",
)  # fmt: skip
@click.option(
    "--install-completion", metavar="[SHELL]", is_flag=False, flag_value="", is_eager=True, expose_value=False,
    callback=_install_completion, help="Install that script for this user.",
)  # fmt: skip
def cli() -> None:
    """Measure what error a tensor kernel makes, in units that its format and its op justify.

    Exit codes: 0 go or suspect, 1 no-go, 2 bad usage or input, 3 a crash of gonogo itself, 130 interrupted.
    """


for command in (atlas, audit, calibrate, check, demo, evaluate, ops, report, reproduce, run, serve, show, sketch):
    cli.add_command(command)


def main() -> None:
    """Entry point: one line and exit code 2 for what gonogo refuses; 3 for a crash, which is no verdict."""
    prepare_streams()
    _take_signals()
    try:
        code = cli.main(prog_name=PROGRAM, complete_var=VARIABLE, standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):  # before any command has begun
        _refuse("Interrupted", "interrupted", 130, show=Interrupted().show)
    except click.ClickException as error:
        kind = "Interrupted" if isinstance(error, Interrupted) else "Usage"
        _refuse(kind, error.format_message(), error.exit_code, show=error.show)
    except GonogoError as error:
        _refuse(type(error).__name__, str(error), 2)
    except Exception as error:  # noqa: BLE001 - whatever it is, Python would exit with 1, as for a no-go
        if isinstance(error, PermissionError) and error.filename is not None:  # a file that is kept from the user
            _refuse("InputError", f"cannot open {error.filename}: {error.strerror}", 2)
        traceback.print_exc()
        _refuse("Crash", "crashed, which says nothing of the kernel. Please report the lines above", 3)
    sys.exit(code if isinstance(code, int) else 0)


def _take_signals() -> None:
    """Have SIGTERM and SIGHUP end a command as Ctrl-C does: workers and temporary files go with it."""
    terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def interrupt(number: int, frame: object) -> NoReturn:
        for ending in ENDING:  # a terminal that closes may send several
            signal.signal(ending, signal.SIG_IGN)
        if number != signal.SIGTERM:  # it is gone
            for stream in terminals:
                forget(stream)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        return  # Python allows it there alone
    for ending in ENDING:
        if signal.getsignal(ending) == signal.SIG_DFL:  # nohup has one of them ignored
            signal.signal(ending, interrupt)


def _refuse(kind: str, message: str, code: int, *, show: Callable[[], None] | None = None) -> NoReturn:
    """Say on stderr why there is no answer, under --json on stdout as well, and end."""
    with contextlib.suppress(InputError):  # nowhere to say it: a full disk, a terminal that is gone
        if show is None:
            echo(f"gonogo: {message}", aside=True)
        else:
            show()
        if "--json" in sys.argv[1:]:
            print_error(kind, message, code)
    sys.exit(code)
