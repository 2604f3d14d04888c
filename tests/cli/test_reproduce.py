"""gonogo reproduce where something is not installed: said in one line, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gonogo.cli import cli
from gonogo.errors import InputError

RECORDS = Path(__file__).parent.parent.parent / "records"


def test_without_torch_no_folder_is_made(tmp_path: Path) -> None:
    script = "import sys; sys.modules['torch'] = None; from gonogo.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "reproduce"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "gonogo reproduce without --records needs torch" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_cannot_be_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="0 cases: at least 1 is needed"):
        CliRunner().invoke(cli, ["reproduce", "--device", "cpu", "--cases", "0"], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_a_figure_that_is_left_out_is_told(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if there:
        pytest.importorskip("matplotlib")
    else:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["reproduce", "--records", str(RECORDS / "cpu-11"), "--out", str(tmp_path)]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert (tmp_path / "figure1.svg").exists() is there
    told = "figure 1 is left out: it needs matplotlib. Run: pip install 'gonogo[report]'\n"
    assert done.stderr == ("" if there else told)
