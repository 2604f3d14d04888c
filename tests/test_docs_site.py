"""The site builds without a warning, from nothing but the project, and its references come from the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.cli import cli

pytest.importorskip("mkdocs", reason="the site needs: pip install 'gonogo[docs]'")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return folder


def test_every_command_is_there(site: Path) -> None:
    page = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for command in cli.commands.values():
        assert f"gonogo {command.name}" in page
        options = {one.opts[-1] for one in command.params if one.param_type_name == "option"}
        assert all(option in page for option in options), command.name
    assert "--gonogo-update" in (site / "reference" / "pytest.html").read_text(encoding="utf-8")


def test_every_public_name_is_there(site: Path) -> None:
    import gonogo

    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    anchors = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="gonogo\.([\w.]+)"', page)}
    left_out = {"__version__", "errors", "formats", "Gauge"}  # modules, and what `gauge` returns
    assert set(gonogo.__all__) - left_out <= anchors


def test_nothing_is_fetched_by_a_reader(site: Path) -> None:
    for path in site.rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', path.read_text(encoding="utf-8")
        )
        assert not fetched, f"{path.relative_to(site)}: {fetched}"
