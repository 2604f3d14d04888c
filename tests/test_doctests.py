"""The examples in docstrings, of every module that has one, are run as they stand."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

import gonogo

PACKAGE = Path(gonogo.__file__).parent


def list_modules() -> list[str]:
    """Every module of the package with an example: found by its text, so that none is imported to find it."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    names = [path.relative_to(PACKAGE.parent).with_suffix("").parts for path in paths]
    return [".".join(name).removesuffix(".__init__") for name in names]


def test_modules_are_found() -> None:
    assert {"gonogo.formats", "gonogo.schema"} < set(list_modules())


@pytest.mark.parametrize("name", list_modules())
def test_examples_of_a_module(name: str) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        pytest.skip(f"it needs {error.name}, which is not installed")
    found = doctest.DocTestFinder().find(module, name)
    sources = [example.source for docstring in found for example in docstring.examples]
    written = re.findall(r"^ *>>> ", Path(str(module.__file__)).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(sources) == len(written), "an example where none is looked for is not run"
    if any("torch" in source for source in sources):
        pytest.importorskip("torch")
    runner = doctest.DocTestRunner()
    for docstring in found:
        runner.run(docstring)
    assert runner.summarize(verbose=False).failed == 0
