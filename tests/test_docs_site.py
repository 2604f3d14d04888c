"""The site builds without a warning, from nothing but the project, and nothing of it is fetched from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from gonogo.cli import cli

pytest.importorskip("mkdocs", reason="the site needs: pip install 'gonogo[docs]'")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert all(line.startswith("INFO ") for line in ran.stderr.splitlines()), ran.stderr
    return folder


@pytest.mark.slow
def test_every_command_is_there(site: Path) -> None:
    page = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for command in cli.commands.values():
        assert f"gonogo {command.name}" in page
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        # A second name of an option may be left to those who have it in their scripts.
        absent = [
            option.opts
            for option in options
            if not any(f"{name} " in page or f"{name}<" in page for name in option.opts)
        ]
        assert not absent, command.name
    assert "--gonogo-update" in (site / "reference" / "pytest.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_by_a_reader(site: Path) -> None:
    patterns = {
        "*.html": r'<(?:script|link|img)[^>]+(?:src|href)="((?:https?:)?//[^"]+)"',
        "*.css": r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)",
    }
    for files, pattern in patterns.items():
        paths = list(site.rglob(files))
        assert paths
        for path in paths:
            fetched = re.findall(pattern, path.read_text(encoding="utf-8"))
            assert not fetched, f"{path.relative_to(site)}: {fetched}"


def test_code_has_colours_in_either_mode(site: Path) -> None:
    """The theme's script switches between two stylesheets by their ids; without them it stops half-way."""
    page = (site / "tutorial.html").read_text(encoding="utf-8")
    assert 'data-bs-theme="auto"' in page
    switched = set(re.findall(r"getElementById\('(hljs-\w+)'\)", (site / "js" / "darkmode.js").read_text()))
    sheets = dict(re.findall(r'<link id="(hljs-\w+)" rel="stylesheet" href="([^"]+)"', page))
    assert sheets.keys() == switched
    (keyword,) = set(re.findall(r'<span class="(\w+)">import</span>', page))
    assert all(f".codehilite .{keyword} " in (site / sheet).read_text() for sheet in sheets.values())


def test_titles_and_wide_tables(site: Path) -> None:
    assert '<p class="file-name">softmax.py</p>' in (site / "tutorial.html").read_text(encoding="utf-8")
    assert "overflow-x: auto" in (site / "css" / "gonogo.css").read_text()
