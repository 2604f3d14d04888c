"""Shell completion, asked for as a shell asks: by an environment variable, where torch is not loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from command import Ended, gonogo

from gonogo.cli._completion import HOLDOUTS
from gonogo.evaluate.folds import HOLDOUTS as TAKEN
from gonogo.ops import DTYPES, get_op, op_names
from gonogo.policies import load_policies

CODE = "import sys; from gonogo.cli import main; sys.argv[0] = 'gonogo'; main()"
ANSWER = """
import contextlib, io, json, os, sys
from gonogo.cli import main

sys.argv[0], answers = 'gonogo', []
for asked in json.load(sys.stdin):
    os.environ.update(asked)
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), write_through=True)) as said:
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    answers.append((code, said.buffer.getvalue().decode()))
loaded = {'torch', 'triton', 'pyarrow'} & set(sys.modules)
print(json.dumps({'answers': answers, 'loaded': sorted(loaded)}))
"""
"""Answers many questions, each by the entry point, since a process takes longer to start than to answer."""
LEFT_OUT = ("SHELL", "XDG_CONFIG_HOME", "ZDOTDIR")


def run(*words: str, **environment: str) -> Ended:
    """The command, in an environment that says nothing of this user's shell but what is given."""
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    with mock.patch.dict(os.environ, kept | environment, clear=True):
        return gonogo(*words)


def complete(*lines: str, shell: str = "bash") -> list[list[str]]:
    """What is offered for the last word of each line; an empty one where it ends in a space."""
    asked = []
    for line in lines:
        words = line.split(" ")
        place = words[-1] if shell == "fish" else str(len(words))
        asked.append({"_GONOGO_COMPLETE": f"{shell}_complete", "COMP_WORDS": f"gonogo {line}", "COMP_CWORD": place})
    command = [sys.executable, "-c", ANSWER]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["loaded"] == [], "completion must be quick"
    assert [code for code, _ in told["answers"]] == [0] * len(lines)
    return [_read_words(said, shell) for _, said in told["answers"]]


def _read_words(said: str, shell: str) -> list[str]:
    if shell == "zsh":
        return said.splitlines()[1::3]
    # Kind, word and, for fish, what it is.
    return [line.partition(",")[2].partition("\t")[0] for line in said.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_offered_ops_and_commands(shell: str) -> None:
    assert complete("audit --op soft", "eva", shell=shell) == [["softmax"], ["evaluate"]]


def test_values_of_options() -> None:
    kernelbench = [policy.name for policy in load_policies() if policy.name.startswith("kernelbench")]
    assert kernelbench
    expected = {
        "audit --dtype ": list(DTYPES),
        "audit --policy kernelbench": kernelbench,
        "run --dtypes float32,b": ["float32,bfloat16"],
        "ops relu ": list(op_names()),
        "run --device c": ["cpu", "cuda"],
        "calibrate records --gauge bo": ["bound"],
        "calibrate records --rule pool": ["pooled"],
        "evaluate --holdout sha": ["shape"],
        "audit --op no_such_op": [],
    }
    assert dict(zip(expected, complete(*expected), strict=True)) == expected
    assert HOLDOUTS == TAKEN, "what is offered is what is taken"


def test_kernels_are_those_of_the_case() -> None:
    of_case, everywhere = complete("show softmax:f16:2x7x1025:c:uniform:81 ", "show not_a_case rmsnorm_t")
    assert of_case == [kernel.name for kernel in get_op("softmax").kernels]
    assert {"rmsnorm_torch", "rmsnorm_triton"} <= set(everywhere)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_shown_and_installed(shell: str, tmp_path: Path) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("there is no bash to tell its version")
    shown = run("--show-completion", shell)
    assert shown.returncode == 0
    assert f"_GONOGO_COMPLETE={shell}_complete" in shown.stdout
    for _ in range(2):  # the second changes nothing
        done = run("--install-completion", HOME=str(tmp_path), SHELL=f"/bin/{shell}")
        assert done.returncode == 0
        assert f"It works in new {shell} windows" in done.stdout
    if shell == "fish":
        script = tmp_path / ".config" / "fish" / "completions" / "gonogo.fish"
    else:
        script = tmp_path / ".config" / "gonogo" / f"completion.{shell}"
        assert (tmp_path / f".{shell}rc").read_text() == f'source "{script}"\n'
    assert script.read_text().strip() == shown.stdout.strip()


def test_profile_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".zshrc").write_text("alias ll='ls -l'")
    assert run("--install-completion", "zsh", HOME=str(tmp_path)).returncode == 0
    kept, line = (tmp_path / ".zshrc").read_text().splitlines()
    assert kept == "alias ll='ls -l'"
    assert line.startswith("source ")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_itself_completes(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(run("--show-completion", "bash").stdout)
    program = tmp_path / "gonogo"
    program.write_text(f"#!{sys.executable}\n{CODE}\n")
    program.chmod(0o755)
    asked = (
        f'source "{script}"; COMP_WORDS=(gonogo audit --op soft); COMP_CWORD=3; '
        '_gonogo_completion gonogo; echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60,
                          env=os.environ | {"PATH": path})  # fmt: skip
    assert done.stdout.strip() == "softmax"


def test_a_shell_without_completion() -> None:
    done = run("--show-completion", SHELL="/bin/tcsh")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "gonogo: no completion for the shell 'tcsh'; known: bash, zsh, fish"
