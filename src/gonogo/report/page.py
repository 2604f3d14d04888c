"""Plain data → one HTML file: the data as JSON in it, style and script inlined, nothing fetched."""

from __future__ import annotations

import html
import json
import re
from importlib import resources
from typing import Any

from gonogo._version import __version__
from gonogo.plain import to_plain

SCRIPTS = (
    "data.js", "draw.js", "records.js", "headline.js", "tightening.js", "heat_map.js", "readings.js", "signal.js",
    "sweeps.js", "cases.js", "provenance.js", "verdicts.js", "solutions.js", "atlas.js", "page.js",
)  # fmt: skip
"""In this order: those at the end use what stands before."""


def make_page(data: dict[str, Any], title: str) -> str:
    """The whole page."""
    assets = resources.files("gonogo.report") / "assets"
    parts = {
        "title": html.escape(title),
        "version": html.escape(__version__),
        "style": (assets / "page.css").read_text("utf-8"),
        "script": "\n".join((assets / name).read_text("utf-8") for name in SCRIPTS),
        "data": _write_json(data),
    }
    page = (assets / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page)  # at once: a title may look like a place


def _write_json(data: dict[str, Any]) -> str:
    """As JSON in which no text ends the element that it stands in."""
    text = json.dumps(to_plain(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
