"""Hostile and odd files through the runner of `gonogo check`: the right verdict each, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from files import FILES, File

pytest.importorskip("torch")
pytestmark = pytest.mark.hostile

from gonogo.guest.stem import list_family  # noqa: E402
from gonogo.runners.pool import Allowance  # noqa: E402
from gonogo.runners.stem import _stems  # noqa: E402
from gonogo.user.isolated import check_file  # noqa: E402
from gonogo.user.kernel_file import find_kernel  # noqa: E402

WAITS = ("hangs", "hangs_deaf", "stops_itself", "writes_half_a_message", "many_processes", "eats_memory")
ALLOWED = Allowance(timeout_s=4.0, memory_bytes=2**30)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_verdict(file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(file.source)
    monkeypatch.setenv("GONOGO_SECRET", "1")
    found = check_file(
        find_kernel(f"{path}:softmax", "softmax"), "softmax", dtypes="float32",
        cases=1 if file.name in WAITS else 2, device="cpu", allowance=ALLOWED,
    )  # fmt: skip
    assert found.verification.decision == file.decision, found.verification
    if file.outcome is not None:
        assert file.outcome in found.outcomes, found.outcomes
    assert sorted(tmp_path.iterdir()) == [path]
    assert not Path("/tmp/gonogo_was_here").exists()
    for stem in _stems.values():
        assert list_family(stem._process.pid) == [stem._process.pid]
