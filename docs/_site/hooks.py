"""What the site needs beyond the pages in `docs`: pages from elsewhere, their links, and colours of code.

Pages are written to be read in the repository. Here links are turned to the site; one that leads to a file that is
not part of it becomes plain text, and one that leads nowhere is left for MkDocs to refuse.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
ELSEWHERE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "records.md": "records/README.md",
}
"""Page of the site → file of the project."""
STYLES = {"css/code-light.css": "default", "css/code-dark.css": "github-dark"}
"""Stylesheet → Pygments' style in it."""
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
TITLE = re.compile(r"^```(?P<language>\w+) title=\"(?P<title>[^\"]+)\"$", re.M)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere, and stylesheets for code."""
    for uri, path in ELSEWHERE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for uri, style in STYLES.items():
        rules = HtmlFormatter(style=style).get_style_defs(".codehilite")
        files.append(File.generated(config, uri, content=rules))
    if (ROOT / "report.html").exists():  # by make report
        files.append(File.generated(config, "report.html", abs_src_path=str(ROOT / "report.html")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to the site, and titles of blocks into lines of their own, which every Markdown shows."""
    parts = FENCED.split(markdown)  # every second one is code
    uri = page.file.src_uri
    return "".join(show_title(part) if odd % 2 else turn_links(part, uri) for odd, part in enumerate(parts))


def show_title(block: str) -> str:
    """A fenced block with its title, if it has one, above it."""
    return TITLE.sub(r'<p class="file-name">\g<title></p>\n\n```\g<language>', block, count=1)


def turn_links(markdown: str, uri: str) -> str:
    """Links of the page at `uri`, relative to its file in the repository → relative to the site."""
    source = ROOT / ELSEWHERE[uri] if uri in ELSEWHERE else DOCS / uri
    pages = {(ROOT / path).resolve(): page for page, path in ELSEWHERE.items()}

    def turn(link: re.Match[str]) -> str:
        target = (source.parent / link["path"]).resolve()
        if target in pages:
            to = pages[target]
        elif target.is_file() and target.is_relative_to(DOCS):
            to = target.relative_to(DOCS).as_posix()
        else:
            return link["text"] if target.exists() else link[0]
        path = os.path.relpath(to, Path(uri).parent)
        return f"{link['image']}[{link['text']}]({path}{link['anchor'] or ''})"

    return LINK.sub(turn, markdown)
