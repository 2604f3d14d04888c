"""Hostile and odd files through the runner of `gonogo check`: the right verdict each, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from files import FILES
from kernel_source import File

pytest.importorskip("torch")
pytestmark = pytest.mark.hostile

from gonogo.errors import GonogoError  # noqa: E402
from gonogo.guest.stem import list_family  # noqa: E402
from gonogo.runners.pool import Allowance  # noqa: E402
from gonogo.runners.stem import _stems  # noqa: E402
from gonogo.user.isolated import FileVerification, check_file  # noqa: E402
from gonogo.user.kernel_file import find_kernel  # noqa: E402

ALLOWED = Allowance(timeout_s=4.0, memory_bytes=2**30)
WITHOUT = "GONOGO_TEST_WITHOUT_NAMESPACES"
"""Set where the tests themselves run without: a namespace of their own is refused to guests."""
TRACES = [Path(folder, "gonogo_was_here") for folder in ("/tmp", "/dev/shm", Path.home())]


def check(file: File, folder: Path) -> FileVerification:
    """What becomes of a file in a folder of its own."""
    path = folder / "kernel.py"
    path.write_text(file.source)
    for name, text in file.beside.items():
        (folder / name).write_text(text)
    return check_file(
        find_kernel(f"{path}:softmax", "softmax"), "softmax", dtypes="float32", cases=file.cases, device="cpu",
        allowance=ALLOWED,
    )  # fmt: skip


def judge(file: File, folder: Path) -> None:
    """Compare what becomes of a file with what must, and look for what it has left."""
    if file.decision == "error":
        with pytest.raises(GonogoError):
            check(file, folder)
    else:
        result = check(file, folder)
        assert result.verification.decision == file.decision, result.verification
        if file.outcome is not None:
            assert file.outcome in result.outcomes, result.verification
    assert {path.name for path in folder.iterdir()} == {"kernel.py", *file.beside}
    assert not [path for path in TRACES if path.exists()]
    for stem in _stems.values():
        assert list_family(stem._process.pid) == [stem._process.pid]


@pytest.mark.parametrize(
    "file", [file for file in FILES if not (file.needs and WITHOUT in os.environ)], ids=lambda file: file.name
)
def test_verdict(file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_SECRET", "1")
    judge(file, tmp_path)


@pytest.mark.skipif(WITHOUT in os.environ, reason="is run so already")
def test_verdicts_without_namespaces() -> None:
    """Where a system refuses them: all that a guest starts is ended, and its limits and Landlock hold."""
    chosen = (
        "plain", "leaves_a_child", "leaves_a_daemon", "leaves_grandchildren", "leaves_children_that_fork",
        "leaves_a_stopped_child", "hangs_deaf", "stops_itself", "eats_memory", "child_eats_memory",
        "eats_memory_in_files", "many_processes", "kills_its_parent", "kills_everybody", "writes_elsewhere",
        "its_own_file", "the_users_home", "through_a_link", "ptraces_its_parent", "reads_the_judges_memory",
        "memory_of_the_first", "settings_of_the_system", "terminals_and_disks", "serves_on_a_port", "goes_on_line",
        "socket_by_a_path", "asks_the_machine_below", "another_user_namespace", "sends_a_pickle",
    )  # fmt: skip
    wrapper = str(Path(__file__).with_name("without_namespaces.py"))
    names = [f"{__file__}::test_verdict[{name}]" for name in chosen]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *names]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, wrapper, *command], env=environment | {WITHOUT: "1"}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    if "PermissionError" in done.stderr or "No space left" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])  # this system refuses them itself: every test here runs without
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(chosen)} passed" in done.stdout


def test_names_are_unique() -> None:
    assert len({file.name for file in FILES}) == len(FILES) >= 128
