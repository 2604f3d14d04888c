"""`pytest --gonogo-isolate`: a kernel that ends its process fails its own test alone."""

from __future__ import annotations

import pytest
from pytest_project import run

pytest.importorskip("torch")
pytest_plugins = ("pytester",)

TESTS = """
    import ctypes, torch

    def softmax(x):
        return x.float().softmax(-1).to(x.dtype)

    def crashes(x):
        ctypes.string_at(0)

    def test_right(gonogo):
        gonogo.verify(softmax, "softmax", device="cpu")

    def test_crashes(gonogo):
        gonogo.verify(crashes, "softmax", device="cpu", cases=1)

    def test_after(gonogo):
        gonogo.verify(softmax, "softmax", device="cpu", cases=2)

    def test_inside(gonogo):
        gonogo.verify(lambda x: softmax(x), "softmax", device="cpu")

    def test_here(gonogo):
        gonogo.verify(lambda x: softmax(x), "softmax", device="cpu", isolated=False)
"""


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_isolated(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(test_kernels=TESTS)
    result = run(pytester, "--gonogo-isolate", "--gonogo-limits", "shipped", "--import-mode", mode)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        ["*no-go: crashed: killed by SIGSEGV*", "*cannot be imported by a process of its own*"]
    )
