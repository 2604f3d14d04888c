"""Runs → how long `gonogo report` takes beside `gonogo evaluate`, how large its page is and when it is painted."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import describe_machine

REPEATS = 3
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def time_command(*words: str) -> float:
    """Seconds from the start of a command to its end, the median of some."""
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gonogo", *words], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def find_first_paint(page: Path, width: int) -> float | None:
    """Milliseconds in a browser, in a new profile; None where there is none."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        paints = []
        for _ in range(REPEATS):
            tab = browser.new_page(viewport={"width": width, "height": 900})
            tab.goto(f"file://{page}")
            tab.wait_for_selector("body[data-ready]")
            paints.append(tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            tab.close()
        browser.close()
    return statistics.median(paints)


def main() -> None:
    """Print a table."""
    runs = sys.argv[1] if len(sys.argv) > 1 else "records"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        baseline = time_command("evaluate", runs, "--json")
        taken = time_command("report", runs, "-o", str(page))
        size = page.stat().st_size
        print(f"gonogo report of {runs} on {describe_machine()}; medians of {REPEATS}.\n")
        print("| what | figure | must hold |\n|---|---:|---:|")
        print(f"| seconds, from the start of the command | {taken:.1f} | 5 |")
        print(f"| times gonogo evaluate --json | {taken / baseline:.1f} | |")
        print(f"| size, MB | {size / 1e6:.2f} | 3 |")
        for width in (360, 1280, 2560):
            paint = find_first_paint(page, width)
            told = "no browser" if paint is None else f"{paint:.0f}"
            print(f"| first paint at {width} px, ms | {told} | 1,500 |")


if __name__ == "__main__":
    main()
