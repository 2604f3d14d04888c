"""Names of targets, files, folders and modules in sources and CONTRIBUTING.md: each of them is there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "gonogo").rglob("*.py"))
PAGES = (ROOT / "CONTRIBUTING.md",)
FOLDERS = (ROOT, ROOT / "src", ROOT / "src" / "gonogo", ROOT / "src" / "gonogo" / "instrument", ROOT / "tests")
"""What a path is told from."""
TARGET = re.compile(r"`make ([a-z]+)|^make ([a-z]+)|[Rr]un:? `?make ([a-z]+)", re.M)
STAGES = sorted(path.parent.name for path in (ROOT / "src" / "gonogo").glob("*/__init__.py"))
ONCE = ("measure", "rules")
"""Folders that others have taken the place of."""
PATH = re.compile(
    r"(?<![\w./:<-])((?:src/)?gonogo/[\w./*-]+|(?:tests|docs|benchmarks|examples|\.ci)/[\w./*-]+"
    rf"|(?:{'|'.join([*STAGES, *ONCE])})/[a-z_][\w./*-]*)"
)
QUOTED = re.compile(r"`([\w.-]*/[\w./-]*)(?:::\w+)?`")
PAGE = re.compile(r"(?<![\w./-])([\w-]+\.md)\b")
DOTTED = re.compile(r"(?<![\w.\"'/-])gonogo((?:\.[a-z_]\w*)+)\b(?![-/])")
MADE = ("site/",)
"""Places that something makes, and that are not there before."""
FILES = ("lock", "h", "toml")
"""Ends of file names that look like parts of a module's name: gonogo.lock."""


def find(pattern: re.Pattern[str], *paths: Path) -> Iterator[tuple[str, str]]:
    """Where a pattern stands, and what it names."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}", next(group for group in match.groups() if group)


def exists(path: str) -> bool:
    return any(any(folder.glob(path.rstrip("./"))) for folder in FOLDERS)


def test_targets() -> None:
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = list(find(TARGET, *SOURCES, *PAGES))
    assert {"test", "lint", "results"} <= {target for _, target in named} & known
    assert [(where, target) for where, target in named if target not in known] == []


def test_paths() -> None:
    named = [*find(PATH, *SOURCES, *PAGES), *find(QUOTED, *PAGES)]
    assert len(named) > 20
    assert [(where, path) for where, path in named if not exists(path) and path not in MADE] == []


def test_pages() -> None:
    pages = {path.name for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))} | {"results.md"}
    assert [(where, page) for where, page in find(PAGE, *SOURCES) if page not in pages] == []


def test_modules() -> None:
    pytest.importorskip("torch")
    assert [(where, name) for where, name in find(DOTTED, *SOURCES, *PAGES) if not resolves(name)] == []


def resolves(name: str) -> bool:
    """Whether a dotted name behind `gonogo` is a module, or something in one."""
    parts = name.strip(".").split(".")
    if parts[-1] in FILES:
        return True
    thing = importlib.import_module("gonogo")
    for at, part in enumerate(parts):
        try:
            thing = (
                getattr(thing, part)
                if hasattr(thing, part)
                else importlib.import_module(".".join(["gonogo", *parts[: at + 1]]))
            )
        except ImportError:
            return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        "`make nothing`",
        "see gonogo/rules/one.py",
        "in measure/gauges",
        "`nowhere/one.py`",
        "by docs/none.md",
        "gonogo.rules.one",
    ],
)
def test_what_is_not_there_is_found(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    monkeypatch.setattr(Path, "relative_to", lambda self, root: self)
    missing = [name for _, name in find(TARGET, page) if name == "nothing"]
    missing += [name for pattern in (PATH, QUOTED) for _, name in find(pattern, page) if not exists(name)]
    missing += [name for _, name in find(DOTTED, page) if not resolves(name)]
    assert missing
