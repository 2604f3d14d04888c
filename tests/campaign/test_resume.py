"""A campaign killed at the worst moments and resumed makes the same records as one left alone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from warm import run_python

from gonogo.campaign import Plan, resume_campaign, run_campaign
from gonogo.errors import InputError
from gonogo.records import read_run

MORE_OPS = Path(__file__).parent.parent / "more_ops"
CHANGES_EACH_TIME = ("time_us",)

# The campaign ends itself, so that the moment is exact: after so many cases, half-way through writing a case to the
# journal, or with a part in place whose rows still stand in the journal.
VICTIM = """
import os, signal, sys
from pathlib import Path
from gonogo.campaign import Plan, run_campaign
from gonogo.records import local_run, run_directory

moment, folder, more_ops = sys.argv[1:]
plain_append, plain_rewrite = local_run.LocalRun.append_rows, local_run.LocalRun._rewrite_journal
seen = 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def append(self, rows):
    global seen
    seen += 1
    if seen == 4 and moment == "between":
        die()
    if seen == 4 and moment == "half-line":
        self._journal.write(b'[{"number": 0, "case": "ca')
        self._journal.flush()
        die()
    plain_append(self, rows)

def rewrite(self):
    if moment == "part-written" and list(self.folder.glob("part-00000*")):
        die()
    plain_rewrite(self)

if __name__ == "__main__":
    local_run.LocalRun.append_rows, local_run.LocalRun._rewrite_journal = append, rewrite
    run_directory.PART_ROWS = 7
    run_directory.RunDirectory.__init__.__kwdefaults__["part_rows"] = 7
    plan = Plan(("calm",), ("float16", "float32"), cases=4, seed=5, ops_folders=(more_ops,))
    run_campaign(plan, Path(folder), workers=2)
"""


def read_rows(folder: Path) -> list[dict]:
    rows = read_run(folder).to_pylist()
    for row in rows:
        for name in CHANGES_EACH_TIME:
            row.pop(name)
    return sorted(rows, key=lambda row: (row["number"], row["kernel"]))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("undisturbed")
    plan = Plan(("calm",), ("float16", "float32"), cases=4, seed=5, ops_folders=(str(MORE_OPS),))
    run_campaign(plan, folder, workers=1)
    return read_rows(folder)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["between", "half-line", "part-written"])
def test_kill_and_resume(moment: str, undisturbed: list[dict], tmp_path: Path) -> None:
    script, folder = tmp_path / "victim.py", tmp_path / "run"
    script.write_text(VICTIM)
    ended = run_python(script, moment, folder, MORE_OPS, cwd=tmp_path)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    kept = read_rows(folder)
    assert 0 < len(kept) < len(undisturbed)
    assert all(row in undisturbed for row in kept)
    progress = resume_campaign(folder, workers=2, ops_folders=[str(MORE_OPS)])
    assert progress.rows == progress.total
    assert read_rows(folder) == undisturbed
    assert not (folder / "journal.jsonl").exists()


@pytest.mark.slow
def test_resume_of_a_whole_run_does_nothing(tmp_path: Path) -> None:
    plan = Plan(("calm",), ("float32",), cases=1, ops_folders=(str(MORE_OPS),))
    run_campaign(plan, tmp_path, workers=1)
    before = read_rows(tmp_path)
    assert resume_campaign(tmp_path, workers=1, ops_folders=[str(MORE_OPS)]).outcomes == {}
    assert read_rows(tmp_path) == before
    with pytest.raises(
        InputError,
        match=r"already holds a run\. Choose another directory, or complete it, if it is not: gonogo run --resume",
    ):
        run_campaign(plan, tmp_path, workers=1)
