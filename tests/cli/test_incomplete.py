"""Runs of campaigns that were cut off: what is made of them is made, and says that they lack records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from evaluate.made_records import make_row

from gonogo.cli import cli
from gonogo.records import RunDirectory

COMMANDS = {
    "calibrate": ["-o", "gonogo.lock"],
    "evaluate": ["--holdout", "none", "--json"],
    "sketch": ["-o", "all.sketch"],
    "report": ["-o", "report.html"],
}
OWN_OPS = {"ops_folders": ["/somewhere/else"]}


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_run(**description: Any) -> None:
    with RunDirectory(Path("a run"), {"plan": {}, "environment": {}, **description}) as directory:
        directory.append_rows([make_row("softmax_torch") for _ in range(40)])


def tell(command: str) -> str:
    done = CliRunner().invoke(cli, [command, "a run", *COMMANDS[command]])
    assert done.exit_code == 0, done.output
    return "".join(line for line in done.stderr.splitlines(keepends=True) if line.startswith("note: "))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("plan", "again"), [({}, ""), (OWN_OPS, " --ops-path FOLDER")])
def test_every_command_says_so(command: str, plan: dict[str, Any], again: str) -> None:
    """Folders of ops are for the reader to name: a file does not decide whose code is run."""
    write_run(planned=41, plan=plan)
    assert tell(command) == (
        "note: a run is incomplete: it has 40 of 41 records. Unless it is under way, complete it: "
        f"gonogo run --resume --out 'a run'{again}\n"
    )


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("description", [{"planned": 40}, {}])
def test_nothing_is_said_of_others(command: str, description: dict[str, int]) -> None:
    """Nor of runs that do not tell how many they have when complete."""
    write_run(**description)
    assert tell(command) == ""
