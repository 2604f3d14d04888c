"""Every Python block of the README and every example in a docstring runs as it stands."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)
WITH_EXAMPLES = [
    "gonogo.formats",
    "gonogo.measure.gauges",
    "gonogo.measure.readings",
    "gonogo.measure.running_error",
    "gonogo.measure.stats",
]


def test_readme_has_blocks() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readme_block(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS[number], f"README.md block {number}", "exec"), {})
    assert capsys.readouterr().out, "a block shows something"


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
