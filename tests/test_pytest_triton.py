"""Kernels that launch Triton, in a project's tests on a machine without a GPU."""

from __future__ import annotations

import pytest
from pytest_project import run

from gonogo.limits import Limit
from gonogo.limits.lock import write_lock

pytest.importorskip("triton")
pytest_plugins = ("pytester",)

KERNELS = """
    import torch, triton
    import triton.language as tl

    @triton.jit
    def store_relu(x, y, n, SIZE: tl.constexpr):
        at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n), 0), mask=at < n)

    sizes = [triton.Config({"SIZE": size}) for size in (64, 128)]
    store_tuned = triton.autotune(configs=sizes, key=["n"])(store_relu)

    def relu(x):
        x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
        store_relu[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), SIZE=64)
        return y

    def tuned(x):
        x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
        store_tuned[lambda meta: (triton.cdiv(x.numel(), meta["SIZE"]),)](x, y, x.numel())
        return y

    def mistaken(x):
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    def half_wrong(x):
        return x + 1 if x.dtype == torch.float16 else tuned(x)
"""
TESTS = """
    import pytest, torch
    from kernels import *

    @pytest.mark.parametrize("device", ["auto", "cpu"])
    @pytest.mark.parametrize("kernel", [relu, tuned])
    def test_skipped(gonogo, kernel, device):
        gonogo.verify(kernel, "relu", device=device)

    def test_control(gonogo):
        gonogo.verify(torch.tanh, "tanh", controls=[relu])

    @pytest.mark.parametrize("kernel", [mistaken, half_wrong])
    def test_failed(gonogo, kernel):
        gonogo.verify(kernel, "relu")

    def test_without_the_fixture():
        import gonogo
        with pytest.raises(gonogo.errors.BadKernelFile, match="store_relu is compiled for a GPU, and"):
            gonogo.verify(relu, "relu", cases=1)
"""
REASON = (
    "the kernel launches Triton, which needs a GPU; none here. TRITON_INTERPRET=1 before the import runs it in the "
    "interpreter"
)


@pytest.mark.slow
def test_without_a_gpu_they_are_skipped(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    pytester.makepyfile(kernels=KERNELS, test_kernels=TESTS)
    found = run(pytester, "--gonogo-update-new", "--gonogo-strict", "--gonogo-cases", "2", "-rs")
    found.assert_outcomes(passed=1, skipped=5, failed=2)
    found.stdout.fnmatch_lines([
        "*Failed: relu: no-go, 6 of 6 cases failed *",
        "*worst case * raised: RuntimeError: 0 active drivers *",
        "*Failed: relu: no-go, 6 of 6 cases failed *",
    ])  # fmt: skip
    found.stdout.fnmatch_lines([f"SKIPPED [[]4[]] test_kernels.py:*: {REASON}"])


@pytest.mark.slow
def test_the_interpreter_runs_them(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytester.makepyfile(kernels=KERNELS, test_kernels=TESTS)
    options = ("--gonogo-limits", "shipped", "-k", "test_skipped and relu and auto", "--gonogo-summary", "page.md")
    run(pytester, *options, "--gonogo-cases", "1").assert_outcomes(passed=1, deselected=7)
    assert "; Triton's interpreter ran the kernel, on the CPU: " in (pytester.path / "page.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["relu", "tuned"])
def test_a_limit_is_not_measured_for_a_test_that_is_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    """The one in the file may be of a GPU, which this machine has not."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    test = f"from kernels import {kernel}\ndef test_relu(gonogo):\n    gonogo.verify({kernel}, 'relu')\n"
    pytester.makepyfile(kernels=KERNELS, test_kernels=test)
    lock = pytester.path / "gonogo.lock"
    limit = Limit("relu", "float32", "relu_torch", None, "bound", "pooled", value=3.5, cases=9, runs=("one",))
    write_lock(lock, [limit], {"devices": "NVIDIA H100"})
    before = lock.read_bytes()
    run(pytester, "--gonogo-update", "--gonogo-cases", "2").assert_outcomes(skipped=1)
    assert lock.read_bytes() == before


def test_a_limit_that_only_a_gpu_can_measure_is_not_missed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    test = "from kernels import relu\ndef test_relu(gonogo):\n    gonogo.verify(relu, 'relu')\n"
    pytester.makepyfile(kernels=KERNELS, test_kernels=test)
    run(pytester).assert_outcomes(skipped=1)
