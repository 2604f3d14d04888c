"""A Markdown page → its fenced blocks; as a script, runs them in order in a folder, as a reader would.

    python tests/docs_page.py docs/tutorial.md            run the page in a new folder
    python tests/docs_page.py docs/tutorial.md --update   and write numbers that have changed into the page

Python runs in one namespace per page; a block with a title is a file to be written; `console` and `bash` blocks run
in bash. Output shown is compared: words and whole numbers must be equal, decimals agree to a factor of 2 (other
processors round otherwise), and … stands for anything. Notes before a block, as HTML comments:

    not run: REASON      it cannot run here
    exits: 1             of the last command
    output               what the Python block before printed
    from: PATH           an excerpt of a file of the project
    terminal: 80         a console block, run on a terminal of so many columns; it is shown whole, and fits them

Sessions of Python, `pycon`, are examples of docstrings: they are run where they stand, not here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUN = ("python", "bash", "console")
OTHER = ("text", "toml", "pycon")
FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?$")
NOTE = re.compile(r"^<!-- (?P<name>not run|exits|output|from|terminal)(?:: (?P<value>.+?))? -->$")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")
FRAMES = re.compile(r"[┏┓┳┡╇┩└┘┴├┼┤┌┐┬━─\s]*")
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\].*?(?:\x07|\x1b\\))")
"""What a terminal is sent and does not print: bold type, links."""
SIZED = ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Settings that would be believed before the terminal is."""
ANYTHING = "…"
HANGING = " " * 14
"""Before a line that goes on with the one above it."""
LARGEST_RATIO = 2.0


class Stale(AssertionError):
    """A page that does not say what happens."""


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    notes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether something happens when the page is run."""
        written = self.title or {"output", "from"} & set(self.notes)
        return "not run" not in self.notes and (self.language in RUN or bool(written))

    @property
    def columns(self) -> int | None:
        """Of the terminal it runs on; None where it is not run on one."""
        text = self.notes.get("terminal")
        if text is None:
            return None
        if self.language != "console" or not text.isdecimal() or int(text) == 0:
            raise Stale(f"{self}: the note terminal: COLUMNS is for a console block")
        return int(text)

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Commands, and lines that each prints; a bash block is one command that shows nothing."""
        if self.language == "bash":
            return [(self.text, [ANYTHING])]
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif not found:
                raise Stale(f"{self}: a console block begins with a command, after $")
            else:
                found[-1][1].append(line)
        return found


def parse_page(path: Path, name: str) -> list[Block]:
    """All fenced blocks. Refuses what would hide code: other languages, fences or code that are indented."""
    blocks: list[Block] = []
    opened: re.Match[str] | None = None
    start, body, notes, before = 0, [], {}, ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if opened is not None:
            if line == "```":
                text = "\n".join(body) + "\n"
                block = Block(name, start, opened["language"], opened["title"], text, notes)
                if block.columns is not None:
                    check_fits(block, block.columns)
                blocks.append(block)
                opened, notes = None, {}
            else:
                body.append(line)
        elif found := FENCE.match(line):
            if found["language"] not in RUN + OTHER:
                raise Stale(f"{name}:{number}: a block is one of {', '.join(RUN + OTHER)}")
            opened, start, body = found, number, []
        elif "```" in line:
            raise Stale(f"{name}:{number}: a fence starts at the first column: ```LANGUAGE or ```LANGUAGE title=…")
        elif line.startswith("    ") and not before.strip():
            raise Stale(f"{name}:{number}: indented code is never run; put it between fences")
        elif note := NOTE.match(line):
            notes[note["name"]] = note["value"] or ""
        elif line.strip() and notes:
            raise Stale(f"{name}:{number}: a note on a block, {notes}, and no block follows")
        before = line
    if opened is not None:
        raise Stale(f"{name}:{start}: a fence without an end")
    return blocks


def check_fits(block: Block, columns: int) -> None:
    """Refuse output that is wider than its terminal, or is not shown whole."""
    for command, shown in block.commands:
        for line in shown:
            if line.strip() == ANYTHING:
                raise Stale(f"{block}: what a terminal shows is shown whole, without a line {ANYTHING}: {command}")
            if (width := measure_width(line)) > columns:
                raise Stale(f"{block}: {width} columns on a terminal of {columns}: {line}")


