"""Python blocks of the README and examples in docstrings run as they stand; its headline is the generated one."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results" / "h200" / "results.md"
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


def test_readme_headline_is_as_generated() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 200
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = list(takewhile(lambda line: line.startswith("|"), lines[start:]))
    section = RESULTS.read_text(encoding="utf-8").split("## All methods, held out by run\n")[1].split("\n## ")[0]
    assert len(table) > 10
    assert set(table) <= set(section.splitlines()), "copy the rows anew after: make results"


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
