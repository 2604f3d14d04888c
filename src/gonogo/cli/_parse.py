"""What commands share before they do anything: words, examples in --help, places to write to, missing packages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from gonogo.errors import BackendMissing, InputError, suggest


def split_words(text: str) -> tuple[str, ...]:
    """A list with commas → its words."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def check_recorded(what: str, words: Sequence[str], known: Collection[str]) -> None:
    """Refuse a word that no record has; a near one is suggested."""
    there = sorted(known)
    for word in words:
        if word not in known:
            near = suggest(word, there)
            listed = f"{near} There are: " if near else "; there are: "
            raise InputError(f"no record has {what} {word!r}{listed}{', '.join(there)}")


def show_examples(*lines: str) -> str:
    """The end of a command's --help; the mark keeps click from wrapping lines that are to be pasted."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


@contextmanager
def need_backend(command: str) -> Iterator[None]:
    """Around imports: a package that is missing is said in one line, with the command that gets it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise BackendMissing(str(error.name), command) from None


@contextmanager
def write_to(path: Path) -> Iterator[None]:
    """Around writing to a place that the user chose: what the system refuses there is said in one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}. Choose another place") from None


def prepare_folder(folder: Path) -> None:
    """Make a folder to write to, and its parents; refuse one that takes no files before work is done, not after."""
    with write_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):  # modes do not tell it: a file system may be read-only, or full
            pass


def prepare_file(path: Path) -> None:
    """Make the folder of a file to write; refuse a path that takes no file before work is done, not after."""
    with write_to(path):
        if path.is_dir():
            raise InputError(f"cannot write to {path}: it is a folder. Name a file in it")
    prepare_folder(path.parent)