def measure_width(line: str) -> int:
    """Columns that a line takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in line)
    return len(line) + wide - sum(unicodedata.combining(letter) != 0 for letter in line)


def run_command(command: str, columns: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a line of bash; on a terminal of so many columns where some are given, stderr apart in any case."""
    bash = ["bash", "-euo", "pipefail", "-c", command]
    if columns is None:
        return subprocess.run(bash, capture_output=True, text=True)
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    settings = {name: value for name, value in os.environ.items() if name not in SIZED}
    settings |= {"TERM": "xterm", "NO_COLOR": "1"}
    pieces: list[bytes] = []
    reading = threading.Thread(target=lambda: pieces.extend(iter(lambda: _read_terminal(ours), b"")))
    with os.fdopen(ours, "rb", buffering=0):
        try:
            process = subprocess.Popen(
                bash, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, env=settings
            )
        finally:
            os.close(theirs)  # or the end would never be seen
        reading.start()
        _, errors = process.communicate()
        reading.join()
    printed = b"".join(pieces).decode(errors="replace").replace("\r\n", "\n")
    return subprocess.CompletedProcess(
        bash, process.returncode, ESCAPES.sub("", printed), errors.decode(errors="replace")
    )


def _read_terminal(descriptor: int) -> bytes:
    """The next piece of what was printed; nothing once all who could print have ended."""
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how Linux says so
        return b""


def join_hanging(lines: Sequence[str]) -> list[str]:
    """Lines with those that hang below them, by so many blanks, on the same line."""
    joined: list[str] = []
    for line in lines:
        if line.startswith(HANGING) and joined:
            joined[-1] = joined[-1].removesuffix(" \\") + f" {line.strip()}"  # as a shell does
        else:
            joined.append(line)
    return joined


def compare_output(shown: Sequence[str], printed: str, where: str) -> None:
    """Raise where a page shows something else than was printed."""
    want, got = _normalise(shown), _normalise(printed.splitlines())
    if _align(want, got, is_same_line) is None:
        raise Stale(f"{where}: shown\n" + "\n".join(want) + "\n\nprinted\n" + printed)


def renew_output(shown: Sequence[str], printed: str) -> list[str]:
    """The lines shown with the numbers that were printed, where these differ and the words do not."""
    got = _normalise(printed.splitlines())
    pairs = _align(_normalise(shown), got, lambda want, line: _find_numbers(want, line) is not None)
    if pairs is None:
        return list(shown)
    places = [place for place, line in enumerate(shown) if not FRAMES.fullmatch(line)]
    renewed = list(shown)
    for want, line in pairs.items():
        place = places[want]
        if not is_same_line(_normalise([shown[place]])[0], got[line]):
            numbers = iter(_find_numbers(_normalise([shown[place]])[0], got[line]) or ())
            renewed[place] = NUMBER.sub(lambda _, numbers=numbers: next(numbers), shown[place])
    return renewed


def _normalise(lines: Sequence[str]) -> list[str]:
    """Without frames, empty lines and runs of blanks: the width of a table depends on its numbers."""
    return [" ".join(line.replace("┃", "│").split()) for line in lines if not FRAMES.fullmatch(line)]


def _align(want: list[str], got: list[str], same: Callable[[str, str], bool]) -> dict[int, int] | None:
    """Which line each line of `want` is, where all of both have one; … is any number of lines."""
    if not want:
        return None if got else {}
    if want[0] == ANYTHING:
        for skipped in range(len(got) + 1):
            if (rest := _align(want[1:], got[skipped:], same)) is not None:
                return {place + 1: line + skipped for place, line in rest.items()}
        return None
    if not got or not same(want[0], got[0]) or (rest := _align(want[1:], got[1:], same)) is None:
        return None
    return {0: 0} | {place + 1: line + 1 for place, line in rest.items()}


def is_same_line(want: str, got: str) -> bool:
    """Whether words and whole numbers are equal, and decimals to a factor of 2."""
    numbers = _find_numbers(want, got)
    return numbers is not None and all(map(_is_same_number, NUMBER.findall(want), numbers))


