"""Hostile and odd files through the runner of `gonogo check`: the right verdict each, and nothing left behind."""

from __future__ import annotations

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


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_verdict(file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_SECRET", "1")
    judge(file, tmp_path)


def test_names_are_unique() -> None:
    assert len({file.name for file in FILES}) == len(FILES) >= 128
