"""A report, and the verdict on a faulty kernel → the pictures of both that the documents show: make screenshots."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

KERNEL = """
import torch

def softmax(x):
    y = torch.softmax(x.float(), -1)
    y[:, 1::2, 3::8] *= 1.01  # every second row, one lane of eight
    return y.to(x.dtype)
"""
SEED = "4"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main() -> None:
    """Take them all."""
    report, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        take(browser, f"file://{report}", folder / "report.png", height=1010)
        take(browser, f"file://{report}#op=softmax", folder / "report_dark.png", scheme="dark", within="#readings")
        verdict = write_verdict(Path(temporary))
        take(browser, f"file://{verdict}", folder / "verdict.png", within="#kernel-0", height=760)
        browser.close()


def write_verdict(folder: Path) -> Path:
    """The page of a kernel that is wrong in some rows and lanes."""
    (folder / "kernel.py").write_text(KERNEL)
    words = [
        "check",
        "kernel.py",
        "--op",
        "softmax",
        "--dtype",
        "float32",
        "--report",
        "verdict.html",
        "--seed",
        SEED,
    ]
    subprocess.run([sys.executable, "-m", "gonogo", *words], cwd=folder, check=False, stdout=subprocess.DEVNULL)
    page = folder / "verdict.html"
    page.write_text(page.read_text().replace(f"{folder}/", ""))  # where it was made is nobody's business
    return page


def take(
    browser: Browser, url: str, out: Path, *, scheme: str = "light", within: str = "", height: int | None = None
) -> None:
    """A picture of a page from its top, or of one section."""
    context = browser.new_context(viewport={"width": 1280, "height": height or 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    if within:
        box = page.locator(within).bounding_box()
        assert box is not None
        clip = {**box, "height": min(box["height"], height or 900)}
        page.screenshot(path=out, full_page=True, clip=clip)  # type: ignore[arg-type]
    else:
        page.screenshot(path=out)
    context.close()


if __name__ == "__main__":
    main()