def _find_numbers(want: str, got: str) -> tuple[str, ...] | None:
    """Numbers of `got` in the places where `want` has one; None where the words differ."""
    parts = NUMBER.split(want)
    pattern = re.escape(parts[0]) + "".join(f"({NUMBER.pattern}){re.escape(part)}" for part in parts[1:])
    found = re.fullmatch(pattern.replace(re.escape(ANYTHING), ".*"), got)
    return found and found.groups()


def _is_same_number(want: str, got: str) -> bool:
    if want == got or not re.search(r"[.eE]", want + got):
        return want == got
    first, second = (float(text.replace(",", "")) for text in (want, got))
    return first * second > 0 and 1 / LARGEST_RATIO <= first / second <= LARGEST_RATIO


@dataclass
class Reader:
    """Runs a page's blocks in the current folder."""

    project: Path
    update: bool = False
    printed: str = ""
    """By the Python block before."""
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})
    renewed: dict[str, str] = field(default_factory=dict)
    """Text of a block → what it should be."""

    def run(self, blocks: Sequence[Block]) -> list[int]:
        """Lines of the blocks that did something."""
        return [block.line for block in blocks if "not run" not in block.notes and self._run_block(block)]

    def _run_block(self, block: Block) -> bool:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile("\n" * block.line + block.text, block.page, "exec"), self.namespace)
            self.printed = stream.getvalue()
        elif block.language in RUN:
            self._run_commands(block)
        elif "output" in block.notes:
            lines = self._compare(block.text.splitlines(), self.printed, str(block))
            self.renewed[block.text] = "\n".join(lines) + "\n"
        elif "from" in block.notes:
            if block.text not in (self.project / block.notes["from"]).read_text(encoding="utf-8"):
                raise Stale(f"{block}: is not in {block.notes['from']}")
        else:
            return False
        return True

    def _run_commands(self, block: Block) -> None:
        lines = []
        for place, (command, shown) in enumerate(block.commands, start=1):
            ran = run_command(command, block.columns)
            wanted = int(block.notes.get("exits", "0")) if place == len(block.commands) else 0
            if ran.returncode != wanted:
                raise Stale(f"{block}: exit code {ran.returncode}\n{command}\n{ran.stdout}{ran.stderr}")
            where = f"{block}: {command}"
            if block.columns is None:
                lines += [f"$ {command}", *self._compare(shown, ran.stdout, where)]
            else:  # where a line is broken depends on the machine's name, and on paths
                compare_output(join_hanging(shown), "\n".join(join_hanging(ran.stdout.splitlines())), where)
                lines += [f"$ {command}", *shown]
        if block.language == "console":
            self.renewed[block.text] = "\n".join(lines) + "\n"

    def _compare(self, shown: Sequence[str], printed: str, where: str) -> list[str]:
        lines = renew_output(shown, printed) if self.update else list(shown)
        compare_output(lines, printed, where)
        return lines


def set_up_reader(folder: Path, project: Path) -> None:
    """Give the folder what a clone has, and this process the environment of a reader without a GPU."""
    for there in ("records", "docs", "examples"):
        (folder / there).symlink_to(project / there)
    for name in [name for name in os.environ if name.startswith(("TRITON_", "PYTEST_"))]:
        del os.environ[name]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # A reader's project has no Hypothesis, which takes a second to load.
    os.environ.update(PATH=path, CUDA_VISIBLE_DEVICES="", COLUMNS="200", PYTEST_ADDOPTS="-p no:hypothesispytest")


def main() -> None:
    """Run a page."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--update", action="store_true", help="write numbers that have changed into the page")
    parser.add_argument("--lines", type=Path, help="write the lines of blocks that ran there, as JSON")
    given = parser.parse_args()
    page, project = given.page.resolve(), Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        set_up_reader(Path(folder), project)
        reader = Reader(project, given.update)
        lines = given.lines.resolve() if given.lines else None
        with contextlib.chdir(folder):
            sys.path.insert(0, folder)
            ran = reader.run(parse_page(page, str(page.relative_to(project))))
    if lines:
        lines.write_text(json.dumps(ran), encoding="utf-8")
    if given.update:
        text = page.read_text(encoding="utf-8")
        for old, new in reader.renewed.items():
            text = text.replace(f"\n{old}```\n", f"\n{new}```\n")
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
