"""Shell completion, asked for as a shell asks: by an environment variable, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.cli._completion import HOLDOUTS
from gonogo.evaluate.folds import HOLDOUTS as TAKEN
from gonogo.ops import DTYPES, get_op, op_names
from gonogo.policies import load_policies

CODE = "import sys; from gonogo.cli import main; sys.argv[0] = 'gonogo'; main()"
WATCHED = """
import atexit, sys
@atexit.register
def tell():
    loaded = {'torch', 'triton', 'pyarrow'} & set(sys.modules)
    sys.stderr.write('loaded: ' + ' '.join(sorted(loaded)))
"""


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("SHELL", "XDG_CONFIG_HOME", "ZDOTDIR")
    }
    return subprocess.run(
        [sys.executable, "-c", WATCHED + CODE, *words], capture_output=True, text=True, timeout=60,
        env=kept | environment,
    )  # fmt: skip


def complete(*words: str, shell: str = "bash") -> list[str]:
    """What is offered for the last word."""
    asked = {"COMP_WORDS": " ".join(["gonogo", *words]), "COMP_CWORD": str(len(words))}
    if shell == "fish":
        asked["COMP_CWORD"] = words[-1]
    done = run(_GONOGO_COMPLETE=f"{shell}_complete", **asked)
    assert done.returncode == 0
    assert done.stderr == "loaded: ", "completion must be quick"
    if shell == "zsh":
        return done.stdout.splitlines()[1::3]
    # Kind, word and, for fish, what it is.
    return [line.partition(",")[2].partition("\t")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_offered_ops_and_commands(shell: str) -> None:
    assert complete("audit", "--op", "soft", shell=shell) == ["softmax"]
    assert complete("eva", shell=shell) == ["evaluate"]


def test_values_of_options() -> None:
    assert complete("audit", "--dtype", "") == list(DTYPES)
    assert complete("audit", "--policy", "kernelbench") == [
        policy.name for policy in load_policies() if policy.name.startswith("kernelbench")
    ]
    assert complete("run", "--dtypes", "float32,b") == ["float32,bfloat16"]
    assert complete("ops", "relu", "") == list(op_names())
    assert complete("run", "--device", "c") == ["cpu", "cuda"]
    assert complete("calibrate", "records", "--gauge", "bo") == ["bound"]
    assert complete("calibrate", "records", "--rule", "pool") == ["pooled"]
    assert complete("evaluate", "--holdout", "sha") == ["shape"]
    assert HOLDOUTS == TAKEN, "what is offered is what is taken"
    assert complete("audit", "--op", "no_such_op") == []


def test_kernels_are_those_of_the_case() -> None:
    case = "softmax:f16:2x7x1025:c:uniform:81"
    assert complete("show", case, "") == [kernel.name for kernel in get_op("softmax").kernels]
    everywhere = complete("show", "not_a_case", "rmsnorm_t")
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
