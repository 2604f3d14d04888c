"""A project whose tests use the fixture, and one run of it by pytest in a process of its own."""

from __future__ import annotations

import pytest
from warm import run_pytest

RIGHT = """
    import torch

    def test_relu(gonogo):
        found = gonogo.verify(torch.relu, op="relu", device="cpu")
        assert found.decision == "go"

    def test_softmax(gonogo):
        gonogo.verify(lambda x: torch.softmax(x, -1), op="softmax", device="cpu", dtypes=("float16",))

    def test_output(gonogo):
        x = torch.linspace(-3, 3, 33).reshape(3, 11)
        gonogo.check(torch.tanh(x), "tanh", inputs={"input": x})
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run all tests of the folder, on 6 cases per dtype unless told otherwise; no GPU is seen."""
    given = ("--gonogo-cases", "6", "-p", "no:cacheprovider", *options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        return run_pytest(pytester, *given)


def list_section(result: pytest.RunResult) -> list[str]:
    """Lines that gonogo adds to pytest's summary."""
    heads = [place for place, line in enumerate(result.outlines) if line.startswith("=") and " gonogo " in line]
    if not heads:
        return []
    rest = result.outlines[heads[0] + 1 :]
    return rest[: next((place for place, line in enumerate(rest) if line.startswith("=")), len(rest))]
