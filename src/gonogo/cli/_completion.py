"""What a shell may offer for an option or argument, and the scripts that make it ask. No framework is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from gonogo.cases import EXACT, FINITE, NON_FINITE, STRATEGIES
from gonogo.errors import InputError
from gonogo.ops import DTYPES, get_op, op_names

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "gonogo"
VARIABLE = "_GONOGO_COMPLETE"
"""The shell asks by running the program with this set."""
DEVICES = ("auto", "cpu", "cuda")
HOLDOUTS = ("none", "run", "implementation", "distribution", "shape", "op", "device")


def _offer(list_words: Callable[[click.Context], Iterable[str]], *, several: bool = False) -> Completer:
    """A callback for click that offers words. With `several`, the words before the last comma stay as they are."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",") if several else ("", "", incomplete)
        return [CompletionItem(before + comma + word) for word in list_words(context) if word.startswith(begun)]

    return complete


def _list_policies(context: click.Context) -> list[str]:
    from gonogo.policies import load_policies

    return [policy.name for policy in load_policies()]


def _list_kernels(context: click.Context) -> list[str]:
    """Names of the kernels of the op that the case before this word is of; of all kernels where none is known."""
    op = str(context.params.get("case_id") or "").partition(":")[0]
    names = (op,) if op in op_names() else op_names()
    return [kernel.name for name in names for kernel in get_op(name).kernels]


def _list_gauges(context: click.Context) -> tuple[str, ...]:
    from gonogo.limits import GAUGES

    return GAUGES


def _list_rules(context: click.Context) -> Iterable[str]:
    from gonogo.limits.rules import rule_names

    return rule_names()


def _list_engines(context: click.Context) -> Iterable[str]:
    from gonogo.runners.engines import engine_names

    return engine_names()


complete_op = _offer(lambda context: op_names())
complete_ops = _offer(lambda context: op_names(), several=True)
complete_dtype = _offer(lambda context: DTYPES)
complete_dtypes = _offer(lambda context: DTYPES, several=True)
complete_policy = _offer(_list_policies)
complete_kernel = _offer(_list_kernels)
complete_gauge = _offer(_list_gauges)
complete_rule = _offer(_list_rules)
complete_device = _offer(lambda context: DEVICES)
complete_engine = _offer(_list_engines)
complete_holdout = _offer(lambda context: HOLDOUTS)
complete_distribution = _offer(lambda context: (*FINITE, EXACT, *NON_FINITE))
complete_distributions = _offer(lambda context: (*FINITE, EXACT, *NON_FINITE), several=True)
complete_strategies = _offer(lambda context: STRATEGIES, several=True)


def make_script(command: click.Command, shell: str) -> str:
    """What the shell is to run for completion to work."""
    made = get_completion_class(shell)
    if made is None:
        raise InputError(f"no completion for the shell {shell!r}; known: {', '.join(SHELLS)}")
    return made(command, {}, PROGRAM, VARIABLE).source()


def install_script(command: click.Command, shell: str) -> str:
    """Write the script where the shell finds it; what was done, for people."""
    script = make_script(command, shell)
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    if shell == "fish":  # it looks there by itself
        path = config / "fish" / "completions" / f"{PROGRAM}.fish"
    else:
        path = config / PROGRAM / f"completion.{shell}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, encoding="utf-8")
        message = f"completion is in {path}"
        if shell != "fish":
            message += f", which {_source_in_profile(shell, path)} reads"
    except OSError as error:
        raise InputError(f"cannot write {error.filename}: {error.strerror}. Print it: --show-completion") from None
    return f"{message}. It works in new {shell} windows"


def _source_in_profile(shell: str, script: Path) -> Path:
    """Have the shell's own start-up file read the script, once."""
    home = Path(os.environ.get("ZDOTDIR") or Path.home()) if shell == "zsh" else Path.home()
    profile = home / f".{shell}rc"
    before = profile.read_text(encoding="utf-8") if profile.exists() else ""
    line = f'source "{script}"'
    if line not in before.splitlines():
        gap = "" if not before or before.endswith("\n") else "\n"
        profile.write_text(f"{before}{gap}{line}\n", encoding="utf-8")
    return profile


def find_shell(given: str) -> str:
    """The shell that is named, else the user's own, by $SHELL; one without completion is refused."""
    shell = given or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise InputError(f"no completion for the shell {shell!r}; known: {', '.join(SHELLS)}")
    return shell
