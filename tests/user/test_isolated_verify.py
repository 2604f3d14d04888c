"""Kernels at hand, run in processes of their own: what would end this one is an outcome of its case."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

import gonogo
from gonogo.campaign import Allowance

KERNELS = """
import ctypes, os
import gonogo  # a test's file imports it, too
from .beside import softmax

def right(x):
    return softmax(x)

def wrong(x):
    return softmax(x) * 1.01

def crashes(x):
    return ctypes.string_at(0) if x.shape[-1] > 8 else softmax(x)

def hangs(x):
    __import__("time").sleep(1000)

class Kernel:
    def __call__(self, x):
        return softmax(x)

instance = Kernel()
pid = os.getpid()

def tells(x):
    assert os.getpid() != pid or "gonogo_guest" in __import__("sys").modules
    return softmax(x)
"""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    package = tmp_path / "some_kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "beside.py").write_text("def softmax(x):\n    return x.float().softmax(-1).to(x.dtype)\n")
    (package / "kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("some_kernels.kernels")
    for name in [name for name in sys.modules if name.startswith("some_kernels")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", ["right", "instance", "tells"])
def test_go(kernels: ModuleType, name: str) -> None:
    verification = gonogo.verify(getattr(kernels, name), "softmax", cases=4, device="cpu", isolated=True)
    assert verification.decision == "go"


def test_no_go(kernels: ModuleType) -> None:
    with pytest.raises(gonogo.NoGo) as failed:
        gonogo.verify(kernels.wrong, "softmax", cases=4, device="cpu", isolated=True)
    assert "isolated=True)" in str(failed.value)


def test_a_crash_is_an_outcome_of_its_case(kernels: ModuleType) -> None:
    verification = gonogo.verify(
        kernels.crashes, "softmax", cases=6, dtypes="float32", device="cpu", isolated=True, strict=False
    )
    outcomes = {case.record.outcome for case in verification.verdicts}
    assert outcomes == {"ok", "crashed"}
    assert all("SIGSEGV" in str(case.record.detail) for case in verification.failed)


def test_reference_and_arguments_stay_here(kernels: ModuleType) -> None:
    import torch

    here = os.getpid()

    def reference(x: torch.Tensor) -> torch.Tensor:
        assert os.getpid() == here
        return torch.softmax(x, -1)

    def draw(seed: int, dtype: torch.dtype) -> tuple[torch.Tensor]:
        return (torch.randn(3, 40, generator=torch.Generator().manual_seed(seed)).to(dtype),)

    verification = gonogo.verify(
        kernels.right, reference=reference, inputs=draw, cases=3, device="cpu", isolated=True
    )
    assert verification.decision == "go"


def test_what_cannot_be_imported(kernels: ModuleType) -> None:
    for kernel in (lambda x: x, kernels.Kernel()):
        with pytest.raises(gonogo.errors.InputError, match="cannot be imported by a process of its own"):
            gonogo.verify(kernel, "softmax", isolated=True)


def test_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import gonogo\ndef softmax(x):\n    return x.float().softmax(-1).to(x.dtype)\n"
        "if __name__ == '__main__':\n"
        "    print(gonogo.verify(softmax, 'softmax', cases=2, device='cpu', isolated=True).decision)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "go\n"


def test_a_script_that_verifies_as_it_is_imported(tmp_path: Path) -> None:
    """It would be imported by a process of its own, which would verify it, by a process of its own, and so on."""
    script = tmp_path / "script.py"
    script.write_text(
        "import gonogo\nprint('ran')\ndef softmax(x):\n    return x.float().softmax(-1).to(x.dtype)\n"
        "gonogo.verify(softmax, 'softmax', cases=2, device='cpu', isolated=True)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["ran", "ran"]
    assert 'Have it stand under: if __name__ == "__main__":' in done.stderr.splitlines()[-1]


def test_a_kernel_that_hangs_is_given_up(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo.runners.guests.Allowance", lambda: Allowance(timeout_s=1.0))
    verification = gonogo.verify(kernels.hangs, "softmax", cases=3, device="cpu", isolated=True, strict=False)
    details = [verdict.record.detail for verdict in verification.verdicts]
    # One more has hung before them: the small one that sizes are chosen by.
    assert details == ["no answer in 1 s"] * 2 + ["not run: it has hung 3 times"] * 7
